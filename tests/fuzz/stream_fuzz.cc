// SPDX-License-Identifier: Apache-2.0
// Streams as the C++ client joins them. Whatever they contain and however they end, the client
// returns the bytes that the fingerprint promises, or an error.
//
// An input's first byte is the tensor's size. Each further pair of bytes is a step: kind and size.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "attnbias/client.h"
#include "tests/unit/cpp/fake_server.h"

namespace attnbias {
namespace {

// Returns one of two payloads of the same size, distinguished by their headers' fingerprints.
std::string PayloadOf(const std::string& fingerprint, size_t size) {
  return MakePayload(size, fingerprint == "a" ? 1 : 2);
}

grpc::Status EndOf(uint8_t amount, grpc::ServerContext* context) {
  switch (amount % 4) {
    case 0:
      return grpc::Status::OK;
    case 1:
      return {grpc::StatusCode::FAILED_PRECONDITION, "other bytes"};
    case 2:
      return {grpc::StatusCode::INVALID_ARGUMENT, "no"};
    default:
      // Asks for an immediate retry.
      context->AddTrailingMetadata("grpc-retry-pushback-ms", "0");
      return {grpc::StatusCode::ABORTED, "later"};
  }
}

struct Steps {
  explicit Steps(std::string_view bytes) : input(bytes) {
    if (input.empty()) return;
    size = static_cast<uint8_t>(input[0]) * 4;
    rest.remove_prefix(1);
  }

  const std::string input;
  size_t size = 0;
  std::string_view rest = input;
};

// Answers each call with the next steps, up to an end.
class Service final : public v1::AttentionBiasService::Service {
 public:
  void Play(std::shared_ptr<Steps> steps) {
    const std::lock_guard lock(mutex_);
    steps_ = std::move(steps);
  }

  grpc::Status StreamTensor(grpc::ServerContext* context, const v1::StreamTensorRequest* request,
                            grpc::ServerWriter<v1::StreamTensorResponse>* writer) override {
    // A client that gives up does not wait for this call, so its next steps differ.
    const std::shared_ptr<Steps> steps = Now();
    const size_t size = steps->size;
    std::string_view& rest = steps->rest;
    const FakeStream stream{context, *request, writer};
    std::string payload = PayloadOf("a", size);
    bool begun = false;
    auto at = static_cast<size_t>(request->read_offset());
    while (rest.size() >= 2) {
      const uint8_t step = rest[0];
      const uint8_t amount = rest[1];
      rest.remove_prefix(2);
      const size_t end = std::min(at + amount, size);
      switch (step % 8) {
        case 0:
        case 1: {
          const std::string fingerprint = step % 8 == 0 ? "a" : "b";
          const std::string own = PayloadOf(fingerprint, size);
          if (!std::exchange(begun, true)) payload = own;
          const v1::TensorHeader header = MakeHeader(own, fingerprint);
          stream.SendChunk(payload, at, end, &header);
          at = end;
          break;
        }
        case 5:  // a later message sent too early
          stream.SendChunk(payload, end, size);
          break;
        case 6: {
          std::string damaged = payload;
          if (at < end) damaged[at] ^= 1;
          v1::StreamTensorResponse message;
          message.set_offset(static_cast<int64_t>(at));
          message.set_data(damaged.substr(at, end - at));
          message.set_crc32c(Crc32c(&payload[at], end - at));
          writer->Write(message);
          break;
        }
        case 7:
          return EndOf(amount, context);
        default:
          stream.SendChunk(payload, at, end);
          at = end;
      }
    }
    return {grpc::StatusCode::INTERNAL, "no more steps"};
  }

 private:
  std::shared_ptr<Steps> Now() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

  std::mutex mutex_;
  std::shared_ptr<Steps> steps_;
};

// A server and its client, for as long as the program runs.
struct Connected {
  Service service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Client> client;

  Connected() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    client =
        std::make_unique<Client>(*Client::Create({.target = "127.0.0.1:" + std::to_string(port),
                                                  .timeout = absl::Seconds(5),
                                                  .max_attempts = 3}));
  }
};

}  // namespace
}  // namespace attnbias

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const connected = new attnbias::Connected();
  const auto steps = std::make_shared<attnbias::Steps>(
      std::string_view(reinterpret_cast<const char*>(data), size));
  connected->service.Play(steps);
  const auto tensor = connected->client->Get({});
  if (!tensor.ok()) return 0;
  const auto bytes = tensor->bytes();
  const std::string wanted = attnbias::PayloadOf(tensor->header().fingerprint(), steps->size);
  if (bytes.size() != wanted.size() ||
      !std::equal(wanted.begin(), wanted.end(), reinterpret_cast<const char*>(bytes.data()))) {
    std::abort();
  }
  return 0;
}
