// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// tensorOf returns an int32 tensor for a resolved request.
func tensorOf(t *testing.T, spec string, parts ...*pb.TensorPart) *Tensor {
	t.Helper()
	header := &pb.TensorHeader{ResolvedSpec: specOf(t, spec), Parts: parts}
	for i, part := range parts {
		part.Name, part.DataType = []string{"block", "border"}[i], pb.DataType_DATA_TYPE_I32
		part.Offset, part.SizeBytes = header.TotalBytes, 4
		for _, length := range part.Shape {
			part.SizeBytes *= length
		}
		header.TotalBytes += part.SizeBytes
	}
	return &Tensor{header, memoryFor(header.TotalBytes)}
}

func shaped(form pb.Form, shape ...int64) *pb.TensorPart {
	return &pb.TensorPart{Form: form, Shape: shape}
}

// Even if a header contradicts its resolved request, no view reads past the payload.
func TestViewsRefuseShapesOfAnotherRequest(t *testing.T) {
	const most = "9223372036854775807"
	const (
		toeplitz = pb.Form_FORM_TOEPLITZ
		row      = pb.Form_FORM_KEY_ROW
		block    = pb.Form_FORM_BLOCK_TOEPLITZ
	)
	for _, test := range []struct {
		spec  string
		parts []*pb.TensorPart
	}{
		{"", []*pb.TensorPart{shaped(toeplitz, 3)}},
		{"pair { queries { end: 2 } keys { end: 3 } }", []*pb.TensorPart{shaped(toeplitz, 3)}},
		{"pair { queries { end: 2 } keys { end: 2 } }",
			[]*pb.TensorPart{shaped(toeplitz, 1, 1, 3)}},
		{"pair { queries { end: 2 } keys { end: 2 } heads { end: 3 } }",
			[]*pb.TensorPart{shaped(toeplitz, 3)}},
		{"pair { queries { begin: -" + most + " end: " + most + " } keys { end: 5 } }",
			[]*pb.TensorPart{shaped(toeplitz, 3)}},
		{"pair { queries { end: " + most + " } keys { end: " + most + " } }",
			[]*pb.TensorPart{shaped(toeplitz, 3)}},
		{"pair { queries { end: 2 } keys { end: 3 } }", []*pb.TensorPart{shaped(row, 2)}},
		{"pair { keys { end: 2 } }", []*pb.TensorPart{shaped(row, 2)}},
		{"grid { query_stride: 2 }", []*pb.TensorPart{shaped(block, 3, 3)}},
		{"grid { query_stride: [2, -1] }", []*pb.TensorPart{shaped(block, 3, 3)}},
		{"grid { }", []*pb.TensorPart{shaped(block, 3, 2)}},
		{"grid { heads { end: 2 } }", []*pb.TensorPart{shaped(block, 2, 3),
			shaped(pb.Form_FORM_TABLE, 1, 3)}},
		{"pair { queries { end: 2 } keys { end: 2 } heads { end: 2 } }",
			[]*pb.TensorPart{shaped(toeplitz, 2, 3), shaped(pb.Form_FORM_TABLE, 1, 3)}},
	} {
		tensor := tensorOf(t, test.spec, test.parts...)
		for name, view := range map[string]func() error{
			"AsToeplitz": func() error { _, err := AsToeplitz[int32](tensor); return err },
			"AsKeyRow":   func() error { _, err := AsKeyRow[int32](tensor); return err },
			"AsBlockToeplitz": func() error {
				_, err := AsBlockToeplitz[int32](tensor)
				return err
			},
			"AsBorderedToeplitz": func() error {
				_, err := AsBorderedToeplitz[int32](tensor)
				return err
			},
		} {
			if view() == nil {
				t.Errorf("%s takes %v of %q", name, test.parts, test.spec)
			}
		}
	}
}

func TestHeadersThatContradictThemselvesAreRefused(t *testing.T) {
	if err := checkHeader(payloadHeader()); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*pb.TensorHeader){
		"header.fully_masked_rows: got [1, 3), want": func(header *pb.TensorHeader) {
			header.FullyMaskedRows = []*pb.Range{{Begin: 1, End: 3}}
		},
		"header.fully_masked_rows: got [0, 1), want": func(header *pb.TensorHeader) {
			header.FullyMaskedRows = []*pb.Range{{Begin: 1, End: 2}, {End: 1}}
		},
		"header.column_axes: got columns that differ": func(header *pb.TensorHeader) {
			header.ColumnAxes = []int32{0, 0, 0}
		},
		"has first_relative_position -1, want 0": func(header *pb.TensorHeader) {
			header.Parts[0].Form = pb.Form_FORM_TABLE
		},
		"header.parts: got [diagonals, diagonals], want distinct names": func(
			header *pb.TensorHeader,
		) {
			again := proto.CloneOf(header.Parts[0])
			again.Offset = 12
			header.Parts = append(header.Parts, again)
		},
	} {
		header := payloadHeader()
		change(header)
		expectError(t, checkHeader(header), ErrCorrupt, says)
	}
}
