// SPDX-License-Identifier: Apache-2.0
// Sinusoidal absolute positions, of one axis and of several: what can be asked
// for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_SINUSOIDAL_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_SINUSOIDAL_H_

#include <array>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"

namespace attnbias {

enum class SinusoidalLayout : uint8_t {
  kInterleaved = 1,
  kConcatenated,
  kTensor2Tensor
};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<SinusoidalLayout> =
    {"INTERLEAVED", "CONCATENATED", "TENSOR2TENSOR"};

// No known model has a timescale below 1, but frequencies are: min_timescale
// 1e-4 is a peer's lowest frequency, and would give another table.
inline constexpr double kLeastTimescale = 1;
inline constexpr double kMostMinTimescale = 1e6;
inline constexpr double kMostMaxTimescale = 1e18;
inline constexpr std::string_view kNotAFrequency =
    ", a timescale and not a frequency";

struct SinusoidalSpec {
  static constexpr std::string_view kName = "sinusoidal";
  int64_t dim = 0;
  Defaulted<double> base = DefaultsTo(10000.0);
  Defaulted<SinusoidalLayout> layout =
      DefaultsTo(SinusoidalLayout::kInterleaved);
  Defaulted<double> min_timescale = DefaultsTo(1.0);
  Defaulted<double> max_timescale = DefaultsTo(10000.0);

  FieldList Fields() {
    const bool timescales = layout == SinusoidalLayout::kTensor2Tensor;
    return {
        Field(1, "dim", dim).In(1, kMaxDim),
        Field(2, "base", base)
            .In(1, kMaxBase)
            .Idle(timescales, "TENSOR2TENSOR has timescales"),
        Field(3, "layout", layout),
        Field(4, "min_timescale", min_timescale)
            .In(kLeastTimescale, kMostMinTimescale, std::string(kNotAFrequency))
            .Idle(!timescales, "only TENSOR2TENSOR has timescales"),
        Field(5, "max_timescale", max_timescale)
            .In(min_timescale, kMostMaxTimescale, std::string(kNotAFrequency))
            .Idle(!timescales, "only TENSOR2TENSOR has timescales")};
  }
};

enum class MultiAxisLayout : uint8_t {
  kTensor2Tensor = 1,
  kInterleaved,
  kConcatenated
};
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<MultiAxisLayout> = {
    "TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED"};

struct MultiAxisSinusoidalSpec {
  static constexpr std::string_view kName = "multi_axis_sinusoidal";
  int64_t dim = 0;
  int64_t num_axes = 0;
  std::optional<MultiAxisLayout> layout;
  Defaulted<double> base = DefaultsTo(10000.0);
  Defaulted<double> min_timescale = DefaultsTo(1.0);
  Defaulted<double> max_timescale = DefaultsTo(10000.0);
  // Empty where positions are no fractions.
  std::vector<int64_t> axis_lengths;
  Defaulted<double> axis_scale = DefaultsTo(2 * std::numbers::pi);
  Defaulted<double> axis_eps = DefaultsTo(1e-6);
  Defaulted<double> axis_offset = DefaultsTo(0.0);

  FieldList Fields() {
    // These keep every frequency within FrequencyOf's range.
    constexpr int64_t kMaxAxisLength = int64_t{1} << 30;
    constexpr double kLeastAxisScale = 1e-3;
    constexpr double kMostAxisScale = 1e3;
    constexpr double kMostAxisOffset = 1e6;
    const auto of_fractions = [this](Field field) {
      return field.Idle(axis_lengths.empty(), "there are no axis_lengths");
    };
    const bool timescales = layout == MultiAxisLayout::kTensor2Tensor;
    return {
        Field(1, "dim", dim).In(1, kMaxDim),
        Field(2, "num_axes", num_axes).In(1, kMaxAxes),
        Field(3, "layout", layout).Required(),
        Field(4, "base", base)
            .In(1, kMaxBase)
            .Idle(timescales, "TENSOR2TENSOR has timescales"),
        Field(5, "min_timescale", min_timescale)
            .In(kLeastTimescale, kMostMinTimescale, std::string(kNotAFrequency))
            .Idle(!timescales, "only TENSOR2TENSOR has timescales"),
        Field(6, "max_timescale", max_timescale)
            .In(min_timescale, kMostMaxTimescale, std::string(kNotAFrequency))
            .Idle(!timescales, "only TENSOR2TENSOR has timescales"),
        Field(7, "axis_lengths", axis_lengths).In(1, kMaxAxisLength),
        of_fractions(Field(8, "axis_scale", axis_scale)
                         .In(kLeastAxisScale, kMostAxisScale)),
        of_fractions(Field(9, "axis_eps", axis_eps).In(0, 1)),
        of_fractions(Field(10, "axis_offset", axis_offset)
                         .In(-kMostAxisOffset, kMostAxisOffset))};
  }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_SINUSOIDAL_H_
