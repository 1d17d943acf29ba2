// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Sentinels for use with errors.Is on an [*Error]. docs/errors.md lists remedies.
var (
	// ErrInvalidArgument: the request, or an option, is invalid regardless of the server's state.
	ErrInvalidArgument = sentinel(codes.InvalidArgument, "invalid argument")
	// ErrNotFound: no such table or service on this server.
	ErrNotFound = sentinel(codes.NotFound, "not found")
	// ErrOutOfRange: the encoding has no values for some positions.
	ErrOutOfRange = sentinel(codes.OutOfRange, "out of range")
	// ErrUnimplemented: the server does not know a field, an enum value or a method.
	ErrUnimplemented = sentinel(codes.Unimplemented, "unimplemented")
	// ErrUnauthenticated: the caller's identity is missing or unknown.
	ErrUnauthenticated = sentinel(codes.Unauthenticated, "unauthenticated")
	// ErrPermissionDenied: the caller is not authorized.
	ErrPermissionDenied = sentinel(codes.PermissionDenied, "permission denied")
	// ErrOverloaded: the server has no capacity at the moment and sent a retry delay.
	ErrOverloaded = errors.New("attnbias: overloaded")
	// ErrTooLarge: the payload exceeds WithMaxTensorBytes, or the request exceeds gRPC's limit.
	ErrTooLarge = errors.New("attnbias: too large")
	// ErrFingerprintMismatch: the server can no longer send the same payload.
	ErrFingerprintMismatch = sentinel(codes.FailedPrecondition, "fingerprint mismatch")
	// ErrAborted: the server ended the call, for example because the client stopped reading or
	// sending.
	ErrAborted = sentinel(codes.Aborted, "aborted")
	// ErrUnavailable: no server could be reached, or it became unavailable.
	ErrUnavailable = sentinel(codes.Unavailable, "unavailable")
	// ErrCorrupt: the response does not match a checksum, an offset, a length or the request.
	ErrCorrupt = sentinel(codes.DataLoss, "corrupt")
	// ErrInternal: a defect in the server.
	ErrInternal = sentinel(codes.Internal, "internal")
)

// Sentinels by code, except for ResourceExhausted.
var sentinels = map[codes.Code]error{
	codes.Canceled:         context.Canceled,
	codes.DeadlineExceeded: context.DeadlineExceeded,
}

func sentinel(code codes.Code, text string) error {
	sentinels[code] = errors.New("attnbias: " + text)
	return sentinels[code]
}

// FieldViolation is one invalid field in a request.
type FieldViolation struct {
	// Field is the path of the field, such as spec.t5.num_buckets.
	Field string
	// Description states the value and the accepted values.
	Description string
}

// Error is the error from a failed call. Use [errors.As] to retrieve it.
type Error struct {
	// Code is the gRPC status code. Failures that this package detects itself use the corresponding
	// code.
	Code codes.Code
	// Message names the field, the value and the accepted values.
	Message string
	// Reason is machine-readable, such as TENSOR_TOO_LARGE_FOR_UNARY; empty if the server sent
	// none.
	Reason string
	// RequestID is the call's ID in the server's log; empty if the server sent none.
	RequestID string
	// FieldViolations are the invalid fields in the request.
	FieldViolations []FieldViolation

	delay     *time.Duration
	unreached bool // there was no connection
}

func (e *Error) Error() string { return fmt.Sprintf("attnbias: %v: %s", e.Code, e.Message) }

// Is reports whether target is the sentinel for this error.
func (e *Error) Is(target error) bool {
	if e.Code == codes.ResourceExhausted {
		_, isLater := e.RetryDelay()
		return isLater && target == ErrOverloaded || !isLater && target == ErrTooLarge
	}
	sentinel, known := sentinels[e.Code]
	return known && target == sentinel
}

// GRPCStatus returns the code and message for [status.FromError].
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// RetryDelay returns the delay that the server requests before a retry, and false if the server
// sent no delay. The maximum duration means that the server forbids a retry.
func (e *Error) RetryDelay() (time.Duration, bool) {
	if e.delay == nil {
		return 0, false
	}
	return *e.delay, true
}

func failed(code codes.Code, format string, values ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, values...)}
}

func invalid(format string, values ...any) *Error {
	return failed(codes.InvalidArgument, format, values...)
}

func corrupt(format string, values ...any) *Error {
	return failed(codes.DataLoss, format, values...)
}

// errorOf converts an error from gRPC into an Error with escaped text; an Error is returned
// unchanged. trailer returns the call's trailer; it is nil if there was no call.
func errorOf(err error, trailer func() metadata.MD) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	said := status.FromContextError(err) // an error outside a call
	if fromCall, ok := status.FromError(err); ok {
		said = fromCall
	}
	made := &Error{Code: said.Code(), Message: escaped(said.Message(), mostText)}
	for _, detail := range said.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			made.Reason = brief(detail.Reason)
		case *errdetails.RequestInfo:
			made.RequestID = brief(detail.RequestId)
		case *errdetails.RetryInfo:
			delay := detail.RetryDelay.AsDuration()
			made.delay = &delay
		case *errdetails.BadRequest:
			for _, one := range detail.FieldViolations {
				made.FieldViolations = append(made.FieldViolations,
					FieldViolation{brief(one.Field), escaped(one.Description, mostText)})
			}
		}
	}
	if trailer != nil {
		made.takePushback(trailer().Get("grpc-retry-pushback-ms"))
	}
	return made
}

// takePushback reads the delay from gRPC's own trailer, which a server or a proxy may send.
func (e *Error) takePushback(said []string) {
	if len(said) == 0 {
		return
	}
	// As in gRPC, a value that is not a number forbids a retry.
	delay := time.Duration(math.MaxInt64)
	if milliseconds, err := strconv.ParseUint(said[0], 10, 31); err == nil {
		delay = time.Duration(milliseconds) * time.Millisecond
	}
	e.delay = &delay
}

// Maximum number of bytes that an error quotes from a server's message (mostText) or from a name
// that a server sent (mostBrief).
const (
	mostText  = 8 << 10
	mostBrief = 400
)

// Undoes Quote's escaping of printable characters.
var printable = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// escaped makes text from a server safe for terminals and logs, and truncates it.
func escaped(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "..."
	}
	quoted := strconv.Quote(text)
	return printable.Replace(quoted[1 : len(quoted)-1])
}

// brief makes a name from a server safe to include in errors, and truncates it.
func brief(text string) string { return escaped(text, mostBrief) }
