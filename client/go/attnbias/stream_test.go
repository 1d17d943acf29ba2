// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// recorded is a stream of messages as they came, each in pieces of the sizes that gRPC may cut.
type recorded [][]byte

func (r *recorded) RecvMsg(into any) error {
	if len(*r) == 0 {
		return io.EOF
	}
	var slices mem.BufferSlice
	for rest := (*r)[0]; len(rest) > 0; {
		size := min(len(rest), 5)
		slices = append(slices, mem.SliceBuffer(rest[:size]))
		rest = rest[size:]
	}
	into.(*rawMessage).slices = slices
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

func newDownload(spec *pb.TensorSpec, maxBytes int64) *download {
	return &download{
		want:    expectedOf(spec),
		client:  &Client{maxTensorBytes: maxBytes},
		reserve: func(h *pb.TensorHeader) ([]byte, error) { return memoryFor(h.TotalBytes), nil },
	}
}

func TestChunksAreJoined(t *testing.T) {
	for _, stream := range []*recorded{
		serialised(withHeader(payloadHeader()), part(0), part(1), part(2)),
		serialised(firstPart(), part(1), part(2)),
	} {
		d := newDownload(alibi, 100)
		err := d.receive(stream)
		if got := d.memory; err != nil || !slices.Equal(numbersIn[float32](got), payload) {
			t.Errorf("got %v, %v, want %v", got, err, payload)
		}
	}
}

// fault is a stream that is to be refused at its first attempt.
type fault struct {
	name   string
	stream []*pb.StreamTensorResponse
	says   string
}

func faults() []fault {
	whole := withHeader(payloadHeader())
	broken := proto.CloneOf(part(1))
	broken.Data[0]++
	extra := part(0)
	extra.Offset = 12
	flipped := withHeader(payloadHeader())
	flipped.Header.Parts[0].Shape = []int64{3, 1}
	spoilt := func(spoil func(*pb.TensorHeader)) *pb.StreamTensorResponse {
		header := payloadHeader()
		spoil(header)
		return withHeader(header)
	}
	long := spoilt(func(h *pb.TensorHeader) { h.TotalBytes = 16 })
	moved := spoilt(func(h *pb.TensorHeader) { h.Parts[0].Offset = 4 })
	deep := spoilt(func(h *pb.TensorHeader) {
		for len(h.Parts[0].Shape) < 65 {
			h.Parts[0].Shape = append(h.Parts[0].Shape, 1)
		}
	})
	empty := spoilt(func(h *pb.TensorHeader) { h.Parts, h.TotalBytes = nil, 0 })
	huge := spoilt(func(h *pb.TensorHeader) {
		h.Parts[0].Shape = []int64{1 << 31, 1 << 31} // whose bytes are 2^64
		h.Parts[0].SizeBytes, h.TotalBytes = 0, 0
	})
	elsewhere := firstPart()
	elsewhere.Offset = 4
	large := firstPart()
	large.Data = make([]byte, 16)
	type stream = []*pb.StreamTensorResponse
	return []fault{
		{"nothing", nil, "ended without a header"},
		{"no header", stream{{Offset: 0}}, "the first message has no header"},
		{"data instead", stream{part(0)}, "the first message has no header"},
		{"a flipped header", stream{flipped}, "header: got CRC-32C"},
		{"a wrong total", stream{long}, "total_bytes: got 16, want 12"},
		{"a part elsewhere", stream{moved}, "does not add up"},
		{"an impossible shape", stream{huge}, "does not add up"},
		{"too many axes", stream{deep}, "has 65 axes, want at most 64"},
		{"no parts", stream{empty}, "it has no parts"},
		{"truncated", stream{whole, part(0)}, "ended after 4 bytes, want 12"},
		{"corrupted", stream{whole, part(0), broken}, "at offset 4 have CRC-32C"},
		{"reordered", stream{whole, part(1), part(0)}, "got offset 4, want 0"},
		{"a first part elsewhere", stream{elsewhere}, "got offset 4, want 0"},
		{"too much at first", stream{large}, "got 16 bytes of data, want at most the 12"},
		{"a second header", stream{whole, whole, part(0)}, "stream: a second header"},
		{"repeated", stream{whole, part(0), part(0)}, "got offset 0, want 4"},
		{"too much", stream{whole, part(0), part(1), part(2), extra}, "want at most the 0"},
	}
}

func TestFaultsAreRefusedAtOnce(t *testing.T) {
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			f, client := fakeAndClient(t)
			f.script = append(f.script, sends(nil, fault.stream...))
			_, err := client.Get(t.Context(), alibi)
			expectError(t, err, ErrCorrupt, fault.says)
			if len(f.offsets) != 1 {
				t.Errorf("got calls at %v, want one", f.offsets)
			}
		})
	}
}

