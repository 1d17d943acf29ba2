// SPDX-License-Identifier: Apache-2.0

package attnbias_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/attnbias/attnbias/client/go/attnbias"
	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// newClient returns a client for the server that the environment names.
func newClient() *attnbias.Client {
	return must(attnbias.New("", attnbias.WithTimeout(time.Minute)))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// A bias over 4096 queries and keys takes up only the memory of its diagonals.
func Example() {
	client, err := attnbias.New("")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	tensor, err := client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 32}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
			QueryLength: 4096, KeyLength: 4096,
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	bias, err := attnbias.AsToeplitz[float32](tensor)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bias.Heads(), bias.Queries(), bias.Keys(), len(tensor.Bytes()), "bytes")
	fmt.Println(bias.Row(31, 0)[:4])
	// Output:
	// 32 4096 4096 1048448 bytes
	// [0 -0.00390625 -0.0078125 -0.01171875]
}

// A causal window in the middle of a long sequence, dense and in BF16.
func ExampleClient_Get() {
	client := newClient()
	defer client.Close()
	tensor := must(client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 8}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
			QueryLength: 65536, Queries: &pb.Range{Begin: 60000, End: 60002},
			KeyLength: 65536, Keys: &pb.Range{Begin: 59998, End: 60002},
		}},
		Output: &pb.Output{
			DataType: pb.DataType_DATA_TYPE_BF16,
			Form:     pb.Form_FORM_DENSE,
			Mask:     &pb.Mask{Causal: true},
		},
	}))
	bias := must(attnbias.AsArray[attnbias.BFloat16](tensor, "dense"))
	for _, number := range bias.Row(0, 0) { // head 0, query 60000
		fmt.Println(number.Float32())
	}
	// Output:
	// -1
	// -0.5
	// 0
	// -Inf
}

// A learned table is sent with the request.
func ExampleInlineTable() {
	client := newClient()
	defer client.Close()
	weights := make([]attnbias.BFloat16, 32*8) // [num_buckets, num_heads]
	for i := range weights {
		weights[i] = attnbias.ToBFloat16(float32(i) / 8)
	}
	tensor := must(client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_T5{T5: &pb.T5{
			NumHeads: 8, Bidirectional: proto.Bool(true),
			Table: attnbias.InlineTable(weights, 32, 8),
		}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: 512, KeyLength: 512}},
		Output: &pb.Output{DataType: pb.DataType_DATA_TYPE_BF16},
	}))
	bias := must(attnbias.AsToeplitz[attnbias.BFloat16](tensor))
	// Distance 5 falls into bucket 5, which for head 0 is element 40 of the table.
	fmt.Println(bias.At(0, 15, 10).Float32())
	// Output: 5
}

// A decoder fetches a bias once and uses one row of it for each new query.
func ExampleToeplitz_Window() {
	client := newClient()
	defer client.Close()
	tensor := must(client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 8}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
			QueryLength: 2048, KeyLength: 2048,
		}},
	}))
	bias := must(attnbias.AsToeplitz[float32](tensor))
	step := must(bias.Window(attnbias.Window{
		Queries: attnbias.Span{Begin: 100, End: 101},
		Keys:    attnbias.Span{Begin: 0, End: 101},
	}))
	row := step.Row(0, 0)
	fmt.Println(len(row), row[98:])
	// Output: 101 [-1 -0.5 0]
}

// Tables are arrays that are accessed by name.
func ExampleAsArray() {
	client := newClient()
	defer client.Close()
	tensor := must(client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Rotary{Rotary: &pb.Rotary{HeadDim: 64}},
		Extent: &pb.TensorSpec_Table{Table: &pb.TableExtent{
			Positions: &pb.Range{End: 1024},
		}},
	}))
	cos := must(attnbias.AsArray[float32](tensor, "cos"))
	fmt.Println(cos.Shape, cos.Row(1)[0])
	// Output: [1024 64] 0.5403023
}

// Caller-owned memory, reused for each tensor.
func ExampleGetInto() {
	client := newClient()
	defer client.Close()
	numbers := make([]float32, 8*8)
	_, err := attnbias.GetInto(context.Background(), client, &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 1}},
		Extent:   &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: 8, KeyLength: 8}},
		Output:   &pb.Output{Form: pb.Form_FORM_DENSE},
	}, numbers)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(numbers[:3])
	// Output: [0 -0.00390625 -0.0078125]
}

// Errors match sentinels, and contain details such as the invalid fields.
func ExampleError() {
	client := newClient()
	defer client.Close()
	_, err := client.Get(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 8}},
		Extent:   &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: 4, KeyLength: -1}},
	})
	fmt.Println(errors.Is(err, attnbias.ErrInvalidArgument))
	var failure *attnbias.Error
	if errors.As(err, &failure) {
		for _, violation := range failure.FieldViolations {
			fmt.Println(violation.Field, violation.Description)
		}
	}
	// Output:
	// true
	// spec.pair.key_length got -1, want an integer in [1, 2^40]
}

// TLS, with a token from a file.
func ExampleNew() {
	client, err := attnbias.New("attnbias.example",
		attnbias.WithTLS(attnbias.TLS{CA: "/no/ca.pem"}),
		attnbias.WithTokenFile("/run/secrets/attnbias-token"),
	)
	if errors.Is(err, attnbias.ErrInvalidArgument) {
		fmt.Println(err)
		return
	}
	defer client.Close()
	// Output: attnbias: InvalidArgument: TLS.CA: open /no/ca.pem: no such file or directory
}

// A decoder's rows, one at a time over one stream.
func ExampleLogits() {
	client := newClient()
	defer client.Close()
	table := []float32{0.5, 1, 2} // for relative positions -1, 0 and 1; one column
	logits := must(attnbias.NewLogits[float32, float32](client, &pb.LogitsSpec{
		Term: &pb.LogitsSpec_ShawKeys{ShawKeys: &pb.RelativeTable{
			Table: attnbias.InlineTable(table, 3, 1), Left: proto.Int64(1), Right: proto.Int64(1),
		}},
		NumHeads: 1, HeadDim: 1, QueryLength: 3, KeyLength: 3,
		Direction: pb.Direction_DIRECTION_LEFT_TO_RIGHT,
	}))
	defer logits.Close()
	for i, query := range []float32{1, 2, 3} {
		row := must(logits.Rows(context.Background(), int64(i), 1, []float32{query}))
		fmt.Println(row)
	}
	// Output:
	// [1 -Inf -Inf]
	// [1 2 -Inf]
	// [1.5 1.5 3]
}

// The payload is described before anything is computed or sent.
func ExampleClient_Describe() {
	client := newClient()
	defer client.Close()
	header, err := client.Describe(context.Background(), &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 8}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
			QueryLength: 1 << 20, KeyLength: 1 << 20,
		}},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(header.Parts[0].Name, header.Parts[0].Shape, header.TotalBytes)
	// Output: diagonals [8 2097151] 67108832
}
