// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021) as an encoding: what is allowed, and what
// names it.
#include "core/encoding/rotary.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/status_macros.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/float32_angles.h"
#include "core/encoding/make_encoding.h"
#include "core/encoding/rotary_evaluator.h"
#include "core/encoding/sinusoidal_evaluator.h"
#include "core/tensor/positions.h"

namespace attnbias {
namespace {

constexpr int64_t kMaxHeadDim = 65536;
constexpr double kMaxTheta = 1e18;
constexpr int64_t kMaxAxes = 4;
// Keeps every frequency in [1e-40, 1e24], well inside of what F32 angles and
// turns of 256 bits hold.
constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e6;
constexpr double kLeastFrequency = 1e-30;
constexpr double kMostFrequency = 1e6;

float NearestFloat(const Real& value) {
  float nearest;
  RoundReal(value, DataType::kF32, reinterpret_cast<std::byte*>(&nearest));
  return nearest;
}

class RotaryEncoding final : public Encoding {
 public:
  RotaryEncoding(const RotarySpec& spec, double scale)
      : spec_(spec), scale_(scale) {}

  std::string_view name() const override { return "rotary"; }
  Structure structure() const override { return Structure::kTable; }
  int64_t lanes() const override { return 2; }
  std::vector<std::string_view> part_names() const override {
    return {"cos", "sin"};
  }
  int64_t width() const override {
    return RotaryPairs(spec_) * CopiesIn(spec_.layout);
  }
  Range domain() const override { return kAllPositions; }

  std::vector<AxisColumns> axis_columns() const override {
    std::vector<AxisColumns> runs;
    const int64_t pairs = RotaryPairs(spec_);
    for (int64_t column = 0; column < width(); ++column) {
      const bool paired = spec_.layout == RotaryLayout::kInterleaved;
      const int64_t axis =
          RotaryAxisOf(spec_, paired ? column / 2 : column % pairs);
      if (runs.empty() || runs.back().axis != axis) {
        runs.push_back({axis, {column, column}});
      }
      ++runs.back().columns.end;
    }
    return runs;
  }

  std::vector<DerivedValue> derived() const override {
    std::call_once(derived_once_, [this] { derived_ = Derive(); });
    return derived_;
  }

  void WriteIdentity(CanonicalWriter& writer) const override;

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override;

 private:
  std::vector<DerivedValue> Derive() const;
  RealToAnyPrecision Scale() const;
  // Rows [sines | cosines] of those pairs of `all` that turn.
  std::unique_ptr<const Evaluator> PrepareFloat32(const std::vector<Real>& all,
                                                  DataType type) const;
  std::unique_ptr<const Evaluator> PrepareExact(const std::vector<Real>& all,
                                                DataType type,
                                                const KernelSet& kernels) const;

