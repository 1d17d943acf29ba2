// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// What errors.Is knows an [*Error] for. docs/errors.md says what to do about each.
var (
	// ErrInvalidArgument: the request, or an option, is wrong whatever the server's state.
	ErrInvalidArgument = errors.New("attnbias: invalid argument")
	// ErrNotFound: no such table or service on this server.
	ErrNotFound = errors.New("attnbias: not found")
	// ErrOutOfRange: positions that the encoding has no numbers for.
	ErrOutOfRange = errors.New("attnbias: out of range")
	// ErrUnimplemented: the server does not know a field, an enum value or a method.
	ErrUnimplemented = errors.New("attnbias: unimplemented")
	// ErrUnauthenticated: the server does not learn who calls.
	ErrUnauthenticated = errors.New("attnbias: unauthenticated")
	// ErrPermissionDenied: who calls may not do this.
	ErrPermissionDenied = errors.New("attnbias: permission denied")
	// ErrOverloaded: the server has no room now, and said when to ask again.
	ErrOverloaded = errors.New("attnbias: overloaded")
	// ErrTooLarge: a payload over WithMaxTensorBytes, or a request that gRPC does not take.
	ErrTooLarge = errors.New("attnbias: too large")
	// ErrFingerprintMismatch: the server would no longer send the bytes that were begun.
	ErrFingerprintMismatch = errors.New("attnbias: fingerprint mismatch")
	// ErrAborted: the server ended the call, as it does to a client that stops reading or
	// sending.
	ErrAborted = errors.New("attnbias: aborted")
	// ErrUnavailable: no server could be reached, or it went away.
	ErrUnavailable = errors.New("attnbias: unavailable")
	// ErrCorrupt: what came is not what was promised: a checksum, an offset, a length.
	ErrCorrupt = errors.New("attnbias: corrupt")
	// ErrInternal: a defect of the server.
	ErrInternal = errors.New("attnbias: internal")
)

var sentinels = map[codes.Code]error{
	codes.Canceled:           context.Canceled,
	codes.DeadlineExceeded:   context.DeadlineExceeded,
	codes.InvalidArgument:    ErrInvalidArgument,
	codes.NotFound:           ErrNotFound,
	codes.OutOfRange:         ErrOutOfRange,
	codes.Unimplemented:      ErrUnimplemented,
	codes.Unauthenticated:    ErrUnauthenticated,
	codes.PermissionDenied:   ErrPermissionDenied,
	codes.FailedPrecondition: ErrFingerprintMismatch,
	codes.Aborted:            ErrAborted,
	codes.Unavailable:        ErrUnavailable,
	codes.DataLoss:           ErrCorrupt,
	codes.Internal:           ErrInternal,
}

// FieldViolation is one wrong field of a request.
type FieldViolation struct {
	// Field is its path in the request, as spec.t5.num_buckets.
	Field string
	// Description says what came and what was wanted.
	Description string
}

// Error is what a call failed with. [errors.As] finds it.
type Error struct {
	// Code is gRPC's; of failures that this package found by itself, the one that fits.
	Code codes.Code
	// Message names what was wrong, what came and what was wanted.
	Message string
	// Reason is for programs, as TENSOR_TOO_LARGE_FOR_UNARY; empty without one.
	Reason string
	// RequestID is what the server's log calls the call; empty where no server says.
	RequestID string
	// FieldViolations are the fields of the request that the server blames.
	FieldViolations []FieldViolation

	delay     *time.Duration
	unreached bool // for want of a connection
}

func (e *Error) Error() string { return fmt.Sprintf("attnbias: %v: %s", e.Code, e.Message) }

// Is says whether target is the sentinel of this error.
func (e *Error) Is(target error) bool {
	if e.Code == codes.ResourceExhausted {
		_, isLater := e.RetryDelay()
		return isLater && target == ErrOverloaded || !isLater && target == ErrTooLarge
	}
	sentinel, known := sentinels[e.Code]
	return known && target == sentinel
}

// GRPCStatus lets [status.FromError] read the code and the message.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// RetryDelay returns how long the server wants to be left alone: the longest there is where it
// wants no other attempt, false where it did not say.
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

// errorOf turns what gRPC returns into an Error, whose texts are escaped; what is one stays as it
// is. The trailer is that of the call; nil where there was none.
func errorOf(err error, trailer func() metadata.MD) *Error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	said := status.FromContextError(err) // of what no call returned
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

// takePushback takes what a server or a proxy says in gRPC's own trailer.
func (e *Error) takePushback(said []string) {
	if len(said) == 0 {
		return
	}
	// What is no number forbids another attempt, as gRPC has it.
	delay := time.Duration(math.MaxInt64)
	if milliseconds, err := strconv.ParseUint(said[0], 10, 31); err == nil {
		delay = time.Duration(milliseconds) * time.Millisecond
	}
	e.delay = &delay
}
