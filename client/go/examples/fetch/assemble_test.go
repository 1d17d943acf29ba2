// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
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
		"no header":     {messages{chunk(0)}, "got no header"},
		"a gap":         {messages{header(18), chunk(0), chunk(10)}, "got offset 10, want 9"},
		"a wrong byte":  {messages{header(18), chunk(0), broken}, "bytes from 9: got CRC-32C"},
		"too few bytes": {messages{header(18), chunk(0)}, "got 9 bytes, want 18"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := assemble(&test.stream)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
