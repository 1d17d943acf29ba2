// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// specOf parses a request in protobuf's text format.
func specOf(t *testing.T, text string) *pb.TensorSpec {
	t.Helper()
	spec := &pb.TensorSpec{}
	if err := prototext.Unmarshal([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// counting returns a table of distinct values that F16 represents exactly.
func counting(shape ...int64) *pb.TableRef {
	size := int64(1)
	for _, length := range shape {
		size *= length
	}
	numbers := make([]float32, size)
	for i := range numbers {
		numbers[i] = float32(i) + 1
	}
	return InlineTable(numbers, shape...)
}

func get(t *testing.T, client *Client, spec *pb.TensorSpec) *Tensor {
	t.Helper()
	tensor, err := client.Get(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return tensor
}

// dense fetches a tensor in dense form.
func dense[T Element](t *testing.T, client *Client, spec *pb.TensorSpec) Array[T] {
	t.Helper()
	spec = proto.CloneOf(spec)
	if spec.Output == nil {
		spec.Output = &pb.Output{}
	}
	spec.Output.Form = pb.Form_FORM_DENSE
	array, err := AsArray[T](get(t, client, spec), "dense")
	if err != nil {
		t.Fatal(err)
	}
	return array
}

// view is the interface that all structures over pairs implement.
type view[T Element] interface {
	Heads() int
	Queries() int
	Keys() int
	At(h, i, j int) T
}

// expectDense compares a window that begins at head, query and key with the dense tensor.
func expectDense[T Element](t *testing.T, got view[T], want Array[T], head, query, key int) {
	t.Helper()
	for h := range got.Heads() {
		for i := range got.Queries() {
			for j := range got.Keys() {
				if at, is := got.At(h, i, j), want.At(h+head, i+query, j+key); at != is {
					t.Fatalf("head %d, query %d, key %d: got %v, want %v", h, i, j, at, is)
				}
			}
		}
	}
}

// windowed is the interface of a structure whose windows have type V.
type windowed[T Element, V any] interface {
	view[T]
	Window(Window) (V, error)
}

// expectWindows compares a structure, a window of it and a window of that window with the dense
// tensor. The structure must have at least 2 heads, 6 queries and 7 keys. expectWindows returns the
// structure and the inner window.
func expectWindows[T Element, V windowed[T, V]](
	t *testing.T, spec *pb.TensorSpec, as func(*Tensor) (V, error),
) (whole, inner V) {
	t.Helper()
	client := realClient(t)
	want := dense[T](t, client, spec)
	whole, err := as(get(t, client, spec))
	if err != nil {
		t.Fatal(err)
	}
	expectDense(t, whole, want, 0, 0, 0)
	part, err := whole.Window(Window{Heads: Span{1, 2}, Queries: Span{1, 5}, Keys: Span{0, 6}})
	if err != nil {
		t.Fatal(err)
	}
	expectDense(t, part, want, 1, 1, 0)
	inner, err = part.Window(Window{Queries: Span{1, 4}, Keys: Span{2, 6}})
	if err != nil {
		t.Fatal(err)
	}
	expectDense(t, inner, want, 1, 2, 2)
	return whole, inner
}

func TestToeplitzMatchesDenseTensor(t *testing.T) {
	for _, extent := range []string{
		"pair { query_length: 6 key_length: 9 alignment: ALIGNMENT_END }",
		"pair { query_length: 9 key_length: 9 queries { begin: 2 end: 8 } }",
		"pair { query_length: 9 key_length: 9 } output { mask { causal: true } }",
		"pair { query_positions { positions: [4, 5, 6, 7, 8, 9] } key_length: 9 }",
		"pair { query_length: 7 key_length: 7 heads { begin: 1 end: 3 } }",
	} {
		spec := specOf(t, "alibi { num_heads: 3 } "+extent)
		whole, part := expectWindows(t, spec, AsToeplitz[float32])
		// The part's last query is query 4, and its first key is key 2.
		first := whole.FirstRelativePosition() + int64(whole.Queries()-5) + 2
		if part.FirstRelativePosition() != first {
			t.Errorf("got first relative position %d, want %d", part.FirstRelativePosition(), first)
		}
		for i := range part.Queries() {
			for j, number := range part.Row(0, i) {
				if number != part.At(0, i, j) || part.Vector(0, i, j)[0] != number ||
					part.Diagonals(0)[j-i+part.Queries()-1] != number {
					t.Errorf("query %d, key %d: got %v, want %v", i, j, number, part.At(0, i, j))
				}
			}
		}
	}
}

func TestReadsEveryElementType(t *testing.T) {
	client := realClient(t)
	tensor := func(name string) *Tensor {
		return get(t, client, specOf(t, "alibi { num_heads: 2 } pair { query_length: 7 "+
			"key_length: 7 } output { data_type: DATA_TYPE_"+name+" }"))
	}
	double, err := AsToeplitz[float64](tensor("F64"))
	single, errSingle := AsToeplitz[float32](tensor("F32"))
	half, errHalf := AsToeplitz[Float16](tensor("F16"))
	brain, errBrain := AsToeplitz[BFloat16](tensor("BF16"))
	if err = errors.Join(err, errSingle, errHalf, errBrain); err != nil {
		t.Fatal(err)
	}
	for j := range 7 {
		want := -float64(6-j) / 256 // the slope of head 1 is 2^-8
		for name, got := range map[string]float64{
			"F64": double.At(1, 6, j), "F32": float64(single.At(1, 6, j)),
			"F16":  float64(half.At(1, 6, j).Float32()),
			"BF16": float64(brain.At(1, 6, j).Float32()),
		} {
			if got != want {
				t.Errorf("%s, key %d: got %v, want %v", name, j, got, want)
			}
		}
	}
	_, err = AsToeplitz[float32](tensor("BF16"))
	const want = "element type: got float32, want the tensor's type, DATA_TYPE_BF16"
	expectError(t, err, ErrInvalidArgument, want)
}

func TestBucketIndicesHaveNoHeadAxis(t *testing.T) {
	const buckets = " output { values: VALUES_BUCKETS }"
	expectIndices(t, "t5 { num_heads: 2 bidirectional: true } "+
		"pair { query_length: 40 key_length: 30 alignment: ALIGNMENT_START }"+buckets,
		AsToeplitz[int32])
	for _, classToken := range []string{"false", "true"} {
		expectIndices(t, "grid_relative { window: [2, 3] class_token: "+classToken+" }"+buckets,
			AsBlockToeplitz[int32])
	}
}

func expectIndices[V view[int32]](t *testing.T, text string, as func(*Tensor) (V, error)) {
	t.Helper()
	client, spec := realClient(t), specOf(t, text)
	got, err := as(get(t, client, spec))
	if err != nil {
		t.Fatal(err)
	}
	want := dense[int32](t, client, spec)
	if got.Heads() != 1 || len(want.Shape) != 2 {
		t.Fatalf("%s: got %d heads, and dense %v", text, got.Heads(), want.Shape)
	}
	want.Shape = append([]int{1}, want.Shape...)
	expectDense(t, got, want, 0, 0, 0)
}

func TestKeyRowMatchesDenseTensor(t *testing.T) {
	_, part := expectWindows(t, specOf(t, "alibi { num_heads: 3 variant: "+
		"ALIBI_VARIANT_KEY_FROM_START } pair { query_length: 6 key_length: 9 "+
		"alignment: ALIGNMENT_END }"), AsKeyRow[float32])
	if row := part.Row(0, 2); len(row) != 4 || row[3] != part.At(0, 2, 3) {
		t.Errorf("got row %v", row)
	}
}

func TestBlockToeplitzMatchesDenseTensor(t *testing.T) {
	for _, grid := range []struct {
		fields, extent string
		rows           int64 // length of the table's first axis
	}{
		{"window: [2, 4]", "", 21},
		{"window: [2, 4] class_token: true", "", 24},
		{"window: [2, 4] class_token: true", "heads { begin: 1 end: 3 }", 24},
		{"window: [2, 3, 2] class_token: true", "", 48},
		{"window: [2, 3, 2] class_token: true", "query_stride: [1, 2, 1]", 48},
	} {
		spec := specOf(t, "grid_relative { "+grid.fields+" } grid { "+grid.extent+" }")
		spec.GetGridRelative().Table = counting(grid.rows, 3)
		expectWindows(t, spec, AsBlockToeplitz[float32])
	}
}

func TestBorderedToeplitzMatchesDenseTensor(t *testing.T) {
	for _, extent := range []string{
		"", "queries { begin: 1 end: 8 }", "keys { begin: 2 end: 9 }",
	} {
		spec := specOf(t, "tupe { num_heads: 3 num_buckets: 8 max_distance: 16 "+
			"reset_class_token: true } pair { query_length: 9 key_length: 9 "+extent+"}")
		spec.GetTupe().RelativeTable = counting(9, 3)
		expectWindows(t, spec, AsBorderedToeplitz[float32])
	}
}

func TestArrayReturnsRows(t *testing.T) {
	client := realClient(t)
	tensor := get(t, client, specOf(t, "sinusoidal { dim: 4 } table { positions { end: 3 } }"))
	table, err := AsArray[float32](tensor, "positions")
	if err != nil {
		t.Fatal(err)
	}
	if row := table.Row(1); !slices.Equal(table.Shape, []int{3, 4}) || len(row) != 4 ||
		row[0] != float32(math.Sin(1)) || row[0] != table.At(1, 0) {
		t.Fatalf("got shape %v, row %v", table.Shape, row)
	}
	_, err = AsArray[float32](tensor, "cos")
	expectError(t, err, ErrInvalidArgument, `"cos", want one of the tensor's parts: positions`)
	expectPanic(t, "got 1 indices, want one for each axis of [3 4]", func() { table.At(1) })
	expectPanic(t, "got 2 indices", func() { table.Row(1, 2) })
	expectPanic(t, "index out of range: got 3, want an integer in", func() { table.Row(3) })
}

func TestGridTableMatchesDenseTable(t *testing.T) {
	client := realClient(t)
	spec := specOf(t, "rotary { head_dim: 8 axes {} axes {} axes {} pair_axis: [0, 1, 2, 0] } "+
		"table { grid: [2, 3, 4] grid_offset: [5, -1, 0] }")
	byAxis := get(t, client, spec)
	spec.Output = &pb.Output{Form: pb.Form_FORM_DENSE}
	whole := get(t, client, spec)
	for _, name := range []string{"cos", "sin"} {
		got, err := AsGridTable[float32](byAxis, name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := AsArray[float32](whole, name)
		if err != nil {
			t.Fatal(err)
		}
		if got.Tokens() != 24 || got.Columns() != 8 || !slices.Equal(want.Shape, []int{24, 8}) {
			t.Fatalf("got %d tokens, %d columns, want %v", got.Tokens(), got.Columns(), want.Shape)
		}
		for token := range 24 {
			for column := range 8 {
				if got.At(token, column) != want.At(token, column) {
					t.Fatalf("%s: wrong number of token %d in column %d", name, token, column)
				}
			}
		}
		expectPanic(t, "token out of range: got 24", func() { got.At(24, 0) })
		expectPanic(t, "column out of range: got -1", func() { got.At(0, -1) })
	}
	_, err := AsGridTable[float32](whole, "cos")
	expectError(t, err, ErrInvalidArgument, "without a part for each axis")
	_, err = AsGridTable[float32](byAxis, "positions")
	expectError(t, err, ErrInvalidArgument, `got "positions.axis0", want one of the tensor's parts`)
}

func TestVectorsMatchDenseTensor(t *testing.T) {
	client := realClient(t)
	for _, table := range []*pb.TableRef{counting(5, 3), counting(2, 5, 3)} {
		spec := specOf(t, "pair { query_length: 6 key_length: 8 alignment: ALIGNMENT_START }")
		spec.Encoding = Shaw{Left: new(int64(2)), Right: new(int64(2)), Table: table}.Encoding()
		got, err := AsToeplitz[float32](get(t, client, spec))
		if err != nil {
			t.Fatal(err)
		}
		want := dense[float32](t, client, spec)
		if len(want.Shape) == 3 {
			want.Shape = append([]int{1}, want.Shape...)
		}
		if got.Heads() != want.Shape[0] || got.Dim() != 3 {
			t.Fatalf("got %d heads and dim %d, want %v", got.Heads(), got.Dim(), want.Shape)
		}
		part, err := got.Window(Window{Queries: Span{2, 5}, Keys: Span{3, 7}})
		if err != nil {
			t.Fatal(err)
		}
		for h := range got.Heads() {
			for i := range part.Queries() {
				for j := range part.Keys() {
					for c, is := range want.Row(h, i+2, j+3) {
						if part.Vector(h, i, j)[c] != is || part.Row(h, i)[3*j+c] != is {
							t.Fatalf("head %d, query %d, key %d: got %v", h, i, j,
								part.Vector(h, i, j))
						}
					}
				}
			}
		}
		expectPanic(t, "want Vector", func() { got.At(0, 0, 0) })
	}
}

func TestViewsDoNotCopy(t *testing.T) {
	client := realClient(t)
	spec := specOf(t, "alibi { num_heads: 4 } pair { query_length: 512 key_length: 512 }")
	tensor := get(t, client, spec)
	bias, err := AsToeplitz[float32](tensor)
	if err != nil {
		t.Fatal(err)
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(tensor.Bytes())))
	row := uintptr(unsafe.Pointer(unsafe.SliceData(bias.Row(1, 511))))
	if row-begin != 4*1023 {
		t.Errorf("got a row at byte %d, want %d", row-begin, 4*1023)
	}
	var sum float32
	if allocated := testing.AllocsPerRun(100, func() {
		for i := range 512 {
			sum += bias.Row(3, i)[i] + bias.At(0, i, 0) + bias.Vector(2, 0, i)[0]
		}
	}); allocated != 0 {
		t.Errorf("got %v allocations, want none", allocated)
	}
	if cap(bias.Row(0, 5)) != 512 {
		t.Errorf("got capacity for %d numbers after a row, want 0", cap(bias.Row(0, 5))-512)
	}
	// The number of allocations does not depend on the tensor's size.
	allocated := testing.AllocsPerRun(100, func() { AsToeplitz[float32](tensor) })
	if allocated > 4 {
		t.Errorf("got %v allocations, want at most 4", allocated)
	}
}

func TestPanicNamesOutOfRangeIndex(t *testing.T) {
	client := realClient(t)
	spec := specOf(t, "alibi { num_heads: 2 } pair { query_length: 4 key_length: 5 "+
		"alignment: ALIGNMENT_START }")
	tensor := get(t, client, spec)
	bias, err := AsToeplitz[float32](tensor)
	if err != nil {
		t.Fatal(err)
	}
	expectPanic(t, "head out of range: got 2, want an integer in [0, 2)",
		func() { bias.At(2, 0, 0) })
	expectPanic(t, "query out of range: got -1, want an integer in [0, 4)",
		func() { bias.Row(0, -1) })
	expectPanic(t, "key out of range: got 5, want an integer in [0, 5)",
		func() { bias.Vector(0, 0, 5) })
	for want, wrong := range map[string]Window{
		"Window.Queries: got [1, 5), want a nonempty part of [0, 4)": {Queries: Span{1, 5}},
		"Window.Keys: got [2, 2), want a nonempty part of [0, 5)":    {Keys: Span{2, 2}},
		"Window.Heads: got [-1, 1), want a nonempty part of [0, 2)":  {Heads: Span{-1, 1}},
	} {
		_, err := bias.Window(wrong)
		expectError(t, err, ErrInvalidArgument, want)
	}
	const got = "tensor: got parts [diagonals of FORM_TOEPLITZ], want FORM_"
	_, err = AsKeyRow[float32](tensor)
	expectError(t, err, ErrInvalidArgument, got+"KEY_ROW")
	_, err = AsBorderedToeplitz[float32](tensor)
	expectError(t, err, ErrInvalidArgument, got+"TOEPLITZ with a border")
	_, err = AsBlockToeplitz[float32](tensor)
	expectError(t, err, ErrInvalidArgument, got+"BLOCK_TOEPLITZ")
}

func expectPanic(t *testing.T, want string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if said, _ := recover().(string); !strings.Contains(said, want) {
			t.Errorf("got panic %q, want a panic with %q", said, want)
		}
	}()
	call()
}

func TestReportsServerInfoTablesAndHealth(t *testing.T) {
	client := realClient(t)
	info, err := client.ServerInfo(t.Context())
	if err != nil || info.Version == "" || len(info.Encodings) == 0 {
		t.Errorf("got %v, %v", info, err)
	}
	if tables, err := client.ListTables(t.Context()); err != nil || len(tables) > 0 {
		t.Errorf("got %v, %v, want no tables", tables, err)
	}
	if serving, err := client.CheckHealth(t.Context(), ""); err != nil || !serving {
		t.Errorf("got %t, %v, want it to serve", serving, err)
	}
	if _, err := client.CheckHealth(t.Context(), "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want %v", err, ErrNotFound)
	}
	spec := specOf(t, "alibi { num_heads: 2 } pair { query_length: 4 key_length: 4 }")
	header, err := client.Describe(t.Context(), spec)
	if err != nil || header.Fingerprint != get(t, client, spec).Fingerprint() {
		t.Errorf("got %v, %v", header, err)
	}
}
