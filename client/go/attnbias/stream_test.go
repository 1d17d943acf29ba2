// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// recorded is a stream of serialized messages.
type recorded [][]byte

func (r *recorded) RecvMsg(into any) error {
	if len(*r) == 0 {
		return io.EOF
	}
	into.(*rawMessage).Buffer = mem.SliceBuffer((*r)[0])
	*r = (*r)[1:]
	return nil
}

func serialised(messages ...*pb.StreamTensorResponse) *recorded {
	var all recorded
	for _, message := range messages {
		one, err := proto.Marshal(message)
		if err != nil {
			panic(err)
		}
		all = append(all, one)
	}
	return &all
}

func newDownload(maxBytes int64) *download {
	return &download{
		client:  &Client{settings: settings{maxTensorBytes: maxBytes}},
		reserve: func(h *pb.TensorHeader) ([]byte, error) { return memoryFor(h.TotalBytes), nil },
	}
}

var broken = status.Error(codes.Unavailable, "broken")

func TestStreamResumesAfterBreak(t *testing.T) {
	f, client := fakeAndClient(t)
	header := withHeader(payloadHeader())
	f.script = []func(*pb.StreamTensorRequest, tensorStream) error{
		sends(broken, header), sends(broken, header, part(0)),
		sends(status.Error(codes.FailedPrecondition, "changed")),
		sends(broken, header, part(0)), sends(broken, header, part(1)), sends(nil, header, part(2)),
	}
	var told []int64
	tensor, err := client.Get(t.Context(), alibi,
		WithProgress(func(done, total int64) { told = append(told, done, total) }))
	if err != nil || !slices.Equal(numbersIn[float32](tensor.Bytes()), payload) {
		t.Fatalf("got %v, %v", tensor, err)
	}
	if want := []int64{0, 0, 4, 0, 4, 8}; !slices.Equal(f.offsets, want) {
		t.Errorf("got offsets %v, want %v", f.offsets, want)
	}
	if want := []int64{4, 12, 4, 12, 8, 12, 12, 12}; !slices.Equal(told, want) {
		t.Errorf("got progress %v, want %v", told, want)
	}
}

func TestCloseCancelsStream(t *testing.T) {
	f, client := fakeAndClient(t, WithTimeout(time.Hour))
	f.script = append(f.script, func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if err := stream.Send(answering(request, firstPart())); err != nil {
			return err
		}
		client.Close()
		<-stream.Context().Done()
		return nil
	})
	_, err := client.Get(t.Context(), alibi)
	expectError(t, err, context.Canceled, "the client is closed")
}

