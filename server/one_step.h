// SPDX-License-Identifier: Apache-2.0
// The life of a call that is answered in one step.
#ifndef ATTNBIAS_SERVER_ONE_STEP_H_
#define ATTNBIAS_SERVER_ONE_STEP_H_

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call_reactor.h"

namespace attnbias {

class OneStep final : public CallReactor<grpc::ServerUnaryReactor> {
 public:
  using CallReactor::CallReactor;

  // `make(call, request, response)` makes the answer.
  template <typename Request, typename Make>
  void Answer(const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
              Make make) {
    Begin(bytes, [this, &bytes, response, make] {
      const absl::Status status = Try<Request>(bytes, response, make);
      if (status.ok()) call_.AnswerSent();
      End(status);
    });
  }

 private:
  template <typename Request, typename Make>
  absl::Status Try(const grpc::ByteBuffer& bytes, grpc::ByteBuffer* response,
                   const Make& make) {
    ATTNBIAS_ASSIGN_OR_RETURN(const auto request, call_.Parse<Request>(bytes));
    return make(call_, request, response);
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_ONE_STEP_H_
