// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
)

// Room for several chunks on their way.
const windowBytes = 16 << 20

// dial prepares a connection, which the first call makes. Its settings are those of all clients of
// attnbias; see "What the clients do" in docs/operations/clients.md.
func (c *Client) dial(target string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := append(c.who.options(),
		// Every replica behind the name gets its share, and one that goes is left out.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// A peer that is silent while a call waits for it is given up after 10 + 5 s.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second,
		}),
		// A server that restarts is found again within a tenth of a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: min(20*time.Second, c.connectTimeout),
		}),
		// Attempts are this package's: gRPC makes at most five, and resumes no stream.
		grpc.WithDisableRetry(),
		grpc.WithResolvers(addressList("ipv4"), addressList("ipv6")),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
	return grpc.NewClient(target, append(append(options, more...), c.dialOptions...)...)
}

// addressList resolves targets such as ipv4:1.2.3.4:50051,5.6.7.8:50051, which other languages'
// gRPC has of its own. Its value is the scheme.
type addressList string

func (a addressList) Scheme() string { return string(a) }

func (a addressList) Build(
	target resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	var state resolver.State
	for address := range strings.SplitSeq(target.Endpoint(), ",") {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	return noNews{}, connection.UpdateState(state)
}

// OverrideAuthority has the first address for the server's name.
func (a addressList) OverrideAuthority(target resolver.Target) string {
	first, _, _ := strings.Cut(target.Endpoint(), ",")
	return first
}

// noNews is a list that never changes.
type noNews struct{}

func (noNews) ResolveNow(resolver.ResolveNowOptions) {}

func (noNews) Close() {}
