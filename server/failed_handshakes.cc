// SPDX-License-Identifier: Apache-2.0
#include "server/failed_handshakes.h"

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/mutex.h"
#include "server/header_bound.h"
#include "server/logging.h"

namespace attnbias {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kBetweenLines(1);
// "fatal error" or "error" follows, by gRPC's version, and then the error.
constexpr std::string_view kLineBegins = "Handshake failed with ";
constexpr std::string_view kErrorBegins = "SSL_ERROR_";
// Precede OpenSSL's number of the error, which has hexadecimal digits.
constexpr std::string_view kNumberFollows = "error:";

HandshakeFailure FailureOf(int reason) {
  // Reasons from here on are alerts that the client has sent.
  if (reason >= SSL_AD_REASON_OFFSET) return HandshakeFailure::kRefusedByClient;
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return HandshakeFailure::kNoCertificate;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
      return HandshakeFailure::kUntrustedCertificate;
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
      return HandshakeFailure::kNotTls;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_SHARED_CIPHER:
      return HandshakeFailure::kNothingInCommon;
    default:
      return HandshakeFailure::kOther;
  }
}

// Returns the address as gRPC writes it, with IPv6 in brackets.
std::string AddressOfPeer(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(fd, any, &size) != 0) return "unknown";
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  getnameinfo(any, size, host, sizeof(host), port, sizeof(port),
              NI_NUMERICHOST | NI_NUMERICSERV);
  return address.ss_family == AF_INET6
             ? absl::StrCat("ipv6:[", host, "]:", port)
             : absl::StrCat("ipv4:", host, ":", port);
}

class Notes {
 public:
  void Observe(std::function<void(HandshakeFailure)> observer) {
    MutexLock lock(mutex_);
    observer_ = std::move(observer);
  }

  void Add(HandshakeFailure failure, std::string_view line) {
    MutexLock lock(mutex_);
    if (observer_) observer_(failure);
    const Clock::time_point now = Clock::now();
    if (now < next_line_) {
      ++not_logged_;
      return;
    }
    next_line_ = now + kBetweenLines;
    const std::string_view reason =
        kHandshakeFailureNames[static_cast<size_t>(failure)];
    line.remove_prefix(std::min(line.find(kErrorBegins), line.size()));
    LogWarning(absl::StrCat(
        "TLS handshake failed: peer=", AddressOfPeer(LastSocketRead()),
        " reason=", absl::string_view(reason.data(), reason.size()),
        not_logged_ == 0 ? "" : absl::StrCat(" not_logged=", not_logged_),
        " error=", absl::string_view(line.data(), line.size())));
    not_logged_ = 0;
  }

 private:
  Mutex mutex_;
  std::function<void(HandshakeFailure)> observer_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point next_line_ ABSL_GUARDED_BY(mutex_);
  int64_t not_logged_ ABSL_GUARDED_BY(mutex_) = 0;
};

Notes& AllNotes() {
  static Notes& notes = *new Notes;  // gRPC's threads may be last
  return notes;
}

}  // namespace

std::optional<HandshakeFailure> HandshakeFailureIn(std::string_view line) {
  if (!line.starts_with(kLineBegins)) return std::nullopt;
  const size_t at = line.find(kNumberFollows);
  if (at == std::string_view::npos) return HandshakeFailure::kOther;
  const std::string number(line.substr(at + kNumberFollows.size(), 8));
  return FailureOf(ERR_GET_REASON(std::strtoul(number.c_str(), nullptr, 16)));
}

void ObserveFailedHandshakes(std::function<void(HandshakeFailure)> observer) {
  AllNotes().Observe(std::move(observer));
}

bool NoteFailedHandshake(std::string_view line) {
  const std::optional<HandshakeFailure> failure = HandshakeFailureIn(line);
  if (failure.has_value()) AllNotes().Add(*failure, line);
  return failure.has_value();
}

}  // namespace attnbias
