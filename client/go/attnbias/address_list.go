// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"strings"

	"google.golang.org/grpc/resolver"
)

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
