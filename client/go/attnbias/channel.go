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

// Flow-control window, large enough for several chunks.
const windowBytes = 16 << 20

// dial returns a connection that is established on the first call. All attnbias clients use these
// settings; see "Default behavior" in docs/operations/clients.md.
func (c *Client) dial(target string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	options := append(c.who.options(),
		// Spreads calls over all replicas and skips replicas that are gone.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// Abandons a peer that stays silent for 10 + 5 s while a call is waiting.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 5 * time.Second,
		}),
		// Reconnects to a restarted server within a tenth of a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: min(20*time.Second, c.connectTimeout),
		}),
		// This package does its own retries: gRPC makes at most five attempts and cannot resume a
		// stream.
		grpc.WithDisableRetry(),
		grpc.WithResolvers(addressList("ipv4"), addressList("ipv6")),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
	return grpc.NewClient(target, append(append(options, more...), c.dialOptions...)...)
}

// addressList resolves targets such as ipv4:1.2.3.4:50051,5.6.7.8:50051, which gRPC resolves
// natively in other languages. Its value is the scheme.
type addressList string

func (a addressList) Scheme() string { return string(a) }

func (a addressList) Build(
	target resolver.Target, connection resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	var state resolver.State
	for address := range strings.SplitSeq(target.Endpoint(), ",") {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	return a, connection.UpdateState(state)
}

// OverrideAuthority returns the first address as the server's name.
func (a addressList) OverrideAuthority(target resolver.Target) string {
	first, _, _ := strings.Cut(target.Endpoint(), ",")
	return first
}

// ResolveNow does nothing: the list never changes.
func (addressList) ResolveNow(resolver.ResolveNowOptions) {}

func (addressList) Close() {}
