# SPDX-License-Identifier: Apache-2.0
"""Writes the generated parts of the Python client and of pages, for ./dev generate.

Usage: python -m tests.tools.generate [--check]

With --check nothing is written, and an outdated file is an error. The sources are the contract in
proto/, with its comments, rules and options, and the presets in its folder. The asyncio client's
``get`` has the same signatures as ``attnbias.Client.get``. A page has generated parts between the
lines "<!-- generated: NAME -->" and "<!-- end -->".
"""

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.tools import models_table
from tests.tools.renew import renew

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client/python/src/attnbias"
GO_PRESETS = ROOT / "client/go/attnbias/presets.go"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WIDTH = 100

MODULE = '''\
# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""{}."""

from __future__ import annotations

'''
CHOICES = """\
from typing import Literal, TypeAlias

"""
ENCODINGS = """\
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy.typing as npt

from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._spec.fields import Compact, Encoding, Fields, LogitsTerm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnbias._arrays.tables import RotaryTables, XposTables
    from attnbias._spec.choices import {}

__all__ = {}
"""
CLASS = '''
@dataclass(frozen=True, {options}repr=False)
class {name}({base}):
    """{docstring}
    """

{attributes}
'''
OVERLOAD = """
        @overload
        def __init__(self: {name}[{result}], {fields}) -> None: ..."""
OVERLOADS = """
    if TYPE_CHECKING:  # {field} determines the result
{overloads}
        def __init__(self, *first: Any, **fields: Any) -> None: ...
"""

OPTIONS = """\
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Required, SupportsIndex, TypedDict

from attnbias._checks import Ids, Reals, Span
from attnbias._spec.choices import {choices}
from attnbias._spec.enums import DType
from attnbias._spec.fields import Encoding, ReprMixin


class CompactOptions(TypedDict, total=False):
    \"""The keyword arguments of ``Client.get`` that leave an encoding its compact form.\"""

{compact}


class ListOptions(CompactOptions, total=False):
    \"""``CompactOptions`` and lists of positions, most of which have no compact form.\"""

{lists}


class GridOptions(CompactOptions, total=False):
    \"""``CompactOptions`` and a grid of tokens: form and encoding determine the result.\"""

    grid: Required[Sequence[SupportsIndex]]
    grid_offset: Sequence[SupportsIndex] | None
    form: Form | None


class RequestOptions(ListOptions, total=False):
    \"""All keyword arguments of ``Client.get`` that describe the tensor; see ``Request``.\"""

{others}


@dataclass(frozen=True, eq=False, repr=False)
class RequestFields(ReprMixin):
    \"""The fields of a request.\"""

    encoding: Encoding[Any]
    _: KW_ONLY
{fields}
"""

ASYNC_GET = """\
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from attnbias._arrays.sharding import to_sharding
from attnbias._client import BaseClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax
    import numpy.typing as npt
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

    from attnbias._arrays.tables import RotaryTables, XposTables
    from attnbias._spec.fields import Compact, Encoding
    from attnbias._spec.options import RequestOptions
    from attnbias._spec.request import AnyCall, CompactCall, DenseCall, GridCall, JaxCall, MeshCall

Out = TypeVar("Out")


class AsyncGet(BaseClient):
    \"""Has ``get`` with the types of ``attnbias.Client.get``.\"""

{}        \"""See ``attnbias.Client.get``.\"""
        shards = to_sharding(device_mesh, placements, sharding, out)
        return await self._get(encoding, out, progress, timeout, options, sharding=shards)
"""

PRESETS = """\
from collections.abc import Sequence
from typing import Any

from attnbias._arrays.tables import {1}
from attnbias._spec.choices import {2}
from attnbias._spec.encodings import {0}

__all__ = {3}
"""
PRESET = '''

def {name}(  # noqa: N802
    {parameters},
) -> {result}:
    """{docstring}
    """
    return {kind}({values})._with_names("{name}", {renamed})
'''
GO_PRESETS_FILE = """\
// SPDX-License-Identifier: Apache-2.0
// Code generated from proto/presets by ./dev generate. DO NOT EDIT.

package attnbias

import "github.com/attnbias/attnbias/client/go/attnbiaspb"
"""
GO_PRESET = """
{comment}
type {name} struct {{
{fields}
}}

// Encoding returns the preset's encoding, for an attnbiaspb.TensorSpec.
func (p {name}) Encoding() *attnbiaspb.TensorSpec_{kind} {{
	encoding := &attnbiaspb.{kind}{{
{values}
}}
{others}	return &attnbiaspb.TensorSpec_{kind}{{{kind}: encoding}}
}}
"""

# Names of classes that cannot be derived from the names of their messages.
NAMES = {"Alibi": "ALiBi"}
ARRAY = "npt.NDArray[Any]"
RESULTS = {
    "TOEPLITZ": "Toeplitz",
    "KEY_ROW": "KeyRow",
    "BLOCK_TOEPLITZ": "BlockToeplitz",
    "DENSE": ARRAY,
    (): ARRAY,
    ("cos", "sin"): "RotaryTables",
    ("cos", "sin", "scale"): "XposTables",
}
ASK = {
    "table": "request it with `positions` or `position_ids`",
    "pair": "request it with `query_length` and `key_length`",
    "grid": "request it without lengths, for windows with `queries`, `keys` and `heads`, or for "
    "every n-th query with `query_stride`",
}


