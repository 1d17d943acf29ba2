// SPDX-License-Identifier: Apache-2.0
// Calls one unary method as often as it can, with a fixed number of calls in flight, and ignores
// the answers. Each round prints calls per second.
//
//   unary_load HOST:PORT /package.Service/Method REQUEST_FILE SECONDS
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/load/bench/rounds.h"

namespace {

using Clock = std::chrono::steady_clock;
using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

constexpr int kConnections = 4;
constexpr int kCallsInFlight = 64;

std::shared_ptr<grpc::Channel> Connect(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

// A closed loop: the end of each call starts the next one, until the time is up.
class Load {
 public:
  Load(const std::string& target, std::string method, const std::string& request)
      : method_(std::move(method)) {
    const grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    for (int i = 0; i < kConnections; ++i) stubs_.emplace_back(Connect(target));
  }

  // Returns the number of calls answered per second.
  double Run(std::chrono::duration<double> time) {
    finished_ = 0;
    const auto start = Clock::now();
    end_ = start + std::chrono::duration_cast<Clock::duration>(time);
    running_ = kCallsInFlight;
    for (int i = 0; i < kCallsInFlight; ++i) Begin(i % kConnections);
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait(lock, [&] { return running_ == 0; });
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    return finished_ / elapsed.count();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  void Begin(int connection) {
    auto call = std::make_shared<Call>();
    call->request = request_;
    stubs_[connection].UnaryCall(
        &call->context, method_, grpc::StubOptions(), &call->request, &call->response,
        [this, call, connection](const grpc::Status& status) { End(connection, status); });
  }

  void End(int connection, const grpc::Status& status) {
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.error_message().c_str());
      std::_Exit(1);
    }
    ++finished_;
    if (Clock::now() < end_) return Begin(connection);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--running_ == 0) idle_.notify_one();
  }

  const std::string method_;
  grpc::ByteBuffer request_;
  std::vector<Stub> stubs_;
  Clock::time_point end_;
  std::atomic<int> finished_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  int running_ = 0;  // guarded by mutex_ once calls are in flight
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s HOST:PORT METHOD REQUEST_FILE SECONDS\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[3], std::ios::binary);
  const std::string request{std::istreambuf_iterator<char>(file), {}};
  Load load(argv[1], argv[2], request);
  const std::chrono::duration<double> time(std::stod(argv[4]));
  load.Run(time / 4);  // connects
  attnbias::RunRounds([&] { return load.Run(time); });
}
