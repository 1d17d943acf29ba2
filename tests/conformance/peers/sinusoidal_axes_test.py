# SPDX-License-Identifier: Apache-2.0
"""Sinusoids over several axes against vision models' modules and the formulas."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from bits import Array, assert_same_bits, to_array
from formulas import sinusoidal
from real import NUMPY_TYPES, rounded_array
from transformers import CONFIG_MAPPING, AutoModel, AutoModelForObjectDetection
from transformers.models.aimv2.modeling_aimv2 import Aimv2VisionEmbeddings
from transformers.models.edgetam.modeling_edgetam import EdgeTamSinePositionEmbedding
from transformers.models.granite_docling.modeling_granite_docling import (
    GraniteDoclingPositionEmbedding,
)
from transformers.models.omdet_turbo.modeling_omdet_turbo import OmDetTurboHybridEncoder
from transformers.models.vit_mae.modeling_vit_mae import ViTMAEEmbeddings

import attnbias

HEIGHT, WIDTH = 25, 38

# transformers' models whose positions are fractions of the image, each with its differences from
# DETR.
FRACTIONS: dict[str, dict[str, float]] = {
    "detr": {},
    "conditional_detr": {},
    "table-transformer": {},
    "deformable_detr": {"offset": -0.5},
    "dab-detr": {"temperature": 20},
    "grounding-dino": {"temperature": 20},
    "mm-grounding-dino": {"temperature": 20},
    "maskformer": {},
    "mask2former": {},
    "oneformer": {},
    "edgetam": {},
    "edgetam_video": {},
    "sam2": {},
    "sam2_video": {},
    "sam3": {},
    "sam3_lite_text": {},
    "sam3_tracker_video": {},
}
OF_IMAGES = re.compile(r"\w*(SinePosition|PositionEmbeddingSine)")
# Modules whose rows and columns start at 0, unscaled.
COUNTS = [
    "rt_detr",
    "rt_detr_v2",
    "d_fine",
    "deimv2",
    "pp_doclayout_v2",
    "pp_doclayout_v3",
    "pp_doclayout_v4",
]


def model_of(model_type: str) -> torch.nn.Module:
    """Returns the default config's model without weights; ResNet replaces a timm backbone."""
    config_class = CONFIG_MAPPING[model_type]
    config = config_class()
    if getattr(getattr(config, "backbone_config", None), "model_type", "") == "timm_backbone":
        stages = [f"stage{i}" for i in range(1, 5)]
        config = config_class(backbone_config=hf.ResNetConfig(out_features=stages))
    auto = AutoModelForObjectDetection if model_type == "pp_doclayout_v2" else AutoModel
    with torch.device("meta"):
        return auto.from_config(config)


def position_modules(model_type: str) -> list[Any]:
    if model_type == "edgetam":  # its backbone needs timm
        return [EdgeTamSinePositionEmbedding(num_position_features=128, normalize=True)]
    modules = model_of(model_type).modules()
    found = [module for module in modules if OF_IMAGES.match(type(module).__name__)]
    assert found
    return found


def computed(module: Any, dtype: torch.dtype, mask: torch.Tensor) -> Array:
    """Returns [pixels, columns], where the mask is set."""
    shape = (1, 3, *mask.shape[1:])
    try:
        positions = module(shape, torch.device("cpu"), dtype, mask)
    except TypeError:  # an older module, which computes in float32
        positions = module(torch.empty(shape), mask)
    return to_array(positions[0].permute(1, 2, 0)[mask[0]])


def grid(height: int, width: int, first: int) -> list[list[int]]:
    rows, columns = np.divmod(np.arange(height * width), width)
    return [(rows + first).tolist(), (columns + first).tolist()]


def assert_near(got: Array, want: Array, largest_angle: float, base: float) -> None:
    """Compares to within a few ulps of the angle; the exponent's rounding is multiplied by
    ln(base).
    """
    loss = np.finfo(want.dtype).eps * (math.log(base) + 8)
    assert got.shape == want.shape
    assert np.max(np.abs(got - want)) <= loss * (largest_angle + 1)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model_type", FRACTIONS)
def test_fractional_positions_match_modules(
    client: attnbias.Client, model_type: str, dtype: torch.dtype, padded: bool
) -> None:
    """Rows and columns start at 1; the lengths are those of the unmasked part."""
    height, width = (HEIGHT - 4, WIDTH - 9) if padded else (HEIGHT, WIDTH)
    mask = torch.zeros(1, HEIGHT, WIDTH, dtype=torch.bool)
    mask[:, :height, :width] = True
    for module in position_modules(model_type):
        want = computed(module, dtype, mask)
        dim, largest_angle = want.shape[1], 2 * math.pi
        encoding = attnbias.DetrSinusoidal(dim, height=height, width=width, **FRACTIONS[model_type])
        if not getattr(module, "normalize", True):  # SAM 3's decoder
            axis = attnbias.Axis(ladder=attnbias.Ladder())
            encoding, largest_angle = attnbias.Sinusoidal(dim, axes=[axis] * 2), max(height, width)
        got = client.get(encoding, position_ids=grid(height, width, 1), data_type="f64")
        assert_near(got, want, largest_angle, 10000)


