// SPDX-License-Identifier: Apache-2.0

// Package attnbias fetches position tensors of Transformer models from an attnbias server: T5,
// ALiBi and other biases, rotary and sinusoidal tables, positional logits. Every byte is checked.
//
//	client, err := attnbias.New("localhost:50051")
//	tensor, err := client.Get(ctx, &attnbiaspb.TensorSpec{
//		Encoding: &attnbiaspb.TensorSpec_Alibi{Alibi: &attnbiaspb.Alibi{NumHeads: 8}},
//		Extent: &attnbiaspb.TensorSpec_Pair{Pair: &attnbiaspb.PairExtent{
//			QueryLength: 4, KeyLength: 4,
//		}},
//	})
//	bias, err := attnbias.AsToeplitz[float32](tensor)
//	fmt.Println(bias.At(0, 3, 1)) // head 0, query 3, key 1
//
// A request is the contract's own message, [attnbiaspb.TensorSpec]: each of its fields is described
// where protoc has put it, and errors name fields by their path there, as spec.pair.key_length.
// [InlineTable] makes the one message that is unwieldy, a learned table.
//
// [Client.Get] gives a [Tensor]: a header and bytes. [AsArray], [AsToeplitz], [AsKeyRow],
// [AsBlockToeplitz], [AsBorderedToeplitz] and [AsGridTable] read its numbers where they lie,
// without a copy. The type argument is the element type that was asked for: float64, float32 (the
// default), [Float16], [BFloat16], or int32 for indices. Indices h, i and j are a head, a query and
// a key, counted from the beginning of the window that was asked for. As with a slice, one that is
// out of range panics.
//
// A call costs more than a slice: fetch once at the greatest length and cut windows. Never call
// once per decoded token.
//
// # Errors
//
// What fails is an [*Error], which has the server's code, message, reason and more. [errors.Is]
// knows the sentinels, as [ErrNotFound], and context.Canceled and context.DeadlineExceeded.
//
// Calls are made again where that helps, as soon as the server wants it, until the context ends or
// the time of [WithTimeout] is over; a broken stream goes on at the byte where it broke. A client
// that has not reached its server yet gives up after [WithConnectTimeout]. All calls share their
// load among the addresses of a target.
//
// # gRPC
//
// Calls carry the outgoing metadata of their context. gRPC-Go looks a name up at most every 30 s; a
// program changes that, for all its connections, by SetMinResolutionInterval of
// [google.golang.org/grpc/resolver/dns].
package attnbias
