// SPDX-License-Identifier: Apache-2.0
#include "core/encoding/rotary_checks.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/rotary.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxHeadDim = 65536;
constexpr double kMaxTheta = 1e18;
constexpr int64_t kMaxAxes = 4;
// Keeps every frequency in [1e-40, 1e6], well inside of what F32 angles and
// turns of 256 bits hold.
constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e6;
constexpr double kLeastFrequency = 1e-30;
constexpr double kMostFrequency = 1e6;

absl::string_view NameOf(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "DEFAULT";
    case RopeType::kLinear:
      return "LINEAR";
    case RopeType::kDynamic:
      return "DYNAMIC";
    case RopeType::kNtk:
      return "NTK";
    case RopeType::kYarn:
      return "YARN";
    case RopeType::kLongrope:
      return "LONGROPE";
    case RopeType::kLlama3:
      return "LLAMA3";
    case RopeType::kProportional:
      return "PROPORTIONAL";
  }
  return "";
}

absl::Status CheckIn(absl::string_view field, double value, double least,
                     double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return Invalid("rotary.", field, ": got ", value, ", want a number in [",
                 least, ", ", most, "]");
}

absl::Status CheckLength(absl::string_view field, int64_t value,
                         int64_t least) {
  if (value >= least && value <= kMaxPosition) return absl::OkStatus();
  return Invalid("rotary.", field, ": got ", value, ", want an integer in [",
                 least, ", 2^40]");
}

// Which fields a rope_type takes, and which of them it needs.
class Fields {
 public:
  explicit Fields(const RotarySpec& spec) : type_(spec.rope_type) {}

  template <typename Value>
  Fields& Of(absl::string_view field, const std::optional<Value>& value,
             std::initializer_list<RopeType> needed_by,
             std::initializer_list<RopeType> taken_by = {}) {
    if (!value.has_value()) return Need(field, needed_by, "a value");
    return Take(field, absl::StrCat(*value), needed_by, taken_by);
  }
  Fields& Of(absl::string_view field, const std::vector<double>& values,
             std::initializer_list<RopeType> needed_by) {
    if (values.empty()) return Need(field, needed_by, "a number for each pair");
    return Take(field, absl::StrCat(values.size(), " numbers"), needed_by, {});
  }

  const absl::Status& status() const { return status_; }

 private:
  bool IsIn(std::initializer_list<RopeType> types) const {
    return std::find(types.begin(), types.end(), type_) != types.end();
  }
  Fields& Need(absl::string_view field,
               std::initializer_list<RopeType> needed_by,
               absl::string_view wanted) {
    if (status_.ok() && IsIn(needed_by)) {
      status_ = Invalid("rotary.", field, ": not set, want ", wanted,
                        ", which rope_type ", NameOf(type_), " needs");
    }
    return *this;
  }
  Fields& Take(absl::string_view field, absl::string_view got,
               std::initializer_list<RopeType> needed_by,
               std::initializer_list<RopeType> taken_by) {
    if (status_.ok() && !IsIn(needed_by) && !IsIn(taken_by)) {
      status_ =
          Invalid("rotary.", field, ": got ", got, ", want none: rope_type ",
                  NameOf(type_), " does not use it");
    }
    return *this;
  }

  const RopeType type_;
  absl::Status status_;
};

absl::Status CheckWhichFields(const RotarySpec& spec) {
  using enum RopeType;
  return Fields(spec)
      .Of("factor", spec.factor, {kLinear, kDynamic, kNtk, kYarn, kLlama3},
          {kLongrope, kProportional})
      .Of("max_position_embeddings", spec.max_position_embeddings, {kDynamic},
          {kLongrope})
      .Of("original_max_position_embeddings",
          spec.original_max_position_embeddings, {kYarn, kLongrope, kLlama3})
      .Of("sequence_length", spec.sequence_length, {kDynamic, kLongrope})
      .Of("beta_fast", spec.beta_fast, {}, {kYarn})
      .Of("beta_slow", spec.beta_slow, {}, {kYarn})
      .Of("mscale", spec.mscale, {}, {kYarn})
      .Of("mscale_all_dim", spec.mscale_all_dim, {}, {kYarn})
      .Of("truncate", spec.truncate, {}, {kYarn})
      .Of("attention_factor", spec.attention_factor, {}, {kYarn, kLongrope})
      .Of("short_factor", spec.short_factor, {kLongrope})
      .Of("long_factor", spec.long_factor, {kLongrope})
      .Of("low_freq_factor", spec.low_freq_factor, {kLlama3})
      .Of("high_freq_factor", spec.high_freq_factor, {kLlama3})
      .status();
}