def read_contract() -> tuple[Any, dict[str, str]]:
    """Returns the pool of the contract's descriptors, and the comments keyed by full name."""
    with tempfile.NamedTemporaryFile() as file:
        ours = ["options", "tensor", "encodings", "logits", "service"]
        command = ["protoc", "-I.", "--include_source_info", f"--descriptor_set_out={file.name}"]
        command += [*(f"attnbias/v1/{name}.proto" for name in ours), "presets/presets.proto"]
        subprocess.run(command, cwd=ROOT / "proto", check=True)
        files = FileDescriptorSet.FromString(Path(file.name).read_bytes()).file
    comments: dict[str, str] = {}
    for file in files:
        descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
        texts = {tuple(each.path): each.leading_comments for each in file.source_code_info.location}
        for kind, owners, of in (
            (4, file.message_type, "field"),
            (5, file.enum_type, "value"),
            (6, file.service, "method"),
        ):
            for index, owner in enumerate(owners):
                name = f"{file.package}.{owner.name}"
                comments[name] = texts.get((kind, index), "")
                for place, part in enumerate(getattr(owner, of)):
                    comments[f"{name}.{part.name}"] = texts.get((kind, index, 2, place), "")
    dedented = {name: textwrap.dedent(text).strip("\n") for name, text in comments.items()}
    return descriptor_pool.Default(), dedented


POOL, COMMENTS = read_contract()


def option(name: str, descriptor: Any) -> Any:
    return descriptor.GetOptions().Extensions[POOL.FindExtensionByName(f"attnbias.v1.{name}")]


def message_of(name: str) -> Any:
    return POOL.FindMessageTypeByName(f"attnbias.v1.{name}")


def rule_of(field: Any) -> Any:
    return option("rule", field)


def comment_of(owner: Any, part: Any = None) -> str:
    return COMMENTS[owner.full_name + (f".{part.name}" if part else "")]


def structure_of(number: int) -> str:
    """Returns a structure's name, such as "TOEPLITZ", for its number; "" for 0."""
    values = POOL.FindEnumTypeByName("attnbias.v1.Structure").values_by_number
    return values[number].name.removeprefix("STRUCTURE_") if number else ""


def words_of(enum: Any) -> dict[str, Any]:
    """Maps short names to values, without the unspecified one."""
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix): value for value in enum.values[1:]}


ENUMS = [
    enum
    for name in ("tensor", "encodings", "logits")
    for enum in POOL.FindFileByName(f"attnbias/v1/{name}.proto").enum_types_by_name.values()
]
WORDS = {word for enum in ENUMS for word in words_of(enum)}


def is_table(field: Any) -> bool:
    return field.message_type is not None and field.message_type.name == "TableRef"


def is_nested(field: Any) -> bool:
    """Returns whether a field is a message, or a list of messages, for which Python has a class."""
    message = field.message_type
    leaves = ("TableRef", "Range", "PositionList", "DoubleList")
    return message and message.name not in leaves and not option("extent", message)


def is_needed(field: Any) -> bool:
    """Returns whether the field, if no other excludes it, is required: see options.proto."""
    rule = rule_of(field)
    if rule.required or field.message_type is not None or field.is_repeated:
        return bool(rule.required)
    may_be_unset = rule.HasField("default") or rule.given_by
    return not may_be_unset and (field.has_presence or field.cpp_type != field.CPPTYPE_BOOL)


def is_required(field: Any) -> bool:
    """Returns whether the field is required in every request."""
    rule = rule_of(field)
    is_conditional = rule.only_with or rule.not_with or rule.of_bias or rivals_of(field)
    return is_needed(field) and not is_conditional


def has_layout(field: Any) -> bool:
    """Returns whether a table may be given transposed."""
    _, _, columns = rule_of(field).shape.partition(", ")
    return is_table(field) and columns.startswith("num_heads")


def default_of(field: Any) -> str:
    """Returns the default value, formatted for pages."""
    default = "" if field.message_type else str(rule_of(field).default)
    if field.enum_type is not None and default:
        return default.removeprefix(field.enum_type.values[0].name.removesuffix("UNSPECIFIED"))
    return default


def giver_of(field: Any) -> str:
    """Returns the fields that determine the value of an unset field."""
    names = rule_of(field).given_by
    return f"that of {' or '.join(f'`{name}`' for name in names.split('|'))}" if names else ""


def number(value: float) -> str:
    """Formats powers of two as powers."""
    for more in (0, 1):
        power = abs(int(value)) + more
        if power > 1 << 16 and power & (power - 1) == 0:
            sign = "-" if value < 0 else ""
            return f"{sign}2^{power.bit_length() - 1}{' - 1' if more else ''}"
    return re.sub(r"e[+]?(-?)0*", r"e\1", f"{value:g}")


def bounds_of(field: Any) -> str:
    """Describes the values that a field may hold: "even, in [2, 65536]"."""
    rule = rule_of(field)
    words = ["even"] * rule.even + ["finite"] * rule.finite + ["not 0"] * rule.nonzero
    if rule.HasField("max"):
        first = f"({number(rule.above)}" if rule.HasField("above") else f"[{number(rule.min)}"
        words.append(f"in {first}, {number(rule.max)}]")
    if rule.least_magnitude:
        words.append(
            f"{'' if rule.nonzero else '0 or '}of magnitude at least {number(rule.least_magnitude)}"
        )
    most = [f"at most {rule.max_items}"] if rule.max_items else []
    each = "each " if (field.is_repeated or is_table(field)) and words else ""
    return ", ".join([*most, *filter(None, [each + ", ".join(words)])])


