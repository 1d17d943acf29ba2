// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"net"
	"regexp"
	"strconv"
	"strings"
)

// Default server port.
const defaultPort = "50051"

var (
	// gRPC schemes that precede a host or comma-separated addresses.
	ofHosts = regexp.MustCompile(`^(dns:(?://[^/]*/)?|ipv[46]:(?:///)?)(.*)$`)
	// Schemes that precede a name without a port.
	ofOthers = regexp.MustCompile(`^(?:(?:unix|unix-abstract|vsock):|[a-z][a-z0-9.+-]*://).`)
	ofTheWeb = regexp.MustCompile(`^https?:`)
	hostPort = regexp.MustCompile(
		`^(\[[0-9A-Fa-f:.]+(?:%[^\]\s]+)?\]|[^\s:/\[\],]+)(?::([0-9]+))?$`)
	bareIPv6 = regexp.MustCompile(`^[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%\w+)?$`)
)

// targetFrom returns the target, adding port 50051 to hosts without a port.
func targetFrom(target string) (string, error) {
	scheme, hosts := "", []string{target}
	if parts := ofHosts.FindStringSubmatch(target); parts != nil {
		scheme, hosts = parts[1], parts[2:]
		if strings.HasPrefix(scheme, "ip") {
			hosts = strings.Split(parts[2], ",")
		}
	} else if ofOthers.MatchString(target) && !ofTheWeb.MatchString(target) {
		return target, nil
	}
	for i, host := range hosts {
		withPort, ok := withPort(host)
		if !ok {
			return "", invalid("target: got %q, want host, host:port, [IPv6]:port, "+
				"unix:/path or another gRPC target", target)
		}
		hosts[i] = withPort
	}
	return scheme + strings.Join(hosts, ","), nil
}

func withPort(host string) (string, bool) {
	if bareIPv6.MatchString(host) {
		host = "[" + host + "]"
	}
	parts := hostPort.FindStringSubmatch(host)
	if parts == nil {
		return "", false
	}
	if parts[2] == "" {
		return host + ":" + defaultPort, true
	}
	port, err := strconv.ParseUint(parts[2], 10, 16)
	return host, err == nil && port > 0
}

var hostsOf = regexp.MustCompile(`^(?:(?:dns|ipv[46]):(?:///)?)?(.*)$`)

// isOnThisMachine reports whether a target returned by targetFrom can be reached without a network.
func isOnThisMachine(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	for _, address := range strings.Split(hostsOf.FindStringSubmatch(target)[1], ",") {
		host, _, err := net.SplitHostPort(address)
		if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
			return false
		}
	}
	return true
}
