// SPDX-License-Identifier: Apache-2.0
// Swin's relative position bias (Liu et al. 2021): one learned number for each
// displacement inside a window, and head. BEiT's (Bao et al. 2021) is the same
// and three more numbers a head, for a class token.
#include <memory>
#include <optional>
#include <string>

#include "core/base/status_macros.h"
#include "core/encoding/bias_table.h"
#include "core/encoding/checks.h"
#include "core/encoding/encoding.h"
#include "core/encoding/make_encoding.h"

namespace attnbias {
namespace {

// At the table's end: class to tokens, tokens to class, class to itself.
constexpr int64_t kBorderRows = 3;

class SwinEncoding final : public Encoding {
 public:
  SwinEncoding(const SwinSpec& spec, bool has_border, const Output& output)
      : spec_(spec),
        has_border_(has_border),
        output_(output),
        biases_(spec.table, output.scale) {}

  std::string_view name() const override {
    return has_border_ ? "beit" : "swin";
  }
  Structure structure() const override { return Structure::kBlockToeplitz2D; }
  int64_t lanes() const override { return has_indices() ? 1 : spec_.num_heads; }
  int64_t width() const override { return 1; }
  Range domain() const override {
    return {0, grid().block_height() * grid().block_width()};
  }
  bool has_indices() const override {
    return output_.values == Values::kBuckets;
  }
  Grid grid() const override {
    return {spec_.window_height, spec_.window_width};
  }
  bool has_border() const override { return has_border_; }
  void WriteBorder(DataType type, Range lanes, std::byte* out) const override {
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      for (int64_t place = 0; place < kBorderRows; ++place) {
        biases_.Write(domain().end + place, lane, type, out);
        out += SizeOf(type);
      }
    }
  }

  void WriteIdentity(CanonicalWriter& writer) const override {
    writer.Integer(1, spec_.window_height);
    writer.Integer(2, spec_.window_width);
    if (!has_indices()) writer.Bytes(4, spec_.table->sha256());
    WriteValues(has_indices(), writer);
    writer.Real(101, output_.scale, 1);
  }

  // The table counts query - key where grids count key - query: it is read from
  // behind.
  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& /*kernels*/) const override {
    return std::make_unique<BiasTableEvaluator>(
        biases_,
        [last = domain().end - 1](int64_t at) {
          return RowRun{last - at, at + 1};
        },
        type);
  }

 private:
  const SwinSpec spec_;
  const bool has_border_;
  const Output output_;
  const BiasTable biases_;
};

absl::Status CheckTable(const std::string& name, const SwinSpec& spec,
                        bool has_border) {
  const int64_t rows =
      (2 * spec.window_height - 1) * (2 * spec.window_width - 1) +
      (has_border ? kBorderRows : 0);
  if (!spec.table.has_value()) {
    return Invalid(name, ".table: not set, want a table of [", rows, " rows, ",
                   spec.num_heads, " heads], or values BUCKETS");
  }
  return CheckShape(
      name + ".table", *spec.table,
      {{rows, has_border ? "displacements (2 Wh - 1)(2 Ww - 1) + 3"
                         : "displacements (2 Wh - 1)(2 Ww - 1)"},
       {spec.num_heads, "heads"}});
}

absl::StatusOr<EncodingPtr> Make(const SwinSpec& spec, bool has_border,
                                 const Output& output) {
  const std::string name = has_border ? "beit" : "swin";
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide(name + ".window_height", spec.window_height));
  ATTNBIAS_RETURN_IF_ERROR(
      CheckWindowSide(name + ".window_width", spec.window_width));
  ATTNBIAS_RETURN_IF_ERROR(CheckScale(output));
  if (output.values != Values::kBuckets) {
    ATTNBIAS_RETURN_IF_ERROR(
        CheckNumHeads(name + ".num_heads", spec.num_heads));
    ATTNBIAS_RETURN_IF_ERROR(CheckTable(name, spec, has_border));
  } else {
    ATTNBIAS_RETURN_IF_ERROR(CheckUnscaled(output));
  }
  return std::make_shared<const SwinEncoding>(spec, has_border, output);
}

}  // namespace

absl::StatusOr<EncodingPtr> MakeEncoding(const SwinSpec& spec,
                                         const Output& output) {
  return Make(spec, false, output);
}

absl::StatusOr<EncodingPtr> MakeEncoding(const BeitSpec& spec,
                                         const Output& output) {
  return Make({.window_height = spec.window_height,
               .window_width = spec.window_width,
               .num_heads = spec.num_heads,
               .table = spec.table},
              true, output);
}

}  // namespace attnbias
