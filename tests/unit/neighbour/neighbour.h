// SPDX-License-Identifier: Apache-2.0
// A library with its own copies of google.rpc and grpc.health.v1. A program may link both it and
// the client; protobuf aborts any program that registers a file twice.
#pragma once

#include <grpcpp/server.h>

#include <memory>

namespace attnbias {

// Reports that "" is healthy, and rejects other names with a BadRequest for the field "service".
std::unique_ptr<grpc::Server> StartNeighbour(int* port);

}  // namespace attnbias
