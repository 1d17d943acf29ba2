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

// attempts decides when a failed call is retried. All calls to this service are safe to repeat.
type attempts struct {
	client   *Client
	began    time.Time
	failures int  // in a row
	told     bool // the first retry has been logged
}

// progressed resets the failure count.
func (a *attempts) progressed() { a.failures = 0 }

// waitAfter waits until the next attempt may begin, or returns an error if no more attempts should
// be made.
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
	// Full jitter keeps callers that failed together from retrying together.
	most := min(firstBackoff<<min(a.failures-1, 5), largestBackoff)
	end, _ := ctx.Deadline() // every call has a deadline
	if connected := a.began.Add(a.client.connectTimeout); err.unreached &&
		!a.client.reached.Load() && connected.Before(end) {
		end = connected
	}
	left := time.Until(end)
	// Waiting for at most half of the remaining time leaves time for a last attempt.
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
		ended.Message += ", while waiting to retry after: " + err.Message
		return ended
	case <-timer.C:
		return nil
	}
}

func closedError() *Error { return failed(codes.Canceled, "the client is closed") }

// isTransient reports whether another attempt may succeed.
func isTransient(err *Error) bool {
	switch err.Code {
	case codes.Unavailable, codes.Aborted, codes.Canceled:
		// A server that is shutting down may end a call with Canceled.
		return true
	case codes.ResourceExhausted:
		_, isLater := err.RetryDelay()
		return isLater
	default:
		return strings.Contains(err.Message, "RST_STREAM")
	}
}
