// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // what rawCodec leaves messages to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawMessage is an answer as it came. A checksum of a header is of these bytes, and data is copied
// once from here to its place.
type rawMessage struct{ slices mem.BufferSlice }

func (m *rawMessage) free() { m.slices.Free() }

// rawCodec is protobuf's, but that it leaves a rawMessage alone.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Unmarshal(data mem.BufferSlice, into any) error {
	if raw, ok := into.(*rawMessage); ok {
		data.Ref()
		raw.slices = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, into)
}

var raw = grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})

// The fields of all answers that carry a header or a part of a payload.
const (
	headerField       protowire.Number = 1
	offsetField       protowire.Number = 2
	crc32cField       protowire.Number = 3
	firstRowField     protowire.Number = 4 // only of ComputeLogitsResponse
	headerCRC32CField protowire.Number = 5
	dataField         protowire.Number = 16
)

// chunk is a message with a header, or with a part of a payload.
type chunk struct {
	header       []byte // its bytes as they came; nil without one
	headerCRC32C *uint32
	offset       int64
	firstRow     int64
	crc32c       uint32
	begin, size  int // of the data in the message
}

// readChunk reads a message, all but its data.
func readChunk(message mem.BufferSlice) (chunk, error) {
	var read chunk
	in := readerOf(message)
	defer in.Close()
	for in.Remaining() > 0 {
		if err := read.readField(in); err != nil {
			return chunk{}, err
		}
	}
	return read, nil
}

// copyData copies the data of the message to the beginning of room, and checks it there.
func (c *chunk) copyData(message mem.BufferSlice, room []byte) error {
	if c.size > len(room) {
		return corrupt("chunk: got %d bytes of data, want at most the %d that are missing", c.size,
			len(room))
	}
	in := readerOf(message)
	defer in.Close()
	if _, err := in.Discard(c.begin); err != nil {
		return malformed()
	}
	if err := in.full(room[:c.size]); err != nil {
		return err
	}
	if got := crc32.Checksum(room[:c.size], castagnoli); got != c.crc32c {
		return corrupt("chunk: %d bytes at offset %d have CRC-32C %08x, want %08x", c.size,
			c.offset, got, c.crc32c)
	}
	return nil
}

func (c *chunk) readField(in fieldReader) error {
	number, kind, err := in.tag()
	if err != nil {
		return err
	}
	switch kind {
	case protowire.VarintType:
		value, err := in.varint()
		switch number {
		case offsetField:
			c.offset = int64(value)
		case firstRowField:
			c.firstRow = int64(value)
		}
		return err
	case protowire.Fixed32Type:
		var value [4]byte
		if err := in.full(value[:]); err != nil {
			return err
		}
		sum := binary.LittleEndian.Uint32(value[:])
		switch number {
		case crc32cField:
			c.crc32c = sum
		case headerCRC32CField:
			c.headerCRC32C = &sum
		}
		return nil
	case protowire.Fixed64Type:
		return in.full(make([]byte, 8))
	case protowire.BytesType:
		return c.readBytes(number, in)
	default:
		return malformed()
	}
}

func (c *chunk) readBytes(number protowire.Number, in fieldReader) error {
	size, err := in.varint()
	if err != nil {
		return err
	}
	if size > uint64(in.Remaining()) {
		return malformed()
	}
	switch number {
	case headerField:
		// One that comes in two pieces is what both are together, as protobuf has it.
		begin := len(c.header)
		c.header = append(c.header, make([]byte, size)...)
		return in.full(c.header[begin:])
	case dataField: // of data that comes twice the last, as protobuf has it
		c.begin, c.size = in.at(), int(size)
	}
	_, err = in.Discard(int(size))
	return err
}

// fieldReader reads protobuf's fields out of the pieces that gRPC received.
type fieldReader struct {
	*mem.Reader
	length int
}

func readerOf(message mem.BufferSlice) fieldReader {
	return fieldReader{message.Reader(), message.Len()}
}

// at is how many bytes were read.
func (r fieldReader) at() int { return r.length - r.Remaining() }

func (r fieldReader) tag() (protowire.Number, protowire.Type, error) {
	tag, err := r.varint()
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber || tag > math.MaxUint32 {
		return 0, 0, malformed()
	}
	return number, kind, nil
}

func (r fieldReader) varint() (uint64, error) {
	value, err := binary.ReadUvarint(r.Reader)
	if err != nil {
		return 0, malformed()
	}
	return value, nil
}

func (r fieldReader) full(into []byte) error {
	if _, err := io.ReadFull(r.Reader, into); err != nil {
		return malformed()
	}
	return nil
}

func malformed() error { return corrupt("message: it is not protobuf") }
