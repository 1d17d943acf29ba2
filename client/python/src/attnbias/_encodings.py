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
from attnbias.v1 import options_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message


class Fields:
    """A message of the contract, of whose fields this has the attributes."""

    def set_fields(self, message: Any, path: str) -> None:
        """Sets what is not None; errors name fields by the message's ``path``.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a number does not fit its field, or an enum has no such value.
        """
        for field in message.DESCRIPTOR.fields:
            value = getattr(self, field.name)
            if value is not None:
                self._set_field(message, field, value, f"{path}.{field.name}")

    def _set_field(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            layout = getattr(self, f"{field.name}_layout", None)
            getattr(message, field.name).CopyFrom(to_table_ref(value, layout, path))
            return
        if field.message_type is not None:
            for index, part in enumerate(value):
                part.set_fields(getattr(message, field.name).add(), f"{path}[{index}]")
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


class Encoding(Fields):
    """An encoding and its hyperparameters; compares and hashes by value."""

    field: ClassVar[str]
    """Its name in the contract's ``TensorSpec``."""
    extent: ClassVar[str]
    """What it takes, by the contract: "table", "pair" or "grid"."""

    def __init_subclass__(cls) -> None:
        message: Any = service_pb2.TensorSpec.DESCRIPTOR.fields_by_name[cls.field].message_type
        cls.extent = message.GetOptions().Extensions[options_pb2.extent]

    def to_spec(self) -> service_pb2.TensorSpec:
        """This encoding as a spec without extent.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a number does not fit its field, or an enum has no such value.
        """
        spec = service_pb2.TensorSpec()
        message = getattr(spec, self.field)
        message.SetInParent()
        self.set_fields(message, self.field)
        return spec

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
class LearnedRelative(Encoding):
    """A learned scalar for every relative position.

    ``bias[h, i, j] = table[index(j - i), h]``, a Toeplitz; ask with ``queries``
    and ``keys``. ``values="buckets"`` gives the indices, i32 without a head axis,
    and needs neither num_heads nor table.
    """

    field: ClassVar[str] = "learned_relative"

    right: int
    """Farthest relative position to the right with a row of its own, in [0, 2^30)."""
    left: int | None = None
    """The same to the left; required unless symmetric, and then not allowed."""
    symmetric: bool | None = None
    """Whether the sign of j - i is dropped."""
    num_heads: int | None = None
    """Heads of the answer, in [1, 65536]."""
    table: Any = None
    """``[left + right + 1, num_heads]``, or ``[right + 1, num_heads]`` when symmetric; or with one
    column that all heads share. What a table may be is said at T5."""
    table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The table's axes: that (default), or the reverse."""
    beyond: Literal["CLIP", "REFUSE"] | None = None
    """What lies farther: the farthest row (default), or an OutOfRangeError."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Kerple(Encoding):
    """KERPLE (Chi et al. 2022), a Toeplitz; ask with ``queries`` and ``keys``.

    LOG: ``-p ln(1 + a |i - j|)``. POWER: ``-a |i - j|^p``.
    """

    field: ClassVar[str] = "kerple"

    num_heads: int
    """In [1, 65536]."""
    kernel: Literal["LOG", "POWER"]
    p: Sequence[float]
    """One for each head, or one for all; in [1e-30, 1e30], POWER's at most 2."""
    a: Sequence[float]
    """One for each head, or one for all; in [1e-30, 1e30]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sandwich(Encoding):
    """Sandwich (Chi et al. 2023), a Toeplitz; ask with ``queries`` and ``keys``.

    ``bias[h, i, j] = H / (8 (h + 1)) sum over k < dim / 2 of cos((i - j) base^(-2k/dim))``.
    """

    field: ClassVar[str] = "sandwich"

    num_heads: int
    """H, in [1, 65536]."""
    dim: int | None = None
    """Columns of the sinusoid, even, in [2, 65536]. Default 128."""
    base: float | None = None
    """In [1, 1e18]. Default 10000."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fire(Encoding):
    """FIRE (Li et al. 2023): an MLP of logarithmic distances, normalised row by row.

    ``bias[h, i, j] = MLP(ln(c |i - j| + 1) / (ln(c max(i, threshold) + 1) + eps))_h``: dense,
    there being no diagonals; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "fire"

    num_heads: int
    """In [1, 65536]."""
    c: float | None = None
    """In [1e-30, 1e30]. Default 0.1."""
    threshold: float | None = None
    """Positions up to which rows share the normaliser: ``abs(L_multiplier * init_L)``, in
    [1e-30, 2^40]. Default 512."""
    eps: float | None = None
    """Added to the normaliser, in [0, 1]. Default 1e-6."""
    hidden_weight: Any
    """``[hidden, 1]``, as torch's Linear has it; what a table may be is said at T5."""
    hidden_bias: Any = None
    """``[hidden]``; zeros where None."""
    output_weight: Any
    """``[num_heads, hidden]``."""
    output_bias: Any = None
    """``[num_heads]``; zeros where None."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionMlpLayer(Fields):
    """One linear layer of a DynamicPositionBias, as torch's Linear has it."""

    weight: Any
    """``[out, in]``; what a table may be is said at T5."""
    bias: Any = None
    """``[out]``; zeros where None."""
    norm_weight: Any = None
    """LayerNorm after it, ``[out]``; with norm_bias or not at all."""
    norm_bias: Any = None
    """``[out]``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DynamicPositionBias(Encoding):
    """An MLP of the signed distance i - j, with SiLU between layers (x-transformers).

    A Toeplitz; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "dynamic_position_bias"

    num_heads: int
    """In [1, 65536]."""
    log_distance: bool | None = None
    """Whether the distance d enters as sign(d) ln(abs(d) + 1)."""
    layers: Sequence[PositionMlpLayer]
    """First to last; the last has num_heads outputs and no LayerNorm."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Deberta(Encoding):
    """DeBERTa-v2's logarithmic buckets (He et al. 2021) as indices into its relative embeddings.

    A Toeplitz of i32 without a head axis; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "deberta"

    bucket_size: int | None = None
    """position_buckets; even, in [2, 4096], or 0 for distances themselves. Default 256."""
    max_position: int | None = None
    """max_relative_positions, above bucket_size / 2 + 1. Default 512."""
    term: Literal["CONTENT_TO_POSITION", "POSITION_TO_CONTENT", "BUCKET"] | None = None
    """With span = bucket_size (max_position without buckets): clamp(bucket(i - j) + span, 0,
    2 span - 1) (default), the same of -bucket(i - j), or bucket(i - j) itself."""
    edge: Literal["MICROSOFT", "HF"] | None = None
    """Whether distances are clamped to max_position - 1 first (default), or not (transformers)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Swin(Encoding):
    """Swin's relative position bias inside a window (Liu et al. 2021).

    A BlockToeplitz; ask without lengths, or for a window of tokens with
    ``queries``, ``keys``, ``heads``. With ``values="buckets"`` the answer is
    Swin's relative_position_index, i32 without a head axis, and needs neither
    num_heads nor table.
    """

    field: ClassVar[str] = "swin"

    window_height: int
    """Wh, in [1, 256]."""
    window_width: int
    """Ww, in [1, 256]."""
    num_heads: int | None = None
    """Heads of the table, in [1, 65536]."""
    table: Any = None
    """The learned bias, ``[(2 Wh - 1)(2 Ww - 1), num_heads]``; what it may be is said at T5."""
    table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The table's axes: that (default), or the reverse."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SwinV2(Encoding):
    """Swin-V2's continuous position bias (Liu et al. 2022): an MLP of logarithmic coordinates.

    A BlockToeplitz; ask as for Swin.
    """

    field: ClassVar[str] = "swin_v2"

    window_height: int
    """Wh, in [1, 256]."""
    window_width: int
    """Ww, in [1, 256]."""
    num_heads: int
    """In [1, 65536]."""
    pretrained_window_height: int | None = None
    """Height of the window that the model was trained with. Default window_height."""
    pretrained_window_width: int | None = None
    """Default window_width."""
    hidden_weight: Any
    """``[hidden, 2]``, as torch's Linear has it; what a table may be is said at T5."""
    hidden_bias: Any
    """``[hidden]``."""
    output_weight: Any
    """``[num_heads, hidden]``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Beit(Encoding):
    """BEiT's relative position bias (Bao et al. 2021): Swin's, and a class token before the grid.

    A BlockToeplitz with a border; ask as for Swin. ``values="buckets"`` gives
    BEiT's relative_position_index.
    """

    field: ClassVar[str] = "beit"

    window_height: int
    """Rows of patches, in [1, 256]."""
    window_width: int
    """Columns of patches, in [1, 256]."""
    num_heads: int | None = None
    """Heads of the table, in [1, 65536]."""
    table: Any = None
    """``[(2 Wh - 1)(2 Ww - 1) + 3, num_heads]``, the last rows being class to tokens, tokens to
    class, class to itself; what it may be is said at T5."""
    table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The table's axes: that (default), or the reverse."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tupe(Encoding):
    """TUPE (Ke et al. 2020): untied absolute and relative position terms.

    Ask with ``queries`` and ``keys``. The relative term alone is a Toeplitz, with
    reset_class_token a BorderedToeplitz; with the absolute term a dense array.
    """

    field: ClassVar[str] = "tupe"

    num_heads: int
    """In [1, 65536]."""
    relative_table: Any = None
    """``[num_buckets, num_heads]``, with reset_class_token one row more, which stands for
    "other to class"; None is no relative term. What a table may be is said at T5."""
    relative_table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The relative table's axes: that (default), or the reverse."""
    num_buckets: int | None = None
    """Of T5's bidirectional buckets. Default 32."""
    max_distance: int | None = None
    """Default 128."""
    position_table: Any = None
    """``[max positions, d_model]``, with reset_class_token one row more. This and the next four
    are the absolute term, all or none."""
    query_weight: Any = None
    """``[d_model, d_model]``, as torch's Linear has it."""
    query_bias: Any = None
    """``[d_model]``."""
    key_weight: Any = None
    """``[d_model, d_model]``."""
    key_bias: Any = None
    """``[d_model]``."""
    norm_weight: Any = None
    """LayerNorm of the positions, ``[d_model]``; with norm_bias or not at all."""
    norm_bias: Any = None
    """``[d_model]``."""
    norm_eps: float | None = None
    """Default 1e-5."""
    reset_class_token: bool = False
    """Whether what the class token, position 0, gives and gets is untied from positions."""
    position_scale: float | None = None
    """Factor of the absolute term. Default 1 / sqrt(2 d_model / num_heads)."""
