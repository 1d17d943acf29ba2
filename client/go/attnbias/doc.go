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
// A request is an [attnbiaspb.TensorSpec], whose fields are documented there. Errors name fields by
// their path, such as spec.pair.key_length. [InlineTable] makes a learned table.
//
// [Client.Get] returns a [Tensor]: a header and bytes. [AsArray], [AsToeplitz], [AsKeyRow],
// [AsBlockToeplitz], [AsBorderedToeplitz] and [AsGridTable] view its elements without copying. The
// type argument is the element type of the request: float64, float32 (the default), [Float16],
// [BFloat16], or int32 for indices. Indices h, i and j are a head, a query and a key, counted from
// the beginning of the requested window. As with a slice, an index out of range panics.
//
// A call costs more than slicing: fetch once at the maximum length and take windows. Never make one
// call per decoded token.
//
// # Errors
//
// Calls fail with an [*Error], which has the server's code, message, reason and details.
// [errors.Is] matches the sentinels, such as [ErrNotFound], context.Canceled and
// context.DeadlineExceeded.
//
// Transient errors are retried, after the delay that the server requests, until the context ends
// or [WithTimeout] expires; a broken stream resumes at the byte where it broke. A client that has
// not yet reached its server fails after [WithConnectTimeout]. Calls are spread over the addresses
// of a target.
//
// # gRPC
//
// Calls carry the outgoing metadata of their context. gRPC-Go resolves a name at most every 30 s;
// SetMinResolutionInterval of [google.golang.org/grpc/resolver/dns] changes that for all
// connections of a program.
package attnbias