def shape_of(field: Any) -> list[str]:
    """Returns a sentence about the axes of a table or the length of a list, if a rule sets it."""
    shape = rule_of(field).shape
    if not shape:
        return []
    if is_table(field):
        return [f"Shape `[{shape}]`."]
    return [f"As many as `{shape.replace(' or ', '`, or `')}`."]


def rivals_of(field: Any) -> list[Any]:
    """Returns the other fields in the field's oneof."""
    fields = field.containing_oneof.fields if field.containing_oneof else []
    return [other for other in fields if other.name != field.name]


def conditions_of(field: Any) -> list[str]:
    """Returns sentences about the fields that combine with this one."""
    rule = rule_of(field)
    then = ", and then required" if is_needed(field) else ""
    sentences = [f"Only with `{rule.only_with}`{then}."] if rule.only_with else []
    sentences += [f"Not with `{rule.not_with}`."] if rule.not_with else []
    needs_one = "; values `BIAS` require one of them" if rule.of_bias else ""
    if rivals := [f"`{other.name}`" for other in rivals_of(field)]:
        sentences.append(f"Not with {', '.join(rivals)}{needs_one}.")
    return sentences


def in_python(text: str) -> str:
    """Rewrites the backquoted words in a comment."""

    def word(found: re.Match[str]) -> str:
        name = found[1]
        if name in WORDS:
            return f'"{name.lower()}"'
        return "``OutOfRangeError``" if name == "OUT_OF_RANGE" else f"``{name}``"

    return re.sub(r"`([^`]+)`", word, text)


def wrapped(text: str, indent: int, hanging: int = 0) -> str:
    """Fills the paragraphs of a docstring, except indented ones."""
    margin = " " * indent
    fill = textwrap.TextWrapper(WIDTH, break_long_words=False, break_on_hyphens=False)
    fill.initial_indent, fill.subsequent_indent = margin, margin + " " * hanging
    return "\n\n".join(
        textwrap.indent(each, margin) if each.startswith("    ") else fill.fill(each)
        for each in text.split("\n\n")
    )


def name_of(message: Any) -> str:
    return NAMES.get(message.name, message.name)


def type_of(field: Any) -> str:
    if is_table(field):
        return "Any"
    scalars = {field.CPPTYPE_DOUBLE: "float", field.CPPTYPE_BOOL: "bool"}
    kind = scalars.get(field.cpp_type, "int")
    kind = field.enum_type.name if field.enum_type else kind
    if field.message_type is not None and field.message_type.name == "DoubleList":
        return "Sequence[float]"
    kind = name_of(field.message_type) if field.message_type else kind
    return f"Sequence[{kind}]" if field.is_repeated else kind


def attribute(field: Any, name: str = "", *, required: bool = False) -> str:
    """Declares a field of a dataclass, or a parameter."""
    name = name or field.name
    if required or is_required(field):
        return f"{name}: {type_of(field)}"
    if type_of(field) == "bool" and not field.has_presence:
        return f"{name}: bool = False"
    return f"{name}: {type_of(field)}{'' if is_table(field) else ' | None'} = None"


def attributes_of(message: Any) -> tuple[list[Any], list[Any]]:
    """Returns the field that may be passed by position, if any, and the others, required ones
    first."""
    fields = sorted(message.fields, key=lambda field: not is_required(field))
    by_place = is_required(fields[0]) and type_of(fields[0]) != "bool"
    return fields[:by_place], fields[by_place:]


def described_values(enum: Any, default: str) -> str:
    lines = []
    for word, value in words_of(enum).items():
        mark = " (default)" if word == default else ""
        text = in_python(f"- `{word}`{mark}: {comment_of(enum, value)}")
        lines.append(f"\n{wrapped(text, 12, 2)}")
    return "".join(lines)


def described(
    field: Any, name: str = "", doc: str = "", beside: Iterable[str] = (), *, required: bool = False
) -> str:
    """Describes a field for the docstring of its class or of a preset: under its name there, and
    with the conditions on arguments at the end."""
    sentences = [doc or comment_of(field.containing_type, field)]
    assert sentences[0], f"{field.full_name} has no comment"
    sentences += shape_of(field)
    bounds = bounds_of(field)
    sentences += [f"{bounds[0].upper()}{bounds[1:]}."] if bounds else []
    default = giver_of(field) or ("" if field.enum_type else default_of(field))
    default = "" if required else default
    sentences += [f"Default: {'True' if default == 'true' else default}."] if default else []
    for condition in conditions_of(field):
        if not name or any(f"`{each}`" in condition for each in beside):
            sentences.append(condition)
    text = f"{name or field.name}: {' '.join(sentences)}"
    text = wrapped(in_python(text), 8, 4)
    if field.enum_type is not None:
        text += described_values(field.enum_type, default_of(field))
    if has_layout(field):
        layout = message_of("TableRef").fields_by_name["layout"].enum_type
        name = name or field.name
        text += f"\n        {name}_layout: Axes of ``{name}``."
        text += described_values(layout, next(iter(words_of(layout))))
    return text


def structures_of_values(field: Any) -> dict[str, str]:
    """Maps a field's values to the encoding structures that they select."""
    values = words_of(field.enum_type) if field.enum_type else {}
    found = {word: structure_of(option("structure_of_value", v)) for word, v in values.items()}
    return {word: structure for word, structure in found.items() if structure}


