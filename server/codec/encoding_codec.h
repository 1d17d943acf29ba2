// SPDX-License-Identifier: Apache-2.0
// The contract's encodings to and from core's, one pair of functions each.
#ifndef ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/encoding/spec.h"
#include "core/mount/registry.h"

namespace attnbias {

// `tables` are those that a spec may name.
absl::StatusOr<EncodingSpec> DecodeEncoding(const v1::TensorSpec& spec,
                                            const TableSet& tables);
void EncodeEncoding(const EncodingSpec& spec, v1::TensorSpec* out);

absl::StatusOr<EncodingSpec> Decode(const v1::Sinusoidal& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::T5& wire, const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Alibi& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::LearnedAbsolute& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Shaw& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::TransformerXl& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Xlnet& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Conformer& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::SymmetricSinusoidal& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::LearnedRelative& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Kerple& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Sandwich& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Fire& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::DynamicPositionBias& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Deberta& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Swin& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::SwinV2& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Beit& wire,
                                    const TableSet& tables);
absl::StatusOr<EncodingSpec> Decode(const v1::Rotary& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Xpos& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::MultiAxisSinusoidal& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Tupe& wire,
                                    const TableSet& tables);

// Fields that the others make idle are left out.
void Encode(const SinusoidalSpec& spec, v1::Sinusoidal* wire);
void Encode(const T5Spec& spec, v1::T5* wire);
void Encode(const AlibiSpec& spec, v1::Alibi* wire);
void Encode(const LearnedAbsoluteSpec& spec, v1::LearnedAbsolute* wire);
void Encode(const ShawSpec& spec, v1::Shaw* wire);
void Encode(const TransformerXlSpec& spec, v1::TransformerXl* wire);
void Encode(const XlnetSpec& spec, v1::Xlnet* wire);
void Encode(const ConformerSpec& spec, v1::Conformer* wire);
void Encode(const SymmetricSinusoidalSpec& spec, v1::SymmetricSinusoidal* wire);
void Encode(const LearnedRelativeSpec& spec, v1::LearnedRelative* wire);
void Encode(const KerpleSpec& spec, v1::Kerple* wire);
void Encode(const SandwichSpec& spec, v1::Sandwich* wire);
void Encode(const FireSpec& spec, v1::Fire* wire);
void Encode(const DynamicPositionBiasSpec& spec, v1::DynamicPositionBias* wire);
void Encode(const DebertaSpec& spec, v1::Deberta* wire);
void Encode(const SwinSpec& spec, v1::Swin* wire);
void Encode(const SwinV2Spec& spec, v1::SwinV2* wire);
void Encode(const BeitSpec& spec, v1::Beit* wire);
void Encode(const RotarySpec& spec, v1::Rotary* wire);
void Encode(const XposSpec& spec, v1::Xpos* wire);
void Encode(const MultiAxisSinusoidalSpec& spec, v1::MultiAxisSinusoidal* wire);
void Encode(const TupeSpec& spec, v1::Tupe* wire);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
