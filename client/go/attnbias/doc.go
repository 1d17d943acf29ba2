// SPDX-License-Identifier: Apache-2.0

// Package attnbias fetches position tensors for Transformer models from an attnbias server: T5,
// ALiBi and other biases, rotary and sinusoidal tables, positional logits. Checksums cover every
// byte.
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
// path, such as spec.pair.key_length. [InlineTable] puts a learned table into a request.
//
// [Client.Get] returns a [Tensor]: a header and bytes. [AsArray], [AsToeplitz], [AsKeyRow],
// [AsBlockToeplitz], [AsBorderedToeplitz] and [AsGridTable] view its elements without copying. The
// type argument must match the requested element type: float64, float32 (the default), [Float16],
// [BFloat16], or int32 for indices. Indices h, i and j are a head, a query and a key, counted from
// the start of the requested window. As with slices, an out-of-range index panics.
//
// A call costs more than slicing: fetch once at the maximum length and take windows. Never make one
// call per decoded token.
//
// # Errors
//
// Calls fail with an [*Error], which holds the server's code, message, reason and details.
// [errors.Is] matches it against sentinels such as [ErrNotFound], context.Canceled and
// context.DeadlineExceeded.
//
// Transient errors are retried, after any delay that the server requests, until the context ends or
// the timeout set by [WithTimeout] expires; a broken stream resumes at the byte where it broke. A
// client that has not yet reached its server fails after the timeout set by [WithConnectTimeout].
// Calls are spread over all addresses of the target.
//
// # gRPC
//
// Calls send the outgoing metadata from their context. gRPC-Go resolves a name at most once every
// 30 s; SetMinResolutionInterval in [google.golang.org/grpc/resolver/dns] changes that for all
// connections in the program.
package attnbias