def results_of(message: Any) -> dict[str, str]:
    """Maps result types to their conditions; the first condition is "", meaning none."""
    structure = structure_of(option("structure", message))
    if structure == "TABLE":
        parts = tuple(option("parts", message))
        added = {field.name: rule_of(field).adds_part for field in message.fields}
        more = {RESULTS[*parts, part]: f"`{name}`" for name, part in added.items() if part}
        return {RESULTS[parts]: ""} | more
    results = {RESULTS[structure]: ""}
    for field in message.fields:
        if rule_of(field).border_if_set and "grid" not in option("extent", message):
            results["BorderedToeplitz"] = f"`{field.name}`"
        if rule_of(field).structure_if_set:
            results[RESULTS[structure_of(rule_of(field).structure_if_set)]] = f"`{field.name}`"
        for word, special in structures_of_values(field).items():
            given = results.get(RESULTS[special])
            own = f"{given} or" if given else f"`{field.name}`"
            results[RESULTS[special]] = f"{own} `{word}`"
    return results


def answer_of(message: Any) -> str:
    """Describes an encoding's answer."""
    extents = list(option("extent", message))
    (result, _), *others = results_of(message).items()
    first = "A dense array" if result == ARRAY else f"A {result}"
    if extents == ["table"]:
        parts = ", ".join(f"`{part}`" for part in option("parts", message))
        first = "A table `[positions, dim]`"
        first = f"{result} of {parts}, each `[positions, columns]`" if parts else first
    elif column_fields := [field for field in message.fields if rule_of(field).columns]:
        (field,) = column_fields
        first += f", over vectors with `{field.name}`" if rivals_of(field) else " over vectors"
    borders = [field.name for field in message.fields if rule_of(field).border_if_set]
    border = "".join(f", with a border if `{name}`" for name in borders)
    first += border * (extents == ["grid"])
    sentences = [f"{first}; {ASK[extents[0]]}."]
    for other, condition in others:
        kind = "dense array" if other == ARRAY else other
        article = "" if kind.endswith("Tables") else "A "
        other_ask = f"{border}; {ASK[extents[1]]}" if extents[1:] else ""
        sentences.append(f"{article}{kind} with {condition}{other_ask}.")
    of_bias = [f"`{field.name}`" for field in message.fields if rule_of(field).of_bias]
    if of_bias:
        sentences.append('With `values="buckets"` the answer is indices, i32 without heads.')
        *first_names, last = of_bias
        names = " and ".join([", ".join(first_names), last]) if first_names else last
        sentences.append(f"{names} need not be set then.")
    if option("buckets_only", message):
        sentences.append("The numbers are i32, without heads.")
    if extents == ["table"] and any(field.name == "axes" for field in message.fields):
        sentences.append("Request a GridTable over several axes with `grid`.")
    return " ".join(sentences)


def docstring(message: Any, *texts: str) -> str:
    title, *paragraphs = "\n\n".join(texts).split("\n\n")
    title = in_python(title)
    assert len(title.split("\n")[0]) == len(title) <= WIDTH - 7, f"long: {title}"
    body = [wrapped(in_python(paragraph), 4) for paragraph in paragraphs]
    first, others = attributes_of(message)
    fields = "\n".join(map(described, [*first, *others]))
    return "\n\n".join([title, *body, f"    Attributes:\n{fields}"])


def class_of(message: Any, name: str, base: str, doc: str, field: str = "") -> str:
    first, others = attributes_of(message)
    lines = [f'field: ClassVar[str] = "{field}"\n'] if field else []
    lines += [*map(attribute, first), "_: KW_ONLY"]
    for other in others:
        layout = f"{other.name}_layout: TableLayout | None = None"
        lines += [attribute(other), *([layout] if has_layout(other) else [])]
    attributes = textwrap.indent("\n".join(lines), "    ")
    options = "eq=False, " if base != "Fields" or any(map(is_table, message.fields)) else ""
    return CLASS.format(name=name, base=base, docstring=doc, attributes=attributes, options=options)


def literal_of(words: Iterable[str]) -> str:
    return f"Literal[{', '.join(json.dumps(word.lower()) for word in words)}]"


def overloads_of(message: Any) -> str:
    """Declares a constructor for each result type that a field determines."""
    declared: dict[str, str] = {}
    for field in message.fields:
        by_result: dict[str, list[str]] = {}
        own = structure_of(option("structure", message))
        for word in words_of(field.enum_type) if structures_of_values(field) else []:
            result = RESULTS[structures_of_values(field).get(word, own)]
            by_result.setdefault(result, []).append(word)
        for result, words in by_result.items():
            optional = " | None = None" if default_of(field) in words else ""
            declared[result] = f"{field.name}: {literal_of(words)}{optional}"
        if rule_of(field).adds_part:
            kinds = ("None = None", type_of(field))
            for result, kind in zip(results_of(message), kinds, strict=True):
                declared[result] = f"{field.name}: {kind}"
        if declared:
            break
    else:
        return ""
    first, others = attributes_of(message)
    overloads = []
    for result in (*declared, " | ".join(declared)):
        fields = {each.name: attribute(each) for each in others}
        fields |= {field.name: declared[result]} if result in declared else {}
        texts = ", ".join([*map(attribute, first), "*", *fields.values()])
        overloads.append(OVERLOAD.format(name=name_of(message), result=result, fields=texts))
    return OVERLOADS.format(field=field.name, overloads="".join(overloads))


