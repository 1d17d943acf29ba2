// SPDX-License-Identifier: Apache-2.0
#include "proto/grpc_versions.h"

#include <atomic>
#include <string>
#include <utility>

#include "grpc/grpc.h"
#include "grpcpp/version_info.h"

#if GRPC_CPP_VERSION_MAJOR > 1 || GRPC_CPP_VERSION_MINOR > 51
#define ATTNBIAS_CURRENT_GRPC 1
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#else
#define ATTNBIAS_CURRENT_GRPC 0
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#endif

namespace attnbias {
namespace {

using Log = void (*)(LibraryLogLevel level, std::string_view line);
std::atomic<Log> library_log = nullptr;

#if ATTNBIAS_CURRENT_GRPC

class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(grpc_server_credentials* credentials,
              std::shared_ptr<const void> state)
      : ServerCredentials(credentials), state_(std::move(state)) {}

 private:
  const std::shared_ptr<const void> state_;
};

class Sink final : public absl::LogSink {
  void Send(const absl::LogEntry& entry) override {
    const absl::LogSeverity severity = entry.log_severity();
    library_log.load()(
        severity >= absl::LogSeverity::kError     ? LibraryLogLevel::kError
        : severity == absl::LogSeverity::kWarning ? LibraryLogLevel::kWarning
                                                  : LibraryLogLevel::kDebug,
        entry.text_message());
  }
};

void SendLinesToLog() {
  // Until this call, which may be made only once, Abseil also writes every line to standard error.
  absl::InitializeLog();
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfinity);
  absl::AddLogSink(new Sink);
}

#else

class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(grpc_server_credentials* credentials,
              std::shared_ptr<const void> state)
      : credentials_(credentials), state_(std::move(state)) {}
  ~Credentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/)
      override {}

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
  const std::shared_ptr<const void> state_;
};

void LogGrpc(gpr_log_func_args* line) {
  library_log.load()(line->severity == GPR_LOG_SEVERITY_ERROR
                         ? LibraryLogLevel::kError
                         : LibraryLogLevel::kDebug,
                     line->message);
}

void LogProtobuf(google::protobuf::LogLevel level, const char* /*file*/,
                 int /*line*/, const std::string& message) {
  library_log.load()(level >= google::protobuf::LOGLEVEL_ERROR
                         ? LibraryLogLevel::kError
                         : LibraryLogLevel::kWarning,
                     message);
}

void SendLinesToLog() {
  gpr_set_log_function(&LogGrpc);
  google::protobuf::SetLogHandler(&LogProtobuf);
}

#endif

}  // namespace

bool GrpcIsMaintained() { return ATTNBIAS_CURRENT_GRPC; }

std::shared_ptr<grpc::ServerCredentials> CredentialsOfC(
    grpc_server_credentials* credentials, std::shared_ptr<const void> state) {
  return std::make_shared<Credentials>(credentials, std::move(state));
}

void LogLibrariesBy(void (*log)(LibraryLogLevel level, std::string_view line)) {
  if (library_log.exchange(log) == nullptr) SendLinesToLog();
}

void PrintUnsetFields(google::protobuf::util::JsonPrintOptions* options) {
#if ATTNBIAS_CURRENT_GRPC
  options->always_print_fields_with_no_presence = true;
#else
  options->always_print_primitive_fields = true;
#endif
}

}  // namespace attnbias
