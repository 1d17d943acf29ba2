// SPDX-License-Identifier: Apache-2.0
// Rotary positions, their length extensions, and xPos: what can be asked for.
#ifndef ATTNBIAS_CORE_ENCODING_SPEC_ROTARY_H_
#define ATTNBIAS_CORE_ENCODING_SPEC_ROTARY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/encoding/spec/field.h"
#include "core/encoding/spec/limits.h"
#include "core/tensor/positions.h"

namespace attnbias {

enum class RotaryLayout : uint8_t { kHalf = 1, kInterleaved, kCompact };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<RotaryLayout> = {
    "HALF", "INTERLEAVED", "COMPACT"};

enum class RopeType : uint8_t {
  kDefault = 1,
  kLinear,
  kDynamic,
  kNtk,
  kYarn,
  kLongrope,
  kLlama3,
  kProportional,
  kAxial
};
template <>
inline constexpr std::array<std::string_view, 9> kEnumNames<RopeType> = {
    "DEFAULT",  "LINEAR", "DYNAMIC",      "NTK",  "YARN",
    "LONGROPE", "LLAMA3", "PROPORTIONAL", "AXIAL"};

enum class MropeOrder : uint8_t { kChunked = 1, kInterleaved, kAxial };
template <>
inline constexpr std::array<std::string_view, 3> kEnumNames<MropeOrder> = {
    "CHUNKED", "INTERLEAVED", "AXIAL"};

enum class AnglePrecision : uint8_t { kExact = 1, kFloat32 };
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<AnglePrecision> = {
    "EXACT", "FLOAT32"};

// Which fields there are depends on rope_type.
struct RotarySpec {
  static constexpr std::string_view kName = "rotary";
  int64_t head_dim = 0;
  Defaulted<double> rope_theta = DefaultsTo(10000.0);
  double partial_rotary_factor = 1;
  RotaryLayout layout = RotaryLayout::kHalf;
  RopeType rope_type = RopeType::kDefault;
  std::optional<double> factor;
  std::optional<int64_t> max_position_embeddings;
  std::optional<int64_t> original_max_position_embeddings;
  std::optional<int64_t> sequence_length;
  Defaulted<double> beta_fast = DefaultsTo(32.0);
  Defaulted<double> beta_slow = DefaultsTo(1.0);
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  Defaulted<bool> truncate = DefaultsTo(true);
  std::optional<double> attention_factor;
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  std::optional<double> low_freq_factor;
  std::optional<double> high_freq_factor;
  std::vector<int64_t> mrope_section;
  Defaulted<MropeOrder> mrope_order = DefaultsTo(MropeOrder::kChunked);
  AnglePrecision angle = AnglePrecision::kExact;
  std::vector<double> inverse_frequencies;

  // LONGROPE: whether long_factor is in force, and not short_factor.
  bool UsesLongFactor() const {
    return *sequence_length > *original_max_position_embeddings;
  }

  // The even number of columns that turn: floor(head_dim x
  // partial_rotary_factor), the product rounded to a double as peers have it.
  int64_t RotatingColumns() const;

  // The same with AXIAL as an order of axes and not as a rope_type.
  RotarySpec WithAxes() const;

  FieldList Fields();
  // Of what some sequence lengths leave the same, only what is in force.
  void Canonicalise();
};

struct XposSpec {
  static constexpr std::string_view kName = "xpos";
  int64_t dim = 0;
  double rope_theta = 10000;
  double scale_base = 512;
  double gamma = 0.4;
  std::optional<int64_t> sequence_length;
  RotaryLayout layout = RotaryLayout::kHalf;

  // Decays count from there.
  int64_t center() const { return *sequence_length / 2; }

  FieldList Fields() {
    constexpr double kMaxScaleBase = 1e9;
    constexpr double kMaxGamma = 1e6;
    return {Field(1, "dim", dim).In(2, kMaxDim).Even(),
            Field(2, "rope_theta", rope_theta).In(1, kMaxBase),
            Field(3, "scale_base", scale_base).In(1, kMaxScaleBase),
            Field(4, "gamma", gamma).Above(0, kMaxGamma),
            Field(5, "sequence_length", sequence_length)
                .In(1, kMaxPosition)
                .Required(),
            Field(6, "layout", layout)};
  }

  // Lengths with one center have one table.
  void Canonicalise() { sequence_length = center(); }
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_SPEC_ROTARY_H_