def class_of_encoding(oneof_field: Any) -> str:
    message = oneof_field.message_type
    overloads = overloads_of(message)
    base = f"Encoding[{'Compact' if overloads else ' | '.join(results_of(message))}]"
    doc = docstring(message, comment_of(message), answer_of(message))
    return class_of(message, name_of(message), base, doc, oneof_field.name) + overloads


def class_of_term(oneof_field: Any) -> str:
    message, name = oneof_field.message_type, oneof_field.name.title().replace("_", "")
    title = comment_of(oneof_field.containing_type, oneof_field)
    doc = docstring(message, title, comment_of(message))
    return class_of(message, name, "LogitsTerm", doc, oneof_field.name)


def encodings() -> list[Any]:
    return list(message_of("TensorSpec").oneofs_by_name["encoding"].fields)


def terms() -> list[Any]:
    return list(message_of("LogitsSpec").oneofs_by_name["term"].fields)


def parts_of(message: Any) -> list[Any]:
    """Returns a message's nested messages, innermost first."""
    parts = []
    for field in filter(is_nested, message.fields):
        parts += [*parts_of(field.message_type), field.message_type]
    return parts


PART_NAMES = {part.name for field in encodings() for part in parts_of(field.message_type)}


def encodings_module() -> str:
    classes = []
    parts: set[str] = set()
    for encoding in encodings():
        for part in parts_of(encoding.message_type):
            if part.name not in parts:
                doc = docstring(part, comment_of(part))
                classes.append(class_of(part, part.name, "Fields", doc))
                parts.add(part.name)
        classes.append(class_of_encoding(encoding))
    classes += map(class_of_term, terms())
    text = "\n".join(classes)
    used = [enum.name for enum in ENUMS if re.search(rf": {enum.name}( \||\n)", text)]
    exports = re.findall(r"^class (\w+)", text, re.MULTILINE)
    exports.sort(key=lambda name: (not name.isupper(), name))  # in ruff's order
    title = "Encodings and terms of positional logits, a class for each message of the contract"
    head = MODULE.format(title) + ENCODINGS.format(", ".join(sorted(used)), exports)
    return formatted(head + text)


def choices_module() -> str:
    aliases = [f"{enum.name}: TypeAlias = {literal_of(words_of(enum))}" for enum in ENUMS]
    title = "Values of enums, as type checkers know them"
    return formatted(MODULE.format(title) + CHOICES + "\n".join(aliases))


def type_of_option(field: Any) -> str:
    kind = field.message_type or field.enum_type
    names = {"PositionList": "Ids", "Range": "Span", "DataType": "DType"}
    if kind is None:
        return type_of(field).replace("int", "SupportsIndex")
    # One list per axis; for a single axis, the list alone is also accepted.
    return "Reals | Sequence[Reals]" if field.is_repeated else names.get(kind.name, kind.name)


def options_module() -> str:
    """Declares the fields of the extents, the output and its mask as keyword arguments."""
    fields: dict[str, str] = {}
    for message in ("TableExtent", "PairExtent", "GridExtent", "Output", "Mask"):
        for field in message_of(message).fields:
            if field.name != "mask":  # its fields are arguments themselves
                kind = type_of_option(field)
                fields[field.name] = kind if kind == "bool" else f"{kind} | None"
    lists = [name for name, kind in fields.items() if kind == "Ids | None"]
    others = ["form", "grid", "grid_offset"]

    def declared(names: Iterable[str]) -> str:
        return "\n".join(f"    {name}: {fields[name]}" for name in names)

    defaults = (f" = {False if kind == 'bool' else None}" for kind in fields.values())
    text = OPTIONS.format(
        choices=", ".join(sorted({enum.name for enum in ENUMS} & {*declared(fields).split()})),
        compact=declared(name for name in fields if name not in (*lists, *others)),
        lists=declared(lists),
        others=declared(others),
        fields="\n".join(map(str.__add__, declared(fields).split("\n"), defaults)),
    )
    return formatted(MODULE.format("Arguments that describe a tensor") + text)


def async_get_module() -> str:
    """Writes the asyncio client's ``get`` with the signatures of ``Client.get``."""
    client = (CLIENT / "_client.py").read_text(encoding="utf-8")
    signatures = re.search(r"    @overload\n    def get\(.*?(?=        \"\"\")", client, re.DOTALL)
    assert signatures
    awaited = signatures[0].replace("    def get(", "    async def get(")
    head = MODULE.replace("proto/", "_client.py").format("The client's ``get`` for asyncio")
    return formatted(head + ASYNC_GET.format(awaited))


class Argument(NamedTuple):
    """An argument of a preset."""

    name: str
    doc: str
    # For each field that the argument sets: its path, and the bool argument that prevents setting
    # it ("" if there is none).
    paths: list[tuple[str, str]]
    # The field at the first path, from which the argument takes its type and rule.
    field: Any
    required: bool


