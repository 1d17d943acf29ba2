// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

const payload = "123456789123456789"

// fake answers as an attnbias server does, or as its script says.
type fake struct {
	pb.UnimplementedAttentionBiasServiceServer
	script []func(pb.AttentionBiasService_StreamTensorServer) error
	errors []error // of GetTensor, in order

	mutex    sync.Mutex
	offsets  []int64
	calls    int
	token    string
	identity string
}

func (f *fake) GetTensor(
	ctx context.Context, _ *pb.GetTensorRequest,
) (*pb.GetTensorResponse, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls++
	if sent, _ := metadata.FromIncomingContext(ctx); len(sent["authorization"]) > 0 {
		f.token = sent["authorization"][0]
	}
	if caller, _ := peer.FromContext(ctx); caller.AuthInfo != nil {
		if own := caller.AuthInfo.(credentials.TLSInfo).State.PeerCertificates; len(own) > 0 {
			f.identity = own[0].Subject.CommonName
		}
	}
	if len(f.errors) > 0 {
		err := f.errors[0]
		f.errors = f.errors[1:]
		return nil, err
	}
	return &pb.GetTensorResponse{
		Header: &pb.TensorHeader{}, Data: []byte("123456789"), Crc32C: checkValue,
	}, nil
}

func (f *fake) StreamTensor(
	request *pb.StreamTensorRequest, stream pb.AttentionBiasService_StreamTensorServer,
) error {
	f.offsets = append(f.offsets, request.ReadOffset)
	next := f.script[0]
	f.script = f.script[1:]
	return next(stream)
}

// sends a header and chunks from the offsets given, and ends with err.
func sends(err error, offsets ...int64) func(pb.AttentionBiasService_StreamTensorServer) error {
	return func(stream pb.AttentionBiasService_StreamTensorServer) error {
		whole := header(int64(len(payload)))
		whole.Header.Fingerprint = "f"
		if err := stream.Send(whole); err != nil {
			return err
		}
		for _, offset := range offsets {
			if err := stream.Send(chunk(offset)); err != nil {
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

// serve runs a fake server until the test ends and returns it with what stops it before.
func serve(t *testing.T, listener net.Listener, options ...grpc.ServerOption) (*fake, func()) {
	t.Helper()
	f, server := &fake{}, grpc.NewServer(options...)
	pb.RegisterAttentionBiasServiceServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return f, server.Stop
}

func clientOf(t *testing.T, server string, who security) pb.AttentionBiasServiceClient {
	t.Helper()
	connection, err := dial(server, who)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return pb.NewAttentionBiasServiceClient(connection)
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestStreamGoesOnWhereItBroke(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	f, _ := serve(t, listener)
	client := clientOf(t, listener.Addr().String(), security{})
	broken := status.Error(codes.Unavailable, "broken")
	f.script = []func(pb.AttentionBiasService_StreamTensorServer) error{
		sends(broken), sends(broken, 0), sends(status.Error(codes.FailedPrecondition, "changed")),
		sends(broken, 0), sends(nil, 9),
	}
	got, err := streamTensor(within(t, 20*time.Second), client, alibi)
	if err != nil || !bytes.Equal(got.data, []byte(payload)) {
		t.Fatalf("got %v, %v", got, err)
	}
	if want := []int64{0, 0, 9, 0, 9}; !slices.Equal(f.offsets, want) {
		t.Errorf("got offsets %v, want %v", f.offsets, want)
	}
}

func TestCallsWaitForAServer(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	address := listener.Addr().String()
	listener.Close()
	client := clientOf(t, address, security{})
	done := make(chan error)
	go func() {
		_, err := getTensor(within(t, 20*time.Second), client, alibi)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the call ended without a server: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	serve(t, listen(t, address))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestOnlyWhatPassesIsTriedAgain(t *testing.T) {
	later, err := status.New(codes.ResourceExhausted, "later").WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		err   error
		calls int
	}{
		"away":            {status.Error(codes.Unavailable, ""), 2},
		"stalled":         {status.Error(codes.Aborted, ""), 2},
		"shut down":       {status.Error(codes.Canceled, ""), 2},
		"reset":           {status.Error(codes.Internal, "stream ended by RST_STREAM"), 2},
		"overload":        {later.Err(), 2},
		"too large":       {status.Error(codes.ResourceExhausted, ""), 1},
		"wrong":           {status.Error(codes.InvalidArgument, ""), 1},
		"unauthenticated": {status.Error(codes.Unauthenticated, ""), 1},
	} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t, "127.0.0.1:0")
			f, _ := serve(t, listener)
			f.errors = []error{test.err}
			client := clientOf(t, listener.Addr().String(), security{})
			_, err := getTensor(within(t, 20*time.Second), client, alibi)
			if f.calls != test.calls || (err == nil) != (test.calls == 2) {
				t.Errorf("got %d calls and %v, want %d calls", f.calls, err, test.calls)
			}
		})
	}
}

func TestReplicasShareTheCalls(t *testing.T) {
	one, other := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	first, _ := serve(t, one)
	second, stop := serve(t, other)
	replicas := manual.NewBuilderWithScheme("replicas")
	replicas.InitialState(resolver.State{Addresses: []resolver.Address{
		{Addr: one.Addr().String()}, {Addr: other.Addr().String()},
	}})
	resolver.Register(replicas)
	client := clientOf(t, "replicas:///any", security{})
	ctx := within(t, 20*time.Second)
	call := func() {
		if _, err := getTensor(ctx, client, alibi); err != nil {
			t.Fatal(err)
		}
	}
	for first.calls < 10 || second.calls < 10 {
		call()
	}
	stop()
	for range 20 {
		call()
	}
}

// authority signs certificates.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.certificate, a.key = a.make(name, true)
	return a
}

func (a *authority) make(name string, signs bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: signs, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.certificate, a.key
	if signs {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate, key
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// sign writes a certificate and its key into files that are replaced at once.
func (a *authority) sign(name string, who security) {
	certificate, key := a.make(name, false)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	replace(a.t, who.cert, pemOf("CERTIFICATE", certificate.Raw))
	replace(a.t, who.key, pemOf("PRIVATE KEY", der))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestServerLearnsWhoCalls(t *testing.T) {
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	folder := t.TempDir()
	who := security{
		ca: filepath.Join(folder, "ca"), cert: filepath.Join(folder, "cert"),
		key: filepath.Join(folder, "key"), tokenFile: filepath.Join(folder, "token"),
	}
	replace(t, who.ca, pemOf("CERTIFICATE", servers.certificate.Raw))
	replace(t, who.tokenFile, []byte("first\n"))
	clients.sign("trainer", who)
	certificate, key := servers.make("server", false)
	wantsToKnow := grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients.pool(),
	}))
	listener := listen(t, "127.0.0.1:0")
	address := listener.Addr().String()
	f, stop := serve(t, listener, wantsToKnow)
	client := clientOf(t, address, who)
	expect := func(token, identity string) {
		t.Helper()
		if _, err := getTensor(within(t, 20*time.Second), client, alibi); err != nil {
			t.Fatal(err)
		}
		if f.token != token || f.identity != identity {
			t.Errorf("got %q of %q, want %q of %q", f.token, f.identity, token, identity)
		}
	}
	expect("Bearer first", "trainer")
	replace(t, who.tokenFile, []byte("later"))
	clients.sign("renewed", who)
	expect("Bearer later", "trainer")
	stop()
	f, _ = serve(t, listen(t, address), wantsToKnow)
	expect("Bearer later", "renewed")

	misnamed := who
	misnamed.serverName = "other.example"
	_, err := getTensor(within(t, time.Second), clientOf(t, address, misnamed), alibi)
	if err == nil || !strings.Contains(err.Error(), "to match other.example") {
		t.Errorf("got %v, want an error about the name", err)
	}

	replace(t, who.ca, pemOf("CERTIFICATE", clients.certificate.Raw))
	stranger := clientOf(t, address, who)
	_, err = getTensor(within(t, time.Second), stranger, alibi)
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("got %v, want an error about the authority", err)
	}
}

