// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver/dns"
)

// Room for several chunks on their way.
const windowBytes = 16 << 20

func init() {
	// gRPC itself looks a name up at most every 30 s; replicas are replaced in 5.
	dns.SetMinResolutionInterval(500 * time.Millisecond)
}

// dialer prepares connections with a client's target.
type dialer struct {
	target   string
	who      *security
	more     []grpc.DialOption
	patience time.Duration // the most that one connection may take
}

// options are the settings that all clients of attnbias have; see "What the clients do" in
// docs/operations/clients.md.
func (d *dialer) options() []grpc.DialOption {
	return append(d.who.options(),
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
			MinConnectTimeout: min(20*time.Second, d.patience),
		}),
		// Attempts are this package's.
		grpc.WithDisableRetry(),
		grpc.WithResolvers(addressList("ipv4"), addressList("ipv6")),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
}

// dial prepares a connection; the first call makes it.
func (d *dialer) dial() (*grpc.ClientConn, error) {
	connection, err := grpc.NewClient(d.target, append(d.options(), d.more...)...)
	if err != nil {
		return nil, invalid("target: got %q: %v", d.target, err)
	}
	return connection, nil
}
