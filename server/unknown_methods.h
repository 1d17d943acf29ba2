// SPDX-License-Identifier: Apache-2.0
// Calls of methods that the server does not have.
#ifndef ATTNBIAS_SERVER_UNKNOWN_METHODS_H_
#define ATTNBIAS_SERVER_UNKNOWN_METHODS_H_

#include "grpcpp/generic/async_generic_service.h"

namespace attnbias {

// gRPC itself refuses them without a word.
class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_UNKNOWN_METHODS_H_
