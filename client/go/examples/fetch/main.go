// SPDX-License-Identifier: Apache-2.0

// Command fetch requests a T5 encoder's bias from the server named by ATTNBIAS_SERVER and checks
// it: keys up to 7 positions before the query have one bucket per distance, and keys 128 or more
// positions before it share the last bucket.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/attnbias/attnbias/client/go/attnbias"
	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const heads, buckets, length = 8, 32, 1024

func main() {
	table := make([]float32, buckets*heads) // relative_attention_bias.weight from a checkpoint
	for i := range table {
		table[i] = float32(i)
	}
	client := must(attnbias.New(""))
	defer client.Close()
	tensor := must(client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_T5{T5: &pb.T5{NumHeads: heads, Bidirectional: new(true),
			Table: attnbias.InlineTable(table, buckets, heads)}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: length, KeyLength: length}},
	}))
	bias := must(attnbias.AsToeplitz[float32](tensor))
	for distance, bucket := range map[int]int{0: 0, 1: 1, 7: 7, 128: 15, 1023: 15} {
		if got := bias.At(2, 1023, 1023-distance); got != table[bucket*heads+2] {
			log.Fatalf("distance %d: got %v, want bucket %d", distance, got, bucket)
		}
	}
	fmt.Println("T5's bias is right, fingerprint", tensor.Fingerprint())
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
