// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const mib = 1 << 20

var otherFingerprint = strings.Repeat("e", 64)

// largePayload is ascending numbers, as many as have so many bytes.
func largePayload(size int) []int32 {
	numbers := make([]int32, size/4)
	for i := range numbers {
		numbers[i] = int32(i)
	}
	return numbers
}

func largeHeader(numbers []int32, fingerprint string) *pb.TensorHeader {
	size := int64(4 * len(numbers))
	return &pb.TensorHeader{
		Parts: []*pb.TensorPart{{
			Name: "dense", DataType: pb.DataType_DATA_TYPE_I32, Form: pb.Form_FORM_DENSE,
			Shape: []int64{1, int64(len(numbers))}, SizeBytes: size,
		}},
		TotalBytes: size, Fingerprint: fingerprint, EncodingFingerprint: encodingFingerprint,
		ResolvedSpec: large(numbers),
	}
}

// large asks for as many indices.
func large(numbers []int32) *pb.TensorSpec {
	return &pb.TensorSpec{
		Encoding: &pb.TensorSpec_Deberta{Deberta: &pb.Deberta{}},
		Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
			QueryLength: 1, KeyLength: int64(len(numbers)),
		}},
		Output: &pb.Output{Form: pb.Form_FORM_DENSE},
	}
}

// streamsOf answers as a server does, with chunks of 1 MiB.
func streamsOf(
	numbers []int32, fingerprint string,
) func(*pb.StreamTensorRequest, tensorStream) error {
	header, data := withHeader(largeHeader(numbers, fingerprint)), bytesOf(numbers)
	return func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset > 0 && request.ExpectedFingerprint != fingerprint {
			return status.Error(codes.FailedPrecondition, "changed")
		}
		if err := stream.Send(header); err != nil {
			return err
		}
		at, end := int(request.ReadOffset), len(data)
		if request.ReadLimit > 0 {
			end = min(end, at+int(request.ReadLimit))
		}
		for ; at < end; at += mib {
			if err := stream.Send(chunkOf(data, at, min(at+mib, end))); err != nil {
				return err
			}
		}
		return nil
	}
}

func chunkOf(data []byte, begin, end int) *pb.StreamTensorResponse {
	return &pb.StreamTensorResponse{Offset: int64(begin), Data: data[begin:end],
		Crc32C: sumOfBytes(data[begin:end])}
}

// The ranges of 16 MiB and what 3 streams make of 7 MiB and 20 bytes more.
const (
	largeBytes = 23*mib + 20
	secondAt   = 19 * mib
)

func threeRanges() []asked {
	return []asked{
		{offset: 0, limit: 16 * mib},
		{offset: 16 * mib, limit: 3 * mib, fingerprint: fingerprint},
		{offset: secondAt, limit: 3 * mib, fingerprint: fingerprint},
		{offset: 22 * mib, limit: mib + 20, fingerprint: fingerprint},
	}
}

// expectRanges holds the calls, but for their peers, against those wanted. It returns the peers.
func expectRanges(t *testing.T, f *fake, want []asked) []string {
	t.Helper()
	got := slices.Clone(f.ranges)
	slices.SortStableFunc(got, func(a, b asked) int { return cmp.Compare(a.offset, b.offset) })
	var peers []string
	for i := range got {
		peers = append(peers, got[i].peer)
		got[i].peer = ""
	}
	if !slices.Equal(got, want) {
		t.Errorf("got calls %v, want %v", got, want)
	}
	return peers
}

// expectNoRanges looks for goroutines that a download has left.
func expectNoRanges(t *testing.T) {
	t.Helper()
	stacks := make([]byte, mib)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if bytes.Contains(stacks, []byte("(*byteRange)")) {
		t.Errorf("got goroutines\n%s", stacks)
	}
}

