// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/spec/rotary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace attnbias {
namespace {

// Keeps every frequency in [1e-40, 1e6], well inside of what F32 angles and
// turns of 256 bits hold.
constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e6;

}  // namespace

int64_t RotarySpec::RotatingColumns() const {
  const double columns = static_cast<double>(head_dim) * partial_rotary_factor;
  return static_cast<int64_t>(columns) / 2 * 2;
}

RotarySpec RotarySpec::WithAxes() const {
  RotarySpec spec = *this;
  if (rope_type != RopeType::kAxial) return spec;
  spec.rope_type = RopeType::kDefault;
  spec.mrope_order = MropeOrder::kAxial;
  if (mrope_section.empty()) {
    const int64_t half = RotatingColumns() / 4;
    spec.mrope_section = {half, half};
  }
  return spec;
}

FieldList RotarySpec::Fields() {
  using enum RopeType;
  const auto is = [this](auto... types) {
    return ((rope_type == types) || ...);
  };
  const auto type =
      absl::StrCat("rope_type ", std::string(NameOfEnum(rope_type)));
  const auto used_if = [&](Field field, bool used) {
    return field.Idle(!used, type + " does not use it");
  };
  const auto needed_if = [&](Field field, bool needed, bool used = false) {
    return used_if(field.Required(needed, "which " + type + " needs"),
                   needed || used);
  };
  const bool is_yarn = is(kYarn);
  const bool is_longrope = is(kLongrope);
  const auto factor_field = [](int number, std::string_view name,
                               auto& member) {
    return Field(number, name, member).In(kLeastFactor, kMostFactor);
  };
  return {
      Field(1, "head_dim", head_dim).In(2, kMaxDim).Even(),
      Field(2, "rope_theta", rope_theta)
          .In(1, kMaxBase)
          .Idle(!inverse_frequencies.empty(), "inverse_frequencies are given"),
      Field(3, "partial_rotary_factor", partial_rotary_factor).Above(0, 1),
      Field(4, "layout", layout),
      Field(5, "rope_type", rope_type),
      needed_if(Field(6, "factor", factor).In(1, kMostFactor),
                is(kLinear, kDynamic, kNtk, kYarn, kLlama3),
                is(kLongrope, kProportional)),
      needed_if(Field(7, "max_position_embeddings", max_position_embeddings)
                    .In(1, kMaxPosition),
                is(kDynamic), is_longrope),
      // ln(original length) divides.
      needed_if(Field(8, "original_max_position_embeddings",
                      original_max_position_embeddings)
                    .In(is_longrope ? 2 : 1, kMaxPosition),
                is(kYarn, kLongrope, kLlama3)),
      needed_if(
          Field(9, "sequence_length", sequence_length).In(1, kMaxPosition),
          is(kDynamic, kLongrope)),
      used_if(factor_field(10, "beta_fast", beta_fast), is_yarn),
      used_if(factor_field(11, "beta_slow", beta_slow), is_yarn),
      used_if(factor_field(12, "mscale", mscale), is_yarn),
      used_if(factor_field(13, "mscale_all_dim", mscale_all_dim), is_yarn),
      used_if(Field(14, "truncate", truncate), is_yarn),
      used_if(factor_field(15, "attention_factor", attention_factor),
              is_yarn || is_longrope),
      needed_if(factor_field(16, "short_factor", short_factor), is_longrope),
      needed_if(factor_field(17, "long_factor", long_factor), is_longrope),
      needed_if(factor_field(18, "low_freq_factor", low_freq_factor),
                is(kLlama3)),
      needed_if(factor_field(19, "high_freq_factor", high_freq_factor),
                is(kLlama3)),
      Field(20, "mrope_section", mrope_section),
      Field(21, "mrope_order", mrope_order)
          .Idle(is(kAxial) || mrope_section.empty(),
                is(kAxial) ? type + " is an order itself"
                           : "there is no mrope_section"),
      Field(22, "angle", angle),
      Field(23, "inverse_frequencies", inverse_frequencies),
  };
}

void RotarySpec::Canonicalise() {
  *this = WithAxes();
  if (factor == 1) factor.reset();
  if (rope_type == RopeType::kLongrope) {
    (UsesLongFactor() ? short_factor : long_factor).clear();
  }
  if (rope_type == RopeType::kDynamic) {
    sequence_length = std::max(*sequence_length, *max_position_embeddings);
  } else {
    sequence_length.reset();
  }
}

}  // namespace attnbias
