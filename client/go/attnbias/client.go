// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const (
	tablesPerPage = 1000 // the contract's limit
	mostPages     = 100
)

// Client is a connection to a server, safe for concurrent use.
type Client struct {
	settings
	target     string
	who        *security
	connection *grpc.ClientConn
	reached    atomic.Bool // true once the client has had a connection
	closeOnce  sync.Once
	closed     chan struct{}
}

// New returns a client that connects on its first call.
//
// The target is "host", "host:port" or any other gRPC target, such as "unix:/run/a.sock"; the
// default port is 50051. An empty target means the value of the environment variable
// ATTNBIAS_SERVER or, if that is unset, localhost.
//
// The error is ErrInvalidArgument and names the invalid option or variable.
func New(target string, options ...Option) (*Client, error) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil, failed(codes.Unimplemented, "this machine is big-endian, want little-endian")
	}
	s, err := settingsOf(options)
	if err != nil {
		return nil, err
	}
	if target == "" {
		target = os.Getenv("ATTNBIAS_SERVER")
	}
	if target == "" {
		target = "localhost"
	}
	if target, err = targetFrom(target); err != nil {
		return nil, err
	}
	who, err := securityOf(s, target)
	if err != nil {
		return nil, err
	}
	c := &Client{settings: *s, target: target, who: who, closed: make(chan struct{})}
	if c.connection, err = c.dial(target); err != nil {
		return nil, invalid("target: got %q: %v", target, err)
	}
	return c, nil
}

// Close ends the connection; calls in flight fail with context.Canceled. Tensors stay valid.
func (c *Client) Close() error {
	var err error
	c.closeOnce.Do(func() {
		close(c.closed)
		err = c.connection.Close()
	})
	return err
}

// Get fetches a tensor. A broken stream resumes at the byte where it broke. The error is ErrCorrupt
// if the payload does not match its checksums or header, or answers a different request.
func (c *Client) Get(
	ctx context.Context, spec *pb.TensorSpec, options ...GetOption,
) (*Tensor, error) {
	var memory []byte
	reserve := func(header *pb.TensorHeader) ([]byte, error) {
		if int64(len(memory)) != header.TotalBytes { // reuses memory if a download starts over
			memory = memoryFor(header.TotalBytes)
		}
		return memory, nil
	}
	return c.get(ctx, spec, reserve, options)
}

// GetInto fetches a tensor like [Client.Get], but into the start of out. The error is
// ErrInvalidArgument if out is too small or its element type differs from the tensor's. After an
// error, the contents of out are unspecified.
func GetInto[T Element](
	ctx context.Context, client *Client, spec *pb.TensorSpec, out []T, options ...GetOption,
) (*Tensor, error) {
	memory := bytesOf(out)
	reserve := func(header *pb.TensorHeader) ([]byte, error) {
		for _, part := range header.Parts {
			if part.DataType != dataTypeOf[T]() {
				return nil, invalid("out: got %T, want numbers of the tensor's type, %v", out,
					part.DataType)
			}
		}
		if int64(len(memory)) < header.TotalBytes {
			return nil, invalid("out: got %d bytes, want at least %d", len(memory),
				header.TotalBytes)
		}
		return memory[:header.TotalBytes], nil
	}
	return client.get(ctx, spec, reserve, options)
}

