// SPDX-License-Identifier: Apache-2.0
// attnbias.v1.AttentionBiasService.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/engine/plan.h"
#include "core/mount/registry.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/service/call.h"
#include "server/service/plan_memo.h"

namespace attnbias {

// `server_state` outlives the service; `info` returns the GetServerInfo response.
std::unique_ptr<grpc::Service> MakeTensorService(ServerState* server_state,
                                                 std::function<v1::GetServerInfoResponse()> info);

// Returns the range that a request selects.
//
// INVALID_ARGUMENT     a field has an invalid value
// FAILED_PRECONDITION  expected_fingerprint differs from the plan's
// OUT_OF_RANGE         read_offset lies past the payload's end
absl::StatusOr<StreamWindow> ResolveStream(const v1::StreamTensorRequest& request,
                                           const Plan& plan);

// Lists a page of the mounted tables. Returns INVALID_ARGUMENT, naming the field, for an invalid
// size or a token that this server did not issue.
absl::Status ListTables(const v1::ListTablesRequest& request, const TableSet& tables,
                        v1::ListTablesResponse* response);

// Begins a ComputeLogits call.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ComputeLogits(
    ServerState* server_state, grpc::CallbackServerContext* context);

}  // namespace attnbias
