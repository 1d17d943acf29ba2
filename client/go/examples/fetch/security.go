// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// security says whom the client trusts and who it is. Files are PEM.
type security struct {
	tls           bool   // with those that the system trusts, if no ca is named
	ca, cert, key string // each means TLS
	serverName    string // so does this: of the server's certificate, if not the target's
	tokenFile     string
	token         string // without a tokenFile
}

// securityFlags are those of the attnbias tool; without them its environment counts.
func securityFlags(flags *flag.FlagSet) *security {
	s := &security{token: os.Getenv("ATTNBIAS_CLIENT_TOKEN")}
	on := os.Getenv("ATTNBIAS_CLIENT_TLS")
	flags.BoolVar(&s.tls, "tls", on == "1", "TLS, trusting those that the system trusts")
	for _, option := range []struct {
		value            *string
		name, what, from string
	}{
		{&s.ca, "tls-ca", "TLS, trusting the authorities in a PEM `file`", "TLS_CA"},
		{&s.cert, "tls-cert", "TLS, showing the certificate in a PEM `file`", "TLS_CERT"},
		{&s.key, "tls-key", "the private key of that certificate, a PEM `file`", "TLS_KEY"},
		{&s.serverName, "tls-server-name",
			"TLS, with a server whose certificate has this `name`, not the target's",
			"TLS_SERVER_NAME"},
		{&s.tokenFile, "token-file", "a `file` with a bearer token: who calls", "TOKEN_FILE"},
	} {
		said := os.Getenv("ATTNBIAS_CLIENT_" + option.from)
		if on == "0" && option.from != "TOKEN_FILE" {
			said = ""
		}
		flags.StringVar(option.value, option.name, said, option.what)
	}
	return s
}

func (s security) usesTLS() bool {
	return s.tls || s.ca != "" || s.cert != "" || s.key != "" || s.serverName != ""
}

func (s security) hasToken() bool { return s.tokenFile != "" || s.token != "" }

// options are what a connection to the target takes.
func (s security) options(target string) ([]grpc.DialOption, error) {
	if s.hasToken() && !s.usesTLS() && !isOnThisMachine(target) {
		return nil, fmt.Errorf("token: got one for %s, which is not on this machine, in plaintext "+
			"that others could read: add -tls, or -tls-ca", target)
	}
	transport := insecure.NewCredentials()
	if s.usesTLS() {
		config, err := s.config()
		if err != nil {
			return nil, err
		}
		transport = renewed{credentials.NewTLS(config), s}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if s.hasToken() {
		if _, err := s.readToken(); err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer{s}))
	}
	return options, nil
}

// config is TLS with what the files hold now.
func (s security) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.serverName}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls-ca: got %q, want a PEM file with certificates", s.ca)
		}
	}
	if s.cert != "" || s.key != "" {
		own, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("tls-cert %q and tls-key %q: %w", s.cert, s.key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func (s security) readToken() (string, error) {
	if s.tokenFile == "" {
		return s.token, nil
	}
	text, err := os.ReadFile(s.tokenFile)
	if err != nil {
		return "", fmt.Errorf("token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !regexp.MustCompile("^[!-~]+$").MatchString(token) {
		return "", fmt.Errorf("token-file: got %q, which does not hold a token", s.tokenFile)
	}
	return token, nil
}

// renewed is TLS with what the files hold at each handshake.
type renewed struct {
	credentials.TransportCredentials
	security security
}

func (r renewed) ClientHandshake(
	ctx context.Context, authority string, connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.security.config()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
}

func (r renewed) Clone() credentials.TransportCredentials { return r }

// bearer sends the token with each call, of a file what it holds then.
type bearer struct{ security security }

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.security.readToken()
	return map[string]string{"authorization": "Bearer " + token}, err
}

// RequireTransportSecurity is false: options has seen to it.
func (b bearer) RequireTransportSecurity() bool { return false }