func (c *Client) get(
	ctx context.Context, spec *pb.TensorSpec, reserve func(*pb.TensorHeader) ([]byte, error),
	options []GetOption,
) (*Tensor, error) {
	if err := requireSpec(spec); err != nil {
		return nil, err
	}
	var s getSettings
	for _, option := range options {
		option(&s)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	d := download{client: c, spec: spec, reserve: reserve, progress: s.progress}
	return d.run(ctx)
}

// Describe returns the header that Get would return, without computing the tensor. The error is
// ErrCorrupt if the header contradicts itself, does not match its checksum or answers a different
// request.
func (c *Client) Describe(ctx context.Context, spec *pb.TensorSpec) (*pb.TensorHeader, error) {
	if err := requireSpec(spec); err != nil {
		return nil, err
	}
	request, err := serialized(&pb.DescribeTensorRequest{Spec: spec})
	if err != nil {
		return nil, err
	}
	var answer rawMessage
	err = c.ask(ctx, pb.AttentionBiasService_DescribeTensor_FullMethodName, request, &answer)
	if err != nil {
		return nil, err
	}
	defer answer.Free()
	read, err := readChunk(answer.ReadOnlyData())
	if err != nil {
		return nil, err
	}
	return read.tensorHeader(request)
}

// ServerInfo returns the server's version, kernels, encodings and limits.
func (c *Client) ServerInfo(ctx context.Context) (*pb.GetServerInfoResponse, error) {
	answer := &pb.GetServerInfoResponse{}
	err := c.ask(ctx, pb.AttentionBiasService_GetServerInfo_FullMethodName,
		&pb.GetServerInfoRequest{}, answer)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ListTables returns the learned tables that the server has mounted, sorted by name.
func (c *Client) ListTables(ctx context.Context) ([]*pb.TableInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var tables []*pb.TableInfo
	request := &pb.ListTablesRequest{PageSize: tablesPerPage}
	for range mostPages {
		page := &pb.ListTablesResponse{}
		err := c.ask(ctx, pb.AttentionBiasService_ListTables_FullMethodName, request, page)
		if err != nil {
			return nil, err
		}
		for _, table := range page.Tables {
			if len(tables) > 0 && table.Name <= tables[len(tables)-1].Name {
				return nil, corrupt(`tables: got "%s" after "%s", want names in ascending order`,
					brief(table.Name), brief(tables[len(tables)-1].Name))
			}
			tables = append(tables, table)
		}
		if page.NextPageToken == "" {
			return tables, nil
		}
		if len(page.Tables) == 0 {
			return nil, corrupt("tables: got an empty page before the last")
		}
		request.PageToken = page.NextPageToken
	}
	return nil, corrupt("tables: got more than %d pages, want at most %d", mostPages, mostPages)
}

// CheckHealth reports whether one of the server's services, or the server itself (""), is serving.
// It does not retry.
func (c *Client) CheckHealth(ctx context.Context, service string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	answer := &healthpb.HealthCheckResponse{}
	err := c.askOnce(ctx, healthpb.Health_Check_FullMethodName,
		&healthpb.HealthCheckRequest{Service: service}, answer)
	if err != nil {
		return false, c.explained(ctx, err)
	}
	return answer.Status == healthpb.HealthCheckResponse_SERVING, nil
}

// ask makes a unary call, with retries.
func (c *Client) ask(ctx context.Context, method string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for tries := c.newAttempts(); ; {
		err := c.askOnce(ctx, method, request, answer)
		if err == nil {
			return nil
		}
		if err := tries.waitAfter(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Client) askOnce(ctx context.Context, method string, request, answer any) *Error {
	var trailer metadata.MD
	err := c.connection.Invoke(ctx, method, request, answer, raw, grpc.Trailer(&trailer))
	if err != nil {
		return c.advised(errorOf(err, func() metadata.MD { return trailer }))
	}
	c.reached.Store(true)
	return nil
}

var bothWays = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

func (c *Client) newStream(ctx context.Context, method string) (grpc.ClientStream, error) {
	stream, err := c.connection.NewStream(ctx, bothWays, method, raw)
	if err == nil { // a connection exists
		c.reached.Store(true)
	}
	return stream, err
}

func (c *Client) newAttempts() *attempts {
	return &attempts{client: c, began: time.Now()}
}

func requireSpec(spec *pb.TensorSpec) error {
	if spec == nil {
		return invalid("spec: got nil, want an *attnbiaspb.TensorSpec")
	}
	return nil
}
