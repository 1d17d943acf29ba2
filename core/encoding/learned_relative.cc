// SPDX-License-Identifier: Apache-2.0
// A learned scalar for every relative position and head.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "core/base/status_macros.h"
#include "core/encoding/bias_table.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// Two of them, and the 0 between, still count in 32 bits.
constexpr int64_t kMaxReach = (int64_t{1} << 30) - 1;

// Relative positions with a row of their own.
Range ReachOf(const LearnedRelativeSpec& spec) {
  return {spec.symmetric ? -*spec.right : -*spec.left, *spec.right + 1};
}

int64_t RowsOf(const LearnedRelativeSpec& spec) {
  return spec.symmetric ? *spec.right + 1 : ReachOf(spec).size();
}

// The row of a relative position; beyond the reach the last one's goes on.
RowRun RunFrom(const LearnedRelativeSpec& spec, int64_t relative_position) {
  const Range reach = ReachOf(spec);
  const int64_t clipped =
      std::clamp(relative_position, reach.begin, reach.end - 1);
  const int64_t row =
      spec.symmetric ? std::abs(clipped) : clipped - reach.begin;
  if (clipped > relative_position) return {row, reach.begin};
  if (clipped < relative_position) return {row, kRelativePositions.end};
  return {row, relative_position + 1};
}

class LearnedRelativeEncoding final : public Encoding {
 public:
  LearnedRelativeEncoding(const LearnedRelativeSpec& spec, const Output& output)
      : spec_(spec), output_(output) {}

  std::string_view name() const override { return "learned_relative"; }
  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return has_indices() ? 1 : spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override {
    return spec_.beyond == BeyondReach::kRefuse ? ReachOf(spec_)
                                                : kRelativePositions;
  }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    if (!has_indices()) {
      writer.Bytes(1, spec_.table->sha256());
      writer.Integer(2, spec_.num_heads);
    }
    writer.Integer(3, spec_.left.value_or(0));
    writer.Integer(4, *spec_.right);
    writer.Integer(5, spec_.symmetric ? 1 : 0);
    writer.Integer(6, static_cast<int64_t>(spec_.beyond),
                   static_cast<int64_t>(BeyondReach::kClip));
    WriteValues(has_indices(), writer);
    writer.Real(101, output_.scale, 1);
  }

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<BiasTableEvaluator>(
        BiasTable(spec_.table, output_.scale),
        [spec = spec_](int64_t at) { return RunFrom(spec, at); }, type);
  }

 private:
  const LearnedRelativeSpec spec_;
  const Output output_;
};

absl::Status CheckReach(absl::string_view field,
                        const std::optional<int64_t>& reach) {
  if (!reach.has_value()) {
    return Invalid("learned_relative.", field,
                   ": not set, want the farthest relative position on that "
                   "side with a row of its own");
  }
  if (*reach >= 0 && *reach <= kMaxReach) return absl::OkStatus();
  return Invalid("learned_relative.", field, ": got ", *reach,
                 ", want an integer in [0, ", kMaxReach, "]");
}

absl::Status CheckTable(const LearnedRelativeSpec& spec) {
  constexpr absl::string_view kField = "learned_relative.table";
  const int64_t rows = RowsOf(spec);
  if (!spec.table.has_value()) {
    return Invalid(kField, ": not set, want a table of [", rows,
                   " relative positions, ", spec.num_heads,
                   " heads or 1], or values BUCKETS");
  }
  const bool shared =
      spec.table->shape().size() == 2 && spec.table->columns() == 1;
  return CheckShape(
      kField, *spec.table,
      {{rows, "relative positions"}, {shared ? 1 : spec.num_heads, "heads"}});
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const LearnedRelativeSpec& spec,
                                         const Output& output) {
  ATTNBIAS_RETURN_IF_ERROR(CheckReach("right", spec.right));
  if (!spec.symmetric) {
    ATTNBIAS_RETURN_IF_ERROR(CheckReach("left", spec.left));
  } else if (spec.left.has_value()) {
    return Invalid("learned_relative.left: got ", *spec.left,
                   ", want none: with symmetric, right is both sides'");
  }
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  if (output.values != Values::kBuckets) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckNumHeads("learned_relative.num_heads", spec.num_heads));
    ATTNBIAS_RETURN_IF_ERROR(CheckTable(spec));
  } else {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  }
  return std::make_shared<const LearnedRelativeEncoding>(spec, output);
}

}  // namespace attnbias
