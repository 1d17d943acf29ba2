// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

// "sinusoidal, t5, alibi"
std::string EncodingNames() {
  const auto* oneof = v1::TensorSpec::descriptor()->FindOneofByName("encoding");
  std::string names;
  for (int i = 0; i < oneof->field_count(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", oneof->field(i)->name());
  }
  return names;
}

// One row per encoding.
struct ToWire {
  v1::TensorSpec* out;
  void operator()(const SinusoidalSpec& spec) const {
    Encode(spec, out->mutable_sinusoidal());
  }
  void operator()(const T5Spec& spec) const { Encode(spec, out->mutable_t5()); }
  void operator()(const AlibiSpec& spec) const {
    Encode(spec, out->mutable_alibi());
  }
  void operator()(const LearnedAbsoluteSpec& spec) const {
    Encode(spec, out->mutable_learned_absolute());
  }
  void operator()(const ShawSpec& spec) const {
    Encode(spec, out->mutable_shaw());
  }
  void operator()(const TransformerXlSpec& spec) const {
    Encode(spec, out->mutable_transformer_xl());
  }
  void operator()(const XlnetSpec& spec) const {
    Encode(spec, out->mutable_xlnet());
  }
  void operator()(const ConformerSpec& spec) const {
    Encode(spec, out->mutable_conformer());
  }
  void operator()(const SymmetricSinusoidalSpec& spec) const {
    Encode(spec, out->mutable_symmetric_sinusoidal());
  }
  void operator()(const LearnedRelativeSpec& spec) const {
    Encode(spec, out->mutable_learned_relative());
  }
  void operator()(const KerpleSpec& spec) const {
    Encode(spec, out->mutable_kerple());
  }
  void operator()(const SandwichSpec& spec) const {
    Encode(spec, out->mutable_sandwich());
  }
  void operator()(const FireSpec& spec) const {
    Encode(spec, out->mutable_fire());
  }
  void operator()(const DynamicPositionBiasSpec& spec) const {
    Encode(spec, out->mutable_dynamic_position_bias());
  }
  void operator()(const DebertaSpec& spec) const {
    Encode(spec, out->mutable_deberta());
  }
  void operator()(const SwinSpec& spec) const {
    Encode(spec, out->mutable_swin());
  }
  void operator()(const SwinV2Spec& spec) const {
    Encode(spec, out->mutable_swin_v2());
  }
  void operator()(const BeitSpec& spec) const {
    Encode(spec, out->mutable_beit());
  }
  void operator()(const RotarySpec& spec) const {
    Encode(spec, out->mutable_rotary());
  }
  void operator()(const XposSpec& spec) const {
    Encode(spec, out->mutable_xpos());
  }
  void operator()(const MultiAxisSinusoidalSpec& spec) const {
    Encode(spec, out->mutable_multi_axis_sinusoidal());
  }
  void operator()(const TupeSpec& spec) const {
    Encode(spec, out->mutable_tupe());
  }
};

}  // namespace

absl::StatusOr<EncodingSpec> DecodeEncoding(const v1::TensorSpec& spec,
                                            const TableSet& tables) {
  switch (spec.encoding_case()) {
    case v1::TensorSpec::kSinusoidal:
      return Decode(spec.sinusoidal());
    case v1::TensorSpec::kT5:
      return Decode(spec.t5(), tables);
    case v1::TensorSpec::kAlibi:
      return Decode(spec.alibi());
    case v1::TensorSpec::kLearnedAbsolute:
      return Decode(spec.learned_absolute(), tables);
    case v1::TensorSpec::kShaw:
      return Decode(spec.shaw(), tables);
    case v1::TensorSpec::kTransformerXl:
      return Decode(spec.transformer_xl());
    case v1::TensorSpec::kXlnet:
      return Decode(spec.xlnet());
    case v1::TensorSpec::kConformer:
      return Decode(spec.conformer());
    case v1::TensorSpec::kSymmetricSinusoidal:
      return Decode(spec.symmetric_sinusoidal());
    case v1::TensorSpec::kLearnedRelative:
      return Decode(spec.learned_relative(), tables);
    case v1::TensorSpec::kKerple:
      return Decode(spec.kerple());
    case v1::TensorSpec::kSandwich:
      return Decode(spec.sandwich());
    case v1::TensorSpec::kFire:
      return Decode(spec.fire(), tables);
    case v1::TensorSpec::kDynamicPositionBias:
      return Decode(spec.dynamic_position_bias(), tables);
    case v1::TensorSpec::kDeberta:
      return Decode(spec.deberta());
    case v1::TensorSpec::kSwin:
      return Decode(spec.swin(), tables);
    case v1::TensorSpec::kSwinV2:
      return Decode(spec.swin_v2(), tables);
    case v1::TensorSpec::kBeit:
      return Decode(spec.beit(), tables);
    case v1::TensorSpec::kRotary:
      return Decode(spec.rotary());
    case v1::TensorSpec::kXpos:
      return Decode(spec.xpos());
    case v1::TensorSpec::kMultiAxisSinusoidal:
      return Decode(spec.multi_axis_sinusoidal());
    case v1::TensorSpec::kTupe:
      return Decode(spec.tupe(), tables);
    case v1::TensorSpec::ENCODING_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("encoding: not set, want one of ", EncodingNames()));
}

void EncodeEncoding(const EncodingSpec& spec, v1::TensorSpec* out) {
  std::visit(ToWire{out}, spec);
}

}  // namespace attnbias
