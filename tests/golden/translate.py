# SPDX-License-Identifier: Apache-2.0
"""Rewrites stored requests of encodings that the contract no longer has.

Usage: python -m tests.golden.translate REVISION

Reads the requests of each encoding in TRANSLATIONS from a revision of this repository that stores
them, and writes them as requests of its successor. The answers stay as that revision stores them,
so that replay_test.py proves that the successor serves the same bytes. A refusal is dropped where
the successor cannot express the request, or serves it.
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


def swin_v2(fields: Json) -> Json:
    made = swin(fields)
    names = [f"pretrained_window_{side}" for side in ("height", "width")]
    pretrained = [made.pop(name, None) for name in names]
    tables = {"weight": made.pop("hidden_weight", None), "bias": made.pop("hidden_bias", None)}
    hidden = {name: table for name, table in tables.items() if table is not None}
    output = {"weight": made.pop("output_weight")} if "output_weight" in made else {}
    made |= {"layers": [hidden, output], "activation": "ACTIVATION_RELU"}
    made |= {"coordinates": "COORDINATES_LOG2_NORMALIZED", "output": "MLP_OUTPUT_SIGMOID_16"}
    if any(side is not None for side in pretrained):
        sides = zip(pretrained, made["window"], strict=True)
        made["pretrained_window"] = [own if side is None else side for side, own in sides]
    return made


def dynamic_position_bias(fields: Json) -> Json:
    made = {name: value for name, value in fields.items() if name != "log_distance"}
    if fields.get("log_distance"):
        made["coordinates"] = "COORDINATES_SIGNED_LOG"
    return made | {"activation": "ACTIVATION_SILU"}


TRANSLATIONS: dict[str, tuple[str, Callable[[Json], Json]]] = {
    "transformer_xl": ("relative_sinusoidal", transformer_xl),
    "xlnet": ("relative_sinusoidal", xlnet),
    "conformer": ("relative_sinusoidal", dict),
    "symmetric_sinusoidal": ("relative_sinusoidal", symmetric_sinusoidal),
    "learned_relative": ("learned_relative", table_as("scalars")),
    "shaw": ("learned_relative", table_as("vectors")),
    "swin": ("grid_relative", swin),
    "beit": ("grid_relative", beit),
    "swin_v2": ("mlp_bias", swin_v2),
    "dynamic_position_bias": ("mlp_bias", dynamic_position_bias),
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
    "swin_v2.window_height": "window",
    "swin_v2.window_width": "window",
    "swin_v2.pretrained_window_height": "pretrained_window",
    "swin_v2.pretrained_window_width": "pretrained_window",
    "swin_v2.hidden_weight": "layers.weight",
    "swin_v2.hidden_bias": "layers.bias",
    "swin_v2.output_weight": "layers.weight",
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
    (revision,) = sys.argv[1:]
    files: dict[str, dict[str, Json]] = defaultdict(dict)
    with stored.serving() as stub:
        for name, (successor, _) in TRANSLATIONS.items():
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
