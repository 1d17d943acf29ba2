# SPDX-License-Identifier: Apache-2.0
"""The words of fields, as types: as configurations have them, and as the contract has them."""

from __future__ import annotations

from typing import Literal, TypeAlias

SinusoidalLayout: TypeAlias = Literal[
    "interleaved", "concatenated", "tensor2tensor", "INTERLEAVED", "CONCATENATED", "TENSOR2TENSOR"
]
TableLayout: TypeAlias = Literal["buckets_heads", "heads_buckets", "BUCKETS_HEADS", "HEADS_BUCKETS"]
BucketRule: TypeAlias = Literal["exact", "float32_log", "EXACT", "FLOAT32_LOG"]
AlibiVariant: TypeAlias = Literal[
    "symmetric",
    "causal",
    "key_from_start",
    "key_from_end",
    "SYMMETRIC",
    "CAUSAL",
    "KEY_FROM_START",
    "KEY_FROM_END",
]
Interpolation: TypeAlias = Literal[
    "none", "linear", "linear_align_corners", "NONE", "LINEAR", "LINEAR_ALIGN_CORNERS"
]
BeyondReach: TypeAlias = Literal["clip", "refuse", "CLIP", "REFUSE"]
RelativeSign: TypeAlias = Literal[
    "key_minus_query", "query_minus_key", "KEY_MINUS_QUERY", "QUERY_MINUS_KEY"
]
XlnetAttention: TypeAlias = Literal[
    "bidirectional", "unidirectional", "BIDIRECTIONAL", "UNIDIRECTIONAL"
]
SinesAndCosines: TypeAlias = Literal["interleaved", "concatenated", "INTERLEAVED", "CONCATENATED"]
KerpleKernel: TypeAlias = Literal["log", "power", "LOG", "POWER"]
DebertaTerm: TypeAlias = Literal[
    "content_to_position",
    "position_to_content",
    "bucket",
    "CONTENT_TO_POSITION",
    "POSITION_TO_CONTENT",
    "BUCKET",
]
DebertaEdge: TypeAlias = Literal["microsoft", "hf", "MICROSOFT", "HF"]
RotaryLayout: TypeAlias = Literal[
    "half", "interleaved", "compact", "HALF", "INTERLEAVED", "COMPACT"
]
RopeType: TypeAlias = Literal[
    "default",
    "linear",
    "dynamic",
    "ntk",
    "yarn",
    "longrope",
    "llama3",
    "proportional",
    "axial",
    "DEFAULT",
    "LINEAR",
    "DYNAMIC",
    "NTK",
    "YARN",
    "LONGROPE",
    "LLAMA3",
    "PROPORTIONAL",
    "AXIAL",
]
MropeOrder: TypeAlias = Literal[
    "chunked", "interleaved", "axial", "CHUNKED", "INTERLEAVED", "AXIAL"
]
AnglePrecision: TypeAlias = Literal["exact", "float32", "EXACT", "FLOAT32"]
MultiAxisLayout: TypeAlias = Literal[
    "tensor2tensor", "interleaved", "concatenated", "TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED"
]
