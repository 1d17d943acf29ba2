// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Address of the real server that all tests and examples use; empty if there is none.
var serverAddress string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runWithServer(m))
}

// runWithServer runs the tests with the server that ATTNBIAS_SERVER_BINARY names. If it is unset,
// tests that need a server are skipped, and so are the examples.
func runWithServer(m *testing.M) int {
	binary := os.Getenv("ATTNBIAS_SERVER_BINARY")
	if binary == "" {
		flag.Set("test.skip", "^Example")
		return m.Run()
	}
	server := exec.Command(binary, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--shutdown-delay", "0s", "--log-level", "error", "--access-log", "off")
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lines := bufio.NewScanner(stdout)
	for serverAddress == "" && lines.Scan() {
		serverAddress, _ = strings.CutPrefix(lines.Text(), "listening on ")
	}
	os.Setenv("ATTNBIAS_SERVER", serverAddress)
	result := m.Run()
	server.Process.Signal(syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "the server ended with", err)
		return 1
	}
	return result
}

// realClient returns a client for the real server.
func realClient(t *testing.T, options ...Option) *Client {
	t.Helper()
	if serverAddress == "" {
		t.Skip("ATTNBIAS_SERVER_BINARY is not set")
	}
	return clientOf(t, serverAddress, options...)
}
