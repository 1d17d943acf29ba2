// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// download fetches one payload over StreamTensor, resuming if the stream breaks.
type download struct {
	client   *Client
	spec     *pb.TensorSpec
	reserve  func(*pb.TensorHeader) ([]byte, error) // its result has exactly total_bytes
	progress func(done, total int64)                // nil: no callback

	// The payload in progress.
	header *pb.TensorHeader
	memory []byte
	at     int // offset of the first missing byte
}

// receiver is the part of a stream that receive needs.
type receiver interface {
	RecvMsg(message any) error
}

// run fetches the payload. The deadline of ctx applies to all attempts together.
func (d *download) run(ctx context.Context) (*Tensor, error) {
	tries, restarted := d.client.newAttempts(), false
	for {
		before := d.at
		err := d.fetchRest(ctx)
		if err == nil {
			return &Tensor{d.header, d.memory}, nil
		}
		if before > 0 && !restarted &&
			(errors.Is(err, ErrFingerprintMismatch) || errors.Is(err, ErrNotFound)) {
			// A table has changed or is gone, perhaps only on some replicas. The whole payload is
			// fetched again, but only once.
			restarted, d.at = true, 0
			tries.progressed()
			continue
		}
		if d.at > before {
			tries.progressed()
		}
		if err := tries.waitAfter(ctx, err); err != nil {
			return nil, err
		}
	}
}

// fetchRest makes one call for the missing bytes.
func (d *download) fetchRest(ctx context.Context) *Error {
	request := &pb.StreamTensorRequest{Spec: d.spec, ReadOffset: int64(d.at)}
	if d.at > 0 {
		request.ExpectedFingerprint = d.header.Fingerprint
	}
	sent, err := serialized(request)
	if err != nil {
		return errorOf(err, nil)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.client.newStream(ctx, pb.AttentionBiasService_StreamTensor_FullMethodName)
	if err != nil {
		return d.client.advised(errorOf(err, nil))
	}
	if err = stream.SendMsg(sent); err == nil {
		err = stream.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) { // after io.EOF, RecvMsg returns the cause
		err = d.receive(stream, sent)
	}
	if err != nil {
		return d.client.advised(errorOf(err, stream.Trailer))
	}
	return nil
}

// receive checks the chunks in the stream that answers the request and copies each chunk into
// place.
func (d *download) receive(stream receiver, request rawRequest) error {
	for isFirst := true; ; isFirst = false {
		var message rawMessage
		err := stream.RecvMsg(&message)
		switch {
		case err != nil && !isFirst && d.at == len(d.memory):
			return nil // all bytes have been checked, so the stream may end in any way
		case errors.Is(err, io.EOF) && isFirst:
			return corrupt("stream: ended without a header")
		case errors.Is(err, io.EOF):
			return corrupt("stream: ended after %d bytes, want %d", d.at, len(d.memory))
		case err != nil:
			return err
		}
		if err := d.take(message, request, isFirst); err != nil {
			return err
		}
	}
}

// take reads a message and copies its data into place. The first message has the header.
func (d *download) take(message rawMessage, request rawRequest, isFirst bool) error {
	defer message.Free()
	read, err := readChunk(message.ReadOnlyData())
	if err != nil {
		return err
	}
	if isFirst {
		if err := d.takeHeader(read, request); err != nil || len(read.data) == 0 {
			return err // a message with only a header has no offset
		}
	} else if read.header != nil {
		return corrupt("stream: a second header")
	}
	if err := read.copyData(d.memory[d.at:]); err != nil {
		return err
	}
	if read.offset != int64(d.at) {
		return corrupt("chunk: got offset %d, want %d", read.offset, d.at)
	}
	d.at += len(read.data)
	if d.progress != nil && len(read.data) > 0 {
		d.progress(int64(d.at), int64(len(d.memory)))
	}
	return nil
}

// takeHeader reserves memory for the payload or, on a resumed stream, compares the header with the
// first one.
func (d *download) takeHeader(read chunk, request rawRequest) error {
	header, err := read.tensorHeader(request)
	if err != nil {
		return err
	}
	if d.at > 0 {
		return d.checkSame(header)
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

func (d *download) checkSame(header *pb.TensorHeader) error {
	want := d.header
	if header.Fingerprint != want.Fingerprint {
		return corrupt("stream: resumed with fingerprint %s, want %s", header.Fingerprint,
			want.Fingerprint)
	}
	same := func(one, other *pb.TensorPart) bool { return proto.Equal(one, other) }
	if !slices.EqualFunc(header.Parts, want.Parts, same) {
		return corrupt("stream: resumed with parts %v, want %v", header.Parts, want.Parts)
	}
	return nil
}
