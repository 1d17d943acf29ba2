// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"testing"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// 0xe3069283 is the published check value of CRC-32C, that of "123456789".
const checkValue = 0xe3069283

// messages is a stream that was recorded before.
type messages []*pb.StreamTensorResponse

func (m *messages) Recv() (*pb.StreamTensorResponse, error) {
	if len(*m) == 0 {
		return nil, io.EOF
	}
	first := (*m)[0]
	*m = (*m)[1:]
	return first, nil
}

func assemble(stream receiver) (*tensor, error) {
	got := &tensor{}
	return got, got.receive(stream)
}

func header(bytes int64) *pb.StreamTensorResponse {
	return &pb.StreamTensorResponse{Header: &pb.TensorHeader{TotalBytes: bytes}}
}

func chunk(offset int64) *pb.StreamTensorResponse {
	return &pb.StreamTensorResponse{Offset: offset, Crc32C: checkValue, Data: []byte("123456789")}
}

func TestAssembleJoinsChunks(t *testing.T) {
	got, err := assemble(&messages{header(18), chunk(0), chunk(9)})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte("123456789123456789"); !bytes.Equal(got.data, want) {
		t.Errorf("got %q, want %q", got.data, want)
	}
}

func TestAssembleRefuses(t *testing.T) {
	broken := chunk(9)
	broken.Data = []byte("123456788")
	for name, test := range map[string]struct {
		stream messages
		want   string
	}{
		"no header":      {messages{chunk(0)}, "got no header"},
		"less than none": {messages{header(-1)}, "total_bytes: got -1"},
		"a gap":          {messages{header(18), chunk(0), chunk(10)}, "got offset 10, want 9"},
		"a wrong byte":   {messages{header(18), chunk(0), broken}, "bytes from 9: got CRC-32C"},
		"too few bytes":  {messages{header(18), chunk(0)}, "got 9 bytes, want 18"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := assemble(&test.stream)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// A header, a chunk in order, and one of which everything may be wrong.
func FuzzAssemble(f *testing.F) {
	f.Add(int64(18), []byte("123456789"), int64(9), uint32(checkValue), []byte("123456789"))
	f.Add(int64(-1), []byte(nil), int64(0), uint32(0), []byte(nil))
	f.Add(int64(math.MaxInt64), []byte("1"), int64(1), uint32(0), []byte(nil))
	f.Fuzz(func(t *testing.T, total int64, begin []byte, offset int64, sum uint32, end []byte) {
		fits := crc32.Checksum(begin, castagnoli)
		got, err := assemble(&messages{
			header(total),
			{Crc32C: fits, Data: begin},
			{Offset: offset, Crc32C: sum, Data: end},
		})
		whole := append(bytes.Clone(begin), end...)
		right := total == int64(len(whole)) && offset == int64(len(begin)) &&
			sum == crc32.Checksum(end, castagnoli)
		if right != (err == nil) {
			t.Fatalf("right is %t, but the error is %v", right, err)
		}
		if right && !bytes.Equal(got.data, whole) {
			t.Errorf("got %q, want %q", got.data, whole)
		}
	})
}
