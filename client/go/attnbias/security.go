// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	tlsVariable       = "ATTNBIAS_CLIENT_TLS"
	tokenVariable     = "ATTNBIAS_CLIENT_TOKEN"
	tokenFileVariable = "ATTNBIAS_CLIENT_TOKEN_FILE"
)

// security holds the credentials that authenticate the client and the server.
type security struct {
	tls   *certificates // nil: plaintext
	token *bearer       // nil: none
}

// securityOf reads the credentials from the options, or else from the environment. The target is a
// result of targetFrom.
func securityOf(s *settings, target string) (*security, error) {
	who := &security{}
	var err error
	if who.tls, err = certificatesOf(s); err != nil {
		return nil, err
	}
	if who.token, err = bearerOf(s); err != nil {
		return nil, err
	}
	if who.token != nil && who.tls == nil && !isOnThisMachine(target) {
		return nil, invalid("%s: got a token but no TLS, and %s is not on this machine, "+
			"so others could read the token: add WithTLS", who.token.name, target)
	}
	return who, nil
}

func (s *security) options() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if s.tls != nil {
		transport = reloadingTLS{credentials.NewTLS(s.tls.last.Load()), s.tls}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if s.token != nil {
		options = append(options, grpc.WithPerRPCCredentials(s.token))
	}
	return options
}

// certificates holds the files named in a [TLS], and the name that errors use for each.
type certificates struct {
	TLS
	caName, certName, keyName string
	last                      atomic.Pointer[tls.Config]
}

// certificatesOf returns nil for plaintext.
func certificatesOf(s *settings) (*certificates, error) {
	if s.plaintext {
		return nil, nil
	}
	held := &certificates{caName: "TLS.CA", certName: "TLS.Cert", keyName: "TLS.Key"}
	if s.tls != nil {
		held.TLS = *s.tls
		return held, held.renew()
	}
	held.caName, held.certName = tlsVariable+"_CA", tlsVariable+"_CERT"
	held.keyName = tlsVariable + "_KEY"
	held.TLS = TLS{
		CA: os.Getenv(held.caName), Cert: os.Getenv(held.certName), Key: os.Getenv(held.keyName),
		ServerName: os.Getenv(tlsVariable + "_SERVER_NAME"),
	}
	on := os.Getenv(tlsVariable)
	switch {
	case on != "" && on != "0" && on != "1":
		return nil, invalid("%s: got %q, want 1 or 0", tlsVariable, on)
	case on == "0" || on == "" && held.TLS == TLS{}:
		return nil, nil
	}
	return held, held.renew()
}

// renew reads the files.
func (c *certificates) renew() error {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return invalid("%s: %v", c.caName, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return invalid("%s: got %q, want a PEM file with certificates", c.caName, c.CA)
		}
	}
	if (c.Cert == "") != (c.Key == "") {
		return invalid("%s and %s: got %q and %q, want both, or neither", c.certName, c.keyName,
			c.Cert, c.Key)
	}
	if c.Cert != "" {
		own, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return invalid("%s %q and %s %q: %v", c.certName, c.Cert, c.keyName, c.Key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	c.last.Store(config)
	return nil
}

// reloadingTLS implements TLS and rereads the files at each handshake.
type reloadingTLS struct {
	credentials.TransportCredentials
	held *certificates
}

func (r reloadingTLS) ClientHandshake(
	ctx context.Context, authority string, connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if err := r.held.renew(); err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(r.held.last.Load()).ClientHandshake(ctx, authority, connection)
}

func (r reloadingTLS) Clone() credentials.TransportCredentials { return r }

// bearer sends a token with each call. If a file is set, the token is reread from it each time.
type bearer struct {
	name string // used in errors
	file string // empty for a constant token
	last atomic.Pointer[string]
}

// bearerOf returns nil if there is no token.
func bearerOf(s *settings) (*bearer, error) {
	b, token := &bearer{}, ""
	switch {
	case s.tokenFile != nil:
		b.name, b.file = "WithTokenFile", *s.tokenFile
		return b, b.renew()
	case s.token != nil:
		b.name, token = "WithToken", *s.token
	case os.Getenv(tokenFileVariable) != "":
		b.name, b.file = tokenFileVariable, os.Getenv(tokenFileVariable)
		return b, b.renew()
	default:
		b.name, token = tokenVariable, os.Getenv(tokenVariable)
	}
	if token == "" {
		return nil, nil
	}
	if !isToken(token) {
		return nil, invalid("%s: got text that is not a token, want visible ASCII characters, "+
			"without spaces", b.name)
	}
	b.last.Store(&token)
	return b, nil
}

func (b *bearer) renew() error {
	text, err := os.ReadFile(b.file)
	if err != nil {
		return invalid("%s: %v", b.name, err)
	}
	token := strings.TrimSpace(string(text))
	if !isToken(token) {
		return invalid("%s: got %q, which does not hold a token, want visible ASCII "+
			"characters, without spaces", b.name, b.file)
	}
	b.last.Store(&token)
	return nil
}

var visible = regexp.MustCompile("^[!-~]+$")

func isToken(text string) bool { return visible.MatchString(text) }

// GetRequestMetadata returns the metadata for a call. If the file does not contain a token, the
// previous token is used.
func (b *bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b.file != "" {
		_ = b.renew()
	}
	return map[string]string{"authorization": "Bearer " + *b.last.Load()}, nil
}

// RequireTransportSecurity returns false because securityOf has already checked the transport.
func (b *bearer) RequireTransportSecurity() bool { return false }
