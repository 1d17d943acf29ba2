// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// authority signs certificates.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.certificate, a.key = a.make(name, true, time.Hour)
	return a
}

func (a *authority) make(
	name string, signs bool, validity time.Duration,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		IsCA: signs, BasicConstraintsValid: true, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.certificate, a.key
	if signs {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate, key
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// sign writes a certificate and its key to files, which it replaces atomically.
func (a *authority) sign(name string, files TLS) {
	certificate, key := a.make(name, false, time.Hour)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	replaceFile(a.t, files.Cert, pemOf("CERTIFICATE", certificate.Raw))
	replaceFile(a.t, files.Key, pemOf("PRIVATE KEY", der))
}

// server returns a configuration with a certificate for the given name.
func (a *authority) server(name string, validity time.Duration) *tls.Config {
	certificate, key := a.make(name, false, validity)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}},
	}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func replaceFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestServerReceivesClientIdentity(t *testing.T) {
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	folder := t.TempDir()
	files := TLS{
		CA: filepath.Join(folder, "ca"), Cert: filepath.Join(folder, "cert"),
		Key: filepath.Join(folder, "key"),
	}
	token := filepath.Join(folder, "token")
	replaceFile(t, files.CA, pemOf("CERTIFICATE", servers.certificate.Raw))
	replaceFile(t, token, []byte("first\n"))
	clients.sign("trainer", files)
	config := servers.server("server", time.Hour)
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
	wantsToKnow := grpc.Creds(credentials.NewTLS(config))
	listener := listen(t, "127.0.0.1:0")
	address := listener.Addr().String()
	f, stop := serve(t, listener, wantsToKnow)
	client := clientOf(t, address, WithTLS(files), WithTokenFile(token))
	expect := func(token, identity string) {
		t.Helper()
		if _, err := client.ServerInfo(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.token != token || f.identity != identity {
			t.Errorf("got %q of %q, want %q of %q", f.token, f.identity, token, identity)
		}
	}
	expect("Bearer first", "trainer")
	replaceFile(t, token, []byte("later"))
	clients.sign("renewed", files)
	expect("Bearer later", "trainer")
	replaceFile(t, token, []byte("half a"))
	expect("Bearer later", "trainer")
	stop()
	f, _ = serve(t, listen(t, address), wantsToKnow)
	expect("Bearer later", "renewed")
}

// tests/clients covers the other kinds of unusable servers.
func TestErrorAdviceMatchesServerSecurity(t *testing.T) {
	servers, trusted := newAuthority(t, "servers"), filepath.Join(t.TempDir(), "trusted")
	replaceFile(t, trusted, pemOf("CERTIFICATE", servers.certificate.Raw))
	withTLS := func(config *tls.Config) string {
		listener := listen(t, "127.0.0.1:0")
		serve(t, listener, grpc.Creds(credentials.NewTLS(config)))
		return listener.Addr().String()
	}
	good := withTLS(servers.server("server", time.Hour))
	wantsCertificate := servers.server("server", time.Hour)
	wantsCertificate.ClientAuth = tls.RequireAnyClientCert
	silent := listen(t, "127.0.0.1:0").Addr().String()
	for _, test := range []struct {
		want, target string
		tls          *TLS
	}{
		{"accepts connections, but does not answer", silent, nil},
		{"accepts connections, but does not answer", silent, &TLS{CA: trusted}},
		{"has a certificate for another name", good, &TLS{CA: trusted, ServerName: "x"}},
		{"has a certificate that has expired", withTLS(servers.server("server", -time.Minute)),
			&TLS{CA: trusted}},
		{"or does it require a certificate?", withTLS(wantsCertificate), &TLS{CA: trusted}},
	} {
		options := []Option{WithMaxAttempts(1), WithConnectTimeout(2 * time.Second)}
		if test.tls != nil {
			options = append(options, WithTLS(*test.tls))
		}
		client := clientOf(t, test.target, options...)
		_, err := client.ServerInfo(t.Context())
		expectError(t, err, ErrUnavailable, test.want)
	}
	named := clientOf(t, good, WithTLS(TLS{CA: trusted, ServerName: "server"}))
	if _, err := named.ServerInfo(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesUnusableCredentials(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	replaceFile(t, text, []byte("two words"))
	for _, test := range []struct {
		target string
		option Option
		want   string
	}{
		{"localhost", WithTLS(TLS{CA: "/no"}), "TLS.CA: open /no: no such file"},
		{"localhost", WithTLS(TLS{CA: text}), "TLS.CA: got \"" + text + "\", want a PEM file"},
		{"localhost", WithTLS(TLS{Cert: text, Key: text}), "TLS.Cert \"" + text + "\" and TLS.Key"},
		{"localhost", WithTokenFile("/no"), "WithTokenFile: open /no: no such file"},
		{"localhost", WithTokenFile(text), "which does not hold a token"},
		{"host", WithToken("abc"), "WithToken: got a token but no TLS, and host:50051 is not on"},
	} {
		_, err := New(test.target, test.option)
		expectError(t, err, ErrInvalidArgument, test.want)
	}
}

func TestOptionsOverrideEnvironment(t *testing.T) {
	folder := t.TempDir()
	ca, token := filepath.Join(folder, "ca"), filepath.Join(folder, "token")
	replaceFile(t, ca, pemOf("CERTIFICATE", newAuthority(t, "a").certificate.Raw))
	replaceFile(t, token, []byte("of-a-file"))
	read := func(options ...Option) (isTLS bool, file, token string) {
		t.Helper()
		who := clientOf(t, "localhost", options...).who
		if who.tls != nil {
			file = who.tls.CA
		}
		if who.token != nil {
			sent, _ := who.token.GetRequestMetadata(context.Background())
			token = sent["authorization"]
		}
		return who.tls != nil, file, token
	}
	expect := func(isTLS bool, file, token string, options ...Option) {
		t.Helper()
		hasTLS, ca, sent := read(options...)
		if hasTLS != isTLS || ca != file || sent != token {
			t.Errorf("got %t, %q, %q, want %t, %q, %q", hasTLS, ca, sent, isTLS, file, token)
		}
	}
	expect(false, "", "")
	t.Setenv("ATTNBIAS_CLIENT_TLS_CA", ca)
	t.Setenv("ATTNBIAS_CLIENT_TOKEN", "abc")
	expect(true, ca, "Bearer abc")
	t.Setenv("ATTNBIAS_CLIENT_TOKEN_FILE", token)
	expect(true, ca, "Bearer of-a-file")
	expect(false, "", "", WithPlaintext(), WithToken(""))
	expect(true, "", "Bearer own", WithTLS(TLS{}), WithToken("own"))
	t.Setenv("ATTNBIAS_CLIENT_TLS", "0")
	expect(false, "", "Bearer of-a-file")
	t.Setenv("ATTNBIAS_CLIENT_TLS", "1")
	t.Setenv("ATTNBIAS_CLIENT_TLS_CA", "")
	expect(true, "", "Bearer of-a-file")
	t.Setenv("ATTNBIAS_CLIENT_TLS", "")
	t.Setenv("ATTNBIAS_CLIENT_TLS_SERVER_NAME", "other.example")
	who := clientOf(t, "localhost").who
	if who.tls == nil || who.tls.ServerName != "other.example" {
		t.Errorf("got %+v, want TLS with a server of that name", who.tls)
	}
	t.Setenv("ATTNBIAS_CLIENT_TLS", "2")
	_, err := New("localhost")
	if err == nil || !strings.Contains(err.Error(), `ATTNBIAS_CLIENT_TLS: got "2", want 1 or 0`) {
		t.Errorf("got %v", err)
	}
}
