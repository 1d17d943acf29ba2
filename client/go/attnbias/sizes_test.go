// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// wholeMessage is the payload as GetTensor has it.
func wholeMessage() *pb.GetTensorResponse {
	data := bytesOf(payload)
	return &pb.GetTensorResponse{Header: payloadHeader(), Data: data, Crc32C: sumOfBytes(data),
		HeaderCrc32C: proto.Uint32(sumOf(payloadHeader()))}
}

func TestKnownSmallPayloadComesInOneMessage(t *testing.T) {
	for name, learn := range map[string]func(*testing.T, *Client){
		"by a download": func(t *testing.T, client *Client) { get(t, client, alibi) },
		"by its description": func(t *testing.T, client *Client) {
			if _, err := client.Describe(t.Context(), alibi); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, client := fakeAndClient(t)
			f.unary = func() (*pb.GetTensorResponse, error) { return wholeMessage(), nil }
			learn(t, client)
			streams := len(f.offsets)
			var told []int64
			tensor, err := client.Get(t.Context(), alibi,
				WithProgress(func(done, total int64) { told = append(told, done, total) }))
			if err != nil || !slices.Equal(numbersIn[float32](tensor.Bytes()), payload) {
				t.Errorf("got %v, %v", tensor, err)
			}
			if f.messages != 1 || len(f.offsets) != streams {
				t.Errorf("got %d messages and %d streams, want a message", f.messages,
					len(f.offsets)-streams)
			}
			if want := []int64{12, 12}; !slices.Equal(told, want) {
				t.Errorf("got progress %v, want %v", told, want)
			}
			var out [3]float32
			if _, err := GetInto(t.Context(), client, alibi, out[:]); err != nil ||
				!slices.Equal(out[:], payload) || f.messages != 2 {
				t.Errorf("got %v, %v after %d messages", out, err, f.messages)
			}
			_, err = GetInto(t.Context(), client, alibi, out[:2])
			expectError(t, err, ErrInvalidArgument, "out: got 8 bytes, want at least 12")
			if len(f.offsets) != streams {
				t.Error("got a stream after what this client refused")
			}
		})
	}
}

func TestRefusedMessageIsStreamed(t *testing.T) {
	for name, test := range map[string]struct {
		err               error
		messages, streams int
		is                error
	}{
		"grown":           {status.Error(codes.InvalidArgument, ""), 1, 1, nil},
		"too large":       {status.Error(codes.ResourceExhausted, ""), 1, 1, nil},
		"forbidden":       {status.Error(codes.PermissionDenied, ""), 1, 1, nil},
		"no such method":  {status.Error(codes.Unimplemented, ""), 1, 1, nil},
		"overload":        {later(time.Millisecond), 2, 0, nil},
		"away":            {status.Error(codes.Unavailable, ""), 2, 0, nil},
		"no such table":   {status.Error(codes.NotFound, "gone"), 1, 0, ErrNotFound},
		"unauthenticated": {status.Error(codes.Unauthenticated, ""), 1, 0, ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			f, client := fakeAndClient(t)
			f.unary = func() (*pb.GetTensorResponse, error) {
				if f.messages == 1 {
					return nil, test.err
				}
				return wholeMessage(), nil
			}
			client.sizes.learn(alibi, 12)
			tensor, err := client.Get(t.Context(), alibi)
			if f.messages != test.messages || len(f.offsets) != test.streams {
				t.Errorf("got %d messages and %d streams, want %d and %d", f.messages,
					len(f.offsets), test.messages, test.streams)
			}
			if test.is != nil {
				expectError(t, err, test.is, "")
			} else if err != nil || !slices.Equal(numbersIn[float32](tensor.Bytes()), payload) {
				t.Errorf("got %v, %v", tensor, err)
			}
		})
	}
	f, client := fakeAndClient(t, WithMaxAttempts(1))
	f.unary = func() (*pb.GetTensorResponse, error) { return nil, later(time.Millisecond) }
	client.sizes.learn(alibi, 12)
	_, err := client.Get(t.Context(), alibi)
	expectError(t, err, ErrOverloaded, "later")
	if len(f.offsets) > 0 {
		t.Error("got a stream from a server that wants to be left alone")
	}
}

