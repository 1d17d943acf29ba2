// SPDX-License-Identifier: Apache-2.0
// Runs one of the server's services in the test's process.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/kernel/kernel_set.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/observe/logging.h"
#include "server/schedule/worker_pool.h"
#include "server/service/call.h"

namespace attnbias {

// A pool that counts its tasks.
class CountingExecutor final : public Executor {
 public:
  void Schedule(CallerPtr caller, Task task) override {
    ++tasks;
    pool_.Schedule(std::move(caller), std::move(task));
  }
  void ScheduleBlocking(CallerPtr caller, Task task) override {
    ++tasks;
    pool_.ScheduleBlocking(std::move(caller), std::move(task));
  }
  int num_threads() const override { return pool_.num_threads(); }
  void Shutdown() { pool_.Shutdown(); }

  std::atomic<int> tasks{0};

 private:
  WorkerPool pool_{2};
};

class ServiceHarness : public testing::Test {
 protected:
  static void SetUpTestSuite() { InitLogging({.level = "off", .access = "off"}); }

  explicit ServiceHarness(const EngineOptions& options = {})
      : engine_(options, *SupportedKernelSets().front(), &executor_, &metrics_),
        watchdog_(std::chrono::minutes(10), std::chrono::minutes(10), &engine_.budget(), &timer_),
        server_state_{engine_, executor_, metrics_, watchdog_, *access_} {}
  ~ServiceHarness() override { Stop(); }

  // Starts a server for `service`, and returns a channel to it.
  std::shared_ptr<grpc::Channel> Serve(std::unique_ptr<grpc::Service> service) {
    service_ = std::move(service);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    return server_->InProcessChannel(arguments);
  }

  void Stop() {
    server_->Shutdown();
    executor_.Shutdown();
  }

  // Makes calls that end at random points, on four threads, and then stops the server.
  void CancelAnywhere(int calls, absl::FunctionRef<grpc::Status(std::minstd_rand&)> call) {
    std::vector<std::thread> clients;
    clients.reserve(4);
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back([=] {
        std::minstd_rand random(client + 1);
        for (int i = 0; i < calls; ++i) {
          const grpc::Status status = call(random);
          EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED)
              << status.error_message();
        }
      });
    }
    for (std::thread& client : clients) client.join();
    Stop();
  }

  Metrics metrics_;
  CountingExecutor executor_;
  Engine engine_;
  Timer timer_;
  StreamWatchdog watchdog_;
  const std::unique_ptr<Access> access_ = *Access::Load({});
  ServerState server_state_;

 private:
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

// Ends a bidirectional stream after up to `most` answers.
template <typename Response, typename Call>
grpc::Status CancelAfter(grpc::ClientContext& context, Call& call, std::minstd_rand& random,
                         int most) {
  Response response;
  for (auto left = random() % most; left > 0; --left) call.Read(&response);
  if (random() % 2 == 0) call.WritesDone();
  context.TryCancel();
  while (call.Read(&response)) {
  }
  return call.Finish();
}

}  // namespace attnbias
