// SPDX-License-Identifier: Apache-2.0

// Command fetch gets the bias of a T5 encoder from the server that ATTNBIAS_SERVER names, and checks
// it: keys that are at most 7 before a query have a bucket each, the distance; those from 128 on, the
// last one.
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
	table := make([]float32, buckets*heads) // a checkpoint's relative_attention_bias.weight
	for i := range table {
		table[i] = float32(i)
	}
	client, err := attnbias.New("")
	check(err)
	defer client.Close()
	tensor, err := client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_T5{T5: &pb.T5{
			NumHeads: heads, Bidirectional: new(true), Table: attnbias.InlineTable(table, buckets, heads),
		}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: length, KeyLength: length}},
	})
	check(err)
	bias, err := attnbias.AsToeplitz[float32](tensor)
	check(err)
	for h := range heads {
		for distance, bucket := range map[int]int{0: 0, 1: 1, 7: 7, 128: 15, 1023: 15} {
			if got := bias.At(h, 1023, 1023-distance); got != table[bucket*heads+h] {
				log.Fatalf("head %d, distance %d: got %v", h, distance, got)
			}
		}
	}
	fmt.Println("T5's bias for", bias.Queries(), "queries is right; fingerprint", tensor.Fingerprint())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
