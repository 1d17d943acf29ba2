// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

// Option is an option for [New].
type Option func(*settings)

// GetOption is an option for [Client.Get] and [GetInto].
type GetOption func(*getSettings)

// TLS names the PEM files that authenticate the server and the client. They are read for each
// connection. A certificate and its key should be replaced together.
type TLS struct {
	// CA is a file with trusted certificate authorities. If empty, the system's authorities are
	// trusted.
	CA string
	// Cert is a file with the client's certificate, followed by its intermediate certificates; Key
	// is a file with the unencrypted private key. Set both or neither.
	Cert, Key string
	// ServerName is a name that the server's certificate must have. The default is the name in the
	// target.
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

// WithTimeout limits the duration of each call, including its retries and waits. The timeout must
// be positive; the default is 5 minutes. A context may end a call earlier. Large tensors over slow
// links need a longer timeout.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.timeout = timeout }
}

// WithConnectTimeout limits how long a client that has not yet reached its server tries to connect.
// The timeout must be positive; the default is 10 seconds. When it expires, the call fails with
// ErrUnavailable and the reason, such as a closed port, an unknown host or an untrusted
// certificate. A client that has already reached its server keeps retrying until the timeout set by
// [WithTimeout] expires, since the server may be restarting.
func WithConnectTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.connectTimeout = timeout }
}

// WithMaxAttempts limits the number of consecutive attempts that receive no data. The limit must be
// at least 1; a limit of 1 disables retries. By default, only the timeout limits attempts.
func WithMaxAttempts(attempts int) Option {
	return func(s *settings) { s.maxAttempts = &attempts }
}

// WithMaxTensorBytes limits the size of a payload. Larger payloads are rejected with ErrTooLarge,
// before their memory is allocated. The limit must be positive; the default is 16 GiB.
func WithMaxTensorBytes(bytes int64) Option {
	return func(s *settings) { s.maxTensorBytes = bytes }
}

// WithTLS enables TLS; TLS{} trusts the system's authorities. Without WithTLS or [WithPlaintext],
// the environment decides: TLS is enabled by ATTNBIAS_CLIENT_TLS=1, by files named in
// ATTNBIAS_CLIENT_TLS_CA, ..._CERT and ..._KEY, or by a name in ..._SERVER_NAME, and disabled by
// ATTNBIAS_CLIENT_TLS=0, which takes precedence; the default is plaintext.
func WithTLS(tls TLS) Option {
	return func(s *settings) { s.tls, s.plaintext = &tls, false }
}

// WithPlaintext disables TLS, regardless of the environment.
func WithPlaintext() Option {
	return func(s *settings) { s.tls, s.plaintext = nil, true }
}

// WithToken identifies the caller by a bearer token; "" means none. Without WithToken or
// [WithTokenFile], the token comes from the environment: ATTNBIAS_CLIENT_TOKEN_FILE or
// ATTNBIAS_CLIENT_TOKEN. A token leaves this machine only over TLS.
func WithToken(token string) Option {
	return func(s *settings) { s.token, s.tokenFile = &token, nil }
}

// WithTokenFile is like [WithToken], but reads the token from a file for each call.
func WithTokenFile(path string) Option {
	return func(s *settings) { s.token, s.tokenFile = nil, &path }
}

// WithLogger sets the logger that reports the first retry of each call; the default is
// [slog.Default].
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = logger }
}

// WithDialOptions adds gRPC options, such as interceptors, credentials or window sizes. They
// override this package's own settings.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dialOptions = append(s.dialOptions, options...) }
}

// WithProgress sets a function to call after each chunk, with the number of bytes received so far
// and the total number.
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
	if s.timeout <= 0 {
		return nil, invalid("WithTimeout: got %v, want more than 0", s.timeout)
	}
	if s.connectTimeout <= 0 {
		return nil, invalid("WithConnectTimeout: got %v, want more than 0", s.connectTimeout)
	}
	if s.maxTensorBytes <= 0 {
		return nil, invalid("WithMaxTensorBytes: got %d, want more than 0", s.maxTensorBytes)
	}
	if s.maxAttempts != nil && *s.maxAttempts < 1 {
		return nil, invalid("WithMaxAttempts: got %d, want at least 1", *s.maxAttempts)
	}
	return s, nil
}
