// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

// Option is one of [New].
type Option func(*settings)

// GetOption is one of [Client.Get] and [GetInto].
type GetOption func(*getSettings)

// TLS says whom a client trusts and who it is. Files are PEM; what they hold is read for each
// connection. A certificate and its key should change together.
type TLS struct {
	// CA is a file with the authorities that may have signed the server's certificate; empty:
	// those that the system trusts.
	CA string
	// Cert is a file with the client's own certificate, and after it those between it and its
	// authority; Key the file with its private key, not encrypted. Both or neither.
	Cert, Key string
	// ServerName is a name that the server's certificate has to have; empty: the target's.
	ServerName string
}

type settings struct {
	timeout        time.Duration
	connectTimeout time.Duration
	maxAttempts    *int
	maxTensorBytes int64
	tls            *TLS
	plaintext      bool
	token          *string
	tokenFile      *string
	logger         *slog.Logger
	dialOptions    []grpc.DialOption
}

type getSettings struct{ progress func(done, total int64) }

// WithTimeout bounds each call, its retries and waits included; more than 0, by default 5 minutes.
// A context may end it earlier. Give a large tensor over a slow link more.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.timeout = timeout }
}

// WithConnectTimeout bounds how long a client that has not reached its server yet keeps trying;
// more than 0, by default 10 seconds. Then a call fails with ErrUnavailable and the reason, as that
// nothing listens, a host is unknown, or a certificate is not trusted. Once a client has had a
// connection, it retries the same failures for the time of [WithTimeout], because they can heal.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.connectTimeout = timeout }
}

// WithMaxAttempts bounds how often a call is made before its error is returned; a stream that has
// made progress begins to count anew. At least 1. By default the timeout alone is the bound.
func WithMaxAttempts(attempts int) Option {
	return func(s *settings) { s.maxAttempts = &attempts }
}

// WithMaxTensorBytes has larger payloads refused, with ErrTooLarge, before memory is taken for
// them; more than 0, by default 16 GiB.
func WithMaxTensorBytes(bytes int64) Option {
	return func(s *settings) { s.maxTensorBytes = bytes }
}

// WithTLS has the client speak TLS; TLS{} trusts those that the system trusts. Without it, and
// without [WithPlaintext], the environment counts: ATTNBIAS_CLIENT_TLS=1, the files that
// ATTNBIAS_CLIENT_TLS_CA, ..._CERT and ..._KEY name, or the name that ..._SERVER_NAME is, else
// plaintext.
func WithTLS(tls TLS) Option {
	return func(s *settings) { s.tls, s.plaintext = &tls, false }
}

// WithPlaintext has the client not speak TLS, whatever the environment says.
func WithPlaintext() Option {
	return func(s *settings) { s.tls, s.plaintext = nil, true }
}

// WithToken says who calls, by a bearer token; "" is none. Without it, and without [WithTokenFile],
// the environment counts: ATTNBIAS_CLIENT_TOKEN_FILE or ATTNBIAS_CLIENT_TOKEN. A token leaves this
// machine only over TLS.
func WithToken(token string) Option {
	return func(s *settings) { s.token, s.tokenFile = &token, nil }
}

// WithTokenFile is [WithToken] with a file, whose token is read for each call.
func WithTokenFile(path string) Option {
	return func(s *settings) { s.token, s.tokenFile = nil, &path }
}

// WithLogger is told, once for each call, why it waits to be made again; by default [slog.Default].
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = logger }
}

// WithDialOptions adds gRPC's own, which replace this package's: interceptors, credentials, window
// sizes.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dialOptions = append(s.dialOptions, options...) }
}

// WithProgress is told, after each part of a payload that comes, how many bytes have come and how
// many there are.
func WithProgress(progress func(done, total int64)) GetOption {
	return func(s *getSettings) { s.progress = progress }
}

func settingsOf(options []Option) (*settings, error) {
	s := &settings{timeout: 5 * time.Minute, connectTimeout: 10 * time.Second,
		maxTensorBytes: 16 << 30}
	for _, option := range options {
		option(s)
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	return s, s.check()
}

func (s *settings) check() error {
	if s.timeout <= 0 {
		return invalid("WithTimeout: got %v, want more than 0", s.timeout)
	}
	if s.connectTimeout <= 0 {
		return invalid("WithConnectTimeout: got %v, want more than 0", s.connectTimeout)
	}
	if s.maxTensorBytes <= 0 {
		return invalid("WithMaxTensorBytes: got %d, want more than 0", s.maxTensorBytes)
	}
	if s.maxAttempts != nil && *s.maxAttempts < 1 {
		return invalid("WithMaxAttempts: got %d, want at least 1", *s.maxAttempts)
	}
	return nil
}
