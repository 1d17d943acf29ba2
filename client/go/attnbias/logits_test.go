// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// Shaw's keys: 2 heads with 3 columns, 5 queries and 5 keys, clipped at 2 on both sides.
func shawKeys() *pb.LogitsSpec {
	return &pb.LogitsSpec{
		Term: &pb.LogitsSpec_ShawKeys{ShawKeys: &pb.RelativeTable{
			Table: counting(5, 3), Left: proto.Int64(2), Right: proto.Int64(2),
		}},
		NumHeads: 2, HeadDim: 3, QueryLength: 5, KeyLength: 5,
		Direction: pb.Direction_DIRECTION_BIDIRECTIONAL,
	}
}

func someRows(count int) []float32 {
	rows := make([]float32, count)
	for i := range rows {
		rows[i] = float32(i%7 - 3)
	}
	return rows
}

// expectLogits compares the logits for count rows, starting at row first, with those from the
// formula. All values are small integers, so the comparison is exact.
func expectLogits(t *testing.T, got, rows []float32, first, count int) {
	t.Helper()
	for h := range 2 {
		for i := range count {
			for j := range 5 {
				bucket := min(max(j-(first+i), -2), 2) + 2
				var want float32
				for c := range 3 {
					want += rows[(h*count+i)*3+c] * float32(bucket*3+c+1)
				}
				if is := got[(h*count+i)*5+j]; is != want {
					t.Errorf("head %d, row %d, key %d: got %v, want %v", h, first+i, j, is, want)
				}
			}
		}
	}
}

func TestLogitsMatchFormula(t *testing.T) {
	client := realClient(t)
	stream, err := NewLogits[float32, float32](client, shawKeys())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	rows := someRows(2 * 5 * 3)
	got, err := stream.Rows(t.Context(), 0, 5, rows)
	if err != nil {
		t.Fatal(err)
	}
	expectLogits(t, got, rows, 0, 5)
	for i := range int64(5) { // as a decoder does
		row := someRows(2 * 3)
		if got, err = stream.Rows(t.Context(), i, 1, row); err != nil {
			t.Fatal(err)
		}
		expectLogits(t, got, row, int(i), 1)
	}
	_, err = stream.Rows(t.Context(), 5, 1, someRows(6))
	if !errors.Is(err, ErrInvalidArgument) && !errors.Is(err, ErrOutOfRange) {
		t.Errorf("got %v, want an error about row 5", err)
	}
	if got, err = stream.Rows(t.Context(), 0, 5, rows); err != nil { // opens a new stream
		t.Fatal(err)
	}
	expectLogits(t, got, rows, 0, 5)
}

