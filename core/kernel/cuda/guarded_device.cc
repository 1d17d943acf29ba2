// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/cuda/guarded_device.h"

namespace attnbias {

bool GuardedDevice::Check(const absl::Status& status) {
  if (status.ok()) return true;
  if (absl::IsResourceExhausted(status)) {
    if (!was_full_.exchange(true)) observer_.OnFallback(status, false);
  } else if (!broken_.exchange(true)) {
    observer_.OnFallback(status, true);
  }
  return false;
}

}  // namespace attnbias