func TestRangesCoverThePayload(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3))
	numbers := largePayload(largeBytes)
	f.stream = streamsOf(numbers, fingerprint)
	var told []int64
	tensor, err := client.Get(t.Context(), large(numbers),
		WithProgress(func(done, total int64) { told = append(told, done, total) }))
	if err != nil || !bytes.Equal(tensor.Bytes(), bytesOf(numbers)) {
		t.Fatalf("got %v", err)
	}
	peers := expectRanges(t, f, threeRanges())
	if peers[0] != peers[1] || peers[1] == peers[2] || peers[2] == peers[3] ||
		peers[1] == peers[3] {
		t.Errorf("got connections %v, want another for each range but the first two", peers)
	}
	for i := 0; i < len(told); i += 2 {
		if told[i+1] != largeBytes || i > 0 && told[i] <= told[i-2] {
			t.Errorf("got progress %v", told)
		}
	}
	if len(told) != 48 || told[46] != largeBytes {
		t.Errorf("got progress %v, want 24 parts", told)
	}
	f.ranges = nil
	out := make([]int32, len(numbers)+1)
	tensor, err = GetInto(t.Context(), client, large(numbers), out)
	if err != nil || !slices.Equal(out[:len(numbers)], numbers) ||
		&tensor.Bytes()[0] != &bytesOf(out)[0] {
		t.Fatalf("got %v", err)
	}
	if again := expectRanges(t, f, threeRanges()); !slices.Equal(again, peers) {
		t.Errorf("got connections %v, want those there are: %v", again, peers)
	}
	expectNoRanges(t)
	opened := client.connections.opened
	client.Close()
	for i, one := range opened {
		if state := one.GetState(); state != connectivity.Shutdown {
			t.Errorf("connection %d: got %v after Close", i, state)
		}
	}
}

func TestOneStreamIsOneCallWithoutLimit(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(1))
	numbers := largePayload(17 * mib)
	f.stream = streamsOf(numbers, fingerprint)
	if tensor := get(t, client, large(numbers)); !bytes.Equal(tensor.Bytes(), bytesOf(numbers)) {
		t.Error("got other numbers")
	}
	expectRanges(t, f, []asked{{}})
}

func TestStreamsAreAsManyAsAreWorthIt(t *testing.T) {
	for _, test := range []struct {
		rest  int
		first time.Duration
		want  int
	}{
		{1, time.Hour, 1},
		{1 << 30, 0, 1},
		{200 * mib, 20 * time.Millisecond, 1}, // 800 MiB/s
		{201 * mib, 20 * time.Millisecond, 2},
		{1 << 30, 20 * time.Millisecond, 6},
		{32 * mib, time.Second, 2},
		{32*mib + 1, time.Second, 3},
		{1 << 30, time.Second, 8},
	} {
		if got := worthwhileStreams(test.rest, firstBytes/test.first.Seconds()); got != test.want {
			t.Errorf("%d bytes, the first 16 MiB in %v: got %d streams, want %d", test.rest,
				test.first, got, test.want)
		}
	}
	f, client := fakeAndClient(t)
	for size, want := range map[int][]asked{
		5 * mib:  {{limit: 16 * mib}},
		16 * mib: {{limit: 16 * mib}},
		// However fast the first 16 MiB come, so little is not worth another connection.
		17 * mib: {{limit: 16 * mib},
			{offset: 16 * mib, limit: mib, fingerprint: fingerprint}},
		// Of a slow way 16 MiB are.
		16*mib + 33*mib: {{limit: 16 * mib},
			{offset: 16 * mib, limit: 11 * mib, fingerprint: fingerprint},
			{offset: 27 * mib, limit: 11 * mib, fingerprint: fingerprint},
			{offset: 38 * mib, limit: 11 * mib, fingerprint: fingerprint}},
	} {
		numbers := largePayload(size)
		whole := streamsOf(numbers, fingerprint)
		f.ranges = nil
		f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
			if request.ReadOffset == 0 {
				time.Sleep(worthwhileTime)
			}
			return whole(request, stream)
		}
		tensor := get(t, client, large(numbers))
		if !bytes.Equal(tensor.Bytes(), bytesOf(numbers)) {
			t.Error("got other numbers")
		}
		expectRanges(t, f, want)
	}
}

