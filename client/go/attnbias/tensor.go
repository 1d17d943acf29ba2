// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"fmt"
	"strings"
	"unsafe"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// Element is the constraint on the type of a tensor's elements: one Go type for each DataType.
type Element interface {
	float64 | float32 | Float16 | BFloat16 | int32
}

// Float is the constraint on the element types of learned tables and of rows for positional logits.
type Float interface {
	float64 | float32 | Float16 | BFloat16
}

var elementSizes = map[pb.DataType]int64{
	pb.DataType_DATA_TYPE_F64:  8,
	pb.DataType_DATA_TYPE_F32:  4,
	pb.DataType_DATA_TYPE_F16:  2,
	pb.DataType_DATA_TYPE_BF16: 2,
	pb.DataType_DATA_TYPE_I32:  4,
}

func dataTypeOf[T Element]() pb.DataType {
	switch any(*new(T)).(type) {
	case float64:
		return pb.DataType_DATA_TYPE_F64
	case float32:
		return pb.DataType_DATA_TYPE_F32
	case Float16:
		return pb.DataType_DATA_TYPE_F16
	case BFloat16:
		return pb.DataType_DATA_TYPE_BF16
	default:
		return pb.DataType_DATA_TYPE_I32
	}
}

// Tensor is a payload and its description. Reading it is safe for concurrent use.
type Tensor struct {
	header *pb.TensorHeader
	bytes  []byte
}

// Header returns the parts, the fingerprint and the resolved request. The caller must not modify
// it.
func (t *Tensor) Header() *pb.TensorHeader { return t.header }

// Fingerprint returns 64 hex digits. Equal fingerprints mean equal bytes, from any server.
func (t *Tensor) Fingerprint() string { return t.header.Fingerprint }

// Bytes returns the whole payload, without copying it. The parts are in header order, each
// little-endian and row-major.
func (t *Tensor) Bytes() []byte { return t.bytes }

// Array holds the elements of one part of a payload.
type Array[T Element] struct {
	// Data is row-major and shares the tensor's memory; see [Tensor.Bytes].
	Data []T
	// Shape holds the length of each axis.
	Shape []int
}

// AsArray views the named part, such as "dense", "positions", "cos" or "sin". The error is
// ErrInvalidArgument if the tensor has no such part, or if its elements have a different type.
func AsArray[T Element](tensor *Tensor, name string) (Array[T], error) {
	var names []string
	for _, part := range tensor.header.Parts {
		if part.Name == name {
			return arrayOf[T](tensor, part)
		}
		names = append(names, part.Name)
	}
	return Array[T]{}, invalid("name: got %q, want one of the tensor's parts: %s", name,
		strings.Join(names, ", "))
}

func arrayOf[T Element](tensor *Tensor, part *pb.TensorPart) (Array[T], error) {
	if part.DataType != dataTypeOf[T]() {
		return Array[T]{}, invalid("element type: got %T, want the tensor's type, %v", *new(T),
			part.DataType)
	}
	array := Array[T]{Data: numbersIn[T](tensor.bytes[part.Offset:][:part.SizeBytes])}
	for _, length := range part.Shape {
		array.Shape = append(array.Shape, int(length))
	}
	return array, nil
}

// At returns one element. It requires an index for each axis.
func (a Array[T]) At(index ...int) T {
	if len(index) != len(a.Shape) {
		panic(fmt.Sprintf("attnbias: got %d indices, want one for each axis of %v", len(index),
			a.Shape))
	}
	return a.Row(index[:len(index)-1]...)[index[len(index)-1]]
}

// Row returns the elements along the last axis, without copying them. It requires an index for
// every axis except the last: Row(position) for a table, Row(head, query) for a dense bias.
func (a Array[T]) Row(index ...int) []T {
	last := len(a.Shape) - 1
	if len(index) != last {
		panic(fmt.Sprintf("attnbias: got %d indices, want one for each axis of %v but the last",
			len(index), a.Shape))
	}
	row := 0
	for axis, i := range index {
		if uint(i) >= uint(a.Shape[axis]) {
			panic(outOfRange("index", i, a.Shape[axis]))
		}
		row = row*a.Shape[axis] + i
	}
	width := a.Shape[last]
	return a.Data[row*width : (row+1)*width : (row+1)*width]
}

func outOfRange(name string, index, length int) string {
	return fmt.Sprintf("attnbias: %s out of range: got %d, want an integer in [0, %d)", name, index,
		length)
}

// memoryFor allocates memory aligned for any element type.
func memoryFor(bytes int64) []byte {
	return bytesOf(make([]uint64, (bytes+7)/8))[:bytes]
}

func elementSize[T Element | uint64]() int { return int(unsafe.Sizeof(*new(T))) }

// bytesOf views numbers as bytes.
func bytesOf[T Element | uint64](numbers []T) []byte {
	size := len(numbers) * elementSize[T]()
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(numbers))), size)
}

// numbersIn views aligned memory as numbers.
func numbersIn[T Element](memory []byte) []T {
	count := len(memory) / elementSize[T]()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(memory))), count)
}

// InlineTable returns a learned table that is sent with the request. The values are in row-major
// order and may occupy at most 2 MiB; shape holds the length of each axis. For T5, the shape is
// [num_buckets, num_heads], unless a different layout is set. The server rejects tables of the
// wrong size.
func InlineTable[T Float](numbers []T, shape ...int64) *pb.TableRef {
	return &pb.TableRef{Source: &pb.TableRef_InlineTable{InlineTable: &pb.InlineTable{
		DataType: dataTypeOf[T](),
		Shape:    shape,
		Data:     append([]byte(nil), bytesOf(numbers)...),
	}}}
}
