// SPDX-License-Identifier: Apache-2.0
// Small networks of linear layers, evaluated a batch of coordinates at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "attnbias/v1/encodings.pb.h"
#include "core/encoding/encoding.h"
#include "core/kernel/kernel_set.h"
#include "core/table/table.h"
#include "core/tensor/data_type.h"
#include "core/tensor/positions.h"

namespace attnbias {

// Number of members in a batch. Each feature is a row of this many values.
inline constexpr int64_t kBatch = 64;

// A learned linear layer over a batch of inputs, computed bit-identically on all machines. For each
// output, products are added to the bias in the order of the inputs. A product and its addition are
// rounded together, once, to F64. SIMD vectors run across the batch, never along a sum.
class Linear {
 public:
  // Computes some of the outputs for `weight` [outputs, inputs], laid out as in torch's Linear, and
  // `bias` [outputs], which defaults to zeros.
  Linear(const Table& weight, const std::optional<Table>& bias, Range outputs);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // Writes some of the outputs, [outputs.size(), kBatch], for `in` [inputs(), kBatch].
  void Apply(const double* in, Range outputs, const KernelSet& kernels, double* out) const;

 private:
  const int64_t inputs_;
  const int64_t outputs_;
  std::vector<double> weight_;  // [outputs, inputs]
  std::vector<double> bias_;    // [outputs]
};

// Returns the values of a table, row-major.
std::vector<double> NumbersOf(const Table& table);

// A linear layer with its LayerNorm and activation.
struct NetworkLayer {
  Table weight;
  std::optional<Table> bias;
  // Unspecified: none.
  v1::Activation activation = v1::ACTIVATION_UNSPECIFIED;
  // LayerNorm applied before the activation: both [outputs], or neither.
  std::optional<Table> norm_weight = {};
  std::optional<Table> norm_bias = {};
};

// Rejects more than kMaxHidden outputs, and parameters that could make a layer overflow. `reach`
// bounds the magnitude of the layer's inputs on entry and of its outputs on return.
absl::Status CheckLayer(absl::string_view weight_field, const NetworkLayer& layer, double& reach);

// Returns an Encoding's evaluator_bytes for these layers.
int64_t NetworkBytes(absl::Span<const NetworkLayer> layers);

// Returns an evaluator whose lanes are the outputs of a network, and whose width is 1. `kernels`
// must outlive the evaluator.
//
// Given at most kBatch consecutive coordinates and the block's query, `set_inputs` writes the
// inputs to `in` [inputs, kBatch], which initially holds zeros. `write` writes an output's element.
EvaluatorPtr PrepareNetwork(
    absl::Span<const NetworkLayer> layers, DataType type, const KernelSet& kernels,
    std::function<void(int64_t query, Range coordinates, double* in)> set_inputs,
    std::function<void(double output, std::byte* out)> write);

}  // namespace attnbias
