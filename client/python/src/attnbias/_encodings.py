# SPDX-License-Identifier: Apache-2.0
"""The encodings, one class each, with the fields of their message in the contract.

A class needs nothing but its fields: they are carried over by their names. What they mean stands
in its docstring, where ``help`` shows it.

A field left None is not sent, and then has the default that the contract gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, overload

import numpy.typing as npt
from typing_extensions import TypeVar

from attnbias._checks import set_number
from attnbias._enums import enum_name, set_enum
from attnbias._generated import is_repeated
from attnbias._grid import BlockToeplitz, BorderedToeplitz
from attnbias._results import RotaryTables, XposTables
from attnbias._shown import Shown
from attnbias._tables import from_table_ref, to_table_ref
from attnbias._tensors import KeyRow, Toeplitz
from attnbias.v1 import options_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

    from attnbias._choices import (
        AlibiVariant,
        AnglePrecision,
        BeyondReach,
        BucketRule,
        DebertaEdge,
        DebertaTerm,
        Interpolation,
        KerpleKernel,
        MropeOrder,
        MultiAxisLayout,
        RelativeSign,
        RopeType,
        RotaryLayout,
        SinesAndCosines,
        SinusoidalLayout,
        TableLayout,
        XlnetAttention,
    )


Compact = TypeVar("Compact", covariant=True, default=Any)  # noqa: PLC0105  # a kind of result
"""What ``Client.get`` gives where no other form is asked for."""


class Fields(Shown):
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
        if not is_repeated(field):
            set_number(message, field.name, value, path)
            return
        try:
            getattr(message, field.name).extend(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: got {value!r}: {error}") from error


class Encoding(Fields, Generic[Compact]):
    """An encoding and its hyperparameters; compares and hashes by value.

    To type checkers ``Encoding[Toeplitz]`` is one whose compact form that is.
    """

    field: ClassVar[str]
    """Its name in the contract's ``TensorSpec``."""
    vectors: ClassVar[bool] = False
    """Whether vectors stand at pairs, as a last axis of columns; not with ``values="buckets"``."""
    extent: ClassVar[str]
    """What it takes, by the contract: "table", "pair" or "grid"."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
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


def from_spec(spec: service_pb2.TensorSpec) -> Encoding | None:
    """The encoding of a spec that a server made; None for one this package does not know."""
    name = spec.WhichOneof("encoding")
    known = {encoding.field: encoding for encoding in Encoding.__subclasses__()}
    if name not in known:
        return None
    encoding = known[name]
    values: dict[str, Any] = {}
    for field, value in getattr(spec, name).ListFields():
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            values[field.name], layout = from_table_ref(value)
            # Only some tables may be given transposed.
            if hasattr(encoding, f"{field.name}_layout"):
                values[f"{field.name}_layout"] = layout
        elif field.enum_type is not None:
            values[field.name] = enum_name(field.enum_type, value)
        else:
            values[field.name] = tuple(value) if is_repeated(field) else value
    return encoding(**values)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sinusoidal(Encoding[npt.NDArray[Any]]):
    """Sinusoidal absolute positions (Vaswani et al. 2017, section 3.5).

    A table ``[positions, dim]``; ask with ``positions`` or ``position_ids``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: columns, in [1, 65536].
        base: column pair i turns by base^(-2i/dim) radians a position; in [1, 1e18]. Default 10000.
        layout: "interleaved" (default) is s0 c0 s1 c1 ..., "concatenated" s0 s1 ... c0 c1 ...,
            "tensor2tensor" the same with timescales of its own and a zero column for an odd dim.
        min_timescale: only for "tensor2tensor": the factor in front of the inverse timescales, in
            [1, 1e6]. Default 1. A timescale is not a frequency.
        max_timescale: only for "tensor2tensor", in [min_timescale, 1e18]. Default 10000. For a
            lowest frequency f it is 1 / f.
    """

    field: ClassVar[str] = "sinusoidal"

    dim: int
    base: float | None = None
    layout: SinusoidalLayout | None = None
    min_timescale: float | None = None
    max_timescale: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class T5(Encoding[Toeplitz]):
    """T5's bucketed relative position bias (Raffel et al. 2020).

    ``bias[h, i, j] = table[bucket(j - i), h]``, a Toeplitz; ask with ``queries``
    and ``keys``. With ``values="buckets"`` the answer is the bucket indices, i32
    without a head axis, and needs neither num_heads nor table.

    The framework's bits.

    Attributes:
        bidirectional: True for an encoder, False for a decoder.
        num_heads: heads of the table, in [1, 65536]; None takes their number.
        num_buckets: rows of the table, in [2, 4096]; bidirectional even and at least 4. Default 32.
        max_distance: where buckets stop growing with the logarithm of the distance: all keys at
            least this far are in the last bucket, and so are some nearer ones. Default 128.
        table: the learned bias: a numpy array or torch tensor of f64, f32, f16 or bf16, at most 2
            MiB; the name of a table that the server has mounted, or its TableInfo
            (``Client.list_tables``); or "sha256:" and the 64 hex digits by which a TableInfo or a
            resolved spec names a table.
        table_layout: the table's axes: "buckets_heads" (default; transformers) is [num_buckets,
            num_heads], "heads_buckets" (T5X) the reverse.
        bucket_rule: how logarithmic buckets are rounded: "exact" (default) is algebraically,
            "float32_log" as torch does on a CPU.
    """

    field: ClassVar[str] = "t5"

    bidirectional: bool
    num_heads: int | None = None
    num_buckets: int | None = None
    max_distance: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None
    bucket_rule: BucketRule | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ALiBi(Encoding[Compact]):
    """Attention with linear biases (Press et al. 2022).

    Ask with ``queries`` and ``keys``. A Toeplitz for the variants "symmetric" and
    "causal", a KeyRow for "key_from_start" and "key_from_end".

    With the framework's slopes, the framework's bits.

    Attributes:
        num_heads: number of slopes, in [1, 65536]; None takes that of slopes.
        alibi_bias_max: exponent of the last slope, in (0, 1024]; not used with slopes. Default 8.
        slopes: a peer's own slopes, num_heads of them, in place of the computed.
        variant: what a slope s multiplies: "symmetric" (default) is -s|i - j|, "causal" -s max(i -
            j, 0), "key_from_start" s j (BLOOM, Falcon), "key_from_end" s (j - (key_length - 1))
            (MPT).
    """

    field: ClassVar[str] = "alibi"

    num_heads: int | None = None
    alibi_bias_max: float | None = None
    slopes: Sequence[float] | None = None
    variant: AlibiVariant | None = None

    if TYPE_CHECKING:  # the variant says which compact form it is

        @overload
        def __init__(
            self: ALiBi[Toeplitz],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: Literal["symmetric", "causal", "SYMMETRIC", "CAUSAL"] | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self: ALiBi[KeyRow],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: Literal["key_from_start", "key_from_end", "KEY_FROM_START", "KEY_FROM_END"],
        ) -> None: ...
        @overload
        def __init__(
            self: ALiBi[Toeplitz | KeyRow],
            *,
            num_heads: int | None = None,
            alibi_bias_max: float | None = None,
            slopes: Sequence[float] | None = None,
            variant: AlibiVariant | None = None,
        ) -> None: ...
        def __init__(self, **fields: Any) -> None: ...


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LearnedAbsolute(Encoding[npt.NDArray[Any]]):
    """Learned absolute positions: row p + offset of a table.

    A table ``[positions, dim]`` with the learned table's columns; ask with
    ``positions`` or ``position_ids``. A position outside it is an OutOfRangeError.

    Attributes:
        table: [num_positions, dim]: an array or a digest, as T5's.
        offset: added to every position: 2 for OPT and BART, padding_idx + 1 for fairseq and
            RoBERTa.
        padding_idx: row of the table that answers with zeros; not with interpolation. Default none.
        interpolation: how the table is stretched to interpolated_length rows: "none" (default),
            "linear" or "linear_align_corners", torch's mode "linear" without or with align_corners.
        interpolated_length: rows after interpolation, in [1, 2^20].
    """

    field: ClassVar[str] = "learned_absolute"

    table: Any
    offset: int | None = None
    padding_idx: int | None = None
    interpolation: Interpolation | None = None
    interpolated_length: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Shaw(Encoding[Toeplitz]):
    """A learned vector for every relative position (Shaw et al. 2018), of keys or of values.

    ``vector[i, j] = table[clip(j - i, -left, right) + left]``, a Toeplitz over
    vectors; ask with ``queries`` and ``keys``. With ``values="buckets"`` the answer
    is the indices, i32, and needs no table.

    Attributes:
        left: farthest relative position to the left with a vector of its own, in [0, 2^30).
        right: the same to the right; the paper's k is both.
        table: [left + right + 1, dim], or [num_heads, left + right + 1, dim] where heads differ: an
            array or a digest, as T5's.
        beyond: what is farther: "clip" (default) gives it the farthest vector, "refuse" makes it an
            OutOfRangeError.
        sign: what the table counts: "key_minus_query" (default; the paper) is j - i,
            "query_minus_key" (BERT's relative_key) i - j.
    """

    field: ClassVar[str] = "shaw"
    vectors: ClassVar[bool] = True

    left: int
    right: int
    table: Any = None
    beyond: BeyondReach | None = None
    sign: RelativeSign | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TransformerXL(Encoding[Toeplitz]):
    """Transformer-XL's R (Dai et al. 2019): the sinusoid of the distance i - j.

    Sines before cosines; zero for keys to the right of the query. A Toeplitz over
    vectors without a head axis; ask with ``queries`` and ``keys``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: d_model, even, in [2, 65536].
        base: column pair k turns by base^(-2k/dim) radians a position; in [1, 1e18]. Default 10000.
        clamp_len: larger distances become this one. Default: not clamped.
    """

    field: ClassVar[str] = "transformer_xl"
    vectors: ClassVar[bool] = True

    dim: int
    base: float | None = None
    clamp_len: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class XLNet(Encoding[Toeplitz]):
    """XLNet's relative positions (Yang et al. 2019): the sinusoid of the signed distance i - j.

    Sines before cosines. A Toeplitz over vectors without a head axis; ask with
    ``queries`` and ``keys``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: d_model, even, in [2, 65536].
        base: as TransformerXL's. Default 10000.
        clamp_len: distances are clamped to [-clamp_len, clamp_len]. Default: not clamped.
        attn_type: "bidirectional" (default), or "unidirectional" ("uni"), which has zero vectors
            for keys to the right.
    """

    field: ClassVar[str] = "xlnet"
    vectors: ClassVar[bool] = True

    dim: int
    base: float | None = None
    clamp_len: int | None = None
    attn_type: XlnetAttention | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Conformer(Encoding[Toeplitz]):
    """The relative positions of Conformer, as ESPnet and wav2vec 2.0 have them.

    The sinusoid of the signed distance i - j, interleaved. A Toeplitz over vectors
    without a head axis; ask with ``queries`` and ``keys``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: even, in [2, 65536].
        base: as TransformerXL's. Default 10000.
    """

    field: ClassVar[str] = "conformer"
    vectors: ClassVar[bool] = True

    dim: int
    base: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SymmetricSinusoidal(Encoding[Toeplitz]):
    """The sinusoid of abs(i - j): relative, without direction.

    A Toeplitz over vectors without a head axis; ask with ``queries`` and ``keys``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: even, in [2, 65536].
        base: as TransformerXL's. Default 10000.
        layout: "interleaved" (default) is s0 c0 s1 c1 ..., "concatenated" s0 s1 ... c0 c1 ...
    """

    field: ClassVar[str] = "symmetric_sinusoidal"
    vectors: ClassVar[bool] = True

    dim: int
    base: float | None = None
    layout: SinesAndCosines | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LearnedRelative(Encoding[Toeplitz]):
    """A learned scalar for every relative position.

    ``bias[h, i, j] = table[index(j - i), h]``, a Toeplitz; ask with ``queries``
    and ``keys``. ``values="buckets"`` gives the indices, i32 without a head axis,
    and needs neither num_heads nor table.

    Attributes:
        right: farthest relative position to the right with a row of its own, in [0, 2^30).
        left: the same to the left; required unless symmetric, and then not allowed.
        symmetric: whether the sign of j - i is dropped.
        num_heads: heads of the answer, in [1, 65536]; None takes those of the table.
        table: ``[left + right + 1, num_heads]``, or ``[right + 1, num_heads]`` when symmetric; or
            with one column that all heads share. What a table may be is said at T5.
        table_layout: the table's axes: "buckets_heads" (default) is that, "heads_buckets" the
            reverse.
        beyond: what is farther: "clip" (default) gives it the farthest row, "refuse" makes it an
            OutOfRangeError.
    """

    field: ClassVar[str] = "learned_relative"

    right: int
    left: int | None = None
    symmetric: bool | None = None
    num_heads: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None
    beyond: BeyondReach | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Kerple(Encoding[Toeplitz]):
    """KERPLE (Chi et al. 2022), a Toeplitz; ask with ``queries`` and ``keys``.

    "log": ``-p ln(1 + a |i - j|)``. "power": ``-a |i - j|^p``.

    Attributes:
        num_heads: in [1, 65536]; None takes the length of p or a, where it is more than one.
        kernel: "log" or "power".
        p: one for each head, or one for all; in [1e-30, 1e30], of "power" at most 2.
        a: one for each head, or one for all; in [1e-30, 1e30].
    """

    field: ClassVar[str] = "kerple"

    num_heads: int | None = None
    kernel: KerpleKernel
    p: Sequence[float]
    a: Sequence[float]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sandwich(Encoding[Toeplitz]):
    """Sandwich (Chi et al. 2023), a Toeplitz; ask with ``queries`` and ``keys``.

    ``bias[h, i, j] = H / (8 (h + 1)) sum over k < dim / 2 of cos((i - j) base^(-2k/dim))``.

    Attributes:
        num_heads: H, in [1, 65536].
        dim: columns of the sinusoid, even, in [2, 65536]. Default 128.
        base: in [1, 1e18]. Default 10000.
    """

    field: ClassVar[str] = "sandwich"

    num_heads: int
    dim: int | None = None
    base: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fire(Encoding[npt.NDArray[Any]]):
    """FIRE (Li et al. 2023): an MLP of logarithmic distances, normalised row by row.

    ``bias[h, i, j] = MLP(ln(c |i - j| + 1) / (ln(c max(i, threshold) + 1) + eps))_h``: dense,
    there being no diagonals; ask with ``queries`` and ``keys``.

    Attributes:
        num_heads: in [1, 65536]; None takes the rows of output_weight.
        c: in [1e-30, 1e30]. Default 0.1.
        threshold: positions up to which rows share the normaliser: ``abs(L_multiplier * init_L)``,
            in [1e-30, 2^40]. Default 512.
        eps: added to the normaliser, in [0, 1]. Default 1e-6.
        hidden_weight: ``[hidden, 1]``, as torch's Linear has it; what a table may be is said at T5.
        hidden_bias: ``[hidden]``; zeros where None.
        output_weight: ``[num_heads, hidden]``.
        output_bias: ``[num_heads]``; zeros where None.
    """

    field: ClassVar[str] = "fire"

    num_heads: int | None = None
    c: float | None = None
    threshold: float | None = None
    eps: float | None = None
    hidden_weight: Any
    hidden_bias: Any = None
    output_weight: Any
    output_bias: Any = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PositionMlpLayer(Fields):
    """One linear layer of a DynamicPositionBias, as torch's Linear has it.

    Attributes:
        weight: ``[out, in]``; what a table may be is said at T5.
        bias: ``[out]``; zeros where None.
        norm_weight: LayerNorm after it, ``[out]``; with norm_bias or not at all.
        norm_bias: ``[out]``.
    """

    weight: Any
    bias: Any = None
    norm_weight: Any = None
    norm_bias: Any = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DynamicPositionBias(Encoding[Toeplitz]):
    """An MLP of the signed distance i - j, with SiLU between layers (x-transformers).

    A Toeplitz; ask with ``queries`` and ``keys``.

    Attributes:
        num_heads: in [1, 65536]; None takes the last layer's outputs.
        log_distance: whether the distance d enters as sign(d) ln(abs(d) + 1).
        layers: first to last; the last has num_heads outputs and no LayerNorm.
    """

    field: ClassVar[str] = "dynamic_position_bias"

    num_heads: int | None = None
    log_distance: bool | None = None
    layers: Sequence[PositionMlpLayer]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Deberta(Encoding[Toeplitz]):
    """DeBERTa-v2's logarithmic buckets (He et al. 2021) as indices into its relative embeddings.

    A Toeplitz of i32 without a head axis; ask with ``queries`` and ``keys``.

    Attributes:
        bucket_size: position_buckets; even, in [2, 4096], or 0 for distances themselves. Default
            256.
        max_position: max_relative_positions, above bucket_size / 2 + 1. Default 512.
        term: with span = bucket_size (max_position without buckets): "content_to_position"
            (default) is clamp(bucket(i - j) + span, 0, 2 span - 1), "position_to_content" the same
            of -bucket(i - j), "bucket" is bucket(i - j) itself.
        edge: "microsoft" (default) clamps distances to max_position - 1 first, "hf" (transformers)
            does not.
        bucket_rule: as T5's: "exact" (default), or "float32_log", which transformers computes.
    """

    field: ClassVar[str] = "deberta"

    bucket_size: int | None = None
    max_position: int | None = None
    term: DebertaTerm | None = None
    edge: DebertaEdge | None = None
    bucket_rule: BucketRule | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Swin(Encoding[BlockToeplitz]):
    """Swin's relative position bias inside a window (Liu et al. 2021).

    A BlockToeplitz; ask without lengths, or for a window of tokens with
    ``queries``, ``keys``, ``heads``. With ``values="buckets"`` the answer is
    Swin's relative_position_index, i32 without a head axis, and needs neither
    num_heads nor table.

    Attributes:
        window_height: Wh, in [1, 256].
        window_width: Ww, in [1, 256].
        num_heads: heads of the table, in [1, 65536]; None takes their number.
        table: the learned bias, ``[(2 Wh - 1)(2 Ww - 1), num_heads]``; what it may be is said at
            T5.
        table_layout: the table's axes: "buckets_heads" (default) is that, "heads_buckets" the
            reverse.
    """

    field: ClassVar[str] = "swin"

    window_height: int
    window_width: int
    num_heads: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SwinV2(Encoding[BlockToeplitz]):
    """Swin-V2's continuous position bias (Liu et al. 2022): an MLP of logarithmic coordinates.

    A BlockToeplitz; ask as for Swin.

    Attributes:
        window_height: Wh, in [1, 256].
        window_width: Ww, in [1, 256].
        num_heads: in [1, 65536]; None takes the rows of output_weight.
        pretrained_window_height: height of the window that the model was trained with; None for
            transformers' 0. Default window_height.
        pretrained_window_width: its width. Default window_width.
        hidden_weight: ``[hidden, 2]``, as torch's Linear has it; what a table may be is said at T5.
        hidden_bias: ``[hidden]``.
        output_weight: ``[num_heads, hidden]``.
    """

    field: ClassVar[str] = "swin_v2"

    window_height: int
    window_width: int
    num_heads: int | None = None
    pretrained_window_height: int | None = None
    pretrained_window_width: int | None = None
    hidden_weight: Any
    hidden_bias: Any
    output_weight: Any


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Beit(Encoding[BlockToeplitz]):
    """BEiT's relative position bias (Bao et al. 2021): Swin's, and a class token before the grid.

    A BlockToeplitz with a border; ask as for Swin. ``values="buckets"`` gives
    BEiT's relative_position_index.

    Attributes:
        window_height: rows of patches, in [1, 256].
        window_width: columns of patches, in [1, 256].
        num_heads: heads of the table, in [1, 65536]; None takes their number.
        table: ``[(2 Wh - 1)(2 Ww - 1) + 3, num_heads]``, the last rows being class to tokens,
            tokens to class, class to itself; what it may be is said at T5.
        table_layout: the table's axes: "buckets_heads" (default) is that, "heads_buckets" the
            reverse.
    """

    field: ClassVar[str] = "beit"

    window_height: int
    window_width: int
    num_heads: int | None = None
    table: Any = None
    table_layout: TableLayout | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tupe(Encoding[Toeplitz | BorderedToeplitz | npt.NDArray[Any]]):
    """TUPE (Ke et al. 2020): untied absolute and relative position terms.

    Ask with ``queries`` and ``keys``. The relative term alone is a Toeplitz, with
    reset_class_token a BorderedToeplitz; with the absolute term a dense array.

    Attributes:
        num_heads: in [1, 65536]; None takes the heads of relative_table.
        relative_table: ``[num_buckets, num_heads]``; with reset_class_token one more row, "other to
            class". None leaves the relative term out. What a table may be is said at T5.
        relative_table_layout: the relative table's axes: "buckets_heads" (default) is that,
            "heads_buckets" the reverse.
        num_buckets: of T5's bidirectional buckets. Default 32.
        max_distance: the same. Default 128.
        position_table: ``[max positions, d_model]``; with reset_class_token one more row. This and
            the next four fields are the absolute term, all or none.
        query_weight: ``[d_model, d_model]``, as torch's Linear has it.
        query_bias: ``[d_model]``.
        key_weight: ``[d_model, d_model]``.
        key_bias: ``[d_model]``.
        norm_weight: LayerNorm of the positions, ``[d_model]``; with norm_bias or not at all.
        norm_bias: ``[d_model]``.
        norm_eps: of the LayerNorm. Default 1e-5.
        reset_class_token: whether the class token, position 0, has numbers of its own, untied from
            positions.
        position_scale: factor of the absolute term. Default 1 / sqrt(2 d_model / num_heads).
    """

    field: ClassVar[str] = "tupe"

    num_heads: int | None = None
    relative_table: Any = None
    relative_table_layout: TableLayout | None = None
    num_buckets: int | None = None
    max_distance: int | None = None
    position_table: Any = None
    query_weight: Any = None
    query_bias: Any = None
    key_weight: Any = None
    key_bias: Any = None
    norm_weight: Any = None
    norm_bias: Any = None
    norm_eps: float | None = None
    reset_class_token: bool = False
    position_scale: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Rotary(Encoding[RotaryTables]):
    """Rotary position embedding (Su et al. 2021) and its length extensions.

    Two tables, ``cos`` and ``sin``, each ``[positions, columns]``; ask with
    ``positions`` or ``position_ids``, with one list per axis where mrope_section
    is given. Names are those of transformers' rope_parameters; a field that
    rope_type does not use must be left None.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        head_dim: dimension of a head, even, in [2, 65536].
        rope_theta: pair m turns by rope_theta^(-2m/dim) radians a position; in [1, 1e18]. Default
            10000.
        partial_rotary_factor: part of head_dim that turns, in (0, 1]. Default 1.
        layout: columns: "half" (default; Llama, GPT-NeoX) is f0 f1 ... f0 f1 ..., "interleaved"
            (GPT-J) f0 f0 f1 f1 ..., "compact" f0 f1 ... once.
        rope_type: how frequencies are rescaled: "default", "linear", "dynamic", "ntk", "yarn",
            "longrope", "llama3", "proportional" (Gemma); "axial" is "default" with mrope_order
            "axial", two equal sections unless mrope_section says otherwise.
        factor: the stretch, in [1, 1e6]; needed by "linear", "dynamic", "ntk", "yarn" and "llama3".
        max_position_embeddings: "dynamic": the length trained for. "longrope": the extended length,
            where neither factor nor attention_factor is given.
        original_max_position_embeddings: "yarn", "longrope", "llama3": the length before extension.
        sequence_length: "dynamic", "longrope": the length that the table is for; it selects base or
            factors.
        beta_fast: "yarn": rotations from which a pair is kept. Default 32.
        beta_slow: "yarn": rotations up to which a pair is stretched. Default 1.
        mscale: "yarn": with mscale_all_dim, the attention factor is the ratio of two temperatures.
        mscale_all_dim: "yarn": see mscale; both or neither.
        truncate: "yarn": whether the correction range is rounded outwards to whole pairs. Default
            True.
        attention_factor: "yarn", "longrope": in place of the computed factor of both tables.
        short_factor: "longrope": divisors of the frequencies up to the original length, one for
            each pair.
        long_factor: "longrope": the same beyond the original length.
        low_freq_factor: "llama3": wavelengths above original length / low_freq_factor are
            stretched.
        high_freq_factor: "llama3": wavelengths below original length / high_freq_factor are kept.
        mrope_section: pairs of each axis of position; they add up to all pairs.
        mrope_order: how pairs are dealt out: "chunked" (default; Qwen2-VL), in turn as
            "interleaved" (Qwen3-VL), or "axial", in chunks that each begin at the highest frequency
            (vision transformers).
        angle: "exact" (default) takes angles as real numbers, "float32" as frameworks have them:
            the float32 product of position and float32 frequency.
        inverse_frequencies: a peer's own frequencies in place of the computed, one for each pair:
            rope_type is "default" then, without rope_theta, and an attention factor goes by the
            request's scale.
    """

    field: ClassVar[str] = "rotary"

    head_dim: int
    rope_theta: float | None = None
    partial_rotary_factor: float | None = None
    layout: RotaryLayout | None = None
    rope_type: RopeType | None = None
    factor: float | None = None
    max_position_embeddings: int | None = None
    original_max_position_embeddings: int | None = None
    sequence_length: int | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool | None = None
    attention_factor: float | None = None
    short_factor: Sequence[float] | None = None
    long_factor: Sequence[float] | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    mrope_section: Sequence[int] | None = None
    mrope_order: MropeOrder | None = None
    angle: AnglePrecision | None = None
    inverse_frequencies: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Xpos(Encoding[XposTables]):
    """xPos (Sun et al. 2022): rotary positions with a decay.

    Three tables, ``cos``, ``sin`` and ``scale``, each ``[positions, columns]``;
    queries are multiplied by scale, keys divided by it. Ask with ``positions`` or
    ``position_ids``.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: columns of the layouts that have every pair twice; even, in [2, 65536].
        sequence_length: length that the table is for; scale is 1 at half of it, rounded down.
        rope_theta: pair m turns by rope_theta^(-2m/dim) radians a position; in [1, 1e18]. Default
            10000.
        scale_base: positions over which scale changes by its base; in [1, 1e9]. Default 512.
        gamma: base of pair m: (2m/dim + gamma) / (1 + gamma); in (0, 1e6]. Default 0.4.
        layout: columns: "half" (default), "interleaved" (x-transformers, torchscale) or "compact",
            as in Rotary.
    """

    field: ClassVar[str] = "xpos"

    dim: int
    sequence_length: int
    rope_theta: float | None = None
    scale_base: float | None = None
    gamma: float | None = None
    layout: RotaryLayout | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MultiAxisSinusoidal(Encoding[npt.NDArray[Any]]):
    """Sinusoids of positions in several dimensions.

    A table ``[positions, dim]``; ask with ``position_ids``, one list per axis.

    Correctly rounded, and therefore not the framework's bits.

    Attributes:
        dim: columns, in [2 num_axes, 65536].
        num_axes: in [1, 4].
        layout: columns of an axis: "tensor2tensor", what is left over being zero, or dim / num_axes
            of them: "interleaved" (DETR) is s0 c0 s1 c1 ..., "concatenated" (MAE) s0 s1 ... c0 c1
            ...
        base: as in Sinusoidal, of an axis' columns. Default 10000.
        min_timescale: only for "tensor2tensor", as in :class:`Sinusoidal`. Default 1.
        max_timescale: only for "tensor2tensor", as in :class:`Sinusoidal`. Default 10000.
        axis_lengths: the length of each axis, where positions are fractions of it (DETR): position
            p of an axis of length L counts as ``(p + axis_offset) / (L + axis_eps) * axis_scale``.
            Default: as p.
        axis_scale: only with axis_lengths. In [1e-3, 1e3]. Default 2 pi, as a double.
        axis_eps: only with axis_lengths. In [0, 1]. Default 1e-6.
        axis_offset: only with axis_lengths. A multiple of 0.5: -0.5 in Deformable DETR. Default 0.
    """

    field: ClassVar[str] = "multi_axis_sinusoidal"

    dim: int
    num_axes: int
    layout: MultiAxisLayout
    base: float | None = None
    min_timescale: float | None = None
    max_timescale: float | None = None
    axis_lengths: Sequence[int] | None = None
    axis_scale: float | None = None
    axis_eps: float | None = None
    axis_offset: float | None = None
