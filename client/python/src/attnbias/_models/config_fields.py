# SPDX-License-Identifier: Apache-2.0
"""Fields of a model's configuration, read with type checks.

An invalid field raises a ValueError that names it, the value received and the values accepted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

# Names of fields that affect positions, except length bounds.
_OF_POSITIONS: Final = re.compile(
    r"(?!max_|num_|n_)(.*_)?"
    r"((m|long|xd)?rope|rotary|ntk|yarn|logn(_|$)|alibi|sinusoid"
    r"|position|x?pos(_|$)|posemb|relative|rel_(att|bias|pos))"
)
_MOST: Final = 2**31 - 1  # maximum of any integer; no tensor is that large
_MOST_COUNT: Final = 65536  # the maximum number of heads that a server accepts


@dataclass(frozen=True)
class As:
    """A default that is the value of another field."""

    name: str


class ConfigFields:
    """The fields of a configuration, or of a dict named ``path`` in it."""

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any] = MappingProxyType({}),
        path: str = "",
        ignored: list[str] | None = None,
    ) -> None:
        self._values = values
        self._defaults = defaults
        self._path = path
        self._read: set[str] = set()
        # Fields of the whole configuration that the model's code ignores.
        self.ignored: list[str] = [] if ignored is None else ignored

    def refuse(self, name: str, want: str) -> NoReturn:
        """Raises a ValueError about the field."""
        name = self._name_given(name)
        if name in self._values:
            raise ValueError(f"{self._path}{name}: got {self._values[name]!r}, want {want}")
        # One of the set fields may be a misspelling of this one.
        beside = f"; got {', '.join(map(str, self._values))}" if self._path and self._values else ""
        raise ValueError(f"{self._path}{name}: not set, want {want}{beside}")

    def get(self, name: str) -> Any:
        """Returns the raw value, or the default."""
        name = self._name_given(name)
        value = self._values.get(name)
        return value if name in self._values else self._defaults.get(name)

    def has(self, name: str) -> bool:
        """Reports whether the configuration itself has a nonempty value under this name."""
        return bool(self._values.get(self._name_given(name)))

    def is_set(self, name: str) -> bool:
        """Reports whether the field is set; null counts only if a default exists."""
        return self.get(name) is not None or self._defaults.get(name) is not None

    def integer(self, name: str, least: int = 1, most: int = _MOST) -> int:
        value = self.get(name)
        if not _is_integer(value, least):
            self.refuse(name, f"an integer of at least {least}")
        if value > most:
            self.refuse(name, f"an integer of at most {most}")
        return int(value)

    def count(self, name: str) -> int:
        """Returns a number of heads or layers."""
        return self.integer(name, most=_MOST_COUNT)

    def integers(self, name: str, least: int = 1) -> tuple[int, ...]:
        """Returns a list of integers, each from ``least`` to the maximum that ``count`` allows."""
        value = self.get(name)
        is_list = isinstance(value, (list, tuple))
        if not is_list or not all(_is_integer(each, least) for each in value):
            self.refuse(name, f"a list of integers, each at least {least}")
        if any(each > _MOST_COUNT for each in value):
            self.refuse(name, f"a list of integers, each at most {_MOST_COUNT}")
        return tuple(value)

    def sides(self, name: str) -> tuple[int, int]:
        """Returns height and width: two positive integers, or one for both."""
        value = self.get(name)
        if _is_integer(value, 1):
            return value, value
        pair = isinstance(value, (list, tuple)) and len(value) == 2  # noqa: PLR2004
        if not pair or not all(_is_integer(each, 1) for each in value):
            self.refuse(name, "a positive integer, or two")
        return value[0], value[1]

    def number(self, name: str) -> float:
        value = self.get(name)
        if not _is_number(value):
            self.refuse(name, "a number that a float can hold")
        return float(value)

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self.get(name)
        if not isinstance(value, (list, tuple)) or not all(map(_is_number, value)):
            self.refuse(name, "a list of numbers that a float can hold")
        return tuple(float(each) for each in value)

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def choice(self, name: str, choices: Collection[str]) -> str:
        value = self.get(name)
        if not isinstance(value, str) or value not in choices:
            self.refuse(name, f"one of {', '.join(choices)}")
        return value

    def part(self, name: str, defaults: Mapping[str, Any] = MappingProxyType({})) -> ConfigFields:
        """Returns the dict with that name as fields; no fields if it is missing."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, "a dict")
        return ConfigFields(value or {}, defaults, f"{self._path}{name}.", self.ignored)

    def with_defaults(self, defaults: Mapping[str, Any]) -> ConfigFields:
        """Returns the same fields with more defaults, none marked as read."""
        merged = {**defaults, **self._defaults}
        return ConfigFields(self._values, merged, self._path, self.ignored)

    def all_as(self, model_type: str) -> ConfigFields:
        """Returns the same fields under another ``model_type``; marks all fields as read here."""
        self._read.update(self._values)
        values = {**self._values, "model_type": model_type}
        return ConfigFields(values, {}, self._path, self.ignored)

    def require(self, name: str, only: Any) -> None:
        """Rejects any value except the one that the model's code uses."""
        if self.is_set(name) and self.get(name) != only:
            self.refuse(name, f"{only!r}, the only value that the model's code uses")

    def ignore(self, name: str, instead: Any = None) -> None:
        """Accepts a field that the model's code does not read.

        Adds the field to ``ignored`` if it differs from ``instead``, the value that the code uses.
        """
        value = self.get(name)
        if name in self._values and value is not None and value != instead:
            self.ignored.append(f"{self._path}{name} = {value!r}")

    def ignore_unread(self, name: str) -> None:
        """Accepts a field that was not read."""
        if name not in self._read:
            self.ignore(name)

    def refuse_unread_of_positions(self) -> None:
        """Rejects an unread field whose name suggests positions, unless it is false or empty."""
        for name in self._values.keys() - self._read:
            if _OF_POSITIONS.match(name) and self._values[name]:
                self.refuse(name, "no such field: its effect on positions is unknown")

    def refuse_unread(self, want: str) -> None:
        """Rejects any field that has a value and was not read."""
        for name, value in self._values.items():
            if name not in self._read and value is not None:
                self.refuse(name, want)

    def _name_given(self, name: str) -> str:
        """Returns the name under which the value is set."""
        self._read.add(name)
        default = self._defaults.get(name)
        # Null means absent if the default is null or another field.
        absent = name not in self._values or self._values[name] is None
        return self._name_given(default.name) if absent and isinstance(default, As) else name


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True
