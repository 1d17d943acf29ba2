// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"math"

	"google.golang.org/grpc/codes"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// Of an array: numpy's limit, far from what any encoding has.
const mostAxes = 64

// checkHeader holds a header's sizes against each other, and all of it against the request.
func checkHeader(header *pb.TensorHeader, want *expected) error {
	if len(header.Parts) == 0 {
		return corrupt("header: it has no parts")
	}
	end := int64(0)
	for _, part := range header.Parts {
		if _, known := elementSizes[part.DataType]; !known {
			return failed(codes.Unimplemented, "header: part %s has data_type %d, which this "+
				"client does not know", brief(part.Name), part.DataType)
		}
		if axes := len(part.Shape); axes > mostAxes {
			return corrupt("header: part %s has %d axes, want at most %d", brief(part.Name),
				axes, mostAxes)
		}
		size, ok := sizeOf(part)
		if !ok || part.Offset != end || part.SizeBytes != size || size > math.MaxInt64-end {
			return corrupt("header: part %s at byte %d has shape %v of %v in %d bytes, which does "+
				"not add up", brief(part.Name), part.Offset, part.Shape, part.DataType,
				part.SizeBytes)
		}
		end += size
	}
	if header.TotalBytes != end {
		return corrupt("header.total_bytes: got %d, want %d, the sum of its parts",
			header.TotalBytes, end)
	}
	return want.check(header)
}

func sizeOf(part *pb.TensorPart) (int64, bool) {
	size := elementSizes[part.DataType]
	for _, length := range part.Shape {
		if length < 0 || length > 0 && size > math.MaxInt64/length {
			return 0, false
		}
		size *= length
	}
	return size, true
}

// checkSize refuses a payload before memory is taken for it.
func checkSize(bytes, most int64) error {
	if bytes > most {
		return failed(codes.ResourceExhausted, "WithMaxTensorBytes: the tensor has %d bytes, this "+
			"client takes at most %d", bytes, most)
	}
	return nil
}