func TestWhatCannotBeUsedIsNamed(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	replace(t, text, []byte("two words"))
	for _, test := range []struct {
		server string
		who    security
		want   string
	}{
		{"localhost", security{ca: "/no"}, "tls-ca: open /no: no such file"},
		{"localhost", security{ca: text}, "tls-ca: got \"" + text + "\", want a PEM file"},
		{"localhost", security{cert: text}, "tls-cert \"" + text + "\" and tls-key \"\": "},
		{"localhost", security{tokenFile: "/no"}, "token-file: open /no: no such file"},
		{"localhost", security{tokenFile: text}, "which does not hold a token"},
		{"host", security{token: "abc"}, "token: got one for host:50051, which is not on this"},
	} {
		_, err := dial(test.server, test.who)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got error %v, want one with %q", test.who, err, test.want)
		}
	}
}

func TestFlagsBeatTheEnvironment(t *testing.T) {
	read := func(arguments ...string) security {
		flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
		who := securityFlags(flags)
		if err := flags.Parse(arguments); err != nil {
			t.Fatal(err)
		}
		return *who
	}
	if got := read(); got != (security{}) {
		t.Errorf("got %+v, want nothing", got)
	}
	t.Setenv("ATTNBIAS_CLIENT_TLS_CA", "a")
	t.Setenv("ATTNBIAS_CLIENT_TOKEN_FILE", "t")
	t.Setenv("ATTNBIAS_CLIENT_TOKEN", "abc")
	want := security{ca: "a", cert: "c", tokenFile: "u", token: "abc"}
	if got := read("-tls-cert", "c", "-token-file", "u"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	t.Setenv("ATTNBIAS_CLIENT_TLS_SERVER_NAME", "n")
	if got := read().serverName; got != "n" {
		t.Errorf("got %q, want n", got)
	}
	t.Setenv("ATTNBIAS_CLIENT_TLS", "0")
	if got := read(); got.usesTLS() {
		t.Errorf("got %+v, want plaintext", got)
	}
	t.Setenv("ATTNBIAS_CLIENT_TLS", "1")
	if got := read(); !got.tls {
		t.Errorf("got %+v, want TLS", got)
	}
}
