// SPDX-License-Identifier: Apache-2.0
// The C++ client of attnbias: position tensors into memory, every byte checked.
//
//   absl::StatusOr<attnbias::Client> client = attnbias::Client::Create(
//       {.target = "localhost:50051"});
//   attnbias::v1::TensorSpec spec;
//   spec.mutable_alibi()->set_num_heads(8);
//   spec.mutable_pair()->set_query_length(4);
//   spec.mutable_pair()->set_key_length(4);
//   absl::StatusOr<attnbias::Tensor> bias = client->Get(spec);
//
// An RPC costs tens of microseconds: fetch once at the greatest length, keep
// the tensor by its fingerprint and slice locally.
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

// Called from the calling thread before the call waits to try again; with why.
using RetryFn = std::function<void(const absl::Status& error)>;

// TLS with a server. Files are PEM. Those that change are read again within
// seconds, for connections made from then on; replace a certificate and its key
// together, as by a link to their folder.
struct TlsOptions {
  // False is plaintext.
  bool enabled = true;
  // Certificates of the authorities that may have signed the server's; empty:
  // those that the system trusts.
  std::string ca_file = "";
  // The client's own certificate, for a server that asks for one, and after it
  // those between it and its authority; and its private key, not encrypted.
  std::string cert_file = "";
  std::string key_file = "";
  // A name that the server's certificate has to have; empty: the target's.
  std::string server_name = "";
};

struct ClientOptions {
  // Where the server is, as gRPC names it: "host:port", "unix:/run/a.sock".
  std::string target = "localhost:50051";
  // Bound on one call, its retries and waits included; positive. Give a large
  // tensor over a slow link more.
  absl::Duration timeout = absl::Minutes(5);
  // How long a call of a client that has never had a connection tries to get
  // one, from the beginning of the call; positive. Then the call fails with
  // UNAVAILABLE, the reason and what to try. A client that has had a connection
  // tries until `timeout`: its server may be restarting.
  absl::Duration connect_timeout = absl::Seconds(10);
  // A larger payload is refused before memory is taken for it.
  int64_t max_tensor_bytes = int64_t{16} << 30;
  // Attempts in a row that bring no byte before a call fails; 1: no retries. By
  // default `timeout` alone is the bound.
  std::optional<int> max_attempts = std::nullopt;
  // Without a value what the environment says: ATTNBIAS_CLIENT_TLS=1, the files
  // that ATTNBIAS_CLIENT_TLS_CA, _CERT and _KEY name, or the server's name of
  // ATTNBIAS_CLIENT_TLS_SERVER_NAME, else plaintext.
  std::optional<TlsOptions> tls = std::nullopt;
  // A bearer token that says who calls: itself, or a file that is read for each
  // call. Empty: none. Without a value of either what the environment says:
  // ATTNBIAS_CLIENT_TOKEN_FILE or ATTNBIAS_CLIENT_TOKEN. It leaves this machine
  // only over TLS.
  std::optional<std::string> token = std::nullopt;
  std::optional<std::string> token_file = std::nullopt;
  // What each call carries besides, as {"tenant", "a"}: keys in lower case,
  // values in ASCII unless the key ends in "-bin".
  std::vector<std::pair<std::string, std::string>> metadata = {};
  // gRPC's own, in place of this library's, as {"grpc.lb_policy_name",
  // "pick_first"}. By default calls go to all addresses of the target in turn,
  // names are looked up again when a connection ends, and a peer that is silent
  // while a call waits is given up after 15 s.
  std::map<std::string, std::variant<int, std::string>> channel_options = {};
  RetryFn on_retry = nullptr;
};

// Called from the calling thread after each chunk that arrives; with all bytes
// that have.
using ProgressFn = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

enum class Health { kUnknown, kServing, kNotServing };

// Copies share their connections. All methods may be called from any thread at
// once, block, and return the server's own code and message on an error (see
// attnbias/error.h for its details). Where there is no server, or something
// else, the message says what to try.
//
// Calls are retried where that helps: on UNAVAILABLE, on ABORTED, which is how
// a server ends a stream that was not read for too long, on CANCELLED, which is
// how one that shuts down may end a call, where a connection was reset, and on
// RESOURCE_EXHAUSTED that comes with a delay. All are safe to repeat.
class Client {
 public:
  // Does not connect: the first call does. INVALID_ARGUMENT names the option.
  static absl::StatusOr<Client> Create(const ClientOptions& options);

  // What Get would give, without computing or sending it. DATA_LOSS if the
  // header that arrives is not what its checksum says, or describes another
  // tensor than the one that was requested.
  absl::StatusOr<v1::TensorHeader> Describe(const v1::TensorSpec& spec) const;

  // The tensor in memory of its own. A broken stream is resumed where it
  // broke. DATA_LOSS if what arrives is not what its checksums or header say,
  // or not what was requested: other parts, names, forms, element types or
  // shapes.
  absl::StatusOr<Tensor> Get(const v1::TensorSpec& spec,
                             const ProgressFn& progress = nullptr) const;

  // The tensor into the first total_bytes of `out`, whose contents are
  // unspecified after an error. INVALID_ARGUMENT if `out` is too small.
  absl::StatusOr<v1::TensorHeader> GetInto(
      const v1::TensorSpec& spec, absl::Span<std::byte> out,
      const ProgressFn& progress = nullptr) const;

  absl::StatusOr<v1::GetServerInfoResponse> ServerInfo() const;

  // The learned tables that the server has mounted, by ascending name: at most
  // a hundred thousand. The timeout bounds all pages together. DATA_LOSS if
  // pages do not end, or if names do not ascend.
  absl::StatusOr<std::vector<v1::TableInfo>> ListTables() const;

  // Health of the server ("") or of one of its services; never retried.
  absl::StatusOr<Health> CheckHealth(const std::string& service) const;

 private:
  struct Connection;

  explicit Client(std::shared_ptr<const Connection> connection);

  std::shared_ptr<const Connection> connection_;  // shared by copies
};

}  // namespace attnbias
