// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"errors"
	"sync"
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

// When a connection beside the first, which serves large payloads alone, is given up.
const spareIdleTime = 10 * time.Second

// connections are a client's, each opened when it is first needed: the first, and spare ones for
// parts of a payload that come at once. Any number of goroutines may use it.
type connections struct {
	target   string
	who      *security
	more     []grpc.DialOption
	patience time.Duration // the most that one connection may take

	mutex  sync.Mutex
	opened []*grpc.ClientConn
	closed bool
}

// at is the connection of an index.
func (c *connections) at(index int) (*grpc.ClientConn, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.closed {
		return nil, closedError()
	}
	for len(c.opened) <= index {
		opened, err := c.dial()
		if err != nil {
			return nil, err
		}
		c.opened = append(c.opened, opened)
	}
	return c.opened[index], nil
}

func (c *connections) close() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.closed = true
	var errs []error
	for _, opened := range c.opened {
		errs = append(errs, opened.Close())
	}
	c.opened = nil
	return errors.Join(errs...)
}

// options are the settings that all clients of attnbias have; see "What the clients do" in
// docs/operations/clients.md.
func (c *connections) options() []grpc.DialOption {
	return append(c.who.options(),
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
			MinConnectTimeout: min(20*time.Second, c.patience),
		}),
		// Attempts are this package's.
		grpc.WithDisableRetry(),
		grpc.WithResolvers(addressList("ipv4"), addressList("ipv6")),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	)
}

// dial prepares a connection.
func (c *connections) dial() (*grpc.ClientConn, error) {
	options := c.options()
	if len(c.opened) > 0 {
		options = append(options, grpc.WithIdleTimeout(spareIdleTime))
	}
	connection, err := grpc.NewClient(c.target, append(options, c.more...)...)
	if err != nil {
		return nil, invalid("target: got %q: %v", c.target, err)
	}
	return connection, nil
}
