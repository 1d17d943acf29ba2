// SPDX-License-Identifier: Apache-2.0
// A learned table of relative biases: immutable numbers and their digest.
#ifndef ATTNBIAS_CORE_TABLE_TABLE_H_
#define ATTNBIAS_CORE_TABLE_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor/data_type.h"

namespace attnbias {

enum class TableLayout : uint8_t { kBucketsHeads = 1, kHeadsBuckets };

// Copies share the numbers.
class Table {
 public:
  // `data` is row-major, little-endian, of `shape` in the order that `layout`
  // says. INVALID_ARGUMENT, its message without a field prefix, for a type
  // other than F64, F32, F16, BF16, a shape that is not two positive lengths, a
  // size that does not match, or a number that is not finite.
  static absl::StatusOr<Table> Create(DataType data_type,
                                      absl::Span<const int64_t> shape,
                                      std::string_view data,
                                      TableLayout layout);

  DataType data_type() const { return content_->data_type; }
  int64_t num_buckets() const { return content_->num_buckets; }
  int64_t num_heads() const { return content_->num_heads; }

  // Exact: every supported type embeds in double.
  double At(int64_t bucket, int64_t head) const {
    return content_->values[bucket * content_->num_heads + head];
  }

  // 64 lowercase hex characters: SHA-256 over type, shape and bytes in
  // [num_buckets, num_heads] order, whatever layout they came in.
  const std::string& sha256() const { return content_->sha256; }

 private:
  struct Content {
    DataType data_type;
    int64_t num_buckets;
    int64_t num_heads;
    std::string sha256;
    std::unique_ptr<double[]> values;  // [num_buckets, num_heads]
  };

  Table() = default;

  std::shared_ptr<const Content> content_;
};

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_TABLE_TABLE_H_
