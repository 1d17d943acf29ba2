// SPDX-License-Identifier: Apache-2.0
#include "server/unknown_methods.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/invalid.h"
#include "core/base/reason.h"
#include "server/grpc_status.h"

namespace attnbias {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Refusal(WithReason(
      absl::UnimplementedError(absl::StrCat("this server has no method ",
                                            Shortened(context->method()))),
      "UNKNOWN_METHOD"));
}

}  // namespace attnbias
