# SPDX-License-Identifier: Apache-2.0
"""The contract's messages as dataclasses: base classes for the generated classes.

A field that is None is not sent and has the contract's default. An attribute sets the field with
the same name; a learned table, given as an array or by the name under which it is mounted, becomes
a TableRef.
"""

from __future__ import annotations

import hashlib
import re
import reprlib
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Generic, Self, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from typing_extensions import TypeVar

from attnbias._arrays.convert import BFLOAT16, is_torch_tensor, to_numpy
from attnbias._checks import bounds, require_instance
from attnbias._errors import Error
from attnbias._generated import is_repeated
from attnbias._spec.enums import enum_name, set_enum, to_data_type
from attnbias.v1 import encodings_pb2, options_pb2, tensor_pb2


class _Brief(reprlib.Repr):
    """Truncates long values, and shows an array as its dtype and shape."""

    def repr1(self, x: Any, level: int) -> str:
        if getattr(x, "shape", ()) and hasattr(x, "dtype"):
            return f"{x.dtype}{list(x.shape)}"
        return super().repr1(x, level)


_BRIEF: Final = _Brief()
_BRIEF.maxstring = 100
_BRIEF.maxother = 400  # repr width of an instance nested in another


class ReprMixin:
    """A dataclass whose repr omits None and defaults."""

    def __repr__(self) -> str:
        given = [
            f"{field.name}={_BRIEF.repr(value)}"
            for field in fields(cast("Any", self))
            if (value := getattr(self, field.name)) is not None and value is not field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"


_MOST_BYTES: Final = 2 << 20  # maximum bytes of a table in a request, set by the contract
_DIGEST_PREFIX: Final = "sha256:"
_DIGEST: Final = re.compile(f"{_DIGEST_PREFIX}([0-9a-f]{{64}})")


@dataclass(frozen=True)
class TableInfo:
    """A learned table that a server has mounted.

    Attributes:
        name: a value for an encoding's ``table``; the TableInfo itself is also accepted, and
            selects the table by its digest.
        sha256: selects the same values on any server: ``table="sha256:" + sha256``.
        source: the file and tensor that the values came from.
        encoding: the encoding that the table was trained for, which refers to the table by name;
            None unless the table is from a checkpoint and its use is known.
    """

    name: str
    sha256: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    source: str
    encoding: Encoding | None


def to_table_ref(table: Any, layout: str | None, name: str) -> tensor_pb2.TableRef:
    """Makes a TableRef from an array, or from a mounted table's name, digest or TableInfo.

    Errors refer to the field as ``name``.
    """
    reference = tensor_pb2.TableRef()
    if layout is not None:
        set_enum(reference, "layout", layout, f"{name}_layout")
    if isinstance(table, TableInfo):
        reference.sha256 = table.sha256
    elif isinstance(table, str) and table.startswith(_DIGEST_PREFIX):
        match = _DIGEST.fullmatch(table)
        if match is None:
            raise ValueError(f"{name}: got {table!r}, want 64 hex digits after {_DIGEST_PREFIX!r}")
        reference.sha256 = match[1]
    elif isinstance(table, str):
        reference.name = table
    else:
        reference.inline_table.CopyFrom(_inline(table, name))
    return reference


def digest_of(table: npt.NDArray[Any]) -> str:
    """Returns a server's digest of a two-axis table, as in ``TableInfo.sha256``."""
    rows, columns = table.shape
    domain = b"attnbias.table"
    head = struct.pack("<I", len(domain)) + domain + struct.pack("<I", 1)
    for field, value in enumerate((to_data_type(table.dtype), rows, columns, table.nbytes), 1):
        head += struct.pack("<IQ", field, value)
    return hashlib.sha256(head + _little_endian(table).tobytes()).hexdigest()


def _inline(table: Any, name: str) -> tensor_pb2.InlineTable:
    array = to_floats(table, name)
    if array.nbytes > _MOST_BYTES:
        raise ValueError(
            f"{name}: got {array.nbytes} bytes, want at most {_MOST_BYTES} in a request; "
            "have the server mount larger tables (--tables)"
        )
    data = _little_endian(array).tobytes()
    return tensor_pb2.InlineTable(data_type=to_data_type(array.dtype), shape=array.shape, data=data)


def to_floats(numbers: Any, name: str) -> npt.NDArray[Any]:
    """Returns an array or torch tensor as a NumPy array; rejects elements that are not floats."""
    try:
        array = to_numpy(numbers.cpu()) if is_torch_tensor(numbers) else np.asarray(numbers)
    except ValueError as error:
        got = _BRIEF.repr(numbers)
        raise ValueError(f"{name}: got {got}, want rows of equal length") from error
    if array.dtype != BFLOAT16 and array.dtype.kind != "f":
        raise TypeError(f"{name}: got an array of {array.dtype}, want f64, f32, f16 or bf16")
    return array


def _little_endian(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def set_fields(message: Any, arguments: object, path: str = "") -> None:
    """Sets the fields for which ``arguments`` has an attribute that is not None.

    The attribute ``NAME_layout`` states the order of a table's axes. False is not set if it is the
    default. Errors prefix the field with ``path``: TypeError for a value of the wrong type,
    ValueError for an invalid one, or for two mutually exclusive fields.
    """
    fields = message.DESCRIPTOR.fields_by_name
    given = vars(arguments)
    for name, value in given.items():
        if value is None or name not in fields:
            continue
        field = fields[name]
        if isinstance(value, np.bool_):
            value = bool(value)  # noqa: PLW2901  # versions of protobuf accept different types
        oneof = field.containing_oneof
        # proto3 creates a oneof for each optional field.
        is_choice = oneof is not None and len(oneof.fields) > 1
        if value is False and (is_choice or not field.has_presence):
            continue
        if oneof is not None and is_choice:
            other = message.WhichOneof(oneof.name)
            if other is not None:
                raise ValueError(f"{path}{name}: given together with {other}, want one of the two")
        with _naming(f"{path}{name}", value, field):
            if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
                layout = given.get(f"{name}_layout")
                getattr(message, name).CopyFrom(to_table_ref(value, layout, f"{path}{name}"))
            else:
                _set_field(message, field, value, f"{path}{name}")


def _set_field(message: Any, field: FieldDescriptor, value: Any, name: str) -> None:
    kind = field.message_type
    into = getattr(message, field.name)
    if kind is tensor_pb2.Range.DESCRIPTOR:
        listed = LISTS.get(field.name)
        also = f"; {listed} takes a list" if listed in message.DESCRIPTOR.fields_by_name else ""
        begin, end = bounds(value, name, also)
        into.CopyFrom(tensor_pb2.Range(begin=begin, end=end))
    elif kind is tensor_pb2.PositionList.DESCRIPTOR and is_repeated(field):
        is_nested = False
        with suppress(LookupError, TypeError):  # not a sequence; _to_list rejects it
            is_nested = np.ndim(value[0]) > 0
        into.extend(map(_to_list, value if is_nested else [value]))
    elif kind is tensor_pb2.PositionList.DESCRIPTOR:
        into.CopyFrom(_to_list(value))
    elif kind is tensor_pb2.DoubleList.DESCRIPTOR:
        into.CopyFrom(tensor_pb2.DoubleList(values=value))
    elif kind is not None and is_repeated(field):
        for index, part in enumerate(value):
            _set_message(into.add(), part, f"{name}[{index}]")
    elif kind is not None:
        into.SetInParent()
        _set_message(into, value, name)
    elif field.enum_type is tensor_pb2.DataType.DESCRIPTOR:
        setattr(message, field.name, to_data_type(value, name))
    elif field.enum_type is not None:
        set_enum(message, field.name, value, name)
    elif is_repeated(field):
        into.extend(value)
    else:
        setattr(message, field.name, value)


_NOUNS: Final[Mapping[Any, str]] = {
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_DOUBLE: "float",
    FieldDescriptor.CPPTYPE_INT32: "32-bit integer",
    FieldDescriptor.CPPTYPE_INT64: "64-bit integer",
    "DoubleList": "float",
    "PositionList": "64-bit number",
    "Range": "64-bit integer or a tuple (begin, end) of two",
    "TableRef": "table of floats, or the name of a mounted table",
}


@contextmanager
def _naming(name: str, value: Any, field: FieldDescriptor) -> Iterator[None]:
    """Adds the field, its value and valid values to errors from Python, NumPy and protobuf."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if str(error).startswith(name):
            raise
        kind = field.cpp_type if field.message_type is None else field.message_type.name
        noun = _NOUNS.get(kind, f"attnbias.{kind} object")
        is_list = is_repeated(field) or kind in ("DoubleList", "PositionList")
        want = f"a sequence of {noun}s" if is_list else f"a {noun}"
        wrong = TypeError if isinstance(error, TypeError) else ValueError
        raise wrong(f"{name}: got {_BRIEF.repr(value)}, want {want}") from error


def _set_message(message: Any, value: Any, name: str) -> None:
    kind = message.DESCRIPTOR.name
    want = f"attnbias.{kind}(...)"
    require_instance(value, ReprMixin, name, want)
    if type(value).__name__ != kind:
        raise TypeError(f"{name}: got an object of type {type(value).__name__}; want {want}")
    set_fields(message, value, f"{name}.")


LISTS: Final = {"positions": "position_ids", "queries": "query_positions", "keys": "key_positions"}
"""For each range, the contract's list of positions that may replace it."""


def _to_list(ids: Any) -> tensor_pb2.PositionList:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iuf" and array.size > 0):
        raise TypeError(f"got {array.dtype} of shape {array.shape}")
    numbers = array.tolist()
    if numbers and array.dtype.kind == "f":
        return tensor_pb2.PositionList(doubles=numbers)
    return tensor_pb2.PositionList(positions=numbers)


Compact = TypeVar("Compact", covariant=True, default=Any)  # noqa: PLC0105  # a kind of result
"""Result of ``Client.get`` if no other form is requested."""


class Fields(ReprMixin):
    """A message of the contract, with its fields as attributes."""


def _class_of(message: Descriptor) -> type[Fields]:
    kinds = (*Fields.__subclasses__(), *Encoding.__subclasses__())
    return next(kind for kind in kinds if kind.__name__ == message.name)


class LogitsTerm(Fields):
    """A term of positional logits: a vector for each query and each key position.

    Learned tables are given as in an Encoding.
    """

    field: ClassVar[str]
    """Name of this term in the contract's ``LogitsSpec``."""


class Encoding(Fields, Generic[Compact]):
    """An encoding and its hyperparameters; compares and hashes by value.

    A field that is None has its default. To type checkers, ``Encoding[Toeplitz]`` is an encoding
    whose compact form is a Toeplitz.

    A learned table is an array or torch tensor of f64, f32, f16 or bf16, of at most 2 MiB; or a
    mounted table: its name, its TableInfo (``Client.list_tables``), or "sha256:" followed by the 64
    hex digits of a TableInfo or a resolved spec.
    """

    field: ClassVar[str]
    """Name of this encoding in the contract's ``TensorSpec``."""

    _extents: ClassVar[tuple[str, ...]]
    # Fields that select the last of these extents.
    _restructuring: ClassVar[tuple[str, ...]]
    # Fields that determine the columns of a result.
    _columns: ClassVar[tuple[str, ...]]
    # Name of the preset that made this, and its arguments, keyed by field path.
    _preset: tuple[str, Mapping[str, str]] = "", {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        message: Any = encodings_pb2.TensorSpec.DESCRIPTOR.fields_by_name[cls.field].message_type
        cls._extents = tuple(message.GetOptions().Extensions[options_pb2.extent])
        rules = {
            each.name: each.GetOptions().Extensions[options_pb2.rule] for each in message.fields
        }
        cls._columns = tuple(name for name, rule in rules.items() if rule.columns)
        cls._restructuring = tuple(name for name, rule in rules.items() if rule.structure_if_set)

    @property
    def extent(self) -> str:
        """Name of its extent in the contract: "table", "pair" or "grid"."""
        given = (getattr(self, name) is not None for name in self._restructuring)
        return self._extents[-1 if any(given) else 0]

    @property
    def has_vectors(self) -> bool:
        """True if pairs have vectors, with columns last, unless ``values="buckets"``."""
        given = (getattr(self, name) is not None for name in self._columns)
        return self.extent == "pair" and any(given)

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """Returns this encoding as a spec with no extent; raises an error for an invalid value."""
        spec = encodings_pb2.TensorSpec()
        message = getattr(spec, self.field)
        message.SetInParent()
        with self._renaming_errors():
            set_fields(message, self, f"{self.field}.")
        return spec

    def _with_names(self, preset: str, renamed: Mapping[str, str]) -> Self:
        """Makes errors name a preset and its arguments; returns self."""
        object.__setattr__(self, "_preset", (preset, renamed))
        return self

    @contextmanager
    def _renaming_errors(self) -> Iterator[None]:
        """In errors from the block, replaces field names with the preset and its arguments."""
        preset, renamed = self._preset

        def translated(text: str) -> str:
            owner = rf"\b(?:spec\.)?{self.field}\."
            for path, name in renamed.items():
                text = re.sub(rf"{owner}{re.escape(path)}\b", f"{preset}.{name}", text)
            return re.sub(owner, f"{preset}.", text)

        try:
            yield
        except (TypeError, ValueError) as error:
            if preset:
                error.args = tuple(
                    translated(each) if isinstance(each, str) else each for each in error.args
                )
                if isinstance(error, Error):
                    error.message = translated(error.message)
            raise

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self.to_spec() == other.to_spec())

    def __hash__(self) -> int:
        return hash(self.to_spec().SerializeToString(deterministic=True))


def from_spec(spec: encodings_pb2.TensorSpec) -> Encoding | None:
    """Returns the encoding in a server's spec; None if this package does not know it."""
    name = spec.WhichOneof("encoding")
    known = {encoding.field: encoding for encoding in Encoding.__subclasses__()}
    if name not in known:
        return None
    return known[name](**_values(getattr(spec, name), known[name]))


def _values(message: Message, kind: type[Fields]) -> dict[str, Any]:
    """Returns the fields set in a message, as arguments of its class."""
    values: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            values[field.name] = value.name or f"{_DIGEST_PREFIX}{value.sha256}"
            # Only some tables may be transposed.
            if hasattr(kind, f"{field.name}_layout"):
                layout = enum_name(tensor_pb2.TableLayout.DESCRIPTOR, value.layout)
                values[f"{field.name}_layout"] = layout
        elif field.message_type is tensor_pb2.DoubleList.DESCRIPTOR:
            values[field.name] = tuple(value.values)
        elif field.message_type is not None:
            part = _class_of(field.message_type)
            made = [
                part(**_values(each, part)) for each in (value if is_repeated(field) else [value])
            ]
            values[field.name] = tuple(made) if is_repeated(field) else made[0]
        elif field.enum_type is not None:
            values[field.name] = enum_name(field.enum_type, value)
        else:
            values[field.name] = tuple(value) if is_repeated(field) else value
    return values