class Preset:
    """A preset in presets.textproto."""

    def __init__(self, preset: Any) -> None:
        self.name, self.tool_name = preset.name, preset.tool_name
        self.title, *self.paragraphs = preset.doc.split("\n\n")
        self.encoding = preset.spec.WhichOneof("encoding")
        self.constants = getattr(preset.spec, self.encoding)
        self.owner = message_of("TensorSpec").fields_by_name[self.encoding].message_type
        self.arguments = []
        for each in preset.arguments:
            paths = [(it.name, it.unless) for it in each.fields] or [(each.name, "")]
            field = field_at(self.owner, paths[0][0])
            self.arguments.append(Argument(each.name, each.doc, paths, field, each.required))

    @property
    def result(self) -> str:
        """Returns the type of encoding that the preset makes."""
        _, *others = results_of(self.owner)
        adds_part = any(rule_of(field).adds_part for field, _ in self.constants.ListFields())
        return f"{name_of(self.owner)}[{others[0]}]" if adds_part else name_of(self.owner)

    def assigned(self, condition: str = "None if {} else {}") -> dict[str, str]:
        """Maps field paths to the Python expressions that arguments provide."""
        return {
            path: condition.format(unless, each.name) if unless else each.name
            for each in self.arguments
            for path, unless in each.paths
        }


def field_at(message: Any, path: str) -> Any:
    """Returns the field at a path such as "axes.0.scale"."""
    *owners, name = [word for word in path.split(".") if not word.isdigit()]
    for owner in owners:
        message = message.fields_by_name[owner].message_type
    return message.fields_by_name[name]


def word_of(field: Any, value: Any) -> str:
    """Returns the short name of an enum value; "" for other fields."""
    if field.enum_type is None:
        return ""
    return {each.number: word for word, each in words_of(field.enum_type).items()}[value]


def read_presets() -> list[Preset]:
    made = message_factory.GetMessageClass(POOL.FindMessageTypeByName("attnbias.presets.Presets"))()
    text = (ROOT / "proto/presets/presets.textproto").read_text(encoding="utf-8")
    text_format.Parse(text, made, descriptor_pool=POOL)
    return list(map(Preset, made.presets))


def below(assigned: dict[str, str], name: str) -> dict[str, str]:
    """Returns the entries whose paths lead into a message, with the message's name removed."""
    start = f"{name}."
    return {path[len(start) :]: it for path, it in assigned.items() if path.startswith(start)}


