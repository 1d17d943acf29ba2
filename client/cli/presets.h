// SPDX-License-Identifier: Apache-2.0
// Reads the presets of proto/presets, which are built into the program.
#ifndef ATTNBIAS_CLIENT_CLI_PRESETS_H_
#define ATTNBIAS_CLIENT_CLI_PRESETS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "presets/presets.pb.h"

namespace attnbias {

// Returns all presets, in the order of their file.
const presets::Presets& Presets();

// Returns whether constants of an encoding leave a field no choice: it is one
// of them, or has no meaning next to one.
bool IsDecided(const google::protobuf::FieldDescriptor& field,
               const google::protobuf::Message& constants);

// Clears the fields of renamed arguments that have no meaning next to another
// field of the encoding.
void ClearIdleFields(const presets::Preset& preset,
                     google::protobuf::Message* encoding);

}  // namespace attnbias

#endif  // ATTNBIAS_CLIENT_CLI_PRESETS_H_
