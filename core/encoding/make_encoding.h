// SPDX-License-Identifier: Apache-2.0
// Every encoding's factory: one row each.
#ifndef ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
#define ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_

#include "absl/status/statusor.h"
#include "core/encoding/encoding.h"
#include "core/encoding/spec.h"

namespace attnbias {

// Validates hyperparameters, output.values and output.scale.
//
// INVALID_ARGUMENT  a field's value; the message begins with the field's path
//                   inside TensorSpec and ": "
absl::StatusOr<EncodingPtr> MakeEncoding(const SinusoidalSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const T5Spec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const AlibiSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const LearnedAbsoluteSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const ShawSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const TransformerXlSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const XlnetSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const ConformerSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const SymmetricSinusoidalSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const LearnedRelativeSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const KerpleSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const SandwichSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const FireSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const DynamicPositionBiasSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const DebertaSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const SwinSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const SwinV2Spec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const BeitSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const RotarySpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const XposSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const MultiAxisSinusoidalSpec& spec,
                                         const Output& output);
absl::StatusOr<EncodingPtr> MakeEncoding(const TupeSpec& spec,
                                         const Output& output);

}  // namespace attnbias

#endif  // ATTNBIAS_CORE_ENCODING_MAKE_ENCODING_H_
