// SPDX-License-Identifier: Apache-2.0
// A server on an ephemeral port. Each of its streams follows a script, so that every stream failure
// happens on a real connection.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "attnbias/client.h"
#include "attnbias/v1/service.grpc.pb.h"
#include "core/checksum/crc32c.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace attnbias {

// Returns a payload of `size` bytes, different for each seed.
inline std::string MakePayload(size_t size, uint32_t seed = 1) {
  std::string payload(size, '\0');
  for (char& byte : payload) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return payload;
}

// Returns a well-formed fingerprint, different for each name.
inline std::string Fingerprint(const std::string& name) {
  std::string digits = absl::BytesToHexString(name);
  digits.resize(64, '0');
  return digits;
}

inline uint32_t Crc32cOf(const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  return Crc32c(bytes.data(), bytes.size());
}

// Adds the checksums that a header lacks.
template <typename Response>
void Sign(const google::protobuf::Message& request, Response* response) {
  if (!response->has_header()) return;
  if (!response->has_header_crc32c()) {
    response->set_header_crc32c(Crc32cOf(response->header()));
  }
  if (!response->has_request_crc32c()) response->set_request_crc32c(Crc32cOf(request));
}

// Returns a self-consistent header.
inline v1::TensorHeader MakeHeader(const std::string& payload, const std::string& name) {
  v1::TensorHeader header;
  header.set_total_bytes(static_cast<int64_t>(payload.size()));
  header.set_fingerprint(Fingerprint(name));
  header.set_encoding_fingerprint(Fingerprint("encoding"));
  v1::TensorPart* part = header.add_parts();
  part->set_name("diagonals");
  part->set_data_type(v1::DATA_TYPE_F32);
  part->set_form(v1::FORM_TOEPLITZ);
  part->add_shape(static_cast<int64_t>(payload.size() / 4));
  part->set_size_bytes(static_cast<int64_t>(payload.size()));
  return header;
}

// One StreamTensor call, as its script sees it.
struct FakeStream {
  grpc::ServerContext* context;
  const v1::StreamTensorRequest& request;
  grpc::ServerWriter<v1::StreamTensorResponse>* writer;

  // Sends the header alone.
  void SendHeader(const v1::TensorHeader& header) const {
    v1::StreamTensorResponse message;
    *message.mutable_header() = header;
    Sign(request, &message);
    writer->Write(message);
  }

  // Sends payload[begin, end) with its checksum. Returns false once the client is gone.
  bool SendChunk(const std::string& payload, size_t begin, size_t end,
                 const v1::TensorHeader* header = nullptr) const {
    v1::StreamTensorResponse message;
    if (header != nullptr) *message.mutable_header() = *header;
    Sign(request, &message);
    message.set_offset(static_cast<int64_t>(begin));
    message.set_data(payload.substr(begin, end - begin));
    message.set_crc32c(Crc32c(message.data().data(), message.data().size()));
    return writer->Write(message);
  }

  // Sends a healthy server's complete answer.
  grpc::Status SendAll(const std::string& payload, const v1::TensorHeader& header,
                       size_t chunk = 1000) const {
    const size_t begin = static_cast<size_t>(request.read_offset());
    for (size_t at = begin; at < payload.size(); at += chunk) {
      SendChunk(payload, at, std::min(at + chunk, payload.size()), at == begin ? &header : nullptr);
    }
    return grpc::Status::OK;
  }
};

// The identity that a call sent, and its connection.
struct Caller {
  std::string authorization;
  std::string certificate_name;  // the common name
  std::string peer;
};

using Script = std::function<grpc::Status(const FakeStream&)>;
using DescribeScript = std::function<grpc::Status(v1::DescribeTensorResponse*)>;

inline grpc::Status WithDetail(grpc::StatusCode code, const std::string& message,
                               const google::protobuf::Message& detail) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  status.add_details()->PackFrom(detail);
  return grpc::Status(code, message, status.SerializeAsString());
}

class FakeServer final : public v1::AttentionBiasService::Service {
 public:
  // Listens on an ephemeral port.
  explicit FakeServer(
      std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials())
      : credentials_(std::move(credentials)) {
    Start();
  }
  ~FakeServer() override { Stop(); }

  // Makes the next stream without a script follow `script`.
  void Then(Script script) {
    const std::lock_guard lock(mutex_);
    scripts_.push_back(std::move(script));
  }
  void ThenDescribe(DescribeScript script) {
    const std::lock_guard lock(mutex_);
    describe_scripts_.push_back(std::move(script));
  }

