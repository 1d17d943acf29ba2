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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// gRPC's message for a name that has no addresses.
const noAddress = "no children to pick from"

const silent = "%s accepts connections, but does not answer: is this the right port?"

const anotherName = "%s has a certificate for another name: connect using one of its names, or " +
	"set TLS.ServerName to one"

// Phrases in gRPC's and Go's messages about failed connections, and the advice for each. The first
// match wins.
var reasons = []struct{ sign, why string }{
	{noAddress, "%s cannot be resolved: is the name right?"},
	{"handshake failed: context deadline exceeded", silent},
	{"use of closed network connection", silent}, // this side closed it at the deadline
	{"first record does not look like a TLS handshake",
		"%s answers, but not over TLS: leave out WithTLS"},
	{"certificate has expired", "%s has a certificate that has expired"},
	{"unknown authority",
		"%s has a certificate that is not trusted here: set TLS.CA to its CA's certificate"},
	{"certificate is valid for", anotherName},
	{"doesn't contain any IP SANs", anotherName},
	{"looked like an HTTP/1.1 header",
		"%s answers, but does not speak gRPC: is this the right port?"},
}

// Phrases that mean the peer closed the connection.
var closed = []string{"server preface", "handshake failed", "broken pipe", "reset by peer", "EOF"}

const nothingAnswers = "nothing is answering at %s: is the server running? Start one with " +
	"attnbias-server, or connect to another with New(target)"

// advised prepends advice, if there is any, to the message from gRPC or the server. It also records
// whether the client had a connection.
func (c *Client) advised(err *Error) *Error {
	err.unreached = isUnreached(err)
	if !err.unreached && err.Code != codes.DeadlineExceeded && err.Code != codes.Canceled {
		c.reached.Store(true)
	}
	if advice := c.advice(err); advice != "" {
		err.Message = fmt.Sprintf(advice, c.target) + " (" + err.Message + ")"
	}
	return err
}

func (c *Client) advice(err *Error) string {
	switch err.Code {
	case codes.Unavailable:
		if err.unreached {
			return c.whyUnreached(err.Message)
		}
		return ""
	case codes.DeadlineExceeded:
		return "no complete response from %s before the deadline of the context or of WithTimeout"
	case codes.Unauthenticated:
		if c.who.token != nil {
			return "%s rejected this token: is it for this server, and still valid?"
		}
		return "%s requires authentication: add WithTokenFile, or TLS.Cert and TLS.Key"
	case codes.PermissionDenied:
		return "%s denied permission: ask its operator, or use another token " +
			"or certificate"
	}
	return ""
}

// isUnreached reports whether a call failed because there was no connection. Messages from servers
// never begin with these phrases.
func isUnreached(err *Error) bool {
	for _, sign := range []string{"connection error: desc", noAddress, "write "} {
		if err.Code == codes.Unavailable && strings.HasPrefix(err.Message, sign) {
			return true
		}
	}
	return false
}

func (c *Client) whyUnreached(says string) string {
	for _, reason := range reasons {
		if strings.Contains(says, reason.sign) {
			return reason.why
		}
	}
	if strings.Contains(says, "Error while dialing") {
		return nothingAnswers
	}
	for _, sign := range closed {
		if strings.Contains(says, sign) {
			return "%s answers, but does not speak gRPC " + c.connectionAdvice()
		}
	}
	return ""
}

// connectionAdvice describes how the client connected, and what the server may require instead.
func (c *Client) connectionAdvice() string {
	switch {
	case c.who.tls == nil:
		return "in plaintext: does it need TLS? Add WithTLS"
	case c.who.tls.Cert != "":
		return "over TLS: is it starting or stopping, or does it not trust the certificate in " +
			"TLS.Cert?"
	default:
		return "over TLS: is it starting or stopping, or does it require a certificate? Set " +
			"TLS.Cert and TLS.Key"
	}
}

const (
	oneAddressTime = time.Second // limit for trying to reach one address
	mostAddresses  = 8           // maximum number that one error describes
)

// explained adds to the error what happened at each address, if the client could not connect and
// the target has several addresses. gRPC itself reports only one address's failure, and not always
// the most informative one.
func (c *Client) explained(ctx context.Context, err *Error) *Error {
	if !err.unreached {
		return err
	}
	addresses := c.addresses(ctx)
	if len(addresses) < 2 {
		return err
	}
	addresses = addresses[:min(len(addresses), mostAddresses)]
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
	err.Message = fmt.Sprintf(why, c.target) + " (" + strings.Join(reasons, "; ") + ")"
	return err
}

// addresses returns the target's addresses if it names a host or lists addresses, and nil
// otherwise.
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
		if err != nil { // such as "unix:/run/a.sock"
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

// whyNot tries to connect to an address and describes the outcome.
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
	// Any call will do: without a connection, it fails with the reason.
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

// authority returns the server's name, which is the same for all its addresses.
func (c *Client) authority() string {
	name := c.target[strings.LastIndexByte(c.target, '/')+1:]
	if parts := hostsOf.FindStringSubmatch(name); parts != nil {
		name, _, _ = strings.Cut(parts[1], ",")
	}
	return name
}
