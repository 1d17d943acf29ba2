// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

func detailed(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	made, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return made.Err()
}

func later(delay time.Duration) error {
	return detailed(codes.ResourceExhausted, "later",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
}

func TestCloseEndsWaitingCalls(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	address := listener.Addr().String()
	listener.Close()
	client := clientOf(t, address)
	done := make(chan error)
	call := func() {
		_, err := client.ServerInfo(t.Context())
		done <- err
	}
	go call()
	time.Sleep(50 * time.Millisecond)
	for range 2 {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		expectError(t, <-done, context.Canceled, "client is closed")
		go call()
	}
	<-done
}

func TestRetriesOnlyTransientErrors(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		calls int
		is    error
	}{
		"away":            {status.Error(codes.Unavailable, ""), 2, ErrUnavailable},
		"stalled":         {status.Error(codes.Aborted, ""), 2, ErrAborted},
		"shut down":       {status.Error(codes.Canceled, ""), 2, context.Canceled},
		"reset":           {status.Error(codes.Internal, "got RST_STREAM"), 2, ErrInternal},
		"overload":        {later(time.Millisecond), 2, ErrOverloaded},
		"too large":       {status.Error(codes.ResourceExhausted, ""), 1, ErrTooLarge},
		"wrong":           {status.Error(codes.InvalidArgument, ""), 1, ErrInvalidArgument},
		"unauthenticated": {status.Error(codes.Unauthenticated, ""), 1, ErrUnauthenticated},
		"forbidden":       {status.Error(codes.PermissionDenied, ""), 1, ErrPermissionDenied},
		"no such table":   {status.Error(codes.NotFound, ""), 1, ErrNotFound},
		"out of range":    {status.Error(codes.OutOfRange, ""), 1, ErrOutOfRange},
		"unknown field":   {status.Error(codes.Unimplemented, ""), 1, ErrUnimplemented},
		"damaged":         {status.Error(codes.DataLoss, ""), 1, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			f, client := fakeAndClient(t)
			f.errors = []error{test.err}
			_, err := client.ServerInfo(t.Context())
			if f.calls != test.calls || (err == nil) != (test.calls == 2) {
				t.Errorf("got %d calls and %v, want %d calls", f.calls, err, test.calls)
			}
			once := clientOf(t, client.target, WithMaxAttempts(1))
			f.errors = []error{test.err}
			_, err = once.ServerInfo(t.Context())
			if got, want := status.Code(err), status.Code(test.err); got != want {
				t.Errorf("got %v of gRPC, want %v", got, want)
			}
			for _, sentinel := range append(slices.Collect(maps.Values(sentinels)), ErrOverloaded,
				ErrTooLarge) {
				if errors.Is(err, sentinel) != (sentinel == test.is) {
					t.Errorf("got %v, want it to be %v alone", err, test.is)
				}
			}
		})
	}
}

func TestErrorReportsServerRetryDelay(t *testing.T) {
	f, client := fakeAndClient(t)
	f.errors = []error{later(time.Hour)}
	_, err := client.ServerInfo(t.Context())
	var found *Error
	if !errors.As(err, &found) || f.calls != 1 {
		t.Fatalf("got %v after %d calls", err, f.calls)
	}
	if got, said := found.RetryDelay(); got != time.Hour || !said {
		t.Errorf("got delay %v, want an hour", got)
	}
}

func TestWaitIsLoggedOnceAndEndsWithContext(t *testing.T) {
	var log bytes.Buffer
	f, client := fakeAndClient(t, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	f.errors = []error{status.Error(codes.Unavailable, "away"), later(10 * time.Second)}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	_, err := client.ServerInfo(ctx)
	expectError(t, err, context.Canceled, "later")
	if said := log.String(); strings.Count(said, "trying again") != 1 ||
		!strings.Contains(said, "away") {
		t.Errorf("got log %q, want one line with the first reason", said)
	}
}

func TestBalancesCallsAcrossReplicas(t *testing.T) {
	one, other := listen(t, "127.0.0.1:0"), listen(t, "[::1]:0")
	first, _ := serve(t, one)
	second, stop := serve(t, other)
	for _, target := range []string{
		"ipv4:" + one.Addr().String() + "," + other.Addr().String(),
		"ipv6:///" + other.Addr().String() + "," + one.Addr().String(),
	} {
		first.calls, second.calls = 0, 0
		client := clientOf(t, target)
		for first.calls < 10 || second.calls < 10 {
			if _, err := client.ServerInfo(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := clientOf(t, "ipv4:"+one.Addr().String()+","+other.Addr().String())
	stop()
	for range 20 {
		if _, err := client.ServerInfo(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSendsContextMetadata(t *testing.T) {
	f, client := fakeAndClient(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer of a mesh")
	if _, err := client.ServerInfo(ctx); err != nil || f.token != "Bearer of a mesh" {
		t.Errorf("got %q, %v", f.token, err)
	}
}

func TestErrorNamesInvalidOption(t *testing.T) {
	for want, options := range map[string][]Option{
		"WithTimeout: got 0s, want more than 0":            {WithTimeout(0)},
		"WithMaxAttempts: got 0, want at least 1":          {WithMaxAttempts(0)},
		"WithMaxTensorBytes: got -1, want more than 0":     {WithMaxTensorBytes(-1)},
		"WithConnectTimeout: got 0s, want more than 0":     {WithConnectTimeout(0)},
		"WithToken: got text that is not a token":          {WithToken("two words")},
		"WithTokenFile: open : no such file":               {WithTokenFile("")},
		"TLS.Cert and TLS.Key: got \"a\" and \"\", want b": {WithTLS(TLS{Cert: "a"})},
	} {
		_, err := New("localhost", options...)
		expectError(t, err, ErrInvalidArgument, want)
	}
	client := clientOf(t, "localhost")
	if _, err := client.Get(t.Context(), nil); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v, want %v", err, ErrInvalidArgument)
	}
}

func TestReadsTargetFromEnvironment(t *testing.T) {
	t.Setenv("ATTNBIAS_SERVER", "elsewhere")
	if client := clientOf(t, ""); client.target != "elsewhere:50051" {
		t.Errorf("got %q", client.target)
	}
	t.Setenv("ATTNBIAS_SERVER", "")
	if client := clientOf(t, ""); client.target != "localhost:50051" {
		t.Errorf("got %q", client.target)
	}
}