func TestBrokenRangeGoesOnAlone(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3))
	numbers := largePayload(largeBytes)
	whole := streamsOf(numbers, fingerprint)
	f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset != secondAt {
			return whole(request, stream)
		}
		return sends(broken, withHeader(largeHeader(numbers, fingerprint)),
			chunkOf(bytesOf(numbers), secondAt, secondAt+mib))(request, stream)
	}
	if tensor := get(t, client, large(numbers)); !bytes.Equal(tensor.Bytes(), bytesOf(numbers)) {
		t.Error("got other numbers")
	}
	rest := asked{offset: secondAt + mib, limit: 2 * mib, fingerprint: fingerprint}
	peers := expectRanges(t, f, slices.Insert(threeRanges(), 3, rest))
	if peers[2] != peers[3] {
		t.Errorf("got connections %v, want the range's own", peers)
	}
}

// changing answers with one payload first, and then with another.
func changing(
	numbers []int32,
) (*atomic.Int32, func(*pb.StreamTensorRequest, tensorStream) error) {
	first, then := streamsOf(numbers, fingerprint), streamsOf(numbers, otherFingerprint)
	begun := &atomic.Int32{}
	return begun, func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset == 0 && begun.Add(1) == 1 {
			return first(request, stream)
		}
		return then(request, stream)
	}
}

func TestChangedPayloadComesAnewOnce(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3))
	numbers := largePayload(largeBytes)
	begun, stream := changing(numbers)
	f.stream = stream
	tensor, err := client.Get(t.Context(), large(numbers))
	if err != nil || tensor.Fingerprint() != otherFingerprint || begun.Load() != 2 ||
		!bytes.Equal(tensor.Bytes(), bytesOf(numbers)) {
		t.Errorf("got %v after %d beginnings", err, begun.Load())
	}
	expectNoRanges(t)
}

func TestPayloadThatChangesAgainIsGivenUp(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3))
	numbers := largePayload(largeBytes)
	var begun atomic.Int32
	breaks := sends(broken, withHeader(largeHeader(numbers, fingerprint)),
		chunkOf(bytesOf(numbers), 0, mib))
	f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset > 0 {
			return status.Error(codes.FailedPrecondition, "changed")
		}
		begun.Add(1)
		return breaks(request, stream)
	}
	_, err := client.Get(t.Context(), large(numbers))
	if !errors.Is(err, ErrFingerprintMismatch) || begun.Load() != 2 {
		t.Errorf("got %v after %d beginnings, want %v after 2", err, begun.Load(),
			ErrFingerprintMismatch)
	}
	expectNoRanges(t)
}

func TestRangeOfAnotherPayloadIsRefused(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3))
	numbers := largePayload(largeBytes)
	whole := streamsOf(numbers, fingerprint)
	f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset != secondAt {
			return whole(request, stream)
		}
		return sends(nil, withHeader(largeHeader(numbers, otherFingerprint)))(request, stream)
	}
	_, err := client.Get(t.Context(), large(numbers))
	expectError(t, err, ErrCorrupt, "resumed with fingerprint eeee")
}

func TestRangeEndsWhereItWasTold(t *testing.T) {
	numbers := largePayload(largeBytes)
	whole := streamsOf(numbers, fingerprint)
	for want, limit := range map[string]int64{
		"at most the 0 that are missing":       4 * mib,
		"ended after 20971520 bytes, want 230": mib,
	} {
		// A server of its own: other ranges may still begin after the one that failed.
		f, client := fakeAndClient(t, WithStreams(3))
		f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
			if request.ReadOffset == secondAt {
				request.ReadLimit = limit
			}
			return whole(request, stream)
		}
		_, err := client.Get(t.Context(), large(numbers))
		expectError(t, err, ErrCorrupt, want)
	}
}

