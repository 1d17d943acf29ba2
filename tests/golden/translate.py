# SPDX-License-Identifier: Apache-2.0
"""Rewrites stored requests of encodings that the contract no longer has.

Usage: python -m tests.golden.translate REVISION NAME...

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

from tests.golden import stored
from tests.golden.stored import Json

ROOT = Path(__file__).parents[2]


class InexpressibleError(Exception):
    """The successor has no such request."""


Renames = dict[str, tuple[str, ...]]
"""Fields of the successor that take the value of a field; of others, the name stays."""


def renamed(fields: Json, renames: Renames, constants: Json) -> Json:
    made = dict(constants)
    for name, value in fields.items():
        made |= dict.fromkeys(renames.get(name, (name,)), value)
    return made


CLAMPED: Renames = {"clamp_len": ("left", "right")}


def transformer_xl(fields: Json) -> Json:
    constants = {"layout": "SINUSOIDAL_LAYOUT_CONCATENATED", "causal": True}
    return renamed(fields, {"clamp_len": ("left",)}, constants)


def xlnet(fields: Json) -> Json:
    others = {name: value for name, value in fields.items() if name != "attn_type"}
    directions = {
        "XLNET_ATTENTION_BIDIRECTIONAL": False,
        "XLNET_ATTENTION_UNIDIRECTIONAL": True,
    }
    attn_type = fields.get("attn_type", "XLNET_ATTENTION_BIDIRECTIONAL")
    if attn_type not in directions:
        raise InexpressibleError
    if directions[attn_type]:
        return transformer_xl(others)
    return renamed(others, CLAMPED, {"layout": "SINUSOIDAL_LAYOUT_CONCATENATED"})


def symmetric_sinusoidal(fields: Json) -> Json:
    return renamed(fields, {}, {"symmetric": True})


def table_as(name: str) -> Callable[[Json], Json]:
    return lambda fields: renamed(fields, {"table": (name,)}, {})


def swin(fields: Json) -> Json:
    sides = [fields.get(f"window_{side}", 0) for side in ("height", "width")]
    others = {name: value for name, value in fields.items() if not name.startswith("window_")}
    return {"window": sides} | others


def beit(fields: Json) -> Json:
    return swin(fields) | {"class_token": True}


def xpos(fields: Json) -> Json:
    decay = {name: fields[name] for name in ("scale_base", "gamma") if name in fields}
    if length := int(fields.get("sequence_length", 0)):
        decay["center"] = length // 2
    others = {
        name: value
        for name, value in fields.items()
        if name not in ("scale_base", "gamma", "sequence_length")
    }
    return renamed(others, {"dim": ("head_dim",)}, {"decay": decay})


def rotary(fields: Json) -> Json:
    made = dict(fields)
    order = made.pop("mrope_order", "MROPE_ORDER_CHUNKED")
    section = made.pop("mrope_section", None) or None
    if made.get("rope_type") == "ROPE_TYPE_AXIAL":
        del made["rope_type"]
        order = "MROPE_ORDER_AXIAL"
    elif section is None and "mrope_order" in fields:
        raise InexpressibleError
    if section is not None:
        made["pair_axis"] = dealt_out(section, order)
    if order == "MROPE_ORDER_AXIAL":
        base = {"base": made.pop("rope_theta")} if "rope_theta" in made else {}
        made["axes"] = [{"ladder": base}] * len(section or [0, 0])
    elif section is not None:
        made["axes"] = [{}] * len(section)
    return made


def dealt_out(section: list[int], order: str) -> list[int]:
    """The axis of each pair."""
    orders = {f"MROPE_ORDER_{name}" for name in ("CHUNKED", "INTERLEAVED", "AXIAL")}
    if order not in orders or min(section) < 0 or sum(section) > 32768:
        raise InexpressibleError
    axes, pairs = range(len(section)), sum(section)
    dealt = [axis for axis in axes for _ in range(section[axis])]
    if order == "MROPE_ORDER_INTERLEAVED":
        in_turn = [(m // len(axes), m % len(axes)) for m in range(pairs)]
        dealt = [axis if turn < section[axis] else 0 for turn, axis in in_turn]
    if [dealt.count(axis) for axis in axes] != section:
        raise InexpressibleError
    return dealt


TRANSLATIONS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "transformer_xl": ("relative_sinusoidal", transformer_xl),
    "xlnet": ("relative_sinusoidal", xlnet),
    "conformer": ("relative_sinusoidal", dict),
    "symmetric_sinusoidal": ("relative_sinusoidal", symmetric_sinusoidal),
    "learned_relative": ("learned_relative", table_as("scalars")),
    "shaw": ("learned_relative", table_as("vectors")),
    "swin": ("grid_relative", swin),
    "beit": ("grid_relative", beit),
    "xpos": ("rotary", xpos),
    "rotary": ("rotary", rotary),
}
"""By encoding, its successor and the fields that it has there."""

RENAMED = {
    "transformer_xl.clamp_len": "left",
    "xlnet.clamp_len": "left",
    "learned_relative.table": "scalars",
    "shaw.table": "vectors",
    "swin.window_height": "window",
    "swin.window_width": "window",
    "beit.window_height": "window",
    "beit.window_width": "window",
    "rotary.mrope_section": "pair_axis",
    "rotary.mrope_order": "axes",
    "xpos.dim": "head_dim",
    "xpos.scale_base": "decay.scale_base",
    "xpos.gamma": "decay.gamma",
    "xpos.sequence_length": "decay.center",
}
"""The field that a refusal names instead."""


def translated(line: Json, name: str) -> Json:
    successor, translate = TRANSLATIONS[name]
    tensor = {successor if key == name else key: value for key, value in line["tensor"].items()}
    if successor in tensor:
        tensor[successor] = translate(tensor[successor])
    made = line | {"tensor": tensor}
    if "changed" in line:
        owner, *fields = line["changed"].split(".", 1)
        if owner == name:
            fields = [RENAMED.get(line["changed"], field) for field in fields]
            made["changed"] = ".".join([successor, *fields])
    return made


def stored_in(revision: str, name: str) -> list[Json]:
    command = ["git", "show", f"{revision}:tests/golden/requests/{name}.jsonl"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in made.stdout.splitlines()]


def main() -> None:
    revision, *names = sys.argv[1:]
    files: dict[str, dict[str, Json]] = defaultdict(dict)
    with stored.serving() as stub:
        for name in names:
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
                files[successor].setdefault(json.dumps(made["tensor"], sort_keys=True), made)
            print(f"{name}: {served} served, {refused} refused, {dropped} dropped")
    for successor, lines in files.items():
        stored.TRANSLATED.mkdir(exist_ok=True)
        in_order = sorted(lines.values(), key=lambda line: "code" in line)
        texts = [json.dumps(line, separators=(",", ":")) for line in in_order]
        path = stored.TRANSLATED / f"{successor}.jsonl"
        path.write_text("".join(f"{text}\n" for text in texts))


if __name__ == "__main__":
    main()