  const RotarySpec spec_;
  const double scale_;
  mutable std::once_flag derived_once_;
  mutable std::vector<DerivedValue> derived_;
};

// Of what some sequence lengths leave the same, only what is in force is
// written.
void RotaryEncoding::WriteIdentity(CanonicalWriter& writer) const {
  const auto real = [&writer](int field, std::optional<double> value,
                              double default_value) {
    writer.Real(field, value.value_or(default_value), default_value);
  };
  writer.Integer(1, spec_.head_dim);
  real(2, spec_.rope_theta, RotarySpec::kRopeTheta);
  real(3, spec_.partial_rotary_factor, 1);
  writer.Integer(4, static_cast<int64_t>(spec_.layout),
                 static_cast<int64_t>(RotaryLayout::kHalf));
  writer.Integer(5, static_cast<int64_t>(spec_.rope_type),
                 static_cast<int64_t>(RopeType::kDefault));
  real(6, spec_.factor, 1);
  writer.Integer(7, spec_.max_position_embeddings.value_or(0));
  writer.Integer(8, spec_.original_max_position_embeddings.value_or(0));
  if (spec_.rope_type == RopeType::kDynamic) {
    writer.Integer(
        9, std::max(*spec_.sequence_length, *spec_.max_position_embeddings));
  }
  real(10, spec_.beta_fast, RotarySpec::kBetaFast);
  real(11, spec_.beta_slow, RotarySpec::kBetaSlow);
  real(12, spec_.mscale, 0);
  real(13, spec_.mscale_all_dim, 0);
  writer.Integer(14, spec_.truncate.value_or(true) ? 1 : 0, 1);
  real(15, spec_.attention_factor, 0);
  if (spec_.rope_type == RopeType::kLongrope) {
    const bool is_long = IsLongrope(spec_);
    writer.Reals(is_long ? 17 : 16,
                 is_long ? spec_.long_factor : spec_.short_factor);
  }
  real(18, spec_.low_freq_factor, 0);
  real(19, spec_.high_freq_factor, 0);
  writer.Integers(20, spec_.mrope_section);
  writer.Integer(21, static_cast<int64_t>(spec_.mrope_order),
                 static_cast<int64_t>(MropeOrder::kChunked));
  writer.Integer(22, static_cast<int64_t>(spec_.angle),
                 static_cast<int64_t>(AnglePrecision::kExact));
  writer.Reals(23, spec_.inverse_frequencies);
  writer.Real(101, scale_, 1);
}

std::vector<DerivedValue> RotaryEncoding::Derive() const {
  const RealCacheScope cache_scope;
  constexpr int kPrecision = 128;
  const auto nearest = [](const Real& value) {
    return mpfr_get_d(value.get(), MPFR_RNDN);
  };
  std::vector<double> frequencies;
  for (const Real& each : InverseFrequencies(spec_, kPrecision).All()) {
    frequencies.push_back(spec_.angle == AnglePrecision::kFloat32
                              ? NearestFloat(each)
                              : nearest(each));
  }
  std::vector<DerivedValue> derived = {
      {"inverse_frequencies", std::move(frequencies)},
      {"attention_factor",
       {nearest(EffectiveAttentionFactor(spec_, kPrecision))}}};
  if (spec_.inverse_frequencies.empty()) {
    derived.push_back(
        {"rope_theta", {nearest(EffectiveRopeTheta(spec_, kPrecision))}});
  }
  return derived;
}

// Of every element: the attention factor times what was asked for.
RealToAnyPrecision RotaryEncoding::Scale() const {
  return [spec = spec_, scale = scale_](int precision) {
    Real factor = EffectiveAttentionFactor(spec, precision);
    mpfr_mul_d(factor.get(), factor.get(), scale, MPFR_RNDN);
    return factor;
  };
}

std::unique_ptr<const Evaluator> RotaryEncoding::Prepare(
    DataType type, const KernelSet& kernels) const {
  const RealCacheScope cache_scope;
  const std::vector<Real> all =
      InverseFrequencies(spec_, kSinusoidPrecision).All();
  std::vector<bool> turns;
  for (const Real& each : all) turns.push_back(mpfr_zero_p(each.get()) == 0);
  return std::make_unique<RotaryEvaluator>(
      spec_.angle == AnglePrecision::kFloat32
          ? PrepareFloat32(all, type)
          : PrepareExact(all, type, kernels),
      turns, Scale()(kSinusoidPrecision), spec_.layout, type);
}

std::unique_ptr<const Evaluator> RotaryEncoding::PrepareFloat32(
    const std::vector<Real>& all, DataType type) const {
  std::vector<float> frequencies;
  for (const Real& each : all) {
    if (mpfr_zero_p(each.get()) == 0) frequencies.push_back(NearestFloat(each));
  }
  return std::make_unique<Float32AngleEvaluator>(std::move(frequencies),
                                                 Scale(), type);
}

std::unique_ptr<const Evaluator> RotaryEncoding::PrepareExact(
    const std::vector<Real>& all, DataType type,
    const KernelSet& kernels) const {
  std::vector<SinusoidFrequency> frequencies;
  std::vector<int64_t> turning;
  for (size_t pair = 0; pair < all.size(); ++pair) {
    if (mpfr_zero_p(all[pair].get()) != 0) continue;
    frequencies.push_back(FrequencyOf(all[pair]));
    turning.push_back(static_cast<int64_t>(pair));
  }
  const SinusoidColumns columns(
      {.dim = 2 * static_cast<int64_t>(turning.size()),
       .layout = SinusoidalLayout::kConcatenated});
  auto reference = [spec = spec_, scale = Scale(), columns,
                    turning = std::move(turning)](int64_t position,
                                                  int64_t column, DataType as,
                                                  std::byte* out) {
    const SinusoidColumns::Place place = columns.PlaceOf(column);
    const auto frequency = [&](int precision) {
      return InverseFrequencies(spec, precision).Of(turning[place.frequency]);
    };
    RoundSinusoid(place.kind, position, frequency, scale, as, out);
  };
  return std::make_unique<SinusoidalEvaluator>(
      SinusoidRows{.columns = columns,
                   .frequencies = std::move(frequencies),
                   .scale = Scale()(kSinusoidPrecision),
                   .reference = std::move(reference)},
      type, kernels);
}

// ---------------------------------------------------------------------------
// What is allowed

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

absl::Status Check(const RotarySpec& spec) {
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

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const RotarySpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(Check(spec));
  ATTNBIAS_RETURN_IF_ERROR(CheckBias(output, "rotary"));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  return std::make_shared<const RotaryEncoding>(spec, output.scale);
}

}  // namespace attnbias