// stalling sends a range of the rest until a byte and then waits for the call's end, of which it
// tells; what comes before the rest comes whole.
func stalling(
	numbers []int32, reached, ended chan<- int64,
) func(*pb.StreamTensorRequest, tensorStream) error {
	whole := streamsOf(numbers, fingerprint)
	return func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset > 0 {
			request.ReadLimit -= mib
		}
		if err := whole(request, stream); err != nil || request.ReadOffset == 0 {
			return err
		}
		reached <- request.ReadOffset
		<-stream.Context().Done()
		ended <- request.ReadOffset
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

func TestFirstFailureEndsTheOtherRanges(t *testing.T) {
	f, client := fakeAndClient(t, WithStreams(3), WithTimeout(time.Hour)) // which ends no range
	reached, ended := make(chan int64, 3), make(chan int64, 3)
	numbers := largePayload(largeBytes)
	stall := stalling(numbers, reached, ended)
	f.stream = func(request *pb.StreamTensorRequest, stream tensorStream) error {
		if request.ReadOffset != secondAt {
			return stall(request, stream)
		}
		<-reached
		<-reached
		return status.Error(codes.Internal, "that one")
	}
	_, err := client.Get(t.Context(), large(numbers))
	expectError(t, err, ErrInternal, "that one")
	<-ended
	<-ended
	if len(f.ranges) != 4 {
		t.Errorf("got calls %v, want none again", f.ranges)
	}
	expectNoRanges(t)
}

func TestRangesEndWithTheirContextAndTheirClient(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*Client, context.CancelFunc)
		says string
	}{
		"context": {func(_ *Client, cancel context.CancelFunc) { cancel() }, "canceled"},
		"client": {
			func(client *Client, _ context.CancelFunc) { client.Close() },
			"the client is closed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, client := fakeAndClient(t, WithStreams(3))
			reached, ended := make(chan int64, 3), make(chan int64, 3)
			numbers := largePayload(largeBytes)
			f.stream = stalling(numbers, reached, ended)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error)
			go func() {
				_, err := client.Get(ctx, large(numbers))
				failed <- err
			}()
			for range 3 {
				<-reached
			}
			test.end(client, cancel)
			err := <-failed
			expectError(t, err, context.Canceled, test.says)
			for range 3 {
				<-ended
			}
			expectNoRanges(t)
		})
	}
}

func TestMemoryIsTakenOnce(t *testing.T) {
	f, client := fakeAndClient(t)
	numbers := largePayload(64 * mib)
	begins := sends(broken, withHeader(largeHeader(numbers, fingerprint)))
	f.script = append(f.script, begins, begins, begins,
		sends(status.Error(codes.NotFound, "gone")))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := client.Get(t.Context(), large(numbers))
	runtime.ReadMemStats(&after)
	expectError(t, err, ErrNotFound, "gone")
	if took := after.TotalAlloc - before.TotalAlloc; took > 96*mib {
		t.Errorf("took %d bytes, want those of the payload, %d", took, 64*mib)
	}
}

// The real server: ranges, one stream and one message have the same bytes.
func TestWaysToAPayloadAgree(t *testing.T) {
	ranges, one := realClient(t, WithStreams(3)), realClient(t, WithStreams(1))
	long := specOf(t, "alibi { num_heads: 1 } pair { query_length: 2400 key_length: 2400 } "+
		"output { form: FORM_DENSE }")
	got, want := get(t, ranges, long), get(t, one, long)
	if len(want.Bytes()) < 20*mib || !bytes.Equal(got.Bytes(), want.Bytes()) ||
		got.Fingerprint() != want.Fingerprint() {
		t.Errorf("got %d bytes and fingerprint %s, want %d and %s", len(got.Bytes()),
			got.Fingerprint(), len(want.Bytes()), want.Fingerprint())
	}
	small := specOf(t, "alibi { num_heads: 2 } pair { query_length: 4 key_length: 4 }")
	streamed := get(t, one, small)
	if !one.sizes.fitMessage(small) {
		t.Error("got a size that is not remembered")
	}
	message := get(t, one, small)
	if !bytes.Equal(message.Bytes(), streamed.Bytes()) ||
		!proto.Equal(message.Header(), streamed.Header()) {
		t.Errorf("got %v, want %v", message, streamed)
	}
}
