// SPDX-License-Identifier: Apache-2.0
// The register of model types, which the Python client reads too. CMake
// compiles client/python/src/attnbias/_config/models.json in.
#ifndef ATTNBIAS_CORE_MOUNT_MODEL_REGISTER_H_
#define ATTNBIAS_CORE_MOUNT_MODEL_REGISTER_H_

#include <string_view>

namespace attnbias {

// A JSON object.
std::string_view ModelRegister();

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_MOUNT_MODEL_REGISTER_H_
