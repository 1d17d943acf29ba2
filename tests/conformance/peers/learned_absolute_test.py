# SPDX-License-Identifier: Apache-2.0
"""Learned positions against the modules that models use, and against torch's resampling."""

import math
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import transformers as hf
from bits import assert_same_bits, to_array
from real import PRECISION, rounded_array
from resampling import Filter, Grid, loss_of
from transformers.models.beit.modeling_beit import BeitEmbeddings
from transformers.models.deit.modeling_deit import DeiTEmbeddings
from transformers.models.dinov2.modeling_dinov2 import Dinov2Embeddings
from transformers.models.ijepa.modeling_ijepa import IJepaEmbeddings
from transformers.models.internvl.modeling_internvl import InternVLVisionEmbeddings
from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding
from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings
from transformers.models.tipsv2.modeling_tipsv2 import Tipsv2VisionEmbeddings
from transformers.models.vit.modeling_vit import ViTEmbeddings
from transformers.vision_utils import get_vision_interpolation_indices_and_weights
from x_transformers.x_transformers import AbsolutePositionalEmbedding

import attnbias


def test_opt_starts_at_row_two(client: attnbias.Client) -> None:
    torch.manual_seed(0)
    embedding = OPTLearnedPositionalEmbedding(100, 24)
    encoding = attnbias.LearnedAbsolute(table=embedding.weight, offset=2)
    with torch.no_grad():
        want = to_array(embedding(torch.ones(1, 100, dtype=torch.long))[0])
    assert_same_bits(client.get(encoding, positions=100), want)
    assert_same_bits(client.get(encoding, position_ids=[7, 99, 0]), want[[7, 99, 0]])
    with pytest.raises(attnbias.OutOfRangeError, match=r"want positions in \[-2, 100\)"):
        client.get(encoding, positions=101)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_padding_is_zero(client: attnbias.Client, dtype: str) -> None:
    torch.manual_seed(1)
    embedding = torch.nn.Embedding(20, 6, padding_idx=1)
    encoding = attnbias.LearnedAbsolute(table=embedding.weight, padding_idx=1)
    ids = [1, 1, 2, 3, 4]  # fairseq's rows for two pads and three tokens
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    with torch.no_grad():
        want = to_array(embedding(torch.tensor(ids)).to(types[dtype]))
    assert_same_bits(client.get(encoding, position_ids=ids, data_type=dtype), want)


@pytest.mark.parametrize("dim", [24, 64])
def test_matches_x_transformers(client: attnbias.Client, dim: int) -> None:
    """The rows are scaled by dim^(-1/2) in float32."""
    torch.manual_seed(2)
    peer = AbsolutePositionalEmbedding(dim, 100)
    encoding = attnbias.LearnedAbsolute(table=peer.emb.weight)
    scale = float(np.float32(peer.scale))
    for start, length in ((0, 100), (31, 40)):
        with torch.no_grad():
            want = to_array(peer(torch.empty(1, length), offset=start))
        got = client.get(encoding, positions=(start, start + length), scale=scale)
        assert_same_bits(got, want)


FILTERS = [Filter(*flags) for flags in product([False, True], repeat=3)]
LINES = [(1, 5), (4, 1), (4, 2), (4, 8), (77, 248), (512, 1024), (512, 300), (9, 9)]
GRIDS = [
    ((5, 7), (8, 3)),
    ((14, 14), (16, 24)),
    ((16, 16), (7, 9)),
    ((7, 7), (7, 7)),
    ((1, 4), (4, 1)),
    ((6, 2), (1, 9)),
    ((37, 37), (14, 14)),
]
DTYPES = {"f32": torch.float32, "f64": torch.float64}


def resample_of(grid: Grid, how: Filter, **more: Any) -> attnbias.Resample:
    steps = [step for step in grid.step if step is not None]
    return attnbias.Resample(
        source=grid.source,
        target=grid.target,
        filter="cubic" if how.cubic else "linear",
        cubic_a=how.cubic_a,
        align_corners=how.align_corners,
        antialias=how.antialias,
        step=steps or None,
        **more,
    )


