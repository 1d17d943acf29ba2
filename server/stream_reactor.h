// SPDX-License-Identifier: Apache-2.0
// The life of one StreamTensor.
#ifndef ATTNBIAS_SERVER_STREAM_REACTOR_H_
#define ATTNBIAS_SERVER_STREAM_REACTOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/output_pump.h"
#include "server/stream_request.h"

namespace attnbias {

// planning -> computing (unless kept) -> streaming -> ended.
class StreamReactor final
    : public OutputPump<grpc::ServerWriteReactor<grpc::ByteBuffer>> {
 public:
  StreamReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context,
                const grpc::ByteBuffer* request);

 private:
  void Plan();
  absl::Status MakePlan();
  void Stream(PayloadPtr payload);
  void Make() override;
  bool HasWork() override { return made_ < window_.bytes.end; }
  bool AwaitsClient() override { return false; }

  const grpc::ByteBuffer& request_;

  // Set before streaming begins.
  PlanPtr plan_;
  StreamWindow window_;
  grpc::ByteBuffer header_;
  PayloadPtr payload_;

  int64_t made_ = 0;  // end of what has been made, in the payload
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STREAM_REACTOR_H_
