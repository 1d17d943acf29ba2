// SPDX-License-Identifier: Apache-2.0
// Fields of a TensorSpec by their paths, as error messages name them:
// "pair.query_length".
#ifndef ATTNBIAS_SERVER_OIP_SPEC_FIELD_H_
#define ATTNBIAS_SERVER_OIP_SPEC_FIELD_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "google/protobuf/message.h"
#include "inference/inference.pb.h"
#include "server/oip/model.h"

namespace attnbias {

class SpecField {
 public:
  // The field of `spec`, which outlives it, that `path` leads to; messages on
  // the way are made. A number in a path is an index into a list of messages,
  // which grows up to it.
  //
  // INVALID_ARGUMENT  `model` has no such field, or another is set that
  // excludes
  //                   it
  static absl::StatusOr<SpecField> Find(const Model& model,
                                        const std::string& path,
                                        v1::TensorSpec* spec);

  // Each sets a field that is not set, or says INVALID_ARGUMENT.

  // A string is text, the name of an enum's value with or without what all of
  // them begin with, or JSON.
  absl::Status Set(const inference::InferParameter& value) const;

  // The numbers of a table or of lists of positions. `data` is what the
  // tensor's shape and type say, row-major and little-endian.
  absl::Status Set(const inference::ModelInferRequest::InferInputTensor& tensor,
                   std::string data) const;

 private:
  SpecField(std::string path, google::protobuf::Message* message,
            const google::protobuf::FieldDescriptor* field)
      : path_(std::move(path)), message_(message), field_(field) {}

  absl::Status SetJson(const std::string& text) const;
  absl::Status SetText(const std::string& text) const;
  absl::Status SetTable(
      const inference::ModelInferRequest::InferInputTensor& tensor,
      std::string data) const;
  absl::Status SetPositions(
      const inference::ModelInferRequest::InferInputTensor& tensor,
      const std::string& data) const;

  std::string path_;
  // Has the field.
  google::protobuf::Message* message_;
  const google::protobuf::FieldDescriptor* field_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_OIP_SPEC_FIELD_H_
