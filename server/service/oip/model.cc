// SPDX-License-Identifier: Apache-2.0
#include "server/service/oip/model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "attnbias/v1/options.pb.h"
#include "attnbias/v1/service.pb.h"
#include "core/base/errors.h"

namespace attnbias {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kOutputField[] = "output";

absl::Status NotFound(const std::string& message) {
  return WithReason(absl::NotFoundError(message), "MODEL_NOT_FOUND");
}

// Adds the parameters, with their defaults, and the inputs that a client may set.
struct Settings {
  inference::ModelConfig* config;

  void AddInput(const std::string& path, inference::DataType type) const {
    inference::ModelInput& input = *config->add_input();
    input.set_name(path);
    input.set_data_type(type);
    input.set_optional(true);
  }

  void AddFields(const Descriptor& type, const std::string& parent) const {
    for (int i = 0; i < type.field_count(); ++i) {
      AddField(*type.field(i), absl::StrCat(parent, ".", type.field(i)->name()));
    }
  }

  void AddField(const FieldDescriptor& field, const std::string& path) const {
    const Descriptor* const type = field.message_type();
    if (type == nullptr) {
      (*config->mutable_parameters())[path].set_string_value(
          field.options().GetExtension(v1::rule).default_());
    } else if (type == v1::PositionList::descriptor()) {
      AddInput(path, inference::TYPE_INT64);
    } else if (type == v1::InlineTable::descriptor()) {
      return;  // an input provides it
    } else {
      if (type == v1::TableRef::descriptor()) {
        AddInput(path, inference::TYPE_FP32);
      }
      AddFields(*type, field.is_repeated() ? path + ".0" : path);
    }
  }
};

// Returns the names of all parts that a response may have.
std::vector<std::string> OutputsOf(const Descriptor& encoding) {
  const auto& options = encoding.options();
  const auto& extents = options.GetRepeatedExtension(v1::extent);
  std::vector<std::string> parts;
  for (const std::string& extent : extents) {
    if (extent == "pair") parts.insert(parts.end(), {"diagonals", "row"});
    if (extent == "grid") parts.push_back("block");
  }
  if (!parts.empty()) {
    parts.insert(parts.end(), {"border", "dense"});
    return parts;
  }
  for (int i = 0; i < options.ExtensionSize(v1::parts); ++i) {
    parts.push_back(options.GetExtension(v1::parts, i));
  }
  if (parts.empty()) parts.push_back("positions");
  for (int i = 0; i < encoding.field_count(); ++i) {
    const std::string& added = encoding.field(i)->options().GetExtension(v1::rule).adds_part();
    if (!added.empty()) parts.push_back(added);
  }
  const FieldDescriptor* const axes = encoding.FindFieldByName("axes");
  if (axes == nullptr) return parts;
  const std::vector<std::string> tables = parts;
  const int most = axes->options().GetExtension(v1::rule).max_items();
  for (const std::string& table : tables) {
    for (int axis = 0; axis < most; ++axis) {
      parts.push_back(absl::StrCat(table, ".axis", axis));
    }
  }
  return parts;
}

}  // namespace

Model::Model(const FieldDescriptor* encoding) : name_(encoding->name()), encoding_(encoding) {
  for (const std::string& extent :
       encoding->message_type()->options().GetRepeatedExtension(v1::extent)) {
    extents_.push_back(v1::TensorSpec::descriptor()->FindFieldByName(extent));
  }
}

const std::vector<Model>& Model::All() {
  static const auto& all = *new std::vector<Model>([] {
    std::vector<Model> models;
    const auto& encodings = *v1::TensorSpec::descriptor()->FindOneofByName("encoding");
    for (int i = 0; i < encodings.field_count(); ++i) {
      models.push_back(Model(encodings.field(i)));
    }
    return models;
  }());
  return all;
}

absl::StatusOr<const Model*> Model::Find(std::string_view prefix, const std::string& name,
                                         const std::string& version) {
  for (const Model& model : All()) {
    if (model.name() != name) continue;
    if (version.empty() || version == kModelVersion) return &model;
    return NotFound(absl::StrCat(std::string(prefix), "version: got '", Shortened(version),
                                 "', want '", kModelVersion, "' or nothing"));
  }
  const auto write_name = [](std::string* text, const Model& model) {
    absl::StrAppend(text, model.name());
  };
  return NotFound(absl::StrCat(std::string(prefix), "name: got '", Shortened(name),
                               "', want one of ", absl::StrJoin(All(), ", ", write_name)));
}

std::vector<std::string_view> Model::Fields() const {
  std::vector<std::string_view> fields = {name_};
  for (const FieldDescriptor* extent : extents_) {
    fields.push_back(extent->name());
  }
  fields.push_back(kOutputField);
  return fields;
}

inference::ModelConfig Model::Config() const {
  inference::ModelConfig config;
  config.set_name(name());
  config.set_platform(kPlatform);
  config.set_backend(kPlatform);
  config.mutable_model_transaction_policy()->set_decoupled(true);
  const Settings settings{&config};
  settings.AddField(*encoding_, name_);
  for (const FieldDescriptor* extent : extents_) {
    settings.AddField(*extent, std::string(extent->name()));
  }
  settings.AddField(*v1::TensorSpec::descriptor()->FindFieldByName(kOutputField), kOutputField);
  for (const std::string& output : OutputsOf(*encoding_->message_type())) {
    inference::ModelOutput& wire = *config.add_output();
    wire.set_name(output);
    wire.set_data_type(inference::TYPE_FP32);
  }
  return config;
}

inference::ModelMetadataResponse Model::Metadata() const {
  const inference::ModelConfig config = Config();
  inference::ModelMetadataResponse metadata;
  metadata.set_name(name());
  metadata.add_versions(kModelVersion);
  metadata.set_platform(kPlatform);
  const auto add = [](const auto& tensor, auto* wire) {
    wire->set_name(tensor.name());
    wire->set_datatype(
        inference::DataType_Name(tensor.data_type()).substr(std::string_view("TYPE_").size()));
  };
  for (const auto& input : config.input()) add(input, metadata.add_inputs());
  for (const auto& output : config.output()) {
    add(output, metadata.add_outputs());
  }
  return metadata;
}

}  // namespace attnbias
