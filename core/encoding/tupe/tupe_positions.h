// SPDX-License-Identifier: Apache-2.0
// TUPE's absolute term: dot products of projected positions, to the same bits
// everywhere.
//
// In F64 and in this order: LayerNorm with sums over a row's columns one after
// the other, both projections as Linear has them, queries times the scale, and
// products of query and key added to 0 over a head's columns; each step rounded
// once, a product and its sum together.
#ifndef ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_
#define ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/kernel/kernel_set.h"
#include "core/request/tables.h"
#include "core/table/table.h"
#include "core/tensor/range.h"

namespace attnbias {

// The tables of a request.
struct TupeTables {
  TupeTables(const v1::Tupe& spec, const Tables& tables)
      : relative_table(tables.Get(spec.relative_table())),
        position_table(tables.Get(spec.position_table())),
        query_weight(tables.Get(spec.query_weight())),
        query_bias(tables.Get(spec.query_bias())),
        key_weight(tables.Get(spec.key_weight())),
        key_bias(tables.Get(spec.key_bias())),
        norm_weight(tables.Get(spec.norm_weight())),
        norm_bias(tables.Get(spec.norm_bias())) {}

  std::optional<Table> relative_table;
  std::optional<Table> position_table;
  std::optional<Table> query_weight;
  std::optional<Table> query_bias;
  std::optional<Table> key_weight;
  std::optional<Table> key_bias;
  std::optional<Table> norm_weight;
  std::optional<Table> norm_bias;
};

class TupePositions {
 public:
  // Bounds what one takes, and what making it does.
  static int64_t BytesOf(const Table& position_table);

  // `spec` has an absolute term, and its position_scale.
  TupePositions(const v1::Tupe& spec, const TupeTables& tables,
                const KernelSet& kernels);

  // Writes the products of the table's row `query` with the rows `keys`.
  void Dot(int64_t head, int64_t query, Range keys, const KernelSet& kernels,
           double* out) const;

 private:
  // Gives `write` each column of the projected `positions` [rows, dim], a batch
  // of rows at a time.
  void Project(const Table& weight, const std::optional<Table>& bias,
               const std::vector<double>& positions, const KernelSet& kernels,
               absl::FunctionRef<void(Range rows, int64_t column,
                                      const double* projected)>
                   write) const;

  const int64_t rows_;
  const int64_t dim_;
  const int64_t head_dim_;
  std::vector<double> queries_;  // [rows, dim], scaled
  std::vector<double> keys_;     // [dim, rows]
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_TUPE_TUPE_POSITIONS_H_
