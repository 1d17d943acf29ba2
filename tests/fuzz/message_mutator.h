// SPDX-License-Identifier: Apache-2.0
// Changes a message field by field, since randomly changed bytes hardly ever parse as a message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "google/protobuf/message.h"

namespace attnbias {

// Mutates as LLVMFuzzerCustomMutator does. `message` is any message of the bytes' type.
size_t MutateMessage(google::protobuf::Message* message, uint8_t* data, size_t size,
                     size_t max_size, unsigned seed);

}  // namespace attnbias
