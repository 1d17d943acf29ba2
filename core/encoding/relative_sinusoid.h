// SPDX-License-Identifier: Apache-2.0
// Sinusoids of relative positions: at every pair the row that a sinusoidal
// table has for its distance i - j, query minus key. What Transformer-XL,
// XLNet, Conformer and the symmetric form share.
#ifndef ATTNBIAS_CORE_ENCODING_RELATIVE_SINUSOID_H_
#define ATTNBIAS_CORE_ENCODING_RELATIVE_SINUSOID_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/canonical_writer.h"
#include "core/encoding/encoding.h"
#include "core/encoding/spec.h"

namespace attnbias {

// Which row stands for a distance.
struct DistanceRule {
  // Whether distances lose their sign.
  bool symmetric = false;
  // Whether keys to the right of the query have a zero vector, and no row.
  bool zero_right = false;
  // The largest magnitude, as which all beyond it count.
  std::optional<int64_t> clamp_len;
};

// Their encoding, up to its name and identity.
class RelativeSinusoid : public Encoding {
 public:
  // `table` and `output` have passed CheckRelativeSinusoid.
  RelativeSinusoid(const SinusoidalSpec& table, const DistanceRule& rule,
                   const Output& output);

  Structure structure() const override { return Structure::kToeplitz; }
  int64_t lanes() const override { return 1; }
  bool has_heads() const override { return false; }
  int64_t width() const override { return table_.dim; }
  bool has_columns() const override { return true; }
  Range domain() const override;

  std::unique_ptr<const Evaluator> Prepare(
      DataType type, const KernelSet& kernels) const override;

 protected:
  const DistanceRule& rule() const { return rule_; }

  // The fields that all have, of numbers 1 and 2; and the last of all.
  void WriteTable(CanonicalWriter& writer) const;
  void WriteScale(CanonicalWriter& writer) const;

 private:
  const SinusoidalSpec table_;
  const DistanceRule rule_;
  const Output output_;
};

// `name` is the encoding's, for messages.
absl::Status CheckRelativeSinusoid(absl::string_view name,
                                   const SinusoidalSpec& table,
                                   const Output& output);
absl::Status CheckClampLen(absl::string_view name,
                           const std::optional<int64_t>& clamp_len);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_RELATIVE_SINUSOID_H_
