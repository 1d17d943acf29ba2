// SPDX-License-Identifier: Apache-2.0
// Measures the minimum cost of a unary call: answers every method with the same bytes, through the
// same gRPC interfaces as the server itself, and does nothing else. Prints "listening on
// HOST:PORT"; exits at the end of its standard input.
//
//   empty_server RESPONSE_BYTES
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

namespace {

class Answer final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Answer(const grpc::Slice& bytes) : response_(&bytes, 1) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

class EmptyService final : public grpc::CallbackGenericService {
 public:
  explicit EmptyService(size_t response_bytes) : bytes_(std::string(response_bytes, 'x')) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new Answer(bytes_);
  }

 private:
  const grpc::Slice bytes_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s RESPONSE_BYTES\n", argv[0]);
    return 2;
  }
  EmptyService service(std::stoull(argv[1]));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::cout << "listening on 127.0.0.1:" << port << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
  server->Shutdown();
}
