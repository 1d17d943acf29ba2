// SPDX-License-Identifier: Apache-2.0
// Builds the headers of answers from plans.
#ifndef ATTNBIAS_SERVER_CODEC_HEADERS_H_
#define ATTNBIAS_SERVER_CODEC_HEADERS_H_

#include "attnbias/v1/service.pb.h"
#include "core/engine/plan.h"
#include "core/logits/plan.h"

namespace attnbias {

v1::TensorHeader HeaderOf(const Plan& plan);
v1::LogitsHeader HeaderOf(const LogitsPlan& plan);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_HEADERS_H_
