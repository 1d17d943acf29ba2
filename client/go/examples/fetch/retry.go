// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	firstBackoff   = 100 * time.Millisecond
	largestBackoff = 2 * time.Second
)

// attempts counts the failures in a row of one call. All calls of this service may be repeated.
type attempts int

// waitAfter returns nil when the next attempt may begin, and the error where there is none.
func (a *attempts) waitAfter(ctx context.Context, err error) error {
	*a++
	least, again := transient(ctx, err)
	if !again {
		return err
	}
	// Full jitter: callers that failed together do not come back together.
	most := min(firstBackoff<<min(*a-1, 5), largestBackoff)
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2) // so that there is time for a last attempt
	}
	delay := max(least, time.Duration(rand.Float64()*float64(most)))
	if end, ok := ctx.Deadline(); ok && time.Until(end) < max(delay, firstBackoff) {
		return err
	}
	select {
	case <-ctx.Done():
		return err
	case <-time.After(delay):
		return nil
	}
}

// transient says whether another attempt may help, and how long the server wants it to wait.
func transient(ctx context.Context, err error) (time.Duration, bool) {
	delay, isSaid := retryDelay(err)
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted:
		return delay, true
	case codes.Canceled: // how a server that shuts down may end a call
		return delay, ctx.Err() == nil
	case codes.ResourceExhausted:
		return delay, isSaid
	default:
		return delay, strings.Contains(err.Error(), "RST_STREAM")
	}
}

func retryDelay(err error) (time.Duration, bool) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration(), true
		}
	}
	return 0, false
}
