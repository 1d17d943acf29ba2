// SPDX-License-Identifier: Apache-2.0
// Failed TLS handshakes. gRPC 1.51 reports them only in its own log, one line
// each, without the peer.
#ifndef ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_
#define ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace attnbias {

enum class HandshakeFailure : uint8_t {
  // The client presented no certificate, and the server requires one.
  kNoCertificate,
  // The client's certificate is not trusted here, or has expired.
  kUntrustedCertificate,
  // The client sent an alert: it does not trust this server.
  kRefusedByClient,
  // The client speaks something other than TLS, such as plaintext.
  kNotTls,
  // Client and server have no version or cipher in common.
  kNothingInCommon,
  kOther
};
// Names in metrics and the log.
inline constexpr std::array<std::string_view, 6> kHandshakeFailureNames = {
    "no_certificate", "untrusted_certificate", "refused_by_client",
    "not_tls",        "nothing_in_common",     "other"};

// Parses a line of gRPC's log. Returns nullopt if the line is about something
// else.
std::optional<HandshakeFailure> HandshakeFailureIn(std::string_view line);

// Calls `observer` for each failed handshake from now on. Null stops that.
void ObserveFailedHandshakes(std::function<void(HandshakeFailure)> observer);

// Returns whether a line of gRPC's log reports a failed handshake. If so, calls
// the observer, and logs the handshake with its peer, at most one line a
// second. Must be called on the thread that logs: it has read from the peer.
bool NoteFailedHandshake(std::string_view line);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_
