// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	pb "github.com/attnbias/attnbias/client/go/attnbiaspb"
)

// startServer runs the real server for one test and returns its address.
func startServer(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("ATTNBIAS_SERVER_BINARY")
	if binary == "" {
		t.Skip("ATTNBIAS_SERVER_BINARY is not set")
	}
	server := exec.Command(binary, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--drain-notice", "0s")
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, server) })

	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), "listening on "); found {
			return address
		}
	}
	t.Fatal("the server ended before it was listening")
	return ""
}

func stop(t *testing.T, server *exec.Cmd) {
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func connect(t *testing.T) pb.AttentionBiasServiceClient {
	t.Helper()
	connection, err := dial(startServer(t), security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return pb.NewAttentionBiasServiceClient(connection)
}

func TestSmallTensorIsAlibi(t *testing.T) {
	got, err := getTensor(t.Context(), connect(t), alibi)
	if err != nil {
		t.Fatal(err)
	}
	if shape := got.header.Parts[0].Shape; !slices.Equal(shape, []int64{8, 7}) {
		t.Fatalf("got shape %v, want [8 7]", shape)
	}
	for i, value := range floats(got.data) {
		head, relative := i/7, i%7-3
		if want := -math.Ldexp(math.Abs(float64(relative)), -(head + 1)); float64(value) != want {
			t.Errorf("head %d, key minus query %d: got %v, want %v", head, relative, value, want)
		}
	}
}

func TestStreamIsSinusoidal(t *testing.T) {
	got, err := streamTensor(t.Context(), connect(t), sinusoidal)
	if err != nil {
		t.Fatal(err)
	}
	values := floats(got.data)
	if len(values) != 4096*512 {
		t.Fatalf("got %d values, want %d", len(values), 4096*512)
	}
	// The sine of Go's library is not the correctly rounded one, but near it.
	const tolerance = 1e-7
	for i, value := range values {
		position, column := float64(i/512), i%512
		sin, cos := math.Sincos(position * math.Pow(10000, -float64(column&^1)/512))
		want := sin
		if column%2 == 1 {
			want = cos
		}
		if math.Abs(float64(value)-want) > tolerance {
			t.Fatalf("position %v, column %d: got %v, want %v", position, column, value, want)
		}
	}
}

func TestProgramEndsWell(t *testing.T) {
	if err := run(t.Context(), startServer(t), security{}); err != nil {
		t.Error(err)
	}
}
