// SPDX-License-Identifier: Apache-2.0
// Exports a span for each call over OTLP if OTEL_* variables request it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/observe/logging.h"
#include "server/observe/metrics.h"

namespace attnbias {

// Reads the OTEL_* variables. Must be called before the server handles any call. Warns, and exports
// no spans, if a variable is invalid or this build does not support tracing.
void StartTracing();

// Returns whether calls have spans.
bool IsTracing();

// A client's W3C Trace Context headers; empty if it sent none.
struct TraceContext {
  std::string_view traceparent;
  std::string_view tracestate;
};

// Records a span for an ended call, as a child of the client's span, without waiting. Returns the
// new span's W3C traceparent. Without tracing, returns the client's, if it is well-formed.
std::string TraceCall(Method method, const AccessLine& line, const TraceContext& client);

// Sends the queued spans, waiting for at most `patience`.
void FlushSpans(std::chrono::milliseconds patience);

// Returns the number of spans that did not reach a collector.
int64_t SpansDropped();

}  // namespace attnbias
