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
	size         int // of the data
}

// readChunk reads a message; its data goes to the beginning of room and is checked there.
func readChunk(message mem.BufferSlice, room []byte) (chunk, error) {
	var read chunk
	in := fieldReader{message.Reader()}
	defer in.Close()
	for in.Remaining() > 0 {
		if err := read.readField(in, room); err != nil {
			return chunk{}, err
		}
	}
	if got := crc32.Checksum(room[:read.size], castagnoli); got != read.crc32c {
		return chunk{}, corrupt("chunk: %d bytes at offset %d have CRC-32C %08x, want %08x",
			read.size, read.offset, got, read.crc32c)
	}
	return read, nil
}

func (c *chunk) readField(in fieldReader, room []byte) error {
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
		return c.readBytes(number, in, room)
	default:
		return malformed()
	}
}

func (c *chunk) readBytes(number protowire.Number, in fieldReader, room []byte) error {
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
	case dataField:
		if size > uint64(len(room)) {
			return corrupt("chunk: got %d bytes of data, want at most the %d that are missing",
				size, len(room))
		}
		c.size = int(size) // of data that comes twice the last, as protobuf has it
		return in.full(room[:size])
	default:
		_, err := in.Discard(int(size))
		return err
	}
}

// fieldReader reads protobuf's fields out of the pieces that gRPC received.
type fieldReader struct{ *mem.Reader }

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
