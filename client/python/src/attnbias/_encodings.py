# SPDX-License-Identifier: Apache-2.0
"""The encodings, one class each, with the fields of their message in the contract.

A class needs nothing but its fields: they are carried over by their names.
A field left None is not sent, and then has the default that the contract gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attnbias._checks import set_number
from attnbias._enums import enum_name, set_enum
from attnbias._tables import from_table_ref, to_table_ref
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
        if not field.is_repeated:
            set_number(message, field.name, value, path)
            return
        try:
            getattr(message, field.name).extend(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: got {value!r}: {error}") from error


class Encoding(Fields):
    """An encoding and its hyperparameters; compares and hashes by value."""

    field: ClassVar[str]
    """Its name in the contract's ``TensorSpec``."""
    vectors: ClassVar[bool] = False
    """Whether vectors stand at pairs, as a last axis of columns; not with ``values="buckets"``."""
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
            values[field.name] = tuple(value) if field.is_repeated else value
    return encoding(**values)


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
    """Rows of the table, in [2, 4096]; bidirectional even and at least 4. Default 32."""
    max_distance: int | None = None
    """Distance from which all keys share the last bucket. Default 128."""
    table: Any = None
    """The learned bias: a numpy array or torch tensor of f64, f32, f16 or bf16, at most 2 MiB;
    the name of a table that the server has mounted, or its TableInfo (``Client.list_tables``);
    or "sha256:" and the 64 hex digits by which a TableInfo or a resolved spec names a table."""
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
class LearnedAbsolute(Encoding):
    """Learned absolute positions: row p + offset of a table.

    A table ``[positions, dim]`` with the learned table's columns; ask with
    ``positions`` or ``position_ids``. A position outside it is an OutOfRangeError.
    """

    field: ClassVar[str] = "learned_absolute"

    table: Any
    """[num_positions, dim]: an array or a digest, as T5's."""
    offset: int | None = None
    """Added to every position: 2 for OPT and BART, padding_idx + 1 for fairseq and RoBERTa."""
    padding_idx: int | None = None
    """Row of the table that answers with zeros; not with interpolation. Default none."""
    interpolation: Literal["NONE", "LINEAR", "LINEAR_ALIGN_CORNERS"] | None = None
    """How the table is stretched to interpolated_length rows, in torch's terms mode "linear"
    without or with align_corners. Default not at all."""
    interpolated_length: int | None = None
    """Rows after interpolation, in [1, 2^20]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shaw(Encoding):
    """A learned vector for every relative position (Shaw et al. 2018), of keys or of values.

    ``vector[i, j] = table[clip(j - i, -left, right) + left]``, a Toeplitz over
    vectors; ask with ``queries`` and ``keys``. With ``values="buckets"`` the answer
    is the indices, i32, and needs no table.
    """

    field: ClassVar[str] = "shaw"
    vectors: ClassVar[bool] = True

    left: int
    """Farthest relative position to the left with a vector of its own, in [0, 2^30)."""
    right: int
    """The same to the right; the paper's k is both."""
    table: Any = None
    """[left + right + 1, dim], or [num_heads, left + right + 1, dim] where heads differ: an
    array or a digest, as T5's."""
    beyond: Literal["CLIP", "REFUSE"] | None = None
    """Whether what is farther has the farthest vector (default) or is an OutOfRangeError."""
    sign: Literal["KEY_MINUS_QUERY", "QUERY_MINUS_KEY"] | None = None
    """What the table counts: j - i (default; the paper), or i - j (BERT's relative_key)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TransformerXL(Encoding):
    """Transformer-XL's R (Dai et al. 2019): the sinusoid of the distance i - j.

    Sines before cosines; zero for keys to the right of the query. A Toeplitz over
    vectors without a head axis; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "transformer_xl"
    vectors: ClassVar[bool] = True

    dim: int
    """d_model, even, in [2, 65536]."""
    base: float | None = None
    """Column pair k turns by base^(-2k/dim) radians a position; in [1, 1e18]. Default 10000."""
    clamp_len: int | None = None
    """Larger distances become this one. Default: not clamped."""