func TestMessageIsChecked(t *testing.T) {
	short := bytesOf(payload)[:8]
	for want, spoil := range map[string]func(*pb.GetTensorResponse){
		"the first message has no header": func(m *pb.GetTensorResponse) { m.Header = nil },
		"header: got CRC-32C":             func(m *pb.GetTensorResponse) { *m.HeaderCrc32C++ },
		"have CRC-32C":                    func(m *pb.GetTensorResponse) { m.Crc32C++ },
		"message: has 8 bytes, want 12": func(m *pb.GetTensorResponse) {
			m.Data, m.Crc32C = short, sumOfBytes(short)
		},
		"got 16 bytes of data, want at most the 12": func(m *pb.GetTensorResponse) {
			m.Data = make([]byte, 16)
		},
		"total_bytes: got 16, want 12": func(m *pb.GetTensorResponse) {
			m.Header.TotalBytes = 16
			m.HeaderCrc32C = proto.Uint32(sumOf(m.Header))
		},
	} {
		f, client := fakeAndClient(t)
		f.unary = func() (*pb.GetTensorResponse, error) {
			message := wholeMessage()
			spoil(message)
			return message, nil
		}
		client.sizes.learn(alibi, 12)
		_, err := client.Get(t.Context(), alibi)
		expectError(t, err, ErrCorrupt, want)
		if f.messages != 1 || len(f.offsets) > 0 {
			t.Errorf("%s: got %d messages and %d streams, want 1 and none", want, f.messages,
				len(f.offsets))
		}
	}
	f, client := fakeAndClient(t, WithMaxTensorBytes(11))
	f.unary = func() (*pb.GetTensorResponse, error) { return wholeMessage(), nil }
	client.sizes.learn(alibi, 12)
	_, err := client.Get(t.Context(), alibi)
	expectError(t, err, ErrTooLarge, "WithMaxTensorBytes: the tensor has 12 bytes")
	if len(f.offsets) > 0 {
		t.Error("got a stream after what this client refused")
	}
}

func TestSizesOfTheLastSpecsAreKnown(t *testing.T) {
	known := newSizes()
	spec := func(length int) *pb.TensorSpec {
		return &pb.TensorSpec{Extent: &pb.TensorSpec_Pair{
			Pair: &pb.PairExtent{QueryLength: int64(length)},
		}}
	}
	if known.fitMessage(spec(0)) {
		t.Error("got what was not learnt")
	}
	for range 2 { // the second time they take no more room
		for length := range len(known.keys) {
			known.learn(spec(length), 1)
		}
	}
	for length, size := range map[int]int64{7: messageBytes, 8: messageBytes + 1} {
		known.learn(spec(length), size)
		if got, want := known.fitMessage(spec(length)), size == messageBytes; got != want {
			t.Errorf("%d bytes: got %t", size, got)
		}
	}
	if !known.fitMessage(spec(0)) {
		t.Error("got 1024 specs, and not the first")
	}
	known.learn(spec(len(known.keys)), 1)
	if known.fitMessage(spec(0)) || !known.fitMessage(spec(1)) || len(known.known) != 1024 {
		t.Errorf("got %d specs, want 1024 without the first", len(known.known))
	}
	large := specOf(t, "t5 { table { sha256: '"+strings.Repeat("a", mostSpecBytes)+"' } }")
	large2 := specOf(t, "t5 { table { sha256: '"+strings.Repeat("b", mostSpecBytes/2)+"' } }")
	for want, spec := range map[bool]*pb.TensorSpec{false: large, true: large2} {
		known.learn(spec, 1)
		if known.fitMessage(spec) != want {
			t.Errorf("got %t of %d bytes", !want, proto.Size(spec))
		}
	}
}
