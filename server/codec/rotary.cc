// SPDX-License-Identifier: Apache-2.0
#include "server/codec/encoding_codec.h"
#include "server/codec/enums.h"

namespace attnbias {

static_assert(SameNumber(RotaryLayout::kHalf, v1::ROTARY_LAYOUT_HALF));
static_assert(SameNumber(RotaryLayout::kInterleaved,
                         v1::ROTARY_LAYOUT_INTERLEAVED));
static_assert(SameNumber(RotaryLayout::kCompact, v1::ROTARY_LAYOUT_COMPACT));
static_assert(SameNumber(RopeType::kDefault, v1::ROPE_TYPE_DEFAULT));
static_assert(SameNumber(RopeType::kLinear, v1::ROPE_TYPE_LINEAR));
static_assert(SameNumber(RopeType::kDynamic, v1::ROPE_TYPE_DYNAMIC));
static_assert(SameNumber(RopeType::kNtk, v1::ROPE_TYPE_NTK));
static_assert(SameNumber(RopeType::kYarn, v1::ROPE_TYPE_YARN));
static_assert(SameNumber(RopeType::kLongrope, v1::ROPE_TYPE_LONGROPE));
static_assert(SameNumber(RopeType::kLlama3, v1::ROPE_TYPE_LLAMA3));
static_assert(SameNumber(RopeType::kProportional, v1::ROPE_TYPE_PROPORTIONAL));
static_assert(SameNumber(MropeOrder::kChunked, v1::MROPE_ORDER_CHUNKED));
static_assert(SameNumber(MropeOrder::kInterleaved,
                         v1::MROPE_ORDER_INTERLEAVED));
static_assert(SameNumber(MropeOrder::kAxial, v1::MROPE_ORDER_AXIAL));
static_assert(SameNumber(AnglePrecision::kExact, v1::ANGLE_PRECISION_EXACT));
static_assert(SameNumber(AnglePrecision::kFloat32,
                         v1::ANGLE_PRECISION_FLOAT32));

absl::StatusOr<EncodingSpec> Decode(const v1::Rotary& wire) {
  RotarySpec spec;
  spec.head_dim = wire.head_dim();
  if (wire.has_rope_theta()) spec.rope_theta = wire.rope_theta();
  if (wire.has_partial_rotary_factor()) {
    spec.partial_rotary_factor = wire.partial_rotary_factor();
  }
  spec.layout = EnumOr(wire.layout(), spec.layout);
  spec.rope_type = EnumOr(wire.rope_type(), spec.rope_type);
  if (wire.has_factor()) spec.factor = wire.factor();
  if (wire.has_max_position_embeddings()) {
    spec.max_position_embeddings = wire.max_position_embeddings();
  }
  if (wire.has_original_max_position_embeddings()) {
    spec.original_max_position_embeddings =
        wire.original_max_position_embeddings();
  }
  if (wire.has_sequence_length()) spec.sequence_length = wire.sequence_length();
  if (wire.has_beta_fast()) spec.beta_fast = wire.beta_fast();
  if (wire.has_beta_slow()) spec.beta_slow = wire.beta_slow();
  if (wire.has_mscale()) spec.mscale = wire.mscale();
  if (wire.has_mscale_all_dim()) spec.mscale_all_dim = wire.mscale_all_dim();
  if (wire.has_truncate()) spec.truncate = wire.truncate();
  if (wire.has_attention_factor()) {
    spec.attention_factor = wire.attention_factor();
  }
  spec.short_factor.assign(wire.short_factor().begin(),
                           wire.short_factor().end());
  spec.long_factor.assign(wire.long_factor().begin(), wire.long_factor().end());
  if (wire.has_low_freq_factor()) spec.low_freq_factor = wire.low_freq_factor();
  if (wire.has_high_freq_factor()) {
    spec.high_freq_factor = wire.high_freq_factor();
  }
  spec.mrope_section.assign(wire.mrope_section().begin(),
                            wire.mrope_section().end());
  spec.mrope_order = EnumOr(wire.mrope_order(), spec.mrope_order);
  spec.angle = EnumOr(wire.angle(), spec.angle);
  spec.inverse_frequencies.assign(wire.inverse_frequencies().begin(),
                                  wire.inverse_frequencies().end());
  return spec;
}

void Encode(const RotarySpec& spec, v1::Rotary* wire) {
  wire->set_head_dim(static_cast<int32_t>(spec.head_dim));
  if (spec.inverse_frequencies.empty()) {
    wire->set_rope_theta(spec.rope_theta.value_or(RotarySpec::kRopeTheta));
  }
  wire->set_partial_rotary_factor(spec.partial_rotary_factor);
  wire->set_layout(static_cast<v1::RotaryLayout>(spec.layout));
  wire->set_rope_type(static_cast<v1::RopeType>(spec.rope_type));
  if (spec.factor) wire->set_factor(*spec.factor);
  if (spec.max_position_embeddings) {
    wire->set_max_position_embeddings(*spec.max_position_embeddings);
  }
  if (spec.original_max_position_embeddings) {
    wire->set_original_max_position_embeddings(
        *spec.original_max_position_embeddings);
  }
  if (spec.sequence_length) wire->set_sequence_length(*spec.sequence_length);
  if (spec.rope_type == RopeType::kYarn) {
    wire->set_beta_fast(spec.beta_fast.value_or(RotarySpec::kBetaFast));
    wire->set_beta_slow(spec.beta_slow.value_or(RotarySpec::kBetaSlow));
    wire->set_truncate(spec.truncate.value_or(true));
  }
  if (spec.mscale) wire->set_mscale(*spec.mscale);
  if (spec.mscale_all_dim) wire->set_mscale_all_dim(*spec.mscale_all_dim);
  if (spec.attention_factor) wire->set_attention_factor(*spec.attention_factor);
  wire->mutable_short_factor()->Assign(spec.short_factor.begin(),
                                       spec.short_factor.end());
  wire->mutable_long_factor()->Assign(spec.long_factor.begin(),
                                      spec.long_factor.end());
  if (spec.low_freq_factor) wire->set_low_freq_factor(*spec.low_freq_factor);
  if (spec.high_freq_factor) wire->set_high_freq_factor(*spec.high_freq_factor);
  wire->mutable_mrope_section()->Assign(spec.mrope_section.begin(),
                                        spec.mrope_section.end());
  if (!spec.mrope_section.empty()) {
    wire->set_mrope_order(static_cast<v1::MropeOrder>(spec.mrope_order));
  }
  wire->set_angle(static_cast<v1::AnglePrecision>(spec.angle));
  wire->mutable_inverse_frequencies()->Assign(spec.inverse_frequencies.begin(),
                                              spec.inverse_frequencies.end());
}

}  // namespace attnbias
