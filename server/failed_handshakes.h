// SPDX-License-Identifier: Apache-2.0
// Failed TLS handshakes: gRPC 1.51 tells of them in its own log alone, without
// a peer, a line for each.
#ifndef ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_
#define ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace attnbias {

enum class HandshakeFailure : uint8_t {
  // The client showed no certificate, though it has to.
  kNoCertificate,
  // Its certificate is not trusted here, or has expired.
  kUntrustedCertificate,
  // The client broke off with an alert: it does not trust this server.
  kRefusedByClient,
  // What came is not TLS: a client in plaintext.
  kNotTls,
  // No version or cipher in common.
  kNothingInCommon,
  kOther
};
// In metrics and the log.
inline constexpr std::array<std::string_view, 6> kHandshakeFailureNames = {
    "no_certificate", "untrusted_certificate", "refused_by_client",
    "not_tls",        "nothing_in_common",     "other"};

// Of a line of gRPC's log; nullopt for one about something else.
std::optional<HandshakeFailure> HandshakeFailureIn(std::string_view line);

// Calls `observer` for each failed handshake from now on; null for none.
void ObserveFailedHandshakes(std::function<void(HandshakeFailure)> observer);

// Whether a line of gRPC's log tells of a failed handshake. If so, tells the
// observer, and logs it with its peer: a line a second at most. To be called
// where gRPC logs it, on the thread that has read from the peer.
bool NoteFailedHandshake(std::string_view line);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_FAILED_HANDSHAKES_H_