@pytest.mark.parametrize("model_type", COUNTS)
def test_integer_positions_match_modules(client: attnbias.Client, model_type: str) -> None:
    """Compares in float64; rows come before columns."""
    for module in position_modules(model_type):
        want = to_array(module(WIDTH, HEIGHT, torch.device("cpu"), torch.float64)[0])
        encoding = attnbias.MaeSinusoidal(want.shape[1])
        got = client.get(encoding, position_ids=grid(HEIGHT, WIDTH, 0), data_type="f64")
        assert_near(got, want, WIDTH, 10000)


def test_matches_vit_mae(client: attnbias.Client) -> None:
    """Columns come before rows, a mistake that its checkpoints contain."""
    embeddings = ViTMAEEmbeddings(hf.ViTMAEConfig(image_size=112))
    embeddings.initialize_weights()
    want = to_array(embeddings.position_embeddings[0, 1:])
    rows, columns = grid(7, 7, 0)
    encoding = attnbias.MaeSinusoidal(768)
    assert_same_bits(client.get(encoding, position_ids=[columns, rows]), want)


def test_matches_aimv2(client: attnbias.Client) -> None:
    """Compares the positions that the model adds to all-zero patches; columns come before rows."""
    config = hf.Aimv2VisionConfig(hidden_size=64, patch_size=2, is_native=True)
    embeddings = Aimv2VisionEmbeddings(config)
    torch.nn.init.zeros_(embeddings.patch_embed.bias)
    with torch.no_grad():
        want = to_array(embeddings(torch.zeros(1, 3, 2 * HEIGHT, 2 * WIDTH))[0])
    rows, columns = grid(HEIGHT, WIDTH, 0)
    encoding = attnbias.MaeSinusoidal(64)
    assert_same_bits(client.get(encoding, position_ids=[columns, rows]), want)


def test_matches_granite_docling(client: attnbias.Client) -> None:
    """Columns come before rows."""
    want = to_array(GraniteDoclingPositionEmbedding(64, 20).pos_embed)
    rows, columns = grid(20, 20, 0)
    encoding = attnbias.MaeSinusoidal(64)
    assert_same_bits(client.get(encoding, position_ids=[columns, rows]), want.reshape(400, 64))


def test_every_image_position_module_is_compared() -> None:
    """Finds classes of sinusoids by name, and modules that build a two-axis table."""
    compared = {
        type(module).__name__
        for model_type in [*FRACTIONS, *COUNTS]
        for module in position_modules(model_type)
    }
    found, builders = set(), set()
    for path in Path(hf.models.__path__[0]).glob("*/modeling_*.py"):
        text = path.read_text()
        found.update(filter(OF_IMAGES.match, re.findall(r"^class (\w+)", text, re.MULTILINE)))
        if "def build_2d_sinusoidal_position_embedding" in text:
            builders.add(path.parent.name)
    assert found - compared == set()
    assert builders == {*COUNTS, "aimv2", "granite_docling", "vit_mae"}


def test_matches_omdet_turbo(client: attnbias.Client) -> None:
    """Compares in float64; columns come before rows, and pixels are in column order."""
    build = OmDetTurboHybridEncoder.build_2d_sincos_position_embedding
    want = to_array(build(WIDTH, HEIGHT, 256, dtype=torch.float64)[0])
    encoding = attnbias.MaeSinusoidal(256)
    got = client.get(encoding, position_ids=grid(WIDTH, HEIGHT, 0), data_type="f64")
    assert_near(got, want, WIDTH, 10000)


LADDERS = [
    attnbias.Ladder(),
    attnbias.Ladder(timescales=attnbias.Timescales(min=2.0, max=50.0)),
    attnbias.Ladder(frequencies=[1, -2.5, 0, 1e-30, 0, 3, -0.1, 1e6]),
]
PLAIN, STRETCHED = attnbias.Axis(), attnbias.Axis(scale=-7.3, offset=1.1, length=37.0, eps=0.1)
AXES: dict[str, dict[str, Any]] = {
    "one ladder for all": {"axes": [PLAIN, STRETCHED, PLAIN]},
    "one for each": {"axes": [replace(STRETCHED, ladder=each) for each in LADDERS]},
    "widths": {"axes": [PLAIN, replace(PLAIN, ladder=LADDERS[2])], "axis_dims": [9, 16]},
}


@pytest.mark.parametrize("odd", ["SINE", "ZERO"])
@pytest.mark.parametrize("columns", ["INTERLEAVED", "SINES_COSINES", "COSINES_SINES"])
@pytest.mark.parametrize("axes", AXES)
def test_tables_are_correctly_rounded(
    client: attnbias.Client, axes: str, columns: Any, odd: Any
) -> None:
    """Covers every column order, and across_axes where it applies."""
    random = np.random.default_rng(3)
    ids = [random.integers(-1000, 100000, 20).tolist() for _ in AXES[axes]["axes"]]
    dim = sum(AXES[axes].get("axis_dims", [16] * len(ids)))
    for across in {False, columns != "INTERLEAVED"}:
        encoding = attnbias.Sinusoidal(
            dim, columns=columns, odd=odd, across_axes=across, **AXES[axes]
        )
        number = sinusoidal(encoding.to_spec().sinusoidal)
        places = zip(*ids, strict=True)
        reals = [number("", place, column) for place in places for column in range(dim)]
        for dtype in NUMPY_TYPES:
            got = client.get(encoding, position_ids=ids, data_type=dtype)
            assert_same_bits(got.ravel(), rounded_array(reals, dtype))
