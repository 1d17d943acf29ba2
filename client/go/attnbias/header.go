// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"hash/crc32"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// readHeader reads the message that carries a header alone into header, whatever its class. The
// message is freed.
func readHeader(message *rawMessage, header proto.Message) error {
	defer message.free()
	read, err := readChunk(message.slices)
	if err != nil {
		return err
	}
	if err := read.copyData(message.slices, nil); err != nil { // there is none
		return err
	}
	return parseHeader(read, header)
}

// parseHeader checks the header that came with a chunk.
func parseHeader(read chunk, header proto.Message) error {
	if read.header == nil {
		return corrupt("stream: the first message has no header")
	}
	got := crc32.Checksum(read.header, castagnoli)
	// An older server sends none.
	if want := read.headerCRC32C; want != nil && *want != got {
		return corrupt("header: got CRC-32C %08x, want %08x", got, *want)
	}
	if err := proto.Unmarshal(read.header, header); err != nil {
		return malformed()
	}
	return nil
}

// readTensorHeader is readHeader of what describes a payload, and checks that it adds up and is
// what was asked for.
func readTensorHeader(message *rawMessage, want *expected) (*pb.TensorHeader, error) {
	header := &pb.TensorHeader{}
	if err := readHeader(message, header); err != nil {
		return nil, err
	}
	return header, checkHeader(header, want)
}

// tensorHeaderOf is readTensorHeader of a message that has data, too.
func tensorHeaderOf(read chunk, want *expected) (*pb.TensorHeader, error) {
	header := &pb.TensorHeader{}
	if err := parseHeader(read, header); err != nil {
		return nil, err
	}
	return header, checkHeader(header, want)
}

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
