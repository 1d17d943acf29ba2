// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// The end of a range that has none but the payload's.
const unlimited = math.MaxInt

// byteRange gets a range of a download's payload over StreamTensor: begun, resumed where it broke,
// complete or an error.
type byteRange struct {
	download   *download
	connection int // which of the client's
	at         int // where the bytes that are missing begin
	end        int // or the payload's, where that comes first

	bytesPerSecond float64 // of the attempt that completed it
}

// receiver is the part of a stream that receive needs.
type receiver interface {
	RecvMsg(message any) error
}

// payloadChanged says that the rest of the payload begun cannot be fetched: the payload has
// changed, or this replica lacks its table.
type payloadChanged struct{ why *Error }

func (p *payloadChanged) Error() string { return p.why.Error() }

// room is where the bytes that are missing belong.
func (r *byteRange) room() []byte {
	memory := r.download.memory
	return memory[r.at:min(r.end, len(memory))]
}

// run fetches all of it.
func (r *byteRange) run(ctx context.Context) error {
	tries := r.download.client.newAttempts()
	tries.told = &r.download.told
	for {
		before, began := r.at, time.Now()
		err := r.fetchRest(ctx)
		if err == nil {
			r.bytesPerSecond = float64(r.at-before) / time.Since(began).Seconds()
			return nil
		}
		if before > 0 &&
			(errors.Is(err, ErrFingerprintMismatch) || errors.Is(err, ErrNotFound)) {
			return &payloadChanged{err}
		}
		if r.at > before {
			tries.progressed()
		}
		if err := tries.waitAfter(ctx, err); err != nil {
			return err
		}
	}
}

// fetchRest makes one call for what is missing.
func (r *byteRange) fetchRest(ctx context.Context) *Error {
	client := r.download.client
	request := &pb.StreamTensorRequest{Spec: r.download.spec, ReadOffset: int64(r.at)}
	if r.end != unlimited {
		request.ReadLimit = int64(r.end - r.at)
	}
	if r.at > 0 {
		request.ExpectedFingerprint = r.download.header.Fingerprint
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.newStream(ctx, r.connection,
		pb.AttentionBiasService_StreamTensor_FullMethodName)
	if err != nil {
		return client.advised(errorOf(err, nil))
	}
	if err = stream.SendMsg(request); err == nil {
		err = stream.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) { // which says why when it is read
		err = r.receive(stream)
	}
	if err != nil {
		return client.advised(errorOf(err, stream.Trailer))
	}
	return nil
}

// receive puts the chunks of a stream where they belong, each checked as it comes.
func (r *byteRange) receive(stream receiver) error {
	if err := r.receiveFirst(stream); err != nil {
		return err
	}
	for {
		var message rawMessage
		err := stream.RecvMsg(&message)
		missing := len(r.room())
		// Once every byte has come and was checked, the stream may end as it likes.
		if missing == 0 && err != nil {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return corrupt("stream: ended after %d bytes, want %d", r.at, r.at+missing)
		}
		if err != nil {
			return err
		}
		if err := r.take(message); err != nil {
			return err
		}
	}
}

// receiveFirst takes the header, and the data that comes with it.
func (r *byteRange) receiveFirst(stream receiver) error {
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
	header, err := tensorHeaderOf(read, r.download.want)
	if err != nil {
		return err
	}
	if r.at > 0 {
		err = r.download.goOn(header)
	} else {
		err = r.download.begin(header)
	}
	if err != nil || read.size == 0 { // a header alone has no offset
		return err
	}
	return r.put(read, message)
}

func (r *byteRange) take(message rawMessage) error {
	defer message.free()
	read, err := readChunk(message.slices)
	if err != nil {
		return err
	}
	if read.header != nil {
		return corrupt("stream: a second header")
	}
	return r.put(read, message)
}

// put copies the data of a message to its place.
func (r *byteRange) put(read chunk, message rawMessage) error {
	if err := read.copyData(message.slices, r.room()); err != nil {
		return err
	}
	if read.offset != int64(r.at) {
		return corrupt("chunk: got offset %d, want %d", read.offset, r.at)
	}
	r.at += read.size
	r.download.advance(read.size)
	return nil
}
