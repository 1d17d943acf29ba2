// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// download gets one payload over StreamTensor: begun, resumed where it broke, complete or an error.
type download struct {
	client   *Client
	spec     *pb.TensorSpec
	reserve  func(*pb.TensorHeader) ([]byte, error) // exactly its total_bytes
	progress func(done, total int64)                // nil: nobody wants to know

	header   *pb.TensorHeader
	memory   []byte
	received int
}

// receiver is the part of a stream that receive needs.
type receiver interface {
	RecvMsg(message any) error
}

func (d *download) isComplete() bool { return d.header != nil && d.received == len(d.memory) }

// run fetches everything. The deadline of ctx bounds all attempts together.
func (d *download) run(ctx context.Context) (*Tensor, error) {
	tries, restarted := d.client.newAttempts(), false
	for {
		before := d.received
		err := d.fetchRest(ctx)
		if err == nil {
			return &Tensor{d.header, d.memory}, nil
		}
		if err.Code == codes.FailedPrecondition && before > 0 && !restarted {
			// The server's bytes have changed since the download began.
			d.header, d.memory, d.received, restarted = nil, nil, 0, true
			continue
		}
		if d.received > before {
			tries.progressed()
		}
		if err := tries.waitAfter(ctx, err); err != nil {
			return nil, err
		}
	}
}

// fetchRest makes one call for what is missing.
func (d *download) fetchRest(ctx context.Context) *Error {
	request := &pb.StreamTensorRequest{Spec: d.spec, ReadOffset: int64(d.received)}
	if d.received > 0 {
		request.ExpectedFingerprint = d.header.Fingerprint
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.client.newStream(ctx, pb.AttentionBiasService_StreamTensor_FullMethodName)
	if err != nil {
		return d.client.advised(errorOf(err, nil))
	}
	if err = stream.SendMsg(request); err == nil {
		err = stream.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) { // which says why when it is read
		err = d.receive(stream)
	}
	if err != nil {
		return d.client.advised(errorOf(err, stream.Trailer))
	}
	return nil
}

// receive puts the chunks of a stream where they belong, each checked as it comes.
func (d *download) receive(stream receiver) error {
	if err := d.receiveHeader(stream); err != nil {
		return err
	}
	for {
		var message rawMessage
		err := stream.RecvMsg(&message)
		// Once every byte has come and was checked, the stream may end as it likes.
		if d.isComplete() && err != nil {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return corrupt("stream: ended after %d bytes, want %d", d.received, len(d.memory))
		}
		if err != nil {
			return err
		}
		if err := d.take(message); err != nil {
			return err
		}
	}
}

func (d *download) receiveHeader(stream receiver) error {
	var message rawMessage
	err := stream.RecvMsg(&message)
	if errors.Is(err, io.EOF) {
		return corrupt("stream: ended without a header")
	}
	if err != nil {
		return err
	}
	header, err := readTensorHeader(&message)
	if err != nil {
		return err
	}
	if d.received > 0 {
		return requireSame(header, d.header)
	}
	if err := checkSize(header.TotalBytes, d.client.maxTensorBytes); err != nil {
		return err
	}
	memory, err := d.reserve(header)
	if err != nil {
		return err
	}
	d.header, d.memory = header, memory
	return nil
}

// requireSame holds the header of a stream that goes on against the first one.
func requireSame(got, want *pb.TensorHeader) error {
	if got.Fingerprint != want.Fingerprint {
		return corrupt("stream: resumed with fingerprint %s, want %s",
			got.Fingerprint, want.Fingerprint)
	}
	same := len(got.Parts) == len(want.Parts)
	for i := 0; same && i < len(want.Parts); i++ {
		same = proto.Equal(got.Parts[i], want.Parts[i])
	}
	if !same {
		return corrupt("stream: resumed with parts %v, want %v", got.Parts, want.Parts)
	}
	return nil
}

func (d *download) take(message rawMessage) error {
	defer message.free()
	read, err := readChunk(message.slices, d.memory[d.received:])
	if err != nil {
		return err
	}
	if read.header != nil {
		return corrupt("stream: a second header")
	}
	if read.offset != int64(d.received) {
		return corrupt("chunk: got offset %d, want %d", read.offset, d.received)
	}
	d.received += read.size
	if d.progress != nil && read.size > 0 {
		d.progress(int64(d.received), int64(len(d.memory)))
	}
	return nil
}
