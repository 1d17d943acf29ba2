// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/channels.h"

#include "client/cpp/src/channel.h"

namespace attnbias {

std::shared_ptr<grpc::Channel> Channels::At(size_t index) {
  const std::lock_guard lock(mutex_);
  while (made_.size() <= index) {
    made_.push_back(MakeChannel(
        options_, made_.empty() ? ChannelUse::kFirst : ChannelUse::kSpare));
  }
  return made_[index];
}

}  // namespace attnbias
