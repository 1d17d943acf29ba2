// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// The request that a script answers.
var alibi = &pb.TensorSpec{
	Encoding: &pb.TensorSpec_Alibi{Alibi: &pb.Alibi{NumHeads: 1}},
	Extent:   &pb.TensorSpec_Pair{Pair: &pb.PairExtent{QueryLength: 2, KeyLength: 2}},
}

// The fake server's payload: 3 diagonals, each sent in its own chunk.
var payload = []float32{1, 2, 3}

const (
	chunkBytes  = 4
	fingerprint = "00000000000000000000000000000000000000000000000000000000000000ff"
	// Covers only the encoding.
	encodingFingerprint = "00000000000000000000000000000000000000000000000000000000000000ee"
)

func payloadHeader() *pb.TensorHeader {
	return &pb.TensorHeader{
		Parts: []*pb.TensorPart{{
			Name: "diagonals", DataType: pb.DataType_DATA_TYPE_F32, Form: pb.Form_FORM_TOEPLITZ,
			Shape: []int64{1, 3}, SizeBytes: 12, FirstRelativePosition: -1,
		}},
		TotalBytes: 12, Fingerprint: fingerprint, EncodingFingerprint: encodingFingerprint,
		ResolvedSpec: &pb.TensorSpec{
			Encoding: alibi.Encoding,
			Extent: &pb.TensorSpec_Pair{Pair: &pb.PairExtent{
				QueryLength: 2, KeyLength: 2, Queries: &pb.Range{End: 2}, Keys: &pb.Range{End: 2},
				Heads: &pb.Range{End: 1},
			}},
		},
	}
}

// withHeader returns a message that has the header and answers an empty request.
func withHeader(header *pb.TensorHeader) *pb.StreamTensorResponse {
	return &pb.StreamTensorResponse{
		Header: header, HeaderCrc32C: proto.Uint32(sumOf(header)), RequestCrc32C: proto.Uint32(0),
	}
}

// answering returns the message, with the checksum of the request if it has a header.
func answering(
	request *pb.StreamTensorRequest, message *pb.StreamTensorResponse,
) *pb.StreamTensorResponse {
	if message.Header != nil {
		message = proto.CloneOf(message)
		message.RequestCrc32C = proto.Uint32(sumOf(request))
	}
	return message
}

func sumOf(message proto.Message) uint32 {
	serialised, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return sumOfBytes(serialised)
}

func sumOfBytes(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// part returns the chunk with one element of the payload.
func part(index int) *pb.StreamTensorResponse {
	data := bytesOf(payload)[chunkBytes*index:][:chunkBytes]
	return &pb.StreamTensorResponse{
		Offset: int64(chunkBytes * index), Crc32C: sumOfBytes(data), Data: data,
	}
}

// firstPart returns part 0 with the header.
func firstPart() *pb.StreamTensorResponse {
	first := part(0)
	proto.Merge(first, withHeader(payloadHeader()))
	return first
}

type tensorStream = grpc.ServerStreamingServer[pb.StreamTensorResponse]

// fake answers like an attnbias server, or follows its script.
type fake struct {
	pb.UnimplementedAttentionBiasServiceServer
	script []func(*pb.StreamTensorRequest, tensorStream) error // for StreamTensor, in order
	errors []error                                             // for GetServerInfo, in order
	logits func(grpc.BidiStreamingServer[pb.ComputeLogitsRequest, pb.ComputeLogitsResponse]) error

	mutex    sync.Mutex
	offsets  []int64
	calls    int
	token    string
	identity string
}

func (f *fake) GetServerInfo(
	ctx context.Context, _ *pb.GetServerInfoRequest,
) (*pb.GetServerInfoResponse, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls++
	if sent, _ := metadata.FromIncomingContext(ctx); len(sent["authorization"]) > 0 {
		f.token = sent["authorization"][0]
	}
	if caller, _ := peer.FromContext(ctx); caller.AuthInfo != nil {
		own, isTLS := caller.AuthInfo.(credentials.TLSInfo)
		if isTLS && len(own.State.PeerCertificates) > 0 {
			f.identity = own.State.PeerCertificates[0].Subject.CommonName
		}
	}
	if len(f.errors) > 0 {
		err := f.errors[0]
		f.errors = f.errors[1:]
		return nil, err
	}
	return &pb.GetServerInfoResponse{Version: "fake"}, nil
}

func (f *fake) StreamTensor(request *pb.StreamTensorRequest, stream tensorStream) error {
	f.mutex.Lock()
	f.offsets = append(f.offsets, request.ReadOffset)
	next := sends(nil, firstPart(), part(1), part(2))
	if len(f.script) > 0 {
		next, f.script = f.script[0], f.script[1:]
	}
	f.mutex.Unlock()
	return next(request, stream)
}

func (f *fake) ComputeLogits(
	stream grpc.BidiStreamingServer[pb.ComputeLogitsRequest, pb.ComputeLogitsResponse],
) error {
	f.mutex.Lock()
	f.calls++
	f.mutex.Unlock()
	return f.logits(stream)
}

// sends returns a script that sends messages and ends with err.
func sends(
	err error, messages ...*pb.StreamTensorResponse,
) func(*pb.StreamTensorRequest, tensorStream) error {
	return func(request *pb.StreamTensorRequest, stream tensorStream) error {
		for _, message := range messages {
			if err := stream.Send(answering(request, message)); err != nil {
				return err
			}
		}
		return err
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serve runs a fake server until the test ends. The returned function stops it earlier.
func serve(t *testing.T, listener net.Listener, options ...grpc.ServerOption) (*fake, func()) {
	t.Helper()
	f, server := &fake{}, grpc.NewServer(options...)
	pb.RegisterAttentionBiasServiceServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return f, server.Stop
}

// clientOf returns a client that does not log retries.
func clientOf(t *testing.T, target string, options ...Option) *Client {
	t.Helper()
	silent := WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defaults := []Option{silent, WithTimeout(20 * time.Second)}
	client, err := New(target, append(defaults, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// fakeAndClient returns a fake server and a client for it.
func fakeAndClient(t *testing.T, options ...Option) (*fake, *Client) {
	t.Helper()
	listener := listen(t, "127.0.0.1:0")
	f, _ := serve(t, listener)
	return f, clientOf(t, listener.Addr().String(), options...)
}

func littleEndianFloats(values ...float32) []byte {
	var data []byte
	for _, value := range values {
		data, _ = binary.Append(data, binary.LittleEndian, value)
	}
	return data
}

func expectError(t *testing.T, err, is error, says string) {
	t.Helper()
	if !errors.Is(err, is) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %q with %q", err, is, says)
	}
}
