// SPDX-License-Identifier: Apache-2.0
// The C++ client of attnbias: fetches position tensors and checks every byte.
//
//   absl::StatusOr<attnbias::Client> client = attnbias::Client::Create(
//       {.target = "localhost:50051"});
//   attnbias::v1::TensorSpec spec;
//   spec.mutable_alibi()->set_num_heads(8);
//   spec.mutable_pair()->set_query_length(4);
//   spec.mutable_pair()->set_key_length(4);
//   absl::StatusOr<attnbias::Tensor> bias = client->Get(spec);
//
// An RPC costs tens of microseconds: fetch once at the maximum length, cache the tensor by its
// fingerprint, and slice it locally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "attnbias/tensor.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// Called on the caller's thread, with the reason, before a call waits to retry.
using RetryFn = std::function<void(const absl::Status& error)>;

// TLS settings. Files are in PEM format. Files that change are reread within seconds and apply to
// new connections. Replace a certificate and its key together, for example by switching a symbolic
// link to their folder.
struct TlsOptions {
  // False selects plaintext.
  bool enabled = true;
  // Certificates of trusted authorities; if empty, those that the system trusts.
  std::string ca_file = "";
  // The client's certificate, followed by its intermediate certificates, and its unencrypted
  // private key; for servers that request a certificate.
  std::string cert_file = "";
  std::string key_file = "";
  // Name that the server's certificate must have; if empty, the target's.
  std::string server_name = "";
};

struct ClientOptions {
  // Address of the server, in gRPC's syntax: "host:port", "unix:/run/a.sock".
  std::string target = "localhost:50051";
  // Maximum duration of a call, including retries and waits; must be positive. Large tensors over
  // slow links need more time.
  absl::Duration timeout = absl::Minutes(5);
  // Maximum time to connect, for a client that has never had a connection; must be positive. After
  // that time, a call fails with UNAVAILABLE, and the message contains the reason and advice. A
  // client that has had a connection retries until `timeout`, since its server may be restarting.
  absl::Duration connect_timeout = absl::Seconds(10);
  // Maximum size of a payload in bytes. A larger one is rejected before memory is allocated for it.
  int64_t max_tensor_bytes = int64_t{16} << 30;
  // Maximum number of consecutive attempts that receive no bytes; 1 disables retries. By default,
  // only `timeout` limits them.
  std::optional<int> max_attempts = std::nullopt;
  // If unset, the environment decides: ATTNBIAS_CLIENT_TLS=1, files named by
  // ATTNBIAS_CLIENT_TLS_CA, _CERT and _KEY, or a name in ATTNBIAS_CLIENT_TLS_SERVER_NAME enable
  // TLS; the default is plaintext.
  std::optional<TlsOptions> tls = std::nullopt;
  // Bearer token that identifies the caller: the token itself, or a file that is read for each
  // call. Empty means none. If both are unset, the environment decides: ATTNBIAS_CLIENT_TOKEN_FILE
  // or ATTNBIAS_CLIENT_TOKEN. A token leaves this machine only over TLS.
  std::optional<std::string> token = std::nullopt;
  std::optional<std::string> token_file = std::nullopt;
  // Additional metadata for each call, such as {"tenant", "a"}: keys in lower case, values in ASCII
  // unless the key ends in "-bin".
  std::vector<std::pair<std::string, std::string>> metadata = {};
  // gRPC channel arguments that override this library's, such as {"grpc.lb_policy_name",
  // "pick_first"}. By default, calls go to the target's addresses in turn, names are resolved again
  // when a connection ends, and a peer that is silent for 15 s while a call waits is abandoned.
  std::map<std::string, std::variant<int, std::string>> channel_options = {};
  RetryFn on_retry = nullptr;
};

// Called on the caller's thread after each chunk, with the number of bytes received so far and the
// total.
using ProgressFn = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

enum class Health { kUnknown, kServing, kNotServing };

// Copies share connections. All methods are thread-safe, and block. If a call fails, they return
// the server's own code and message; attnbias/error.h provides the details. If no attnbias server
// answers, the message contains advice.
//
// Calls are safe to repeat and are retried on UNAVAILABLE, on ABORTED (the client did not read the
// stream for too long), on CANCELLED (the server is shutting down), after a connection reset, and
// on RESOURCE_EXHAUSTED with a retry delay.
class Client {
 public:
  // Creates a client, which connects on its first call. INVALID_ARGUMENT names the option.
  static absl::StatusOr<Client> Create(const ClientOptions& options);

  // Returns the header that Get would return, without computing the tensor. DATA_LOSS if the header
  // contradicts itself, does not match its checksum or answers a different request.
  absl::StatusOr<v1::TensorHeader> Describe(const v1::TensorSpec& spec) const;

  // Fetches the tensor into newly allocated memory. Resumes a broken stream at the byte where it
  // broke. DATA_LOSS if the payload does not match its checksums or header, or answers a different
  // request.
  absl::StatusOr<Tensor> Get(const v1::TensorSpec& spec,
                             const ProgressFn& progress = nullptr) const;

  // Fetches the tensor into the first total_bytes bytes of `out`. After an error, the contents of
  // `out` are unspecified. INVALID_ARGUMENT if `out` is too small.
  absl::StatusOr<v1::TensorHeader> GetInto(const v1::TensorSpec& spec, absl::Span<std::byte> out,
                                           const ProgressFn& progress = nullptr) const;

  // Returns the server's version, kernels, encodings and limits.
  absl::StatusOr<v1::GetServerInfoResponse> ServerInfo() const;

  // Returns the learned tables that the server has mounted, in ascending order by name; at most
  // 100,000. The timeout applies to all pages together. DATA_LOSS if the pages never end or the
  // names are not in ascending order.
  absl::StatusOr<std::vector<v1::TableInfo>> ListTables() const;

  // Returns the health of the server ("") or of one of its services; never retries.
  absl::StatusOr<Health> CheckHealth(const std::string& service) const;

 private:
  struct Connection;

  explicit Client(std::shared_ptr<const Connection> connection);

  std::shared_ptr<const Connection> connection_;  // shared by copies
};

}  // namespace attnbias