def assert_torchs(client: attnbias.Client, grid: Grid, how: Filter, dtype: str, mode: Any) -> None:
    """Compares in `dtype`, to within the bounds on torch's own roundings."""
    rows = torch.randn(math.prod(grid.source), 5, dtype=DTYPES[dtype])
    image = rows.T.reshape(1, 5, *grid.source)
    resized = torch.nn.functional.interpolate(
        image, **mode, align_corners=how.align_corners, antialias=how.antialias
    )
    want = resized[0].flatten(1).T.numpy()
    table = rows.numpy()
    encoding = attnbias.LearnedAbsolute(table, resample=resample_of(grid, how))
    got = client.get(encoding, positions=len(want), data_type=dtype)
    assert got.shape == want.shape
    unit = np.finfo(want.dtype).eps / 2
    assert np.abs(got.astype(np.longdouble) - want).max() <= unit * loss_of(table, grid, how)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(("rows", "length"), LINES)
def test_resampled_sequence_matches_torch(
    client: attnbias.Client, rows: int, length: int, align_corners: bool, dtype: str
) -> None:
    torch.manual_seed(rows)
    grid = Grid([rows], [length], [None])
    how = Filter(align_corners=align_corners)
    assert_torchs(client, grid, how, dtype, {"size": length, "mode": "linear"})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", FILTERS)
@pytest.mark.parametrize(("source", "target"), GRIDS)
def test_resampled_grid_matches_torch(
    client: attnbias.Client, source: Any, target: Any, how: Filter, dtype: str
) -> None:
    torch.manual_seed(source[0])
    grid = Grid(source, target, [None, None])
    mode = "bicubic" if how.cubic else "bilinear"
    assert_torchs(client, grid, how, dtype, {"size": target, "mode": mode})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [how for how in FILTERS if not how.align_corners])
@pytest.mark.parametrize(("source", "target"), GRIDS)
def test_scale_factors_match_torch(
    client: attnbias.Client, source: Any, target: Any, how: Filter, dtype: str
) -> None:
    """Uses DINOv2's offset. torch copies an axis of the same length, unless the filter is cubic."""
    torch.manual_seed(source[0])
    factors = [(m + 0.1) / n for n, m in zip(source, target, strict=True)]
    copies = how.antialias or not how.cubic
    steps = [
        1.0 if copies and n == m else 1 / factor
        for n, m, factor in zip(source, target, factors, strict=True)
    ]
    mode = {"scale_factor": factors, "mode": "bicubic" if how.cubic else "bilinear"}
    assert_torchs(client, Grid(source, target, steps), how, dtype, mode)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("how", [*FILTERS, Filter(cubic=True, cubic_a=-0.6)])
def test_resampled_values_are_correctly_rounded(
    client: attnbias.Client, how: Filter, dtype: str
) -> None:
    """Small integers produce ties."""
    steps = [None, None] if how.align_corners else [0.55, 1.6]
    table = np.random.default_rng(5).integers(-4000, 4000, (1 + 24, 3)).astype(np.float32)
    for grid in (Grid([4, 6], [8, 3], [None, None]), Grid([6, 4], [7, 2], steps)):
        exact = [
            grid.value(table[1:], how, row, column)
            for row in range(math.prod(grid.target))
            for column in range(3)
        ]
        with mpmath.workprec(PRECISION):
            wanted = [mpmath.mpf(each.numerator) / each.denominator for each in exact]
        resample = resample_of(grid, how, prefix_rows=1)
        got = client.get(
            attnbias.LearnedAbsolute(table, resample=resample),
            positions=1 + math.prod(grid.target),
            data_type=dtype,
        )
        assert_same_bits(got[1:], rounded_array(wanted, dtype).reshape(-1, 3))
        own = client.get(attnbias.LearnedAbsolute(table), positions=1, data_type=dtype)
        assert_same_bits(got[:1], own)


CONFIG: Any = {"image_size": 224, "patch_size": 16, "hidden_size": 6, "num_attention_heads": 1}
PAIRS = CONFIG | {"image_size": [224, 224], "patch_size": [16, 16]}
CUBIC = Filter(cubic=True)


