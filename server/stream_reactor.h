// SPDX-License-Identifier: Apache-2.0
// The life of one StreamTensor.
#ifndef ATTNBIAS_SERVER_STREAM_REACTOR_H_
#define ATTNBIAS_SERVER_STREAM_REACTOR_H_

#include <mutex>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/cancellation.h"
#include "core/engine/engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/call.h"
#include "server/stream_request.h"

namespace attnbias {

// planning -> computing (unless kept) -> streaming -> ended.
//
// While streaming one message is written and the executor makes the next; each
// of the two, when it is done, calls Proceed, which starts what can be started.
// Once the stream is to end, Proceed finishes it when neither is under way.
class StreamReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  StreamReactor(CallEnvironment* environment,
                grpc::CallbackServerContext* context,
                const grpc::ByteBuffer* request);

  // Once, after construction. The object deletes itself when the call is over.
  void Start();

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancellation_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  struct Message {
    grpc::ByteBuffer bytes;
    // Of the tensor.
    int64_t size = 0;
  };

  ~StreamReactor() override = default;

  void Plan();
  absl::StatusOr<PlanPtr> MakePlan();
  // Runs `step` on a thread of the executor.
  template <typename Step>
  void Schedule(Step step);
  void Compute();
  void Stream(PayloadPtr payload);
  void MakeChunk();
  void Proceed(std::unique_lock<std::mutex> lock);
  void Write();
  void ScheduleChunk();
  void End(const absl::Status& status) { Finish(call_.End(status)); }

  Call call_;
  const grpc::ByteBuffer& request_;
  const CancellationPtr cancellation_ = std::make_shared<Cancellation>();

  // Set before streaming begins.
  PlanPtr plan_;
  StreamWindow window_;
  grpc::ByteBuffer header_;
  // Read by one MakeChunk at a time.
  PayloadPtr payload_;
  // The message under way; must live until OnWriteDone.
  Message written_;

  std::mutex mutex_;
  // All below are guarded by mutex_.
  std::optional<Message> next_;
  int64_t made_ = 0;  // end of what has been made, in the payload
  bool writing_ = false;
  bool making_ = false;
  absl::Status status_;  // how the stream is to end
  bool ended_ = false;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_STREAM_REACTOR_H_