func TestAllocatesOnceAcrossRetries(t *testing.T) {
	const size = 64 << 20
	spec := proto.CloneOf(alibi)
	spec.GetPair().KeyLength = size/4 - 1
	header := payloadHeader()
	header.Parts[0].Shape, header.Parts[0].SizeBytes = []int64{1, size / 4}, size
	header.TotalBytes, header.ResolvedSpec = size, spec
	f, client := fakeAndClient(t)
	begins := sends(broken, withHeader(header))
	f.script = append(f.script, begins, begins, begins,
		sends(status.Error(codes.NotFound, "gone")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := client.Get(t.Context(), spec)
	runtime.ReadMemStats(&after)
	expectError(t, err, ErrNotFound, "gone")
	if took := after.TotalAlloc - before.TotalAlloc; took > size*3/2 {
		t.Errorf("copied %d bytes, want the payload's %d", took, size)
	}
}

func TestGetIntoWritesToGivenMemory(t *testing.T) {
	_, client := fakeAndClient(t)
	out := make([]float32, 4)
	tensor, err := GetInto(t.Context(), client, alibi, out)
	if err != nil || !slices.Equal(out[:3], payload) || &tensor.Bytes()[0] != &bytesOf(out)[0] {
		t.Errorf("got %v, %v", out, err)
	}
	for want, get := range map[string]func() error{
		"out: got 8 bytes, want at least 12": func() error {
			_, err := GetInto(t.Context(), client, alibi, out[:2])
			return err
		},
		"got []attnbias.Float16, want numbers of the tensor's type, DATA_TYPE_F32": func() error {
			_, err := GetInto(t.Context(), client, alibi, make([]Float16, 12))
			return err
		},
		"out: got 0 bytes": func() error {
			_, err := GetInto[float32](t.Context(), client, alibi, nil)
			return err
		},
	} {
		err := get()
		expectError(t, err, ErrInvalidArgument, want)
	}
}

// Receives a header with an arbitrary total, a correct chunk, and an arbitrary chunk.
func FuzzAssemble(f *testing.F) {
	f.Add(int64(18), []byte("123456789"), int64(9), uint32(0xe3069283), []byte("123456789"))
	f.Add(int64(-1), []byte(nil), int64(0), uint32(0), []byte(nil))
	f.Add(int64(math.MaxInt64), []byte("1"), int64(1), uint32(0), []byte(nil))
	f.Fuzz(func(t *testing.T, total int64, begin []byte, offset int64, sum uint32, end []byte) {
		header := &pb.TensorHeader{TotalBytes: total, Fingerprint: fingerprint,
			EncodingFingerprint: encodingFingerprint}
		if total%4 == 0 {
			header.Parts = []*pb.TensorPart{{
				Name: "positions", DataType: pb.DataType_DATA_TYPE_F32,
				Form: pb.Form_FORM_TABLE, Shape: []int64{total / 4, 1}, SizeBytes: total,
			}}
		}
		d := newDownload(1 << 20)
		err := d.receive(serialised(withHeader(header),
			&pb.StreamTensorResponse{Crc32C: crc32.Checksum(begin, castagnoli), Data: begin},
			&pb.StreamTensorResponse{Offset: offset, Crc32C: sum, Data: end},
		), nil)
		whole := append(slices.Clone(begin), end...)
		right := total > 0 && total == int64(len(whole)) && total%4 == 0 &&
			offset == int64(len(begin)) && sum == crc32.Checksum(end, castagnoli)
		if right != (err == nil) {
			t.Fatalf("correct is %t, but the error is %v", right, err)
		}
		if got := d.memory; right && !slices.Equal(got, whole) {
			t.Errorf("got %q, want %q", got, whole)
		}
	})
}

// Arbitrary bytes are parsed the way protobuf's own parser parses them.
func FuzzReadChunk(f *testing.F) {
	for _, message := range *serialised(withHeader(payloadHeader()), part(1)) {
		f.Add(message)
	}
	f.Add(protowire.AppendFixed64(protowire.AppendTag(nil, 7, protowire.Fixed64Type), 1))
	f.Add(protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), "skipped"))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, message []byte) {
		read, err := readChunk(message)
		if err != nil {
			return
		}
		var want pb.ComputeLogitsResponse
		header := read.header
		if err := proto.Unmarshal(message, &want); err != nil && header == nil {
			t.Fatalf("accepted %x, which protobuf rejects: %v", message, err)
		} else if err != nil {
			return // an invalid header is rejected when it is read
		}
		got := &pb.ComputeLogitsResponse{
			Offset: read.offset, Crc32C: read.crc32c, FirstRow: read.firstRow,
			HeaderCrc32C: read.headerCRC32C, RequestCrc32C: read.requestCRC32C, Data: read.data,
		}
		if header != nil {
			got.Header = &pb.LogitsHeader{}
			if err := proto.Unmarshal(header, got.Header); err != nil {
				t.Fatal(err)
			}
		}
		want.ProtoReflect().SetUnknown(nil)
		if got.Header != nil {
			got.Header.ProtoReflect().SetUnknown(nil)
			want.Header.ProtoReflect().SetUnknown(nil)
		}
		if !proto.Equal(got, &want) {
			t.Errorf("got %v, want %v", got, &want)
		}
	})
}