@pytest.mark.parametrize("size", [(256, 384), (128, 96), (224, 240)])
@pytest.mark.parametrize(
    ("module", "prefix", "how"),
    [
        (ViTEmbeddings(hf.ViTConfig(**CONFIG)), 1, CUBIC),
        (DeiTEmbeddings(hf.DeiTConfig(**CONFIG)), 2, CUBIC),
        (Dinov2Embeddings(hf.Dinov2Config(**CONFIG)), 1, CUBIC),
        (BeitEmbeddings(hf.BeitConfig(**CONFIG, use_absolute_position_embeddings=True)), 1, CUBIC),
        (IJepaEmbeddings(hf.IJepaConfig(**CONFIG)), 0, CUBIC),
        (InternVLVisionEmbeddings(hf.InternVLVisionConfig(**PAIRS)), 1, CUBIC),
        (Tipsv2VisionEmbeddings(hf.Tipsv2VisionConfig(**CONFIG)), 1, Filter(antialias=True)),
    ],
    ids=["vit", "deit", "dinov2", "beit", "ijepa", "internvl", "tipsv2"],
)
def test_matches_interpolate_pos_encoding(
    client: attnbias.Client, module: Any, prefix: int, how: Filter, size: tuple[int, int]
) -> None:
    torch.manual_seed(3)
    torch.nn.init.normal_(module.position_embeddings)
    sides = [side // 16 for side in size]
    tokens = torch.empty(1, prefix + math.prod(sides), 6)
    with torch.no_grad():
        want = to_array(module.interpolate_pos_encoding(tokens, *size)[0])
    grid = Grid([14, 14], sides, [None, None])
    table = to_array(module.position_embeddings[0])
    encoding = attnbias.LearnedAbsolute(table, resample=resample_of(grid, how, prefix_rows=prefix))
    got = client.get(encoding, positions=len(want))
    assert_same_bits(got[:prefix], want[:prefix])
    off = np.abs(got.astype("f8") - want).max()
    assert off <= np.finfo(np.float32).eps / 2 * loss_of(table, grid, how)


def test_matches_siglip2_resized_positions(client: attnbias.Client) -> None:
    torch.manual_seed(4)
    square = torch.randn(16, 16, 6)
    table, how = square.reshape(-1, 6).numpy(), Filter(antialias=True)
    for sides in ([12, 20], [5, 7], [16, 16]):
        resized = Siglip2VisionEmbeddings.resize_positional_embeddings(
            square, torch.tensor([sides]), math.prod(sides)
        )
        grid = Grid([16, 16], sides, [None, None])
        encoding = attnbias.LearnedAbsolute(table, resample=resample_of(grid, how))
        got = client.get(encoding, positions=math.prod(sides))
        off = np.abs(got.astype("f8") - to_array(resized[0])).max()
        assert off <= np.finfo(np.float32).eps / 2 * loss_of(table, grid, how)


@pytest.mark.parametrize("merge", [1, 2])
@pytest.mark.parametrize("how", [how for how in FILTERS if not how.antialias])
def test_matches_interpolation_of_packed_images(
    client: attnbias.Client, how: Filter, merge: int
) -> None:
    """Covers Qwen3-VL and similar models, in which the tokens of a patch block are adjacent."""
    torch.manual_seed(5)
    table = torch.randn(12 * 12, 6)
    for sides in ([8, 20], [14, 6], [12, 12]):
        indices, weights = get_vision_interpolation_indices_and_weights(
            torch.tensor([[1, *sides]]),
            num_grid_per_side=12,
            mode="bicubic" if how.cubic else "bilinear",
            align_corners=how.align_corners,
            spatial_merge_size=merge,
        )
        want = to_array((table[indices] * weights[:, :, None]).sum(1))
        order = np.arange(math.prod(sides)).reshape(sides[0] // merge, merge, -1, merge)
        grid = Grid([12, 12], sides, [None, None])
        encoding = attnbias.LearnedAbsolute(table, resample=resample_of(grid, how))
        got = client.get(encoding, position_ids=order.swapaxes(1, 2).ravel().tolist())
        off = np.abs(got.astype("f8") - want).max()
        assert off <= np.finfo(np.float32).eps / 2 * loss_of(table.numpy(), grid, how)
