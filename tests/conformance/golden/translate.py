# SPDX-License-Identifier: Apache-2.0
"""Rewrites stored requests of encodings that the contract no longer has.

Usage: python -m tests.conformance.golden.translate REVISION NAME...

Reads the requests of these encodings, which TRANSLATIONS has, from a revision of this repository
that stores them, and writes them as requests of their successors. The answers stay as that
revision stores them, so that replay_test.py proves that the successor serves the same bytes. A
refusal is dropped where the successor cannot express the request, or serves it.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tests.conformance.golden import stored
from tests.conformance.golden.stored import Json
from tests.support.contract import message

ROOT = Path(__file__).parents[3]
EXTENSIONS = {
    field.name: {own.name for own in field.message_type.fields}
    for field in message("Rotary").DESCRIPTOR.oneofs_by_name["extension"].fields
}
"""Rotary's length extensions and their fields."""


class InexpressibleError(Exception):
    """The successor has no such request."""


def laddered(fields: Json) -> Json:
    """With a ladder and columns in place of base, layout and timescales."""
    layout = fields.get("layout", "SINUSOIDAL_LAYOUT_INTERLEAVED")
    words = {
        "SINUSOIDAL_LAYOUT_INTERLEAVED": {},
        "SINUSOIDAL_LAYOUT_CONCATENATED": {"columns": "COLUMNS_SINES_COSINES"},
        "SINUSOIDAL_LAYOUT_TENSOR2TENSOR": {
            "columns": "COLUMNS_SINES_COSINES",
            "odd": "ODD_COLUMN_ZERO",
        },
    }
    if layout not in words:
        raise InexpressibleError
    old = ("layout", "base", "min_timescale", "max_timescale")
    made = {name: value for name, value in fields.items() if name not in old} | words[layout]
    is_tensor2tensor = layout == "SINUSOIDAL_LAYOUT_TENSOR2TENSOR"
    scales = {name[:3]: fields[name] for name in old[2:] if name in fields}
    if is_tensor2tensor and "base" not in fields:
        made["ladder"] = {"timescales": scales}
    elif is_tensor2tensor or scales:  # fields that had no meaning
        raise InexpressibleError
    elif "base" in fields:
        made["ladder"] = {"base": fields["base"]}
    return made


def sinusoidal(fields: Json) -> Json:
    made = laddered(fields)
    # The default of the encoding is that of the paper's table.
    if "layout" in fields and made.get("columns") is None:
        made["columns"] = "COLUMNS_INTERLEAVED"
    return made


def multi_axis_sinusoidal(fields: Json) -> Json:
    layouts = {
        "MULTI_AXIS_LAYOUT_" + word: "SINUSOIDAL_LAYOUT_" + word
        for word in ("TENSOR2TENSOR", "INTERLEAVED", "CONCATENATED")
    }
    if fields.get("layout") not in layouts:
        raise InexpressibleError
    own = ("num_axes", "axis_lengths", "axis_scale", "axis_eps", "axis_offset")
    others = {name: value for name, value in fields.items() if name not in own}
    made = laddered(others | {"layout": layouts[fields["layout"]]})
    ladder, count = made.pop("ladder", {}), fields.get("num_axes", 0)
    lengths = fields.get("axis_lengths", [])
    if not 1 <= count <= 4 or len(lengths) not in (0, count):
        raise InexpressibleError
    if not lengths and set(fields) & set(own[2:]):
        raise InexpressibleError
    axes: list[Json] = [{"ladder": ladder} for _ in range(count)]
    for axis, length in zip(axes, lengths, strict=False):
        axis |= {
            "length": float(length),
            "scale": fields.get("axis_scale", 6.283185307179586),
            "eps": fields.get("axis_eps", 1e-6),
            "offset": fields.get("axis_offset", 0.0),
        }
    return made | {"axes": axes}


def sinusoidal_distances(fields: Json) -> Json:
    if "sinusoidal" not in fields:
        return fields
    return fields | {"sinusoidal": sinusoidal(fields["sinusoidal"])}


def rotary(fields: Json) -> Json:
    """With a length extension in place of rope_type and its fields."""
    fields = {name: value for name, value in fields.items() if value != []}
    kind = str(fields.get("rope_type", "ROPE_TYPE_DEFAULT")).removeprefix("ROPE_TYPE_").lower()
    own = EXTENSIONS.get(kind, set())
    words = set().union(*EXTENSIONS.values())
    sources = {"factor", "max_position_embeddings", "attention_factor"} & fields.keys()
    has_two = kind == "longrope" and len(sources) > 1
    if kind not in ("default", *EXTENSIONS) or (words - own) & fields.keys() or has_two:
        raise InexpressibleError
    made = {name: value for name, value in fields.items() if name not in {"rope_type", *own}}
    extension = {name: fields[name] for name in own & fields.keys()}
    return made if kind == "default" else made | {kind: extension}


