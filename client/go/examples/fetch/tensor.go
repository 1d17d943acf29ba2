// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

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
	response, err := client.GetTensor(ctx, &pb.GetTensorRequest{Spec: spec})
	if err != nil {
		return nil, err
	}
	if err := verify(response.Data, response.Crc32C, 0); err != nil {
		return nil, err
	}
	return &tensor{response.Header, response.Data}, nil
}

// streamTensor reads a payload of any size.
func streamTensor(
	ctx context.Context, client pb.AttentionBiasServiceClient, spec *pb.TensorSpec,
) (*tensor, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.StreamTensor(ctx, &pb.StreamTensorRequest{Spec: spec})
	if err != nil {
		return nil, err
	}
	return assemble(stream)
}

// receiver is the part of a stream that assemble needs.
type receiver interface {
	Recv() (*pb.StreamTensorResponse, error)
}

// assemble joins the chunks of a stream, each checked as it comes.
func assemble(stream receiver) (*tensor, error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if first.Header == nil {
		return nil, errors.New("first message: got no header")
	}
	total := first.Header.TotalBytes
	if total < 0 {
		return nil, fmt.Errorf("total_bytes: got %d, want at least 0", total)
	}
	data := make([]byte, 0, min(total, firstBytes))
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if chunk.Offset != int64(len(data)) {
			return nil, fmt.Errorf("chunk: got offset %d, want %d", chunk.Offset, len(data))
		}
		if err := verify(chunk.Data, chunk.Crc32C, chunk.Offset); err != nil {
			return nil, err
		}
		data = append(data, chunk.Data...)
	}
	if int64(len(data)) != total {
		return nil, fmt.Errorf("stream: got %d bytes, want %d", len(data), total)
	}
	return &tensor{first.Header, data}, nil
}

func verify(data []byte, want uint32, offset int64) error {
	if got := crc32.Checksum(data, castagnoli); got != want {
		return fmt.Errorf("bytes from %d: got CRC-32C %08x, want %08x", offset, got, want)
	}
	return nil
}
