// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// What a header's claim alone may take; more is taken as it comes.
const firstBytes = 64 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// tensor is a payload and its description.
type tensor struct {
	header *pb.TensorHeader
	data   []byte
}

// getTensor reads a payload that fits one message.
func getTensor(
	ctx context.Context, client pb.AttentionBiasServiceClient, spec *pb.TensorSpec,
) (*tensor, error) {
	for failed := attempts(0); ; {
		response, err := client.GetTensor(ctx, &pb.GetTensorRequest{Spec: spec})
		if err == nil {
			err := verify(response.Data, response.Crc32C, 0)
			return &tensor{response.Header, response.Data}, err
		}
		if err := failed.waitAfter(ctx, err); err != nil {
			return nil, err
		}
	}
}

// streamTensor reads a payload of any size.
func streamTensor(
	ctx context.Context, client pb.AttentionBiasServiceClient, spec *pb.TensorSpec,
) (*tensor, error) {
	got, restarted := &tensor{}, false
	for failed := attempts(0); ; {
		before := len(got.data)
		err := got.fetchRest(ctx, client, spec)
		if err == nil {
			return got, nil
		}
		if status.Code(err) == codes.FailedPrecondition && before > 0 && !restarted {
			// The server's bytes have changed since the download began.
			got, restarted = &tensor{}, true
			continue
		}
		if len(got.data) > before {
			failed = 0
		}
		if err := failed.waitAfter(ctx, err); err != nil {
			return nil, err
		}
	}
}

// fetchRest reads what is missing.
func (t *tensor) fetchRest(
	ctx context.Context, client pb.AttentionBiasServiceClient, spec *pb.TensorSpec,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &pb.StreamTensorRequest{Spec: spec, ReadOffset: int64(len(t.data))}
	if len(t.data) > 0 {
		request.ExpectedFingerprint = t.header.Fingerprint
	}
	stream, err := client.StreamTensor(ctx, request)
	if err != nil {
		return err
	}
	return t.receive(stream)
}

// receiver is the part of a stream that receive needs.
type receiver interface {
	Recv() (*pb.StreamTensorResponse, error)
}

// receive joins the chunks of a stream, each checked as it comes, to what is there.
func (t *tensor) receive(stream receiver) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := t.takeHeader(first.Header); err != nil {
		return err
	}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if chunk.Offset != int64(len(t.data)) {
			return fmt.Errorf("chunk: got offset %d, want %d", chunk.Offset, len(t.data))
		}
		if err := verify(chunk.Data, chunk.Crc32C, chunk.Offset); err != nil {
			return err
		}
		t.data = append(t.data, chunk.Data...)
	}
	if total := t.header.TotalBytes; int64(len(t.data)) != total {
		return fmt.Errorf("stream: got %d bytes, want %d", len(t.data), total)
	}
	return nil
}

func (t *tensor) takeHeader(header *pb.TensorHeader) error {
	if header == nil {
		return errors.New("first message: got no header")
	}
	if len(t.data) > 0 {
		if header.Fingerprint != t.header.Fingerprint {
			return fmt.Errorf("stream: resumed with fingerprint %s, want %s",
				header.Fingerprint, t.header.Fingerprint)
		}
		return nil
	}
	if header.TotalBytes < 0 {
		return fmt.Errorf("total_bytes: got %d, want at least 0", header.TotalBytes)
	}
	t.header = header
	t.data = make([]byte, 0, min(header.TotalBytes, firstBytes))
	return nil
}

func verify(data []byte, want uint32, offset int64) error {
	if got := crc32.Checksum(data, castagnoli); got != want {
		return fmt.Errorf("bytes from %d: got CRC-32C %08x, want %08x", offset, got, want)
	}
	return nil
}
