// SPDX-License-Identifier: Apache-2.0
#include "server/unknown_methods.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
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
  // A path may have any bytes, a status only text.
  const std::string path = Shortened(absl::CHexEscape(context->method()));
  return new Refusal(WithReason(absl::UnimplementedError(absl::StrCat(
                                    "this server has no method ", path)),
                                "UNKNOWN_METHOD"));
}

}  // namespace attnbias