  // Listens on the same port as before.
  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_), credentials_, &port_);
    builder.RegisterService(this);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
  }

  // Cancels running calls.
  void Stop() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  // Breaks all connections simultaneously, then listens again.
  void Restart() {
    Stop();
    Start();
  }

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

  // Returns the requests from all streams so far, in order.
  std::vector<v1::StreamTensorRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  void set_health(grpc::health::v1::HealthCheckResponse::ServingStatus status) {
    health_.status = status;
  }

  grpc::Status StreamTensor(grpc::ServerContext* context, const v1::StreamTensorRequest* request,
                            grpc::ServerWriter<v1::StreamTensorResponse>* writer) override {
    Note(*context);
    Script script;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*request);
      if (scripts_.empty()) {
        return {grpc::StatusCode::INTERNAL, "a stream without a script"};
      }
      script = std::move(scripts_.front());
      scripts_.pop_front();
    }
    return script(FakeStream{context, *request, writer});
  }

  grpc::Status DescribeTensor(grpc::ServerContext* context,
                              const v1::DescribeTensorRequest* request,
                              v1::DescribeTensorResponse* response) override {
    Note(*context);
    DescribeScript script;
    {
      const std::lock_guard lock(mutex_);
      if (describe_scripts_.empty()) {
        return {grpc::StatusCode::INTERNAL, "a call without a script"};
      }
      script = std::move(describe_scripts_.front());
      describe_scripts_.pop_front();
    }
    grpc::Status status = script(response);
    Sign(*request, response);
    return status;
  }

  void set_has_tables(bool has_tables) { has_tables_ = has_tables; }
  void set_table_name(const std::string& name) { table_name_ = name; }

  // Returns three tables, one per page, or no table at all.
  grpc::Status ListTables(grpc::ServerContext* context, const v1::ListTablesRequest* request,
                          v1::ListTablesResponse* response) override {
    Note(*context);
    if (request->page_size() != 1000) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "a page of another size"};
    }
    if (!has_tables_) return grpc::Status::OK;
    const std::string& token = request->page_token();
    const int page = token.empty() ? 0 : std::stoi(token);
    v1::TableInfo* table = response->add_tables();
    table->set_name(table_name_ + std::to_string(page));
    table->set_sha256("ab12");
    table->set_data_type(v1::DATA_TYPE_BF16);
    table->add_shape(32);
    table->add_shape(8);
    table->set_source("f.safetensors:w");
    if (page == 0) {
      v1::T5* t5 = table->mutable_spec()->mutable_t5();
      t5->set_num_heads(8);
      t5->set_bidirectional(false);
      t5->set_bucket_rule(v1::BUCKET_RULE_FLOAT32_LOG);
      t5->mutable_table()->set_name(table->name());
    }
    if (page < 2) response->set_next_page_token(std::to_string(page + 1));
    return grpc::Status::OK;
  }

  // Returns the number of GetServerInfo calls.
  int info_calls() const { return info_calls_; }

  grpc::Status GetServerInfo(grpc::ServerContext* context, const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    Note(*context);
    ++info_calls_;
    response->set_version("1.2.3");
    return grpc::Status::OK;
  }

  // Returns the callers of all calls so far, in order.
  std::vector<Caller> callers() const {
    const std::lock_guard lock(mutex_);
    return callers_;
  }

 private:
  void Note(const grpc::ServerContext& context) {
    Caller caller;
    const auto found = context.client_metadata().find("authorization");
    if (found != context.client_metadata().end()) {
      caller.authorization = {found->second.data(), found->second.size()};
    }
    for (const grpc::string_ref& name :
         context.auth_context()->FindPropertyValues("x509_common_name")) {
      caller.certificate_name = {name.data(), name.size()};
    }
    caller.peer = context.peer();
    const std::lock_guard lock(mutex_);
    callers_.push_back(caller);
  }

  struct HealthService final : grpc::health::v1::Health::Service {
    explicit HealthService(FakeServer* whole) : server(whole) {}

    grpc::Status Check(grpc::ServerContext* context,
                       const grpc::health::v1::HealthCheckRequest* request,
                       grpc::health::v1::HealthCheckResponse* response) override {
      server->Note(*context);
      if (!request->service().empty()) {
        return {grpc::StatusCode::NOT_FOUND, "no service " + request->service()};
      }
      response->set_status(status);
      return grpc::Status::OK;
    }

    FakeServer* const server;
    std::atomic<grpc::health::v1::HealthCheckResponse::ServingStatus> status =
        grpc::health::v1::HealthCheckResponse::SERVING;
  };

  mutable std::mutex mutex_;
  std::deque<Script> scripts_;
  std::deque<DescribeScript> describe_scripts_;
  std::vector<v1::StreamTensorRequest> requests_;
  std::vector<Caller> callers_;
  std::atomic<int> info_calls_ = 0;
  std::atomic<bool> has_tables_ = true;
  std::string table_name_ = "table ";
  HealthService health_{this};
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace attnbias
