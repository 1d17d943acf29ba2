# SPDX-License-Identifier: Apache-2.0
"""Messages of the contract as dataclasses: the bases of the generated classes.

A field that is None is not sent, and then has the contract's default.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from typing_extensions import TypeVar

from attnbias._errors import Error
from attnbias._generated import is_repeated
from attnbias._spec.arguments import set_fields
from attnbias._spec.enums import enum_name
from attnbias._spec.shown import Shown
from attnbias._spec.tables import from_table_ref
from attnbias.v1 import encodings_pb2, options_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

Compact = TypeVar("Compact", covariant=True, default=Any)  # noqa: PLC0105  # a kind of result
"""Result of ``Client.get`` if no other form is asked for."""


class Fields(Shown):
    """A message of the contract, whose fields are the attributes."""


def _class_of(message: Descriptor) -> type[Fields]:
    kinds = (*Fields.__subclasses__(), *Encoding.__subclasses__())
    return next(kind for kind in kinds if kind.__name__ == message.name)


class LogitsTerm(Fields):
    """A term of positional logits: a vector for each query and each position of a key.

    Learned tables are those of an Encoding.
    """

    field: ClassVar[str]
    """Its name in the contract's ``LogitsSpec``."""


class Encoding(Fields, Generic[Compact]):
    """An encoding and its hyperparameters; compares and hashes by value.

    A field that is None has its default. To type checkers, ``Encoding[Toeplitz]`` is an encoding
    whose compact form is a Toeplitz.

    A learned table is an array or torch tensor of f64, f32, f16 or bf16, of at most 2 MiB; or one
    that the server has mounted: its name, its TableInfo (``Client.list_tables``), or "sha256:" and
    the 64 hex digits that name it in a TableInfo or a resolved spec.
    """

    field: ClassVar[str]
    """Its name in the contract's ``TensorSpec``."""

    _extents: ClassVar[tuple[str, ...]]
    # Fields with which it takes the last of these extents.
    _restructuring: ClassVar[tuple[str, ...]]
    # Fields that determine the columns of an answer.
    _columns: ClassVar[tuple[str, ...]]
    # Name of the preset that made this, and its arguments by their fields, as errors write these.
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
        """Its field of the contract's extents: "table", "pair" or "grid"."""
        given = (getattr(self, name) is not None for name in self._restructuring)
        return self._extents[-1 if any(given) else 0]

    @property
    def has_vectors(self) -> bool:
        """Pairs have vectors, in a last axis of columns; not with ``values="buckets"``."""
        given = (getattr(self, name) is not None for name in self._columns)
        return self.extent == "pair" and any(given)

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """This encoding as a spec without extent.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a number does not fit its field, or an enum has no such value.
        """
        spec = encodings_pb2.TensorSpec()
        message = getattr(spec, self.field)
        message.SetInParent()
        with self._renaming_errors():
            set_fields(message, self, f"{self.field}.")
        return spec

    def _with_names(self, preset: str, renamed: Mapping[str, str]) -> Self:
        """Returns this encoding, whose errors name a preset and its arguments."""
        object.__setattr__(self, "_preset", (preset, renamed))
        return self

    @contextmanager
    def _renaming_errors(self) -> Iterator[None]:
        """Makes errors raised inside name the preset and its arguments, if one made this."""
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
    """The encoding of a spec that a server made; None if this package does not know it."""
    name = spec.WhichOneof("encoding")
    known = {encoding.field: encoding for encoding in Encoding.__subclasses__()}
    if name not in known:
        return None
    return known[name](**_values(getattr(spec, name), known[name]))


def _values(message: Message, kind: type[Fields]) -> dict[str, Any]:
    """The fields that a message has, as arguments of its class."""
    values: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is tensor_pb2.TableRef.DESCRIPTOR:
            values[field.name], layout = from_table_ref(value)
            # Only some tables may be given transposed.
            if hasattr(kind, f"{field.name}_layout"):
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