absl::Status CheckColumns(const RotarySpec& spec) {
  if (spec.head_dim < 2 || spec.head_dim > kMaxHeadDim ||
      spec.head_dim % 2 != 0) {
    return Invalid("rotary.head_dim: got ", spec.head_dim,
                   ", want an even number in [2, ", kMaxHeadDim, "]");
  }
  const double part = spec.partial_rotary_factor;
  if (!(part > 0 && part <= 1) || RotatingColumns(spec) < 2) {
    return Invalid("rotary.partial_rotary_factor: got ", part,
                   ", want a number in (0, 1] that leaves at least 2 of ",
                   spec.head_dim, " columns");
  }
  const bool raises_theta =
      spec.rope_type == RopeType::kDynamic || spec.rope_type == RopeType::kNtk;
  if (raises_theta && RotatingColumns(spec) < 4) {
    return Invalid(
        "rotary.head_dim: got 2 columns that turn, want at least 4 "
        "with rope_type ",
        NameOf(spec.rope_type));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const RotarySpec& spec) {
  const auto check = [](absl::string_view field,
                        const std::optional<int64_t>& value, int64_t least) {
    return value.has_value() ? CheckLength(field, *value, least)
                             : absl::OkStatus();
  };
  ATTNBIAS_RETURN_IF_ERROR(
      check("max_position_embeddings", spec.max_position_embeddings, 1));
  // ln(original length) divides.
  ATTNBIAS_RETURN_IF_ERROR(check(
      "original_max_position_embeddings", spec.original_max_position_embeddings,
      spec.rope_type == RopeType::kLongrope ? 2 : 1));
  return check("sequence_length", spec.sequence_length, 1);
}

absl::Status CheckFactors(const RotarySpec& spec) {
  const auto check = [](absl::string_view field,
                        const std::optional<double>& value, double least,
                        double most) {
    return value.has_value() ? CheckIn(field, *value, least, most)
                             : absl::OkStatus();
  };
  ATTNBIAS_RETURN_IF_ERROR(check("rope_theta", spec.rope_theta, 1, kMaxTheta));
  ATTNBIAS_RETURN_IF_ERROR(check("factor", spec.factor, 1, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(
      check("beta_fast", spec.beta_fast, kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(
      check("beta_slow", spec.beta_slow, kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(
      check("mscale", spec.mscale, kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(
      check("mscale_all_dim", spec.mscale_all_dim, kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(check("attention_factor", spec.attention_factor,
                                 kLeastFactor, kMostFactor));
  ATTNBIAS_RETURN_IF_ERROR(check("low_freq_factor", spec.low_freq_factor,
                                 kLeastFactor, kMostFactor));
  return check("high_freq_factor", spec.high_freq_factor, kLeastFactor,
               kMostFactor);
}

absl::Status CheckYarn(const RotarySpec& spec) {
  if (spec.rope_theta == 1) {
    return Invalid("rotary.rope_theta: got 1, want more with rope_type YARN");
  }
  const double fast = spec.beta_fast.value_or(RotarySpec::kBetaFast);
  const double slow = spec.beta_slow.value_or(RotarySpec::kBetaSlow);
  if (fast < slow) {
    return Invalid("rotary.beta_fast: got ", fast, ", want at least ", slow,
                   " (beta_slow)");
  }
  if (spec.mscale.has_value() != spec.mscale_all_dim.has_value()) {
    return Invalid("rotary.",
                   spec.mscale.has_value() ? "mscale_all_dim" : "mscale",
                   ": not set, want both of mscale and mscale_all_dim, or "
                   "neither");
  }
  if (spec.attention_factor.has_value() && spec.mscale.has_value()) {
    return Invalid("rotary.mscale: got ", *spec.mscale,
                   ", want none: attention_factor is given");
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(absl::string_view field,
                          const std::vector<double>& numbers, int64_t count) {
  if (static_cast<int64_t>(numbers.size()) == count) return absl::OkStatus();
  return Invalid("rotary.", field, ": got ", numbers.size(), " numbers, want ",
                 count, ", one for each pair of columns that turns");
}

absl::Status CheckDivisors(absl::string_view field,
                           const std::vector<double>& divisors, int64_t count) {
  ATTNBIAS_RETURN_IF_ERROR(CheckNumbers(field, divisors, count));
  for (size_t i = 0; i < divisors.size(); ++i) {
    ATTNBIAS_RETURN_IF_ERROR(CheckIn(absl::StrCat(field, "[", i, "]"),
                                     divisors[i], kLeastFactor, kMostFactor));
  }
  return absl::OkStatus();
}

// Its attention factor comes from one of three fields.
absl::Status CheckLongrope(const RotarySpec& spec) {
  const int64_t pairs = RotaryPairs(spec);
  ATTNBIAS_RETURN_IF_ERROR(
      CheckDivisors("short_factor", spec.short_factor, pairs));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckDivisors("long_factor", spec.long_factor, pairs));
  if (spec.attention_factor.has_value() && spec.factor.has_value()) {
    return Invalid("rotary.factor: got ", *spec.factor,
                   ", want none: attention_factor is given");
  }
  const bool is_known =
      spec.attention_factor.has_value() || spec.factor.has_value();
  if (is_known && spec.max_position_embeddings.has_value()) {
    return Invalid("rotary.max_position_embeddings: got ",
                   *spec.max_position_embeddings, ", want none: ",
                   spec.factor.has_value() ? "factor" : "attention_factor",
                   " is given");
  }
  if (!is_known && !spec.max_position_embeddings.has_value()) {
    return Invalid(
        "rotary.max_position_embeddings: not set, want it, factor or "
        "attention_factor, which rope_type LONGROPE needs");
  }
  return absl::OkStatus();
}

absl::Status CheckLlama3(const RotarySpec& spec) {
  if (*spec.high_freq_factor > *spec.low_freq_factor) return absl::OkStatus();
  return Invalid("rotary.high_freq_factor: got ", *spec.high_freq_factor,
                 ", want more than ", *spec.low_freq_factor,
                 " (low_freq_factor)");
}

absl::Status CheckSections(const RotarySpec& spec) {
  const std::vector<int64_t>& sections = spec.mrope_section;
  if (sections.empty()) {
    if (spec.mrope_order == MropeOrder::kChunked) return absl::OkStatus();
    return Invalid(
        "rotary.mrope_order: got ",
        spec.mrope_order == MropeOrder::kAxial ? "AXIAL" : "INTERLEAVED",
        ", want none without mrope_section");
  }
  const auto num_axes = static_cast<int64_t>(sections.size());
  if (num_axes > kMaxAxes) {
    return Invalid("rotary.mrope_section: got ", num_axes,
                   " axes, want at most ", kMaxAxes);
  }
  const int64_t pairs = RotaryPairs(spec);
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    if (sections[axis] < 1 || sections[axis] > pairs) {
      return Invalid("rotary.mrope_section[", axis, "]: got ", sections[axis],
                     ", want an integer in [1, ", pairs, "]");
    }
    if (spec.mrope_order == MropeOrder::kInterleaved && axis > 0 &&
        (sections[axis] - 1) * num_axes + axis >= pairs) {
      return Invalid("rotary.mrope_section[", axis, "]: got ", sections[axis],
                     ", want fewer: every ", num_axes, "th of ", pairs,
                     " pairs is not as many");
    }
  }
  const int64_t sum =
      std::accumulate(sections.begin(), sections.end(), int64_t{0});
  if (sum != pairs) {
    return Invalid("rotary.mrope_section: got ", sum, " pairs in all, want ",
                   pairs);
  }
  return absl::OkStatus();
}

absl::Status CheckGivenFrequencies(const RotarySpec& spec) {
  const std::vector<double>& frequencies = spec.inverse_frequencies;
  if (frequencies.empty()) return absl::OkStatus();
  if (spec.rope_type != RopeType::kDefault) {
    return Invalid("rotary.rope_type: got ", NameOf(spec.rope_type),
                   ", want DEFAULT: inverse_frequencies are given");
  }
  if (spec.rope_theta.has_value()) {
    return Invalid("rotary.rope_theta: got ", *spec.rope_theta,
                   ", want none: inverse_frequencies are given");
  }
  ATTNBIAS_RETURN_IF_ERROR(
      CheckNumbers("inverse_frequencies", frequencies, RotaryPairs(spec)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    if (frequencies[i] == 0) continue;
    if (!(frequencies[i] >= kLeastFrequency &&
          frequencies[i] <= kMostFrequency)) {
      return Invalid("rotary.inverse_frequencies[", i, "]: got ",
                     frequencies[i], ", want 0 or a number in [",
                     kLeastFrequency, ", ", kMostFrequency, "]");
    }
  }
  if (std::count(frequencies.begin(), frequencies.end(), 0) ==
      RotaryPairs(spec)) {
    return Invalid(
        "rotary.inverse_frequencies: got zeros alone, want at "
        "least one other number");
  }
  return absl::OkStatus();
}

absl::Status CheckAxial(const RotarySpec& spec) {
  if (spec.mrope_order != MropeOrder::kAxial) return absl::OkStatus();
  if (spec.rope_type == RopeType::kDefault &&
      spec.inverse_frequencies.empty()) {
    return absl::OkStatus();
  }
  return Invalid(
      "rotary.mrope_order: got AXIAL, want CHUNKED or INTERLEAVED "
      "with rope_type ",
      NameOf(spec.rope_type),
      spec.inverse_frequencies.empty() ? "" : " and given inverse_frequencies");
}

}  // namespace

absl::Status CheckRotary(const RotarySpec& spec) {
  ATTNBIAS_RETURN_IF_ERROR(CheckColumns(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckGivenFrequencies(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckWhichFields(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckLengths(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckFactors(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckSections(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckAxial(spec));
  switch (spec.rope_type) {
    case RopeType::kYarn:
      return CheckYarn(spec);
    case RopeType::kLongrope:
      return CheckLongrope(spec);
    case RopeType::kLlama3:
      return CheckLlama3(spec);
    default:
      return absl::OkStatus();
  }
}

}  // namespace attnbias
