# SPDX-License-Identifier: Apache-2.0
"""Every module of transformers that makes or learns one vector for each position of a sequence.

Each is served, or stands in the table of docs/encodings.md. Those of images are in
multi_axis_sinusoidal_test.py.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits, to_array
from bounds import assert_near
from transformers import models

import attnbias

DOCS = Path(__file__).parents[2] / "docs" / "encodings.md"
NAME = re.compile(
    r"^class (\w*(?:Sin[a-z]*(?:Position|Embed)|Learned\w*Position)\w*)\(", re.MULTILINE
)
# What the answers of those of images depend on.
OF_IMAGES = {"shape", "width", "pixel_values"}
LENGTH, DIM = 50, 12


def find_modules() -> dict[str, Any]:
    """By FOLDER.CLASS."""
    found = {}
    for path in sorted(Path(models.__path__[0]).glob("*/modeling_*.py")):
        names = NAME.findall(path.read_text())
        if not names:
            continue
        modeling = importlib.import_module(f"{models.__name__}.{path.parent.name}.{path.stem}")
        for name in names:
            kind = getattr(modeling, name)
            if not OF_IMAGES & inspect.signature(kind.forward).parameters.keys():
                found[f"{path.parent.name}.{name}"] = kind
    return found


MODULES = find_modules()
LEARNED = [name for name in MODULES if "Learned" in name]
SINUSOIDAL = [name for name in MODULES if "Learned" not in name]


def make(kind: Any) -> Any:
    """With LENGTH positions of DIM columns, whatever its arguments are called."""
    config = SimpleNamespace(
        max_position_embeddings=LENGTH,
        hidden_size=DIM,
        frequency_embedding_size=DIM,
        diffusion_max_period=10000,
    )
    arguments = {
        "num_positions": LENGTH,
        "num_embeddings": LENGTH,
        "length": LENGTH,
        "embedding_dim": DIM,
        "embed_dim": DIM,
        "channels": DIM,
        "dim": DIM,
        "config": config,
        "padding_idx": 1,
    }
    wanted = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in arguments.items() if name in wanted})


def rows_of(module: Any) -> Array:
    """Of positions 0, 1, 2 … where it has them as a table, or by asking for them."""
    if hasattr(module, "create_weight"):
        return to_array(module.create_weight())
    if isinstance(module, torch.nn.Embedding):  # filled by the model that it is part of
        return to_array(module.get_embedding(*module.weight.shape, module.padding_idx))
    for name in ("weights", "positional_embedding"):
        if hasattr(module, name):
            return to_array(getattr(module, name))
    positions = torch.arange(LENGTH).float()
    if "inputs_embeds" in inspect.signature(module.forward).parameters:
        return to_array(module(torch.empty(1, LENGTH, DIM))[0])
    scale = {"scale": 1} if "scale" in inspect.signature(module.forward).parameters else {}
    return to_array(module(positions, **scale))


def documented() -> dict[str, str]:
    """What the table of docs/encodings.md says of each module in it."""
    table = DOCS.read_text().split("### Position modules\n")[1]
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", table, re.MULTILINE)
    return {name: why for names, why in rows for name in re.findall(r"`(\w+)`", names)}


def sines_first(rows: Array) -> Array:
    return rows


def cosines_first(rows: Array) -> Array:
    sines, cosines = np.split(rows, 2, axis=1)
    return np.concatenate([cosines, sines], axis=1)


@pytest.mark.parametrize("name", SINUSOIDAL)
def test_sinusoidal(client: attnbias.Client, name: str) -> None:
    why = documented().get(MODULES[name].__name__, "")
    arranged: Callable[[Array], Array] = cosines_first if "cosines" in why else sines_first
    want = rows_of(make(MODULES[name]))
    # fairseq's have zeros for padding.
    positions = [p for p in range(LENGTH) if want[p].any()]
    assert len(positions) >= LENGTH - 1

    def is_layout(layout: str) -> bool:
        encoding = attnbias.Sinusoidal(dim=DIM, layout=layout)
        got = client.get(encoding, position_ids=positions)
        try:
            assert_near(arranged(got), want[positions], np.array(positions))
        except AssertionError:
            return False
        return True

    assert any(map(is_layout, ("CONCATENATED", "TENSOR2TENSOR")))


@pytest.mark.parametrize("name", LEARNED)
def test_learned(client: attnbias.Client, name: str) -> None:
    module = make(MODULES[name])
    by_shape = "input_ids_shape" in inspect.signature(module.forward).parameters
    with torch.no_grad():
        answer = module(torch.Size([1, 9]) if by_shape else torch.ones(1, 9, dtype=torch.long))
    encoding = attnbias.LearnedAbsolute(
        table=to_array(module.weight), offset=getattr(module, "offset", 0)
    )
    assert_same_bits(client.get(encoding, positions=9), to_array(answer).reshape(9, DIM))


def test_there_are_many() -> None:
    assert len(LEARNED) >= 12
    assert len(SINUSOIDAL) >= 25
    assert documented().keys() <= {kind.__name__ for kind in MODULES.values()}
