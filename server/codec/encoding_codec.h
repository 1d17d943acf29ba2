// SPDX-License-Identifier: Apache-2.0
// The contract's encodings to and from core's, one pair of functions each.
#ifndef ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
#define ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_

#include "absl/status/statusor.h"
#include "attnbias/v1/service.pb.h"
#include "core/encoding/spec.h"

namespace attnbias {

absl::StatusOr<EncodingSpec> DecodeEncoding(const v1::TensorSpec& spec);
void EncodeEncoding(const EncodingSpec& spec, v1::TensorSpec* out);

absl::StatusOr<EncodingSpec> Decode(const v1::Sinusoidal& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::T5& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Alibi& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::LearnedRelative& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Kerple& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Sandwich& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Fire& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::DynamicPositionBias& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Deberta& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Swin& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::SwinV2& wire);
absl::StatusOr<EncodingSpec> Decode(const v1::Beit& wire);

// Fields that the others make idle are left out.
void Encode(const SinusoidalSpec& spec, v1::Sinusoidal* wire);
void Encode(const T5Spec& spec, v1::T5* wire);
void Encode(const AlibiSpec& spec, v1::Alibi* wire);
void Encode(const LearnedRelativeSpec& spec, v1::LearnedRelative* wire);
void Encode(const KerpleSpec& spec, v1::Kerple* wire);
void Encode(const SandwichSpec& spec, v1::Sandwich* wire);
void Encode(const FireSpec& spec, v1::Fire* wire);
void Encode(const DynamicPositionBiasSpec& spec, v1::DynamicPositionBias* wire);
void Encode(const DebertaSpec& spec, v1::Deberta* wire);
void Encode(const SwinSpec& spec, v1::Swin* wire);
void Encode(const SwinV2Spec& spec, v1::SwinV2* wire);
void Encode(const BeitSpec& spec, v1::Beit* wire);

}  // namespace attnbias

#endif  // ATTNBIAS_SERVER_CODEC_ENCODING_CODEC_H_
