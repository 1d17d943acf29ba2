# SPDX-License-Identifier: Apache-2.0
"""Python and the tool make the same request from the same preset arguments."""

import json
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnbias
from tests.support.server import Server
from tests.support.ways import run_tool, tool

LENGTHS: dict[str, dict[str, int]] = {
    "table": {"positions": 5},
    "pair": {"query_length": 5, "key_length": 5},
    "grid": {},
}
# Fits the values that some_value returns: reaches of 6, or a 1 by 7 window.
TABLE = np.arange(52, dtype="f4").reshape(13, 4)
CLASSES = {name.lower(): getattr(attnbias, name) for name in attnbias._spec.presets.__all__}


def listed() -> dict[str, Any]:
    encodings = json.loads(run_tool("", "list", "--json"))["encodings"]
    return {each["name"]: each["fields"] for each in encodings if "preset_of" in each}


PRESETS = listed()


def own_fields(name: str) -> list[dict[str, Any]]:
    """Returns the fields, excluding those in layers."""
    return [field for field in PRESETS[name] if ".N." not in field["name"]]


def layer_of(name: str) -> Any:
    """Returns the weight of a preset's only layer, with 6 heads."""
    if len(own_fields(name)) == len(PRESETS[name]):
        return None
    has_window = any(field["name"] == "window" for field in PRESETS[name])
    return np.ones((6, 2 if has_window else 1), "f4")


def some_value(field: dict[str, Any]) -> Any:
    if "values" in field:
        return field["values"][-1]
    if field["type"] == "table":
        return TABLE
    if field["list"]:
        return [1, 7]
    return {"bool": True, "double": 20.0}.get(field["type"], 6)


def arguments(name: str) -> list[dict[str, Any]]:
    """Returns the required arguments, alone and with any one or two of the others."""
    fields = [field for field in own_fields(name) if not field["name"].endswith("_layout")]
    values = {field["name"]: some_value(field) for field in fields}
    required = {field["name"]: values[field["name"]] for field in fields if field["required"]}
    some = (combinations(values.items(), count) for count in range(3))
    return [required | dict(items) for items in chain.from_iterable(some)]


def in_python(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, with an object for "resample.source" and related fields."""
    made: dict[str, Any] = {}
    for name, value in given.items():
        owner, _, part = name.rpartition(".")
        (made.setdefault(owner, {}) if owner else made)[part] = value
    kinds = {"resample": attnbias.Resample}
    return {name: kinds[name](**value) if name in kinds else value for name, value in made.items()}


def test_python_and_the_tool_have_the_same_presets() -> None:
    assert {name.replace("_", "") for name in PRESETS} == CLASSES.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_make_the_same_requests(shared_server: Server, tmp_path: Path, name: str) -> None:
    served = 0
    np.save(tmp_path / "table.npy", TABLE)
    has_table = any(field.get("type") == "table" for field in own_fields(name))
    weight = layer_of(name)
    layers = {} if weight is None else {"layers": [attnbias.MlpLayer(weight)]}
    layer_words = [f"layers.0.weight=@{tmp_path}/weight.npy"] if layers else []
    if layers:
        np.save(tmp_path / "weight.npy", weight)

    def word(value: Any) -> str:
        if value is TABLE:
            return f"@{tmp_path}/table.npy"
        return json.dumps(value, separators=(",", ":")).strip('"[]')

    with attnbias.Client(shared_server.address) as client:
        for given in arguments(name):
            asked: Any = {"values": "buckets"} if has_table and "table" not in given else {}
            encoding = CLASSES[name.replace("_", "")](**in_python(given), **layers)
            asked |= LENGTHS[encoding.extent]
            words = [*layer_words, *(f"{key}={word(value)}" for key, value in given.items())]
            flags = [f"--{key.replace('_', '-')}={value}" for key, value in asked.items()]
            answer = tool(shared_server.address, "describe", name, *words, *flags, "--json")
            try:
                wanted = client.describe(encoding, **asked).fingerprint
            except attnbias.InvalidArgumentError:
                assert "INVALID_ARGUMENT" in answer.stderr
                continue
            assert json.loads(answer.stdout)["fingerprint"] == wanted
            served += 1
    assert served >= 2