// The rows need more than one block. Each row has one nonzero weight.
func TestSendsManyRowsInBlocks(t *testing.T) {
	const heads, length, dim = 2, 3000, 4
	client := realClient(t)
	table := make([]float32, dim)
	for i := range table {
		table[i] = float32(i)
	}
	stream, err := NewLogits[float32, Float16](client, &pb.LogitsSpec{
		Term: &pb.LogitsSpec_ShawValues{ShawValues: &pb.RelativeTable{
			Table: InlineTable(table, 1, dim), Left: proto.Int64(0), Right: proto.Int64(0),
		}},
		NumHeads: heads, HeadDim: dim, QueryLength: length, KeyLength: length,
		Direction: pb.Direction_DIRECTION_BIDIRECTIONAL,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	weights := make([]float32, heads*length*length) // 69 MiB
	for h := range heads {
		for i := range length {
			weights[(h*length+i)*length+i] = float32(h*1000 + i%100)
		}
	}
	got, err := stream.Rows(t.Context(), 0, length, weights)
	if err != nil {
		t.Fatal(err)
	}
	for h := range heads {
		for i := range length {
			for c := range dim {
				want := ToFloat16(float32((h*1000 + i%100) * c))
				if is := got[(h*length+i)*dim+c]; is != want {
					t.Fatalf("head %d, row %d: got %v, want %v", h, i, is.Float32(), want.Float32())
				}
			}
		}
	}
}

type logitsStream = grpc.BidiStreamingServer[pb.ComputeLogitsRequest, pb.ComputeLogitsResponse]

// logitsServer answers each request with its row index in every element. Each answer is passed to
// spoil, which may modify it.
func logitsServer(
	after int, end error, spoil func(*pb.ComputeLogitsResponse),
) func(logitsStream) error {
	return func(stream logitsStream) error {
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		header := &pb.LogitsHeader{}
		answer := &pb.ComputeLogitsResponse{
			Header: header, HeaderCrc32C: proto.Uint32(sumOf(header)),
			RequestCrc32C: proto.Uint32(sumOf(first)),
		}
		spoil(answer)
		if err := stream.Send(answer); err != nil {
			return err
		}
		for range after {
			request, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			number := float32(request.FirstRow)
			for i := range int64(2) {
				data := littleEndianFloats(number)
				answer := &pb.ComputeLogitsResponse{
					Offset: 4 * i, FirstRow: request.FirstRow, Data: data,
					Crc32C: crc32.Checksum(data, castagnoli),
				}
				spoil(answer)
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		}
		return end
	}
}

func smallLogits(t *testing.T, client *Client) *Logits[float32, float32] {
	t.Helper()
	spec := shawKeys()
	spec.NumHeads, spec.HeadDim, spec.KeyLength = 1, 3, 2
	stream, err := NewLogits[float32, float32](client, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return stream
}

func TestLogitsRejectInvalidArguments(t *testing.T) {
	client := clientOf(t, "localhost")
	for want, spec := range map[string]*pb.LogitsSpec{
		"spec: got nil, want an *attnbiaspb.LogitsSpec":  nil,
		"spec.num_heads: got -1, want at least 0":        {NumHeads: -1},
		"spec.head_dim: got -2, want":                    {HeadDim: -2},
		"spec.key_length: got 2199023255552, want":       {KeyLength: 1 << 41},
		"spec.data_type: got DATA_TYPE_F16, want DATA_T": {DataType: pb.DataType_DATA_TYPE_F16},
	} {
		_, err := NewLogits[float32, float32](client, spec)
		expectError(t, err, ErrInvalidArgument, want)
	}
	stream, err := NewLogits[float32, float32](client, shawKeys())
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Rows(t.Context(), 0, 0, nil)
	expectError(t, err, ErrInvalidArgument, "count: got 0, want at least 1")
	_, err = stream.Rows(t.Context(), 0, 1, someRows(5))
	expectError(t, err, ErrInvalidArgument,
		"rows: got 5 numbers, want 6 for 2 heads, 1 rows and 3 columns")
	_, err = stream.Rows(t.Context(), 0, 1<<60, nil)
	expectError(t, err, ErrTooLarge, "WithMaxTensorBytes: the tensor has")
}

func TestLogitsResumeAfterBrokenStream(t *testing.T) {
	f, client := fakeAndClient(t)
	f.logits = logitsServer(2, broken, func(*pb.ComputeLogitsResponse) {})
	stream := smallLogits(t, client)
	for row := range int64(5) {
		got, err := stream.Rows(t.Context(), row, 1, someRows(3))
		if want := float32(row); err != nil || !slices.Equal(got, []float32{want, want}) {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
	}
	if f.calls != 3 {
		t.Errorf("got %d calls, want 3", f.calls)
	}
}

func TestIdleStreamEndIsNotAnAttempt(t *testing.T) {
	f, client := fakeAndClient(t, WithMaxAttempts(1))
	f.logits = logitsServer(1, broken, func(*pb.ComputeLogitsResponse) {})
	stream := smallLogits(t, client)
	for row := range int64(3) {
		if _, err := stream.Rows(t.Context(), row, 1, someRows(3)); err != nil {
			t.Fatal(err)
		}
	}
	f.logits = logitsServer(0, broken, func(*pb.ComputeLogitsResponse) {})
	_, err := stream.Rows(t.Context(), 3, 1, someRows(3))
	expectError(t, err, ErrUnavailable, "broken")
	if f.calls != 4 {
		t.Errorf("got %d calls, want 4", f.calls)
	}
}

func TestLogitsRejectCorruptResponses(t *testing.T) {
	for want, spoil := range map[string]func(*pb.ComputeLogitsResponse){
		"have CRC-32C":          func(answer *pb.ComputeLogitsResponse) { answer.Crc32C++ },
		"want offset 0 of row":  func(answer *pb.ComputeLogitsResponse) { answer.Offset = 4 },
		"got offset 0 of row 9": func(answer *pb.ComputeLogitsResponse) { answer.FirstRow = 9 },
		"at most the 8": func(answer *pb.ComputeLogitsResponse) {
			answer.Data = make([]byte, 16)
		},
		"request_crc32c: got none, want": func(answer *pb.ComputeLogitsResponse) {
			answer.RequestCrc32C = nil
		},
	} {
		f, client := fakeAndClient(t)
		f.logits = logitsServer(1, nil, spoil)
		_, err := smallLogits(t, client).Rows(t.Context(), 0, 1, someRows(3))
		expectError(t, err, ErrCorrupt, want)
	}
	f, client := fakeAndClient(t)
	f.logits = logitsServer(0, nil, func(*pb.ComputeLogitsResponse) {})
	_, err := smallLogits(t, client).Rows(t.Context(), 0, 1, someRows(3))
	expectError(t, err, ErrCorrupt, "ended with OK before all rows")
}

func TestCancelledContextEndsLogits(t *testing.T) {
	f, client := fakeAndClient(t)
	answers := logitsServer(5, nil, func(*pb.ComputeLogitsResponse) {})
	var calls atomic.Int32
	f.logits = func(stream logitsStream) error {
		if calls.Add(1) > 1 {
			return answers(stream)
		}
		<-stream.Context().Done()
		return status.Error(codes.Unavailable, "away")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	stream := smallLogits(t, client)
	if _, err := stream.Rows(ctx, 0, 1, someRows(3)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := stream.Rows(t.Context(), 0, 1, someRows(3)); err != nil {
		t.Error(err)
	}
}
