// SPDX-License-Identifier: Apache-2.0
// The trace that a call is part of: W3C Trace Context.
#ifndef ATTNBIAS_SERVER_TRACE_CONTEXT_H_
#define ATTNBIAS_SERVER_TRACE_CONTEXT_H_

#include <string_view>

namespace attnbias {

// What a `traceparent` says: VERSION-TRACE_ID-PARENT_ID-FLAGS, a part of it.
// Empty where it is not valid. Of later versions, what the standard lets this
// one read of them.
std::string_view ParseTraceParent(std::string_view text);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_TRACE_CONTEXT_H_
