// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// download gets one payload over StreamTensor: begun, resumed where it broke, complete or an error.
type download struct {
	client   *Client
	spec     *pb.TensorSpec
	want     *expected
	reserve  func(*pb.TensorHeader) ([]byte, error) // exactly its total_bytes
	progress func(done, total int64)                // nil: no callback

	// The payload that was begun.
	header *pb.TensorHeader
	memory []byte
	at     int // offset of the first missing byte
}

// receiver is the part of a stream that receive needs.
type receiver interface {
	RecvMsg(message any) error
}

// run fetches everything. The deadline of ctx bounds all attempts together.
func (d *download) run(ctx context.Context) (*Tensor, error) {
	tries, restarted := d.client.newAttempts(), false
	for {
		before := d.at
		err := d.fetchRest(ctx)
		if err == nil {
			return &Tensor{d.header, d.memory, d.want}, nil
		}
		if before > 0 && !restarted &&
			(errors.Is(err, ErrFingerprintMismatch) || errors.Is(err, ErrNotFound)) {
			// A table has changed or is gone, perhaps only on some replicas. So all of the payload
			// is fetched again, once.
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

// fetchRest makes one call for what is missing.
func (d *download) fetchRest(ctx context.Context) *Error {
	request := &pb.StreamTensorRequest{Spec: d.spec, ReadOffset: int64(d.at)}
	if d.at > 0 {
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
	if err := d.receiveFirst(stream); err != nil {
		return err
	}
	for {
		var message rawMessage
		err := stream.RecvMsg(&message)
		// Once every byte has come and was checked, the stream may end as it likes.
		if d.at == len(d.memory) && err != nil {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return corrupt("stream: ended after %d bytes, want %d", d.at, len(d.memory))
		}
		if err != nil {
			return err
		}
		if err := d.take(message); err != nil {
			return err
		}
	}
}

// receiveFirst takes the header, and the data that comes with it.
func (d *download) receiveFirst(stream receiver) error {
	var message rawMessage
	err := stream.RecvMsg(&message)
	if errors.Is(err, io.EOF) {
		return corrupt("stream: ended without a header")
	}
	if err != nil {
		return err
	}
	defer message.free()
	read, err := readChunk(message.slices)
	if err != nil {
		return err
	}
	header, err := tensorHeaderOf(read, d.want)
	if err != nil {
		return err
	}
	if d.at > 0 {
		err = d.goOn(header)
	} else {
		err = d.begin(header)
	}
	if err != nil || read.size == 0 { // a header alone has no offset
		return err
	}
	return d.put(read, message)
}

// begin takes memory for the payload that a header describes.
func (d *download) begin(header *pb.TensorHeader) error {
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

// goOn holds the header of a stream that goes on against the first one.
func (d *download) goOn(header *pb.TensorHeader) error {
	want := d.header
	if header.Fingerprint != want.Fingerprint {
		return corrupt("stream: resumed with fingerprint %s, want %s", header.Fingerprint,
			want.Fingerprint)
	}
	same := len(header.Parts) == len(want.Parts)
	for i := 0; same && i < len(want.Parts); i++ {
		same = proto.Equal(header.Parts[i], want.Parts[i])
	}
	if !same {
		return corrupt("stream: resumed with parts %v, want %v", header.Parts, want.Parts)
	}
	return nil
}

func (d *download) take(message rawMessage) error {
	defer message.free()
	read, err := readChunk(message.slices)
	if err != nil {
		return err
	}
	if read.header != nil {
		return corrupt("stream: a second header")
	}
	return d.put(read, message)
}

// put copies the data of a message to its place.
func (d *download) put(read chunk, message rawMessage) error {
	if err := read.copyData(message.slices, d.memory[d.at:]); err != nil {
		return err
	}
	if read.offset != int64(d.at) {
		return corrupt("chunk: got offset %d, want %d", read.offset, d.at)
	}
	d.at += read.size
	if d.progress != nil && read.size > 0 {
		d.progress(int64(d.at), int64(len(d.memory)))
	}
	return nil
}
