// SPDX-License-Identifier: Apache-2.0
// Encodings as models of the Open Inference Protocol, described by the contract's descriptors.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/tensor/data_type.h"
#include "google/protobuf/descriptor.h"
#include "inference/inference.pb.h"

namespace attnbias {

// The only version of a model.
inline constexpr char kModelVersion[] = "1";
inline constexpr char kPlatform[] = "attnbias";

// The protocol's names for element types, in DataType's order.
inline constexpr std::array<std::string_view, kDataTypeNames.size()> kOipDataTypes = {
    "FP64", "FP32", "FP16", "BF16", "INT32"};

// The protocol's name for the element type of positions.
inline constexpr std::string_view kOipPositions = "INT64";

constexpr std::string_view OipNameOf(DataType type) {
  return kOipDataTypes[static_cast<size_t>(type) - 1];
}

// An encoding of TensorSpec.
class Model {
 public:
  // Returns all models in the contract's order.
  static const std::vector<Model>& All();

  // Returns NOT_FOUND with the reason MODEL_NOT_FOUND if the name or version does not exist. Field
  // names in errors begin with `prefix`.
  static absl::StatusOr<const Model*> Find(std::string_view prefix, const std::string& name,
                                           const std::string& version);

  const std::string& name() const { return name_; }

  // Returns the index in All().
  size_t index() const { return this - All().data(); }

  // Returns the fields of TensorSpec that a spec with this encoding may set.
  std::vector<std::string_view> Fields() const;

  // Sets the encoding in `spec` and, if the encoding has only one kind of extent, the extent.
  // Errors can then name fields that are missing from either.
  void Choose(v1::TensorSpec* spec) const {
    spec->GetReflection()->MutableMessage(spec, encoding_);
    if (extents_.size() > 1) return;
    spec->GetReflection()->MutableMessage(spec, extents_.front());
  }

  inference::ModelMetadataResponse Metadata() const;
  inference::ModelConfig Config() const;

 private:
  explicit Model(const google::protobuf::FieldDescriptor* encoding);

  std::string name_;
  // Fields of TensorSpec.
  const google::protobuf::FieldDescriptor* encoding_;
  std::vector<const google::protobuf::FieldDescriptor*> extents_;
};

}  // namespace attnbias