def constants_of(message: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Returns the paths and values in a message, formatted for pages."""
    constants = []
    for field, value in message.ListFields():
        name = prefix + field.name
        if is_nested(field):
            for place, each in numbered(field, value):
                inner = constants_of(each, f"{prefix}{place}.")
                constants += inner or [(f"{prefix}{place}", "")]
        else:
            text = word_of(field, value) or str(value)
            constants.append((name, text))
    return constants


def numbered(field: Any, value: Any) -> list[tuple[str, Any]]:
    """Returns the messages in a field, with their paths."""
    if not field.is_repeated:
        return [(field.name, value)]
    return [(f"{field.name}.{index}", each) for index, each in enumerate(value)]


def values_in_python(message: Any, constants: Any, assigned: dict[str, str]) -> list[str]:
    """Returns the arguments that make an object of a message's class."""
    values = [f"{path}={it}" for path, it in assigned.items() if "." not in path]
    given = {field.name: value for field, value in constants.ListFields()}
    for field in message.fields:
        if field.name not in given:
            if inner := below(assigned, field.name):
                (only,) = inner.values()
                made = ", ".join(values_in_python(field.message_type, type(constants)(), inner))
                kind = name_of(field.message_type)
                values.append(f"{field.name}=None if {only} is None else {kind}({made})")
            continue
        value = given[field.name]
        if not is_nested(field):
            word = word_of(field, value)
            values.append(f"{field.name}={json.dumps(word.lower()) if word else repr(value)}")
            continue
        objects = []
        for place, each in numbered(field, value):
            made = values_in_python(field.message_type, each, below(assigned, place))
            objects.append(f"{name_of(field.message_type)}({', '.join(made)})")
        text = f"({', '.join(objects)},)" if field.is_repeated else objects[0]
        values.append(f"{field.name}={text}")
    return values


def preset_function(preset: Preset) -> str:
    parameters, renamed = [], {}
    assigned = preset.assigned()
    for each in preset.arguments:
        parameters.append(attribute(each.field, each.name, required=each.required))
        for path, _ in each.paths:
            place = re.sub(r"\.(\d+)", r"[\1]", path)
            renamed |= {place: each.name} if path != each.name else {}
            if has_layout(field_at(preset.owner, path)):
                parameters.append(f"{each.name}_layout: TableLayout | None = None")
                assigned[f"{path}_layout"] = f"{each.name}_layout"
    parameters.insert(is_required(preset.arguments[0].field), "*")
    constants = [
        f"{path}={json.dumps(value.lower()) if value in WORDS else value}".removesuffix("=")
        for path, value in constants_of(preset.constants)
    ]
    made = " and ".join(f"`{each}`" for each in constants or renamed)
    kind = name_of(preset.owner)
    article = "An" if kind.startswith("Mlp") else "A"
    made = f"{article} {kind}{' with ' * bool(made)}{made}."
    texts = [wrapped(in_python(each), 4) for each in (*preset.paragraphs, made)]
    names = [each.name for each in preset.arguments]
    arguments = [
        described(each.field, each.name, each.doc, names, required=each.required)
        for each in preset.arguments
    ]
    return PRESET.format(
        name=preset.name,
        parameters=", ".join(parameters),
        kind=kind,
        result=preset.result,
        docstring="\n\n".join([preset.title, *texts, "    Args:\n" + "\n".join(arguments)]),
        values=", ".join(values_in_python(preset.owner, preset.constants, assigned)),
        renamed=json.dumps(renamed),
    )


def presets_module() -> str:
    presets = read_presets()
    text = "".join(map(preset_function, presets))
    used = [enum.name for enum in ENUMS if re.search(rf": {enum.name} \|", text)]
    made = set(re.findall(r"\b([A-Z]\w+)\(", "".join(re.findall(r"return [A-Z].*", text))))
    annotated = {name for name in PART_NAMES if re.search(rf": {name} \||\[{name}\]", text)}
    kinds = sorted(made | annotated)
    results = {each for each in RESULTS.values() if f"[{each}]:" in text}
    names = [", ".join(sorted(each)) for each in (kinds, results, used)]
    head = PRESETS.format(*names, sorted(each.name for each in presets))
    title = "Encodings of models: constants and names for more general encodings"
    return formatted(MODULE.format(title) + head + text)


def go_name(name: str) -> str:
    return name.title().replace("_", "")


def go_type(field: Any) -> str:
    kinds = {
        field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_DOUBLE: "float64",
        field.CPPTYPE_INT32: "int32",
        field.CPPTYPE_INT64: "int64",
    }
    if field.message_type or field.enum_type:
        kind = f"attnbiaspb.{(field.message_type or field.enum_type).name}"
    else:
        kind = kinds[field.cpp_type]
    if field.is_repeated:
        return f"[]{'*' if field.message_type else ''}{kind}"
    if field.containing_oneof is not None and rivals_of(field) and not field.message_type:
        return f"*{kind}"
    return f"*{kind}" if field.has_presence else kind


def go_comment(text: str, margin: str = "") -> str:
    return "\n".join(f"{margin}// {line}" for line in textwrap.wrap(text, WIDTH - 6 - len(margin)))


def go_field(field: Any, value: str) -> str:
    """Returns a field with its value, as written in a literal of its message."""
    name = go_name(field.name)
    if not rivals_of(field):
        return f"{name}: {value}"
    made = f"&attnbiaspb.{field.containing_type.name}_{name}{{{name}: {value}}}"
    return f"{go_name(field.containing_oneof.name)}: {made}"


def go_place(constants: Any, path: str) -> tuple[str, list[Any]]:
    """Returns the last message on a path that the constants set, and the message fields on the path
    below it."""
    place, missing = "encoding", []
    words = path.split(".")[:-1]
    while words:
        field = constants.DESCRIPTOR.fields_by_name[words.pop(0)]
        if field.is_repeated:
            index = int(words.pop(0))
            constants = getattr(constants, field.name)[index]
            place += f".{go_name(field.name)}[{index}]"
        elif not missing and constants.HasField(field.name):
            constants = getattr(constants, field.name)
            name = go_name(field.name)
            place += f".Get{name}()" if rivals_of(field) else f".{name}"
        else:
            constants = getattr(constants, field.name)
            missing.append(field)
    return place, missing


def go_block(head: str, lines: list[str]) -> str:
    return f"{head}{{\n" + "".join(f"{line}\n" for line in lines) + "}"


def go_literal(kind: str, parts: list[str]) -> str:
    return go_block(kind, [f"{part}," for part in parts]) if parts else f"{kind}{{}}"


def go_constants(message: Any) -> list[str]:
    """Returns the fields of a literal."""
    fields = []
    for field, value in message.ListFields():
        if is_nested(field):
            kind = f"attnbiaspb.{field.message_type.name}"
            made = [go_literal("", go_constants(each)) for _, each in numbered(field, value)]
            text = go_literal(f"[]*{kind}", made) if field.is_repeated else f"&{kind}{made[0]}"
        elif field.enum_type:
            enum = field.enum_type
            text = f"attnbiaspb.{enum.name}_{enum.values_by_number[value].name}"
        else:
            text = str(value).lower() if field.cpp_type == field.CPPTYPE_BOOL else repr(value)
            if field.has_presence and not rivals_of(field):
                is_integer = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
                text = f"new({go_type(field)[1:]}({text}))" if is_integer else f"new({text})"
        fields.append(go_field(field, text))
    return fields


def go_preset(preset: Preset) -> str:
    fields, values = [], []
    guarded: dict[str, list[str]] = {}  # assignments, keyed by condition
    for each in preset.arguments:
        comment = each.doc or comment_of(each.field.containing_type, each.field)
        fields += [go_comment(" ".join(comment.split()).replace("`", ""), "\t")]
        kind = go_type(each.field)
        fields += [f"\t{go_name(each.name)} {kind.lstrip('*') if each.required else kind}"]
        value = f"p.{go_name(each.name)}"
        for path, unless in each.paths:
            field = field_at(preset.owner, path)
            place, missing = go_place(preset.constants, path)
            if "." not in path and not unless and not rivals_of(field):
                values.append(f"{go_name(field.name)}: {value}")
                continue
            condition = f"!p.{go_name(unless)}" if unless else f"{value} != nil"
            if each.required:
                guarded.setdefault("", []).append(f"{place}.{go_name(field.name)} = &{value}")
                continue
            is_scalar = rivals_of(field) and field.message_type is None
            made = go_field(field, f"*{value}" if is_scalar else value)
            for owner in reversed(missing):
                made = f"{go_name(owner.name)}: &attnbiaspb.{owner.message_type.name}{{{made}}}"
            name, _, made = made.partition(": ")
            condition = condition if unless or missing or rivals_of(field) else ""
            guarded.setdefault(condition, []).append(f"{place}.{name} = {made}")
    values += go_constants(preset.constants)
    others = guarded.pop("", [])
    others += [go_block(f"if {condition} ", lines) for condition, lines in guarded.items()]
    title = f"{preset.name} is a preset of [attnbiaspb.{preset.owner.name}]. {preset.title}"
    return GO_PRESET.format(
        comment=go_comment(title),
        name=preset.name,
        kind=preset.owner.name,
        fields="\n".join(fields),
        values="".join(f"{value},\n" for value in values),
        others="".join(f"{line}\n" for line in others),
    )


def presets_in_go() -> str:
    text = GO_PRESETS_FILE + "".join(map(go_preset, read_presets()))
    root = subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True, check=True)
    command = [Path(root.stdout.strip(), "bin/gofmt")]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def preset_table() -> str:
    rows = [["preset", "tool name", "description", "encoding"]]
    for preset in read_presets():
        names = [f"`{name}`" for name in (preset.name, preset.tool_name, preset.encoding)]
        rows.append([*names[:2], preset.title.rstrip("."), names[2]])
    return table_of(rows)


