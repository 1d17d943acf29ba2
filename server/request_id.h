// SPDX-License-Identifier: Apache-2.0
// What a call is called, in the log and to its client.
#ifndef ATTNBIAS_SERVER_REQUEST_ID_H_
#define ATTNBIAS_SERVER_REQUEST_ID_H_

#include <string>
#include <string_view>

namespace attnbias {

inline constexpr char kRequestIdKey[] = "x-request-id";

// `given`, if it is 1 to 128 letters, digits and "-_.:/+=". Otherwise one that
// no other call has, of this process or another.
std::string RequestId(std::string_view given);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_REQUEST_ID_H_
