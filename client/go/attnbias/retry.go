// SPDX-License-Identifier: Apache-2.0

package attnbias

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	firstBackoff   = 100 * time.Millisecond
	largestBackoff = 2 * time.Second
)

// attempts decides when a failed call is made again. All calls of this service may be repeated.
type attempts struct {
	client   *Client
	began    time.Time
	failures int  // in a row
	told     bool // that a call waits, so that a wrong target is not waited for in silence
}

// progressed forgets earlier failures.
func (a *attempts) progressed() { a.failures = 0 }

// waitAfter returns nil when the next attempt may begin, and an error where there is none.
func (a *attempts) waitAfter(ctx context.Context, err *Error) error {
	a.failures++
	select {
	case <-a.client.closed:
		return closedError()
	default:
	}
	if most := a.client.maxAttempts; ctx.Err() != nil || !isTransient(err) ||
		most != nil && a.failures == *most {
		return a.client.explained(ctx, err)
	}
	// Full jitter: callers that failed together do not come back together.
	most := min(firstBackoff<<min(a.failures-1, 5), largestBackoff)
	end, _ := ctx.Deadline() // every call has one
	if connected := a.began.Add(a.client.connectTimeout); err.unreached &&
		!a.client.reached.Load() && connected.Before(end) {
		end = connected
	}
	left := time.Until(end)
	// At most half of the time, so that there is some for a last attempt.
	delay := time.Duration(rand.Float64() * float64(min(most, left/2)))
	least, _ := err.RetryDelay()
	delay = max(delay, least)
	if left <= max(delay, firstBackoff) {
		return a.client.explained(ctx, err)
	}
	if !a.told {
		a.told = true
		a.client.logger.Warn("attnbias: trying again", "target", a.client.target, "for", left,
			"error", err.Message)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-a.client.closed:
		return closedError()
	case <-ctx.Done():
		ended := errorOf(ctx.Err(), nil)
		ended.Message += ", while waiting to try again after: " + err.Message
		return ended
	case <-timer.C:
		return nil
	}
}

func closedError() *Error { return failed(codes.Canceled, "the client is closed") }

// isTransient says whether another attempt may help.
func isTransient(err *Error) bool {
	switch err.Code {
	case codes.Unavailable, codes.Aborted, codes.Canceled:
		// Canceled is how a server that shuts down may end a call.
		return true
	case codes.ResourceExhausted:
		_, isLater := err.RetryDelay()
		return isLater
	default:
		return strings.Contains(err.Message, "RST_STREAM")
	}
}
