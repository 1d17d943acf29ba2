// SPDX-License-Identifier: Apache-2.0
// A library with its own google.rpc and grpc.health.v1, as a program may have it in addition to
// the client; protobuf ends a program that registers a file twice.
#pragma once

#include <grpcpp/server.h>

#include <memory>

namespace attnbias {

// Tells of "" that it is healthy, and refuses other names with a BadRequest of
// the field "service".
std::unique_ptr<grpc::Server> StartNeighbour(int* port);

}  // namespace attnbias
