// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
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
