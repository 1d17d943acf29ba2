// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"strings"
	"testing"
)

func TestTargetDefaultsToServicePort(t *testing.T) {
	for given, want := range map[string]string{
		"localhost":              "localhost:50051",
		"host:1":                 "host:1",
		"::1":                    "[::1]:50051",
		"[::1]":                  "[::1]:50051",
		"[::1]:65535":            "[::1]:65535",
		"dns:///host":            "dns:///host:50051",
		"dns://9.9.9.9/host":     "dns://9.9.9.9/host:50051",
		"ipv4:1.2.3.4,5.6.7.8:9": "ipv4:1.2.3.4:50051,5.6.7.8:9",
		"ipv6:::1":               "ipv6:[::1]:50051",
		"unix:/run/a.sock":       "unix:/run/a.sock",
		"xds:///service":         "xds:///service",
	} {
		if got, err := targetFrom(given); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
}

func TestRejectsInvalidTargets(t *testing.T) {
	for _, given := range []string{
		"", "host:", "host:0", "host:65536", "a b", "a,b", "/run/a.sock", "[::1", "http://host",
		"https://host:1", "unix:", "ipv4:", "ipv4:1.2.3.4,", "dns:///", "host:1:2",
	} {
		got, err := targetFrom(given)
		if err == nil || !strings.Contains(err.Error(), "target: got") {
			t.Errorf("%q: got %q, %v, want an error", given, got, err)
		}
	}
}

func TestRecognizesLocalTargets(t *testing.T) {
	for given, want := range map[string]bool{
		"localhost": true, "127.0.0.1:1": true, "[::1]:1": true, "dns:///localhost": true,
		"ipv4:127.0.0.1,127.0.0.2": true, "unix:/run/a.sock": true,
		"host": false, "localhost.example": false, "127.0.0.1.example": false, "10.0.0.1": false,
		"dns://9.9.9.9/localhost": false, "ipv4:127.0.0.1,10.0.0.1": false, "xds:///a": false,
	} {
		target, err := targetFrom(given)
		if got := isOnThisMachine(target); got != want || err != nil {
			t.Errorf("%q: got %t, %v, want %t", given, got, err, want)
		}
	}
}
