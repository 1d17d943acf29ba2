# SPDX-License-Identifier: Apache-2.0
"""The encodings, one class each, with the fields of their message in the contract.

A class needs nothing but its fields: they are carried over by their names.
A field left None is not sent, and then has the default that the contract gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attnbias._enums import enum_name, set_enum
from attnbias._tables import from_table_ref, to_table_ref
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


def from_spec(spec: service_pb2.TensorSpec) -> Encoding | None:
    """The encoding of a spec that a server made; None for one this package does not know."""
    name = spec.WhichOneof("encoding")
    known = {encoding.field: encoding for encoding in Encoding.__subclasses__()}
    if name not in known:
        return None
    values: dict[str, Any] = {}
    for field, value in getattr(spec, name).ListFields():
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            values[field.name], values[f"{field.name}_layout"] = from_table_ref(value)
        elif field.enum_type is not None:
            values[field.name] = enum_name(field.enum_type, value)
        else:
            values[field.name] = tuple(value) if field.is_repeated else value
    return known[name](**values)


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
    """The learned bias: a numpy array or torch tensor of f64, f32, f16 or bf16, at most 2 MiB;
    the name of a table that the server has mounted (``Client.list_tables``); or "sha256:" and
    the 64 hex digits by which a resolved spec names a table."""
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