def learned_absolute(fields: Json) -> Json:
    own = ("interpolation", "interpolated_length")
    made = {name: value for name, value in fields.items() if name not in own}
    how = fields.get("interpolation", "INTERPOLATION_NONE")
    if how == "INTERPOLATION_NONE" and "interpolated_length" not in fields:
        return made
    if how not in ("INTERPOLATION_LINEAR", "INTERPOLATION_LINEAR_ALIGN_CORNERS"):
        raise InexpressibleError
    resample: Json = {"align_corners": True} if how.endswith("CORNERS") else {}
    if "interpolated_length" in fields:
        resample["target"] = [fields["interpolated_length"]]
    return made | {"resample": resample}


TRANSLATIONS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "sinusoidal": ("sinusoidal", sinusoidal),
    "multi_axis_sinusoidal": ("sinusoidal", multi_axis_sinusoidal),
    "relative_sinusoidal": ("relative_sinusoidal", sinusoidal),
    "translated/relative_sinusoidal": ("relative_sinusoidal", sinusoidal),
    "sinusoidal_distances": ("sinusoidal_distances", sinusoidal_distances),
    "rotary": ("rotary", rotary),
    "translated/rotary": ("rotary", rotary),
    "learned_absolute": ("learned_absolute", learned_absolute),
}
"""By the stored file, the encoding's or term's successor and the fields that it has there."""

RENAMED = {
    "learned_absolute.interpolation": "resample",
    "learned_absolute.interpolated_length": "resample.target",
} | {
    f"{name}.{field}": successor
    for name in ("sinusoidal", "multi_axis_sinusoidal", "relative_sinusoidal")
    for field, successor in {
        "base": "ladder.base",
        "layout": "columns",
        "min_timescale": "ladder.timescales.min",
        "max_timescale": "ladder.timescales.max",
        "num_axes": "axes",
        "axis_lengths": "axes.length",
        "axis_scale": "axes.scale",
        "axis_eps": "axes.eps",
        "axis_offset": "axes.offset",
    }.items()
}
"""The field that a refusal names instead."""


def path_of(owner: str, field: str, encoding: Json) -> str:
    """What the successor calls a field."""
    for kind in EXTENSIONS.keys() & encoding.keys():
        if field == "rope_type":
            return kind
        if field in EXTENSIONS[kind]:
            return f"{kind}.{field}"
    return RENAMED.get(f"{owner}.{field}", field)


def translated(line: Json, file: str) -> Json:
    successor, translate = TRANSLATIONS[file]
    name = Path(file).name
    if "logits" in line:
        first, *rows = line["logits"]
        spec = dict(first.get("spec", {}))
        if name in spec:
            spec[successor] = translate(spec.pop(name))
        made = line | {"logits": [first | {"spec": spec}, *rows]}
    else:
        tensor = dict(line["tensor"])
        if name in tensor:
            tensor[successor] = translate(tensor.pop(name))
        made = line | {"tensor": tensor}
    if "changed" in line:
        owner, *fields = line["changed"].split(".")
        if owner == name:
            encoding = made.get("tensor", {}).get(successor, {})
            paths = [path_of(owner, field, encoding) for field in fields]
            made["changed"] = ".".join([successor, *paths])
    return made


def stored_in(revision: str, name: str) -> list[Json]:
    command = ["git", "show", f"{revision}:tests/conformance/golden/requests/{name}.jsonl"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in made.stdout.splitlines()]


def main() -> None:
    revision, *names = sys.argv[1:]
    files: dict[str, dict[str, Json]] = defaultdict(dict)
    with stored.serving() as stub:
        for name in names or TRANSLATIONS:
            successor, _ = TRANSLATIONS[name]
            served, refused, dropped = 0, 0, 0
            for line in stored_in(revision, name):
                try:
                    made = translated(line, name)
                except InexpressibleError:
                    dropped += 1
                    continue
                if "code" in line and stored.answer(stub, made) != {"code": line["code"]}:
                    dropped += 1
                    continue
                served, refused = served + ("code" not in line), refused + ("code" in line)
                request = made.get("tensor") or made["logits"]
                files[successor].setdefault(json.dumps(request, sort_keys=True), made)
            print(f"{name}: {served} served, {refused} refused, {dropped} dropped")
    for successor, lines in files.items():
        stored.TRANSLATED.mkdir(exist_ok=True)
        in_order = sorted(lines.values(), key=lambda line: "code" in line)
        texts = [json.dumps(line, separators=(",", ":")) for line in in_order]
        path = stored.TRANSLATED / f"{successor}.jsonl"
        path.write_text("".join(f"{text}\n" for text in texts))


if __name__ == "__main__":
    main()
