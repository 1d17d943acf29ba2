// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	oneAddressTime = time.Second // the most that each address of a target is tried for alone
	mostAddresses  = 8           // that an error explains
)

// explained adds the reason of each address to an error, if the target has several addresses: gRPC
// reports only one, which may not be the telling one.
func (c *Client) explained(ctx context.Context, err *Error) *Error {
	if !err.unreached {
		return err
	}
	addresses := c.addresses(ctx)
	if len(addresses) < 2 {
		return err
	}
	more := max(len(addresses)-mostAddresses, 0)
	addresses = addresses[:len(addresses)-more]
	reasons := make([]string, len(addresses))
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() { reasons[i] = c.whyNot(ctx, address) })
	}
	all.Wait()
	why := ""
	for i, reason := range reasons {
		if is := c.whyUnreached(reason); why == "" || why == nothingAnswers && is != "" {
			why = is
		}
		reason = strings.TrimPrefix(reason, "connection error: desc = ")
		reasons[i] = addresses[i] + ": " + strings.Trim(reason, `"`)
	}
	if why == "" {
		why = "%s cannot be reached"
	}
	if more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d addresses more", more))
	}
	err.Message = fmt.Sprintf(why, c.target) + " (" + strings.Join(reasons, "; ") + ")"
	return err
}

// addresses are those of the target, if it names a host or lists them.
func (c *Client) addresses(ctx context.Context) []string {
	scheme, rest := "", c.target
	if parts := ofHosts.FindStringSubmatch(c.target); parts != nil {
		scheme, rest = strings.TrimSuffix(parts[1], "///"), parts[2]
	}
	switch scheme {
	case "ipv4:", "ipv6:":
		return strings.Split(rest, ",")
	case "", "dns:":
		host, port, err := net.SplitHostPort(rest)
		if err != nil { // as "unix:/run/a.sock"
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, oneAddressTime)
		defer cancel()
		found, _ := net.DefaultResolver.LookupHost(ctx, host)
		for i, address := range found {
			found[i] = net.JoinHostPort(address, port)
		}
		return found
	}
	return nil
}

// whyNot returns why there is no connection with an address.
func (c *Client) whyNot(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, oneAddressTime)
	defer cancel()
	var options []grpc.DialOption
	if c.who.tls == nil || c.who.tls.ServerName == "" {
		options = append(options, grpc.WithAuthority(c.authority()))
	}
	connection, err := c.dial("passthrough:///"+address, options...)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	// Any call does: without a connection it fails with the reason.
	err = connection.Invoke(ctx, healthpb.Health_Check_FullMethodName,
		&healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
	if err != nil {
		if failure := errorOf(err, nil); isUnreached(failure) {
			return failure.Message
		}
	}
	if connection.GetState() == connectivity.Ready {
		return "answers"
	}
	return fmt.Sprintf("no connection within %v", oneAddressTime)
}

// authority is the name of the server, for all of its addresses.
func (c *Client) authority() string {
	name := c.target[strings.LastIndexByte(c.target, '/')+1:]
	if parts := hostsOf.FindStringSubmatch(name); parts != nil {
		name, _, _ = strings.Cut(parts[1], ",")
	}
	return name
}
