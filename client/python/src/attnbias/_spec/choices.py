# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Values of enums, as type checkers know them."""

from __future__ import annotations

from typing import Literal, TypeAlias

DataType: TypeAlias = Literal["f64", "f32", "f16", "bf16", "i32"]
Form: TypeAlias = Literal["table", "toeplitz", "key_row", "dense", "block_toeplitz"]
Values: TypeAlias = Literal["bias", "buckets"]
TableLayout: TypeAlias = Literal["buckets_heads", "heads_buckets"]
Alignment: TypeAlias = Literal["start", "end"]
Columns: TypeAlias = Literal["interleaved", "sines_cosines", "cosines_sines"]
OddColumn: TypeAlias = Literal["sine", "zero"]
BucketRule: TypeAlias = Literal["exact", "float32_log"]
AlibiVariant: TypeAlias = Literal["symmetric", "causal", "key_from_start", "key_from_end"]
Filter: TypeAlias = Literal["linear", "cubic"]
RotaryLayout: TypeAlias = Literal["half", "interleaved", "compact"]
AnglePrecision: TypeAlias = Literal["exact", "float32"]
BeyondReach: TypeAlias = Literal["clip", "refuse"]
RelativeSign: TypeAlias = Literal["key_minus_query", "query_minus_key"]
KerpleKernel: TypeAlias = Literal["log", "power"]
Activation: TypeAlias = Literal["relu", "silu"]
Coordinates: TypeAlias = Literal["linear", "signed_log", "log2_normalized"]
MlpOutput: TypeAlias = Literal["identity", "sigmoid_16"]
DebertaTerm: TypeAlias = Literal["content_to_position", "position_to_content", "bucket"]
DebertaEdge: TypeAlias = Literal["microsoft", "hf"]
Direction: TypeAlias = Literal["left_to_right", "right_to_left", "bidirectional"]