def formatted(text: str) -> str:
    command = ["ruff", "format", "--config", ROOT / "client/python/pyproject.toml", "-"]
    made = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return made.stdout


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def value_table(enum: Any) -> str:
    rows = [f"| value | {cell(comment_of(enum)).rstrip('.')} |", "|---|---|"]
    for word, value in words_of(enum).items():
        structure = structure_of(option("structure_of_value", value))
        suffix = f" Structure `{structure}`." if structure else ""
        rows.append(f"| `{word}` | {cell(comment_of(enum, value))}{suffix} |")
    return "\n".join(rows)


def kinds_of(message: Any) -> list[str]:
    """Returns the kinds of numbers that an encoding has."""
    if "table" in option("extent", message):
        return ["table"]
    columns = [field for field in message.fields if rule_of(field).columns]
    has_biases = not columns or any(map(rivals_of, columns))
    return ["bias"] * has_biases + ["vectors"] * bool(columns)


def numbers_of(message: Any) -> str:
    """Returns the kind of numbers in an answer."""
    kinds = [] if option("buckets_only", message) else kinds_of(message)
    if not kinds or any(rule_of(field).of_bias for field in message.fields):
        kinds.append("indices")
    return re.sub(r", (\w+)$", r" or \1", ", ".join(kinds))


def table_of(rows: list[list[str]]) -> str:
    head, *lines = (f"| {' | '.join(map(cell, row))} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *lines])


def title_of(message: Any) -> str:
    return comment_of(message).partition("\n\n")[0].rstrip(".")


def index_table() -> str:
    rows = [["encoding", "what it is", "found in", "extent", "result"]]
    for field in encodings():
        message, (page, anchor) = field.message_type, SECTIONS[field.name]
        link = f"[`{field.name}`]({page.relative_to(ROOT / 'docs')}{anchor})"
        models = re.search(r"\bFound in (.+?)\.(?: |$)", " ".join(comment_of(message).split()))
        found_in = models[1] if models else ""
        extent = " or ".join(option("extent", message))
        rows.append([link, title_of(message), found_in, extent, numbers_of(message)])
    return table_of(rows)


def sections() -> dict[str, tuple[Path, str]]:
    """Maps encodings to their pages and to their headings' anchors.

    A paragraph on the page begins with the encoding's name.
    """
    found: dict[str, tuple[Path, str]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for field in encodings() if page.parent.name == "encodings" else []:
            if begins := re.search(rf"^`{field.name}`", text, re.MULTILINE):
                above = text[: begins.start()]
                level, title = re.findall(r"^(#+) (.*)$", above, re.MULTILINE)[-1]
                anchor = re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
                found[field.name] = page, "" if level == "#" else f"#{anchor}"
    missing = [f"`{field.name}`" for field in encodings() if field.name not in found]
    if missing:
        sys.exit(f"no page has a paragraph that begins with {', '.join(missing)}")
    return found


SECTIONS = sections()


def page_parts() -> dict[str, str]:
    parts = {f"values of {enum.name}": value_table(enum) for enum in ENUMS}
    parts |= {"index of encodings": index_table(), "presets": preset_table()}
    return parts | {"model types": models_table.table()}


def with_parts(page: Path, parts: dict[str, str]) -> str:
    """Returns the page with its generated parts regenerated."""

    def part(found: re.Match[str]) -> str:
        return f"<!-- generated: {found[1]} -->\n\n{parts[found[1]]}\n\n<!-- end -->"

    text = page.read_text(encoding="utf-8")
    return re.sub(r"<!-- generated: ([\w ]+) -->\n.*?<!-- end -->", part, text, flags=re.DOTALL)


def main() -> None:
    parts = page_parts()
    texts = {page: with_parts(page, parts) for page in PAGES}
    texts |= {CLIENT / "_spec/choices.py": choices_module()}
    texts |= {CLIENT / "_spec/options.py": options_module()}
    texts |= {CLIENT / "_async_get.py": async_get_module()}
    texts |= {CLIENT / "_spec/encodings.py": encodings_module()}
    texts |= {CLIENT / "_spec/presets.py": presets_module(), GO_PRESETS: presets_in_go()}
    renew(texts, "./dev generate")


if __name__ == "__main__":
    main()