@dataclass(frozen=True, kw_only=True, eq=False)
class XLNet(Encoding):
    """XLNet's relative positions (Yang et al. 2019): the sinusoid of the signed distance i - j.

    Sines before cosines. A Toeplitz over vectors without a head axis; ask with
    ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "xlnet"
    vectors: ClassVar[bool] = True

    dim: int
    """d_model, even, in [2, 65536]."""
    base: float | None = None
    """As TransformerXL's. Default 10000."""
    clamp_len: int | None = None
    """Distances are clamped to [-clamp_len, clamp_len]. Default: not clamped."""
    attn_type: Literal["BIDIRECTIONAL", "UNIDIRECTIONAL"] | None = None
    """UNIDIRECTIONAL ("uni") has zero vectors for keys to the right. Default BIDIRECTIONAL."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Conformer(Encoding):
    """The relative positions of Conformer, as ESPnet and wav2vec 2.0 have them.

    The sinusoid of the signed distance i - j, interleaved. A Toeplitz over vectors
    without a head axis; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "conformer"
    vectors: ClassVar[bool] = True

    dim: int
    """Even, in [2, 65536]."""
    base: float | None = None
    """As TransformerXL's. Default 10000."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SymmetricSinusoidal(Encoding):
    """The sinusoid of abs(i - j): relative, without direction.

    A Toeplitz over vectors without a head axis; ask with ``queries`` and ``keys``.
    """

    field: ClassVar[str] = "symmetric_sinusoidal"
    vectors: ClassVar[bool] = True

    dim: int
    """Even, in [2, 65536]."""
    base: float | None = None
    """As TransformerXL's. Default 10000."""
    layout: Literal["INTERLEAVED", "CONCATENATED"] | None = None
    """Order of sines and cosines: s0 c0 s1 c1 ... (default), or s0 s1 ... c0 c1 ..."""


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
    bucket_rule: Literal["EXACT", "FLOAT32_LOG"] | None = None
    """As T5's. transformers computes FLOAT32_LOG."""


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
    """Height of the window that the model was trained with; None for transformers' 0. Default
    window_height."""
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
    """``[num_buckets, num_heads]``; with reset_class_token one more row, "other to class".
    None leaves the relative term out. What a table may be is said at T5."""
    relative_table_layout: Literal["BUCKETS_HEADS", "HEADS_BUCKETS"] | None = None
    """The relative table's axes: that (default), or the reverse."""
    num_buckets: int | None = None
    """Of T5's bidirectional buckets. Default 32."""
    max_distance: int | None = None
    """Default 128."""
    position_table: Any = None
    """``[max positions, d_model]``; with reset_class_token one more row. This and the next four
    fields are the absolute term, all or none."""
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
    """Whether the class token, position 0, has numbers of its own, untied from positions."""
    position_scale: float | None = None
    """Factor of the absolute term. Default 1 / sqrt(2 d_model / num_heads)."""


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
        Literal[
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
        | None
    ) = None
    """How frequencies are rescaled; AXIAL is DEFAULT with mrope_order AXIAL, two equal sections
    unless mrope_section says otherwise."""
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
    """A peer's own frequencies in place of the computed, one for each pair: rope_type is DEFAULT
    then, without rope_theta, and an attention factor goes by the request's scale."""


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
    axis_lengths: Sequence[int] | None = None
    """The length of each axis, where positions are fractions of it (DETR): position p of an axis of
    length L counts as ``(p + axis_offset) / (L + axis_eps) * axis_scale``. Default: as p."""
    axis_scale: float | None = None
    """Only with axis_lengths. In [1e-3, 1e3]. Default 2 pi, as a double."""
    axis_eps: float | None = None
    """Only with axis_lengths. In [0, 1]. Default 1e-6."""
    axis_offset: float | None = None
    """Only with axis_lengths. A multiple of 0.5: -0.5 in Deformable DETR. Default 0."""
