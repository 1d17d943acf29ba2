# SPDX-License-Identifier: Apache-2.0
"""Writes the site's reference: the Python client's names, and the contract's messages.

Usage: python -m tests.tools.site.reference FOLDER

The names are those in ``attnbias.__all__``, whose docstrings mkdocstrings reads; the messages are
those in proto/, with their comments and rules.
"""

import ast
import sys
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tests.tools import generate

CLIENT = generate.CLIENT
REQUEST_FILES = ("service", "encodings", "tensor", "logits")
PYTHON = """\
# {title}

{intro}

{names}
"""
CONTRACT = """\
# Messages

The contract `attnbias.v1`, from [its files](../proto/attnbias/v1). The
[protocol](../docs/protocol.md) explains how requests, answers and streams work.

## AttentionBiasService

{service}

| method | request | response | |
|---|---|---|---|
{methods}

{types}
"""
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_STRING: "string",
}


def exported(module: str) -> list[str]:
    """Returns the names that a module's ``__all__`` lists literally."""
    tree = ast.parse((CLIENT / module).read_text(encoding="utf-8"))
    return [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    ]


def directives(names: list[str]) -> str:
    return "\n\n".join(f"::: attnbias.{name}" for name in names if not name.startswith("__"))


def python_pages() -> dict[str, str]:
    clients = exported("__init__.py") + exported("_errors.py")
    encodings = exported("_spec/encodings.py") + exported("_spec/presets.py")
    encodings += exported("_models/rotary_places.py")
    guide = "The [guide](../client/python/README.md) shows how they are used together."
    gallery = "The [gallery](../gallery.md) has a picture of each and an example."
    return {
        "python.md": PYTHON.format(
            title="Clients and results in Python", intro=guide, names=directives(clients)
        ),
        "encodings.md": PYTHON.format(
            title="Encodings in Python", intro=gallery, names=directives(encodings)
        ),
    }


def link_to(descriptor: Any) -> str:
    name = descriptor.name
    return f"[`{name}`](#{name.lower()})" if descriptor.full_name.startswith("attnbias.") else name


def type_of(field: Any) -> str:
    kind = field.message_type or field.enum_type
    text = link_to(kind) if kind else f"`{SCALARS[field.type]}`"
    return f"repeated {text}" if field.is_repeated else text


def meaning_of(field: Any) -> str:
    """Returns a field's comment and its rule, as sentences."""
    sentences = [generate.comment_of(field.containing_type, field)]
    sentences += generate.shape_of(field)
    bounds = generate.bounds_of(field)
    sentences += [f"{bounds[0].upper()}{bounds[1:]}."] if bounds else []
    default = generate.giver_of(field) or generate.default_of(field)
    sentences += [f"Default: {default}."] if default else []
    return generate.cell(" ".join([*filter(None, sentences), *generate.conditions_of(field)]))


def message_section(message: Any) -> str:
    rows = ["| field | number | type | |", "|---|---|---|---|"]
    for field in message.fields:
        rows.append(f"| `{field.name}` | {field.number} | {type_of(field)} | {meaning_of(field)} |")
    table = "\n".join(rows) if message.fields else "It has no fields."
    return f"### {message.name}\n\n{generate.comment_of(message)}\n\n{table}"


def enum_section(enum: Any) -> str:
    rows = ["| value | number | |", "|---|---|---|"]
    for value in enum.values:
        meaning = generate.cell(generate.comment_of(enum, value))
        rows.append(f"| `{value.name}` | {value.number} | {meaning} |")
    table = "\n".join(rows)
    return f"### {enum.name}\n\n{generate.comment_of(enum)}\n\n{table}"


def contract_page() -> str:
    service = generate.POOL.FindServiceByName("attnbias.v1.AttentionBiasService")
    methods = []
    for method in service.methods:
        ends = [
            "a stream of " * is_stream + link_to(kind)
            for is_stream, kind in (
                (method.client_streaming, method.input_type),
                (method.server_streaming, method.output_type),
            )
        ]
        meaning = generate.cell(generate.comment_of(service, method))
        methods.append(f"| `{method.name}` | {' | '.join(ends)} | {meaning} |")
    sections = []
    for name in REQUEST_FILES:
        file = generate.POOL.FindFileByName(f"attnbias/v1/{name}.proto")
        sections.append(f"## {name}.proto")
        sections += map(message_section, file.message_types_by_name.values())
        sections += map(enum_section, file.enum_types_by_name.values())
    return CONTRACT.format(
        service=generate.comment_of(service),
        methods="\n".join(methods),
        types="\n\n".join(sections),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (python_pages() | {"contract.md": contract_page()}).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
