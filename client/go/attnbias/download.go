// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// How the rest of a payload is shared out once its first range has come.
const (
	firstBytes     = windowBytes            // none of them waits for another window
	roundedTo      = 1 << 20                // so that chunks stay whole
	worthwhileTime = 250 * time.Millisecond // of one stream: less is not worth a connection

	mostWorthwhileStreams = 8
)

// download gets one payload: in one message where it is known to fit, else by one stream or by
// several.
type download struct {
	client   *Client
	spec     *pb.TensorSpec
	want     *expected
	reserve  func(*pb.TensorHeader) ([]byte, error) // exactly its total_bytes
	progress func(done, total int64)                // nil: nobody wants to know

	// Of the payload that was begun. Ranges that run at once only read these.
	header *pb.TensorHeader
	memory []byte

	told sync.Once // see attempts

	mutex    sync.Mutex
	received int
}

// run fetches everything. The deadline of ctx bounds all attempts together.
func (d *download) run(ctx context.Context) (*Tensor, error) {
	if err := d.fetch(ctx); err != nil {
		return nil, err
	}
	d.client.sizes.learn(d.spec, d.header.TotalBytes)
	return &Tensor{d.header, d.memory, d.want}, nil
}

func (d *download) fetch(ctx context.Context) error {
	if d.client.sizes.fitMessage(d.spec) {
		if complete, err := d.getMessage(ctx); complete || err != nil {
			return err
		}
	}
	err := d.stream(ctx)
	var changed *payloadChanged
	if errors.As(err, &changed) {
		// A table has changed or is gone, perhaps only on some replicas. So all of the payload is
		// fetched again, over one stream.
		d.header, d.memory, d.received = nil, nil, 0
		err = (&byteRange{download: d, end: unlimited}).run(ctx)
	}
	if errors.As(err, &changed) {
		return changed.why
	}
	return err
}

// getMessage gets it in one message; false where a stream has to.
func (d *download) getMessage(ctx context.Context) (bool, error) {
	var message rawMessage
	err := d.client.ask(ctx, pb.AttentionBiasService_GetTensor_FullMethodName,
		&pb.GetTensorRequest{Spec: d.spec}, &message)
	var failure *Error
	if errors.As(err, &failure) && failure.delay == nil {
		switch failure.Code {
		case codes.InvalidArgument: // it has grown too large
			return false, nil
		case codes.ResourceExhausted, codes.PermissionDenied, codes.Unimplemented:
			// Messages are larger than this client takes, it may not ask for any, or none exist.
			d.client.sizes.fitNone()
			return false, nil
		}
	}
	if err != nil {
		return false, err
	}
	return true, d.take(message)
}

// take has the payload be that of one message.
func (d *download) take(message rawMessage) error {
	defer message.free()
	read, err := readChunk(message.slices)
	if err != nil {
		return err
	}
	header, err := tensorHeaderOf(read, d.want)
	if err != nil {
		return err
	}
	if err := d.begin(header); err != nil {
		return err
	}
	if err := read.copyData(message.slices, d.memory); err != nil {
		return err
	}
	if read.size < len(d.memory) {
		return corrupt("message: has %d bytes, want %d", read.size, len(d.memory))
	}
	d.advance(read.size)
	return nil
}

// stream gets it by one stream, or by one for its first bytes and several for the rest.
func (d *download) stream(ctx context.Context) error {
	if d.client.streams == 1 {
		return (&byteRange{download: d, end: unlimited}).run(ctx)
	}
	first := &byteRange{download: d, end: firstBytes}
	if err := first.run(ctx); err != nil {
		return err
	}
	rest := len(d.memory) - firstBytes
	if rest <= 0 {
		return nil
	}
	streams := d.client.streams
	if streams == 0 {
		streams = worthwhileStreams(rest, first.bytesPerSecond)
	}
	share := (rest-1)/streams + 1
	return d.streamRest(ctx, (share+roundedTo-1)/roundedTo*roundedTo)
}

// worthwhileStreams is over how many streams the rest comes soonest, when one brings so much.
func worthwhileStreams(rest int, bytesPerSecond float64) int {
	worthwhile := max(firstBytes, bytesPerSecond*worthwhileTime.Seconds())
	return int(min(mostWorthwhileStreams, max(1, math.Ceil(float64(rest)/worthwhile))))
}

// streamRest gets what comes after the first bytes in ranges of such a size, all at once. The first
// that fails ends the others.
func (d *download) streamRest(ctx context.Context, share int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		all     sync.WaitGroup
		once    sync.Once
		failure error
	)
	for index, begin := 0, firstBytes; begin < len(d.memory); index, begin = index+1, begin+share {
		one := &byteRange{download: d, connection: index, at: begin,
			end: min(begin+share, len(d.memory))}
		all.Go(func() {
			if err := one.run(ctx); err != nil {
				once.Do(func() { failure = err })
				cancel()
			}
		})
	}
	all.Wait()
	return failure
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

// advance counts bytes that are in their place, and tells of them in order.
func (d *download) advance(count int) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.received += count
	if d.progress != nil && count > 0 {
		d.progress(int64(d.received), int64(len(d.memory)))
	}
}
