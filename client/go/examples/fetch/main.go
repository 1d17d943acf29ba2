// SPDX-License-Identifier: Apache-2.0

// Command fetch reads two tensors from a server: a small one in one message and
// a larger one as a stream, both checked against their checksums. Calls that
// fail are made again until the time is over; a stream goes on where it broke.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// The ALiBi bias of eight heads over four queries and four keys: 224 bytes.
var alibi = &pb.TensorSpec{
	Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 8}},
	Extent:   &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: 4, KeyLength: 4}},
}

// A sinusoidal table of 4096 positions and 512 columns: 8 MiB.
var sinusoidal = &pb.TensorSpec{
	Encoding: &pb.TensorSpec_Sinusoidal{Sinusoidal: &pb.Sinusoidal{
		Dim: 512, Base: proto.Float64(10000),
	}},
	Extent: &pb.TensorSpec_Table{Table: &pb.TableExtent{
		Positions: &pb.Range{Begin: 0, End: 4096},
	}},
}

func main() {
	server := flag.String("server", "localhost", "where the server is; without a port, at 50051")
	timeout := flag.Duration("timeout", 10*time.Second, "time for the whole program")
	who := securityFlags(flag.CommandLine)
	flag.Parse()

	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := run(ctx, *server, *who); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, server string, who security) error {
	connection, err := dial(server, who)
	if err != nil {
		return err
	}
	defer connection.Close()
	client := pb.NewAttentionBiasServiceClient(connection)

	small, err := getTensor(ctx, client, alibi)
	if err != nil {
		return fmt.Errorf("alibi: %w", err)
	}
	report(small)
	fmt.Println("head 0:", floats(small.data)[:7])

	large, err := streamTensor(ctx, client, sinusoidal)
	if err != nil {
		return fmt.Errorf("sinusoidal: %w", err)
	}
	report(large)
	return nil
}

func report(t *tensor) {
	part := t.header.Parts[0]
	fmt.Printf("%s %v %s: %d bytes, fingerprint %s\n",
		part.Name, part.Shape, part.DataType, len(t.data), t.header.Fingerprint)
}

// floats reads little-endian float32 numbers.
func floats(data []byte) []float32 {
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values
}
