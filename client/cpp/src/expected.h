// SPDX-License-Identifier: Apache-2.0
// Derives from a request what its answer must be, and compares the two.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "attnbias/v1/service.pb.h"

namespace attnbias {

// DATA_LOSS if the header describes another tensor than the one that was
// requested, or if a fingerprint is malformed. The contract's own options
// (options.proto) describe each encoding, so none is named here. A request
// without an encoding, which servers refuse, determines the fingerprints alone.
absl::Status CheckAnswer(const v1::TensorHeader& header,
                         const v1::TensorSpec& spec);

// The parts of a header, of which an error repeats the first few.
std::string PartsAsText(const v1::TensorHeader& header);

}  // namespace attnbias