func TestLargePayloadIsRefusedBeforeItComes(t *testing.T) {
	_, client := fakeAndClient(t, WithMaxTensorBytes(11))
	_, err := client.Get(t.Context(), alibi)
	expectError(t, err, ErrTooLarge, "WithMaxTensorBytes: the tensor has 12 bytes")
}

var broken = status.Error(codes.Unavailable, "broken")

func TestStreamGoesOnWhereItBroke(t *testing.T) {
	f, client := fakeAndClient(t)
	header := withHeader(payloadHeader())
	f.script = []func(*pb.StreamTensorRequest, tensorStream) error{
		sends(broken, header), sends(broken, header, part(0)),
		sends(status.Error(codes.FailedPrecondition, "changed")),
		sends(broken, header, part(0)), sends(broken, header, part(1)),
		func(request *pb.StreamTensorRequest, stream tensorStream) error {
			if request.ExpectedFingerprint != fingerprint {
				t.Errorf("got fingerprint %q, want %q", request.ExpectedFingerprint, fingerprint)
			}
			return sends(nil, header, part(2))(request, stream)
		},
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

func TestWhatChangesTwiceIsGivenUp(t *testing.T) {
	f, client := fakeAndClient(t)
	begins := sends(broken, withHeader(payloadHeader()), part(0))
	changed := sends(status.Error(codes.FailedPrecondition, "changed"))
	for _, script := range [][]func(*pb.StreamTensorRequest, tensorStream) error{
		{begins, changed, begins, changed}, {changed}, // of which nothing has begun
	} {
		f.script = script
		if _, err := client.Get(t.Context(), alibi); !errors.Is(err, ErrFingerprintMismatch) {
			t.Errorf("got %v, want %v", err, ErrFingerprintMismatch)
		}
	}
}

func TestHeaderThatChangesIsRefused(t *testing.T) {
	// Its number of columns is the server's.
	named := specOf(t, "learned_absolute { table { name: 'a' } } table { positions { end: 1 } }")
	begun := payloadHeader()
	begun.Parts[0].Name, begun.Parts[0].Form = "positions", pb.Form_FORM_TABLE
	begun.Parts[0].FirstRelativePosition, begun.ResolvedSpec = 0, named
	other, wider := proto.CloneOf(begun), proto.CloneOf(begun)
	other.Fingerprint = strings.Repeat("0", 64)
	wider.Parts[0].Shape = []int64{1, 4}
	wider.Parts[0].SizeBytes, wider.TotalBytes = 16, 16
	for want, header := range map[string]*pb.TensorHeader{
		"resumed with fingerprint": other, "resumed with parts": wider,
	} {
		f, client := fakeAndClient(t)
		f.script = append(f.script, sends(broken, withHeader(begun), part(0)),
			sends(nil, withHeader(header), part(1), part(2)))
		_, err := client.Get(t.Context(), named)
		expectError(t, err, ErrCorrupt, want)
	}
}

func TestWholePayloadMayEndAsItLikes(t *testing.T) {
	f, client := fakeAndClient(t)
	whole := withHeader(payloadHeader())
	f.script = append(f.script, sends(broken, whole, part(0), part(1), part(2)))
	if _, err := client.Get(t.Context(), alibi); err != nil || len(f.offsets) != 1 {
		t.Errorf("got %v after calls at %v", err, f.offsets)
	}
}

func TestStalledStreamEndsWithItsTime(t *testing.T) {
	stall := func(_ *pb.StreamTensorRequest, stream tensorStream) error {
		if err := stream.Send(withHeader(payloadHeader())); err != nil {
			return err
		}
		<-stream.Context().Done()
		return status.FromContextError(stream.Context().Err()).Err()
	}
	f, client := fakeAndClient(t, WithTimeout(100*time.Millisecond))
	f.script = append(f.script, stall, stall)
	if _, err := client.Get(t.Context(), alibi); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := client.Get(ctx, alibi); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestCloseEndsAStream(t *testing.T) {
	f, client := fakeAndClient(t, WithTimeout(time.Hour))
	f.script = append(f.script, func(_ *pb.StreamTensorRequest, stream tensorStream) error {
		if err := stream.Send(firstPart()); err != nil {
			return err
		}
		client.Close()
		<-stream.Context().Done()
		return nil
	})
	_, err := client.Get(t.Context(), alibi)
	expectError(t, err, context.Canceled, "the client is closed")
}

func TestMemoryIsTakenOnce(t *testing.T) {
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
		t.Errorf("took %d bytes, want those of the payload, %d", took, size)
	}
}

func TestGetIntoWritesWhereItIsTold(t *testing.T) {
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
		"out: got []attnbias.Float16, want numbers of the tensor's DATA_TYPE_F32": func() error {
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

// A header that promises total bytes, a chunk in order, and one of which everything may be wrong.
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
		spec := &pb.TensorSpec{
			Encoding: &pb.TensorSpec_Sinusoidal{Sinusoidal: &pb.Sinusoidal{Dim: 1}},
			Extent: &pb.TensorSpec_Table{Table: &pb.TableExtent{
				Positions: &pb.Range{End: total / 4},
			}},
		}
		header.ResolvedSpec = spec
		d := newDownload(spec, 1<<20)
		err := d.receive(serialised(withHeader(header),
			&pb.StreamTensorResponse{Crc32C: crc32.Checksum(begin, castagnoli), Data: begin},
			&pb.StreamTensorResponse{Offset: offset, Crc32C: sum, Data: end},
		))
		whole := append(slices.Clone(begin), end...)
		right := total > 0 && total == int64(len(whole)) && total%4 == 0 &&
			offset == int64(len(begin)) && sum == crc32.Checksum(end, castagnoli)
		if right != (err == nil) {
			t.Fatalf("right is %t, but the error is %v", right, err)
		}
		if got := d.memory; right && !slices.Equal(got, whole) {
			t.Errorf("got %q, want %q", got, whole)
		}
	})
}

// Any bytes: what is read agrees with what protobuf's own reader has of them.
func FuzzReadChunk(f *testing.F) {
	for _, message := range *serialised(withHeader(payloadHeader()), part(1)) {
		f.Add(message)
	}
	f.Add(protowire.AppendFixed64(protowire.AppendTag(nil, 7, protowire.Fixed64Type), 1))
	f.Add(protowire.AppendString(protowire.AppendTag(nil, 7, protowire.BytesType), "skipped"))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, message []byte) {
		var pieces rawMessage
		if err := (&recorded{message}).RecvMsg(&pieces); err != nil {
			t.Fatal(err)
		}
		room := make([]byte, 64)
		read, err := readChunk(pieces.slices)
		if err == nil {
			err = read.copyData(pieces.slices, room)
		}
		if err != nil {
			return
		}
		var want pb.ComputeLogitsResponse
		header := read.header
		withoutHeader := slices.Clone(message)
		if err := proto.Unmarshal(withoutHeader, &want); err != nil && header == nil {
			t.Fatalf("took %x, which protobuf does not: %v", message, err)
		} else if err != nil {
			return // a header that is no header is refused when it is read
		}
		got := &pb.ComputeLogitsResponse{
			Offset: read.offset, Crc32C: read.crc32c, FirstRow: read.firstRow,
			HeaderCrc32C: read.headerCRC32C,
		}
		if read.size > 0 {
			got.Data = room[:read.size]
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
