// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that rawCodec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawMessage is a response kept in serialized form, because checksums cover its bytes. Free returns
// its memory to gRPC.
type rawMessage struct{ mem.Buffer }

// rawRequest is a serialized request; the response contains the checksum of these bytes.
type rawRequest []byte

func serialized(request proto.Message) (rawRequest, error) {
	bytes, err := proto.Marshal(request)
	if err != nil {
		return nil, invalid("spec: %v", err)
	}
	return bytes, nil
}

// rawCodec is the protobuf codec, except that it passes messages in serialized form through
// unchanged.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	if raw, ok := message.(rawRequest); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(message)
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, into any) error {
	if raw, ok := into.(*rawMessage); ok {
		raw.Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, into)
}

var raw = grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})

// Field numbers shared by all responses that contain a header or part of a payload.
const (
	headerField        protowire.Number = 1
	offsetField        protowire.Number = 2
	crc32cField        protowire.Number = 3
	firstRowField      protowire.Number = 4 // only in ComputeLogitsResponse
	headerCRC32CField  protowire.Number = 5
	requestCRC32CField protowire.Number = 6
	dataField          protowire.Number = 16
)

// chunk holds the contents of a message. Its data points into the message.
type chunk struct {
	header        []byte // serialized; nil if there is none
	headerCRC32C  *uint32
	requestCRC32C *uint32
	offset        int64
	firstRow      int64
	crc32c        uint32
	data          []byte
}

// readChunk parses a message according to protobuf's rules: repeated headers are merged, and for
// other fields the last occurrence wins.
func readChunk(message []byte) (chunk, error) {
	var read chunk
	for len(message) > 0 {
		number, kind, tagSize := protowire.ConsumeTag(message)
		if tagSize < 0 || number > protowire.MaxValidNumber {
			return chunk{}, malformed()
		}
		field := message[tagSize:]
		size := protowire.ConsumeFieldValue(number, kind, field)
		if size < 0 {
			return chunk{}, malformed()
		}
		read.take(number, kind, field[:size])
		message = field[size:]
	}
	return read, nil
}

func (c *chunk) take(number protowire.Number, kind protowire.Type, field []byte) {
	switch kind {
	case protowire.VarintType:
		value, _ := protowire.ConsumeVarint(field)
		switch number {
		case offsetField:
			c.offset = int64(value)
		case firstRowField:
			c.firstRow = int64(value)
		}
	case protowire.Fixed32Type:
		sum := binary.LittleEndian.Uint32(field)
		switch number {
		case crc32cField:
			c.crc32c = sum
		case headerCRC32CField:
			c.headerCRC32C = &sum
		case requestCRC32CField:
			c.requestCRC32C = &sum
		}
	case protowire.BytesType:
		value, _ := protowire.ConsumeBytes(field)
		switch number {
		case headerField:
			c.header = append(append([]byte{}, c.header...), value...)
		case dataField:
			c.data = value
		}
	}
}

// copyData checks the data and copies it to the start of room.
func (c *chunk) copyData(room []byte) error {
	if len(c.data) > len(room) {
		return corrupt("chunk: got %d bytes of data, want at most the %d remaining",
			len(c.data), len(room))
	}
	if got := crc32.Checksum(c.data, castagnoli); got != c.crc32c {
		return corrupt("chunk: %d bytes at offset %d have CRC-32C %08x, want %08x", len(c.data),
			c.offset, got, c.crc32c)
	}
	copy(room, c.data)
	return nil
}

// readHeader checks that the header is intact and answers the request, and parses it into a message
// of any type.
func (c *chunk) readHeader(request rawRequest, into proto.Message) error {
	if c.header == nil {
		return corrupt("stream: the first message has no header")
	}
	got := crc32.Checksum(c.header, castagnoli)
	if c.headerCRC32C == nil || *c.headerCRC32C != got {
		return corrupt("header: got CRC-32C %08x, want %s", got, written(c.headerCRC32C))
	}
	if want := crc32.Checksum(request, castagnoli); c.requestCRC32C == nil ||
		*c.requestCRC32C != want {
		return corrupt("request_crc32c: got %s, want %08x", written(c.requestCRC32C), want)
	}
	if err := proto.Unmarshal(c.header, into); err != nil {
		return malformed()
	}
	return nil
}

func written(checksum *uint32) string {
	if checksum == nil {
		return "none"
	}
	return fmt.Sprintf("%08x", *checksum)
}

// tensorHeader reads and checks the header of a payload that answers the request.
func (c *chunk) tensorHeader(request rawRequest) (*pb.TensorHeader, error) {
	header := &pb.TensorHeader{}
	if err := c.readHeader(request, header); err != nil {
		return nil, err
	}
	return header, checkHeader(header)
}

func malformed() error { return corrupt("message: not a valid protobuf message") }
