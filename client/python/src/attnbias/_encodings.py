# SPDX-License-Identifier: Apache-2.0
"""The encodings, one class each, with the fields of their message in the contract.

A class needs nothing but its fields: they are carried over by their names.
A field left None is not sent, and then has the default that the contract gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attnbias._enums import set_enum
from attnbias._tables import to_table_ref
from attnbias.v1 import service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message


class Encoding:
    """An encoding and its hyperparameters; compares and hashes by value."""

    field: ClassVar[str]
    """Its name in the contract's ``TensorSpec``."""

    def to_spec(self) -> service_pb2.TensorSpec:
        """This encoding as a spec without extent.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a number does not fit its field, or an enum has no such value.
        """
        spec = service_pb2.TensorSpec()
        message = getattr(spec, self.field)
        message.SetInParent()
        for field in message.DESCRIPTOR.fields:
            value = getattr(self, field.name)
            if value is not None:
                self._set_field(message, field, value)
        return spec

    def _set_field(self, message: Message, field: FieldDescriptor, value: Any) -> None:
        path = f"{self.field}.{field.name}"
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            layout = getattr(self, f"{field.name}_layout")
            getattr(message, field.name).CopyFrom(to_table_ref(value, layout, path))
            return
        if field.enum_type is not None:
            set_enum(message, field.name, value, path)
            return
        try:
            if field.is_repeated:
                getattr(message, field.name).extend(value)
            else:
                setattr(message, field.name, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: got {value!r}: {error}") from error

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.to_spec() == other.to_spec())

    def __hash__(self) -> int:
        return hash(self.to_spec().SerializeToString(deterministic=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sinusoidal(Encoding):
    """Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5).

    A table ``[positions, dim]``; ask with ``positions`` or ``position_ids``.
    """

    field: ClassVar[str] = "sinusoidal"

    dim: int
    """Columns, in [1, 65536]."""
    base: float | None = None
    """Column pair i turns by base^(-2i/dim) radians a position; in [1, 1e18]. Default 10000."""
    layout: Literal["INTERLEAVED", "CONCATENATED", "TENSOR2TENSOR"] | None = None
    """Order of sines and cosines: s0 c0 s1 c1 ... (default), or s0 s1 ... c0 c1 ..., or
    tensor2tensor's, which has timescales of its own and a zero column for an odd dim."""
    min_timescale: float | None = None
    """Only for TENSOR2TENSOR: the factor in front of the inverse timescales. Default 1."""
    max_timescale: float | None = None
    """Only for TENSOR2TENSOR. Default 10000."""


@dataclass(frozen=True, kw_only=True, eq=False)
class T5(Encoding):
    """T5's bucketed relative position bias (Raffel et al. 2020).

    ``bias[h, i, j] = table[bucket(j - i), h]``, a Toeplitz; ask with ``queries``
    and ``keys``. With ``values="buckets"`` the answer is the bucket indices, i32
    without a head axis, and needs neither num_heads nor table.
    """

    field: ClassVar[str] = "t5"

    bidirectional: bool
    """True for an encoder, False for a decoder."""
    num_heads: int | None = None
    """Heads of the table, in [1, 65536]."""
    num_buckets: int | None = None
    """Rows of the table, in [2, 4096], in either direction together. Default 32."""
    max_distance: int | None = None
    """Distance from which all keys share the last bucket. Default 128."""
    table: Any = None
    """The learned bias: a numpy array or torch tensor of f64, f32, f16 or bf16, at most 2 MiB,
    or "sha256:" and the 64 hex digits by which a resolved spec names a table."""
    table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The table's axes: [num_buckets, num_heads] (default; transformers) or the reverse (T5X)."""
    bucket_rule: Literal["EXACT", "FLOAT32_LOG"] | None = None
    """How logarithmic buckets are rounded: algebraically (default), or as torch does on a CPU."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ALiBi(Encoding):
    """Attention with linear biases (Press et al. 2022).

    Ask with ``queries`` and ``keys``. A Toeplitz for the variants SYMMETRIC and
    CAUSAL, a KeyRow for KEY_FROM_START and KEY_FROM_END.
    """

    field: ClassVar[str] = "alibi"

    num_heads: int
    """Number of slopes, in [1, 65536]."""
    alibi_bias_max: float | None = None
    """Exponent of the last slope, in (0, 1024]; not used with slopes. Default 8."""
    slopes: Sequence[float] | None = None
    """A peer's own slopes, num_heads of them, in place of the computed."""
    variant: Literal["SYMMETRIC", "CAUSAL", "KEY_FROM_START", "KEY_FROM_END"] | None = None
    """What a slope s multiplies: -s|i - j| (default), -s max(i - j, 0), s j (BLOOM, Falcon), or
    s (j - (key_length - 1)) (MPT)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rotary(Encoding):
    """Rotary position embedding (Su et al. 2021) and its length extensions.

    Two tables, ``cos`` and ``sin``, each ``[positions, columns]``; ask with
    ``positions`` or ``position_ids``, with one list per axis where mrope_section
    is given. Names are those of transformers' rope_parameters; a field that
    rope_type does not use must be left None.
    """

    field: ClassVar[str] = "rotary"

    head_dim: int
    """Dimension of a head, even, in [2, 65536]."""
    rope_theta: float | None = None
    """Pair m turns by rope_theta^(-2m/dim) radians a position; in [1, 1e18]. Default 10000."""
    partial_rotary_factor: float | None = None
    """Part of head_dim that turns, in (0, 1]. Default 1."""
    layout: Literal["HALF", "INTERLEAVED", "COMPACT"] | None = None
    """Columns: f0 f1 ... f0 f1 ... (default; Llama, GPT-NeoX), f0 f0 f1 f1 ... (GPT-J), or
    f0 f1 ... once."""
    rope_type: (
        Literal["DEFAULT", "LINEAR", "DYNAMIC", "NTK", "YARN", "LONGROPE", "LLAMA3", "PROPORTIONAL"]
        | None
    ) = None
    """How frequencies are rescaled."""
    factor: float | None = None
    """The stretch, in [1, 1e6]; needed by LINEAR, DYNAMIC, NTK, YARN and LLAMA3."""
    max_position_embeddings: int | None = None
    """DYNAMIC: the length trained for. LONGROPE: the extended length, where neither factor nor
    attention_factor is given."""
    original_max_position_embeddings: int | None = None
    """YARN, LONGROPE, LLAMA3: the length before extension."""
    sequence_length: int | None = None
    """DYNAMIC, LONGROPE: the length that the table is for; it selects base or factors."""
    beta_fast: float | None = None
    """YARN: rotations from which a pair is kept. Default 32."""
    beta_slow: float | None = None
    """YARN: rotations up to which a pair is stretched. Default 1."""
    mscale: float | None = None
    """YARN: with mscale_all_dim, the attention factor is the ratio of two temperatures."""
    mscale_all_dim: float | None = None
    """YARN: see mscale; both or neither."""
    truncate: bool | None = None
    """YARN: whether the correction range is rounded outwards to whole pairs. Default True."""
    attention_factor: float | None = None
    """YARN, LONGROPE: in place of the computed factor of both tables."""
    short_factor: Sequence[float] | None = None
    """LONGROPE: divisors of the frequencies up to the original length, one for each pair."""
    long_factor: Sequence[float] | None = None
    """LONGROPE: the same beyond the original length."""
    low_freq_factor: float | None = None
    """LLAMA3: wavelengths above original length / low_freq_factor are stretched."""
    high_freq_factor: float | None = None
    """LLAMA3: wavelengths below original length / high_freq_factor are kept."""
    mrope_section: Sequence[int] | None = None
    """Pairs of each axis of position; they add up to all pairs."""
    mrope_order: Literal["CHUNKED", "INTERLEAVED", "AXIAL"] | None = None
    """How pairs are dealt out: in chunks (default; Qwen2-VL), in turn (Qwen3-VL), or in chunks
    that each begin at the highest frequency (vision transformers)."""
    angle: Literal["EXACT", "FLOAT32"] | None = None
    """Angles as real numbers (default), or as frameworks have them: the float32 product of
    position and float32 frequency."""
    inverse_frequencies: Sequence[float] | None = None
    """A peer's own frequencies in place of the computed, one for each pair."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Xpos(Encoding):
    """xPos (Sun et al. 2022): rotary positions with a decay.

    Three tables, ``cos``, ``sin`` and ``scale``, each ``[positions, columns]``;
    queries are multiplied by scale, keys divided by it. Ask with ``positions`` or
    ``position_ids``.
    """

    field: ClassVar[str] = "xpos"

    dim: int
    """Columns of the layouts that have every pair twice; even, in [2, 65536]."""
    sequence_length: int
    """Length that the table is for; scale is 1 at half of it, rounded down."""
    rope_theta: float | None = None
    """Pair m turns by rope_theta^(-2m/dim) radians a position; in [1, 1e18]. Default 10000."""
    scale_base: float | None = None
    """Positions over which scale changes by its base; in [1, 1e9]. Default 512."""
    gamma: float | None = None
    """Base of pair m: (2m/dim + gamma) / (1 + gamma); in (0, 1e6]. Default 0.4."""
    layout: Literal["HALF", "INTERLEAVED", "COMPACT"] | None = None
    """Columns, as in Rotary; x-transformers and torchscale have INTERLEAVED."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiAxisSinusoidal(Encoding):
    """Sinusoids of positions in several dimensions.

    A table ``[positions, dim]``; ask with ``position_ids``, one list per axis.
    """

    field: ClassVar[str] = "multi_axis_sinusoidal"

    dim: int
    """Columns, in [2 num_axes, 65536]."""
    num_axes: int
    """In [1, 4]."""
    layout: Literal["TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED"]
    """Columns of an axis: tensor2tensor's, what is left over zero, or dim / num_axes of them,
    s0 c0 s1 c1 ... (DETR) or s0 s1 ... c0 c1 ... (MAE)."""
    base: float | None = None
    """As in Sinusoidal, of an axis' columns. Default 10000."""
    min_timescale: float | None = None
    """Only for TENSOR2TENSOR. Default 1."""
    max_timescale: float | None = None
    """Only for TENSOR2TENSOR. Default 10000."""
