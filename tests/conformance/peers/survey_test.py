# SPDX-License-Identifier: Apache-2.0
"""Every request in docs/survey.md against the code of diffusers, timm and torchvision.

A case runs a peer twice: unmodified, and with float64 instead of float32, so that only the formula
is compared.
"""

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits
from diffusers.models import embeddings
from diffusers.models import transformers as dits
from diffusers.models.autoencoders import autoencoder_kl_minimax_h3, ltx2_diffusion_decoder
from diffusers.models.condition_embedders import condition_embedder_anima
from diffusers.pipelines.ltx2 import connectors
from pages import DOCS, Row, rows_of, section_of
from resampling import Filter, Grid, loss_of
from swin_v2 import ROUNDINGS, in_float64
from timm import layers as timm_layers
from timm.layers import pos_embed_sincos
from timm.models import (
    beit,
    edgenext,
    efficientformer,
    efficientformer_v2,
    gemma4_vit,
    levit,
    swin_transformer_v2_cr,
    tiny_vit,
    xcit,
)
from timm.models.swin_transformer import WindowAttention
from torchvision.models import maxvit, swin_transformer, vision_transformer
from torchvision.models.video import swin_transformer as video_swin_transformer

import attnbias

PAGE = "survey.md"
CODE = re.compile(r"`([^`]+)`")
Names = dict[str, Any]


def functions_of_the_page() -> Names:
    block = re.search(r"```python\n(.*?)```", (DOCS / PAGE).read_text(), re.DOTALL)
    assert block
    names: Names = {}
    exec(block[1], names)
    return names


FUNCTIONS = functions_of_the_page()
grid = FUNCTIONS["grid"]


class Peer(NamedTuple):
    """A peer's result, and the values of the names in the page's row."""

    result: Any
    names: Names
    # Maximum error of the result in machine epsilons; 0 means identical bits.
    loss: Any


class Case(NamedTuple):
    function: str
    run: Callable[[], Peer]
    # The function computes angles in float64, so it rounds float32 results once.
    rounded_once: bool


CASES: list[Case] = []
Run = Callable[..., Peer]


def case(*functions: Any, sizes: list[Any], rounded_once: bool = False) -> Callable[[Run], Run]:
    """Creates a test case for each function and size. If a function has a different name on the
    page, it is given as a pair: that name and the function.
    """

    def add(run: Run) -> Run:
        for function in functions:
            name, itself = (
                function if isinstance(function, tuple) else (function.__name__, function)
            )
            for size in sizes:
                CASES.append(Case(name, partial(run, itself, *size), rounded_once))
        return run

    return add


def sized(lengths: list[int]) -> Names:
    return dict(zip("THW"[-len(lengths) :], lengths, strict=True))


def sines(result: Any, reach: float, growth: float = 0, **names: Any) -> Peer:
    """Returns a peer for sines and cosines at positions up to `reach`, with frequencies up to 1.

    An angle takes at most 8 operations of half an epsilon each. An exponent's rounding grows with x
    = ln(1 / frequency), but the frequency falls faster: x exp(-x) < 1. If frequencies rise with the
    exponent, the error in half epsilons is their largest logarithm, `growth`.
    """
    return Peer(result, names, 1 + (4 + growth / 2) * reach)


def latents(lengths: list[int]) -> torch.Tensor:
    """Makes 2 x 2 patches: [batch, channels, (frames,) rows, columns]; only the shape matters."""
    return torch.empty(1, 1, *lengths[:-2], 2 * lengths[-2], 2 * lengths[-1])


# A small grid, and an image of 1024 by 1024 pixels.
LISTS = [([8, 12, 12], [3, 5, 7]), ([16, 56, 56], [1, 64, 64])]
# A small grid, and frames of 480 by 832 pixels.
VIDEOS = [(96, [3, 4, 5]), (128, [2, 30, 52])]


@case(
    dits.transformer_flux.FluxPosEmbed,
    dits.transformer_flux2.Flux2PosEmbed,
    dits.transformer_flux3.Flux3PosEmbed,
    dits.transformer_ovis_image.OvisImagePosEmbed,
    dits.transformer_longcat_image.LongCatImagePosEmbed,
    dits.transformer_bria.BriaEmbedND,
    dits.transformer_bria.BriaPosEmbed,
    dits.transformer_bria_fibo.BriaFiboEmbedND,
    dits.transformer_krea2.Krea2RotaryPosEmbed,
    sizes=LISTS,
    rounded_once=True,
)
@case(
    dits.transformer_flux2.Flux2PosEmbed,
    dits.transformer_flux3.Flux3PosEmbed,
    sizes=[([32, 32, 32, 32], [2, 3, 5, 4])],
    rounded_once=True,
)
def of_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    tables = module(2000, axes_dim)(torch.tensor(ids))
    return sines(tables, max(lengths), theta=2000, axes_dim=axes_dim, ids=ids)


@case(
    dits.transformer_wan.WanRotaryPosEmbed,
    dits.transformer_wan_animate.WanRotaryPosEmbed,
    dits.transformer_sana_video.WanRotaryPosEmbed,
    dits.transformer_skyreels_v2.SkyReelsV2RotaryPosEmbed,
    dits.transformer_chronoedit.ChronoEditRotaryPosEmbed,
    sizes=VIDEOS,
    rounded_once=True,
)
def of_videos(module: Any, d: int, lengths: list[int]) -> Peer:
    if module is dits.transformer_chronoedit.ChronoEditRotaryPosEmbed:
        lengths = [3, *lengths[1:]]  # two frames represent the first and the last
    tables = [table[0, :, 0] for table in module(d, (1, 2, 2), 1024)(latents(lengths))]
    return sines(tables, max(lengths), d=d, theta=10000, **sized(lengths))


def anyflow_causal(d: int, patch_size: Any, max_seq_len: int) -> Any:
    compressed = tuple(side * ratio for side, ratio in zip(patch_size, (1, 4, 4), strict=True))
    return dits.transformer_anyflow_far.AnyFlowCausalRotaryPosEmbed(
        d, patch_size, compressed, max_seq_len
    )


@case(
    dits.transformer_anyflow.AnyFlowRotaryPosEmbed,
    ("AnyFlowCausalRotaryPosEmbed for full frames", anyflow_causal),
    dits.transformer_sana_wm.SanaWMRotaryPosEmbed,
    sizes=VIDEOS,
)
def of_complex_videos(module: Any, d: int, lengths: list[int]) -> Peer:
    rope = module(d, (1, 2, 2), 1024)
    if module is dits.transformer_sana_wm.SanaWMRotaryPosEmbed:
        table = rope(lengths)
    else:
        table = rope._forward_full_frame(*lengths, torch.device("cpu"))
    return sines(table.reshape(-1, d // 2), max(lengths), d=d, theta=10000, **sized(lengths))


@case(("AnyFlowCausalRotaryPosEmbed for compressed frames", anyflow_causal), sizes=VIDEOS)
def of_compressed_videos(module: Any, d: int, lengths: list[int]) -> Peer:
    """A mean of 4 adjacent unit vectors has a length of at least 0.47, and dividing by it magnifies
    its error."""
    table = module(d, (1, 2, 2), 1024)._forward_compressed_frame(*lengths, torch.device("cpu"))
    names = {"downscale": [1, 4, 4], **sized(lengths)}
    return sines(table.reshape(-1, d // 2), 4 * max(lengths) / 0.4, d=d, theta=10000, **names)


ROPE_DIMS = [([8, 12, 12], [3, 5, 7]), ([16, 56, 56], [3, 34, 60])]


@case(
    dits.transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed,
    dits.transformer_hunyuan_video15.HunyuanVideo15RotaryPosEmbed,
    dits.transformer_hunyuanimage.HunyuanImageRotaryPosEmbed,
    sizes=ROPE_DIMS,
)
@case(dits.transformer_motif_video.MotifVideoRotaryPosEmbed, sizes=ROPE_DIMS, rounded_once=True)
@case(
    (
        "HunyuanImageRotaryPosEmbed for images",
        dits.transformer_hunyuanimage.HunyuanImageRotaryPosEmbed,
    ),
    sizes=[([8, 12], [5, 7]), ([64, 64], [64, 48])],
)
def of_rope_dim(module: Any, rope_dim: list[int], lengths: list[int]) -> Peer:
    if module is dits.transformer_hunyuanimage.HunyuanImageRotaryPosEmbed:
        rope = module([1, 2, 2][-len(lengths) :], rope_dim)
    else:
        rope = module(2, 1, rope_dim)
    return sines(
        rope(latents(lengths)), max(lengths), rope_dim=rope_dim, theta=256, **sized(lengths)
    )


# The latest frames, preceded by frames from a memory.
@case(
    dits.transformer_hunyuan_video_framepack.HunyuanVideoFramepackRotaryPosEmbed,
    dits.transformer_helios.HeliosRotaryPosEmbed,
    sizes=[([8, 12, 12], [0, 1, 5, 9], [5, 7]), ([16, 56, 56], [0, 17, 18, 19], [34, 60])],
)
def of_frames(module: Any, rope_dim: list[int], frames: list[int], sides: list[int]) -> Peer:
    indices, cpu = torch.tensor(frames), torch.device("cpu")
    if module is dits.transformer_helios.HeliosRotaryPosEmbed:
        result = module(rope_dim, 256)(indices[None], *sides, cpu)[0].flatten(1).T
    else:
        result = module(2, 1, rope_dim)(indices, 2 * sides[0], 2 * sides[1], cpu)
    names = {"theta": 256, "rope_dim": rope_dim, "frame_indices": frames}
    return sines(result, max(*frames, *sides), **names, **sized([len(frames), *sides]))


# Bases of 480 pixels per side, and stretched for higher resolutions.
@case(
    dits.transformer_kandinsky.Kandinsky5RoPE3D,
    dits.transformer_kandinsky6.Kandinsky6RoPE3D,
    dits.transformer_kandinsky6_sr.Kandinsky6SRRoPE3D,
    sizes=[([8, 12, 12], [3, 5, 7], (1.0, 2.0, 2.0)), ([16, 24, 24], [2, 34, 60], (0.7, 3.16, 2))],
)
def of_kandinsky(module: Any, axes_dims: list[int], lengths: list[int], factors: Any) -> Peer:
    positions = [torch.arange(length) for length in lengths]
    if module is dits.transformer_kandinsky.Kandinsky5RoPE3D:
        rope = module(axes_dims)((1, *lengths), positions, factors)[0]
    else:
        rope = module(axes_dims)(positions, factors)
    names = {"axes_dims": axes_dims, "max_period": 10000, "scale_factor": factors}
    return sines(rope.flatten(0, 3), max(lengths) / min(factors), **names, **sized(lengths))


@case(
    dits.transformer_kandinsky.Kandinsky5RoPE1D,
    dits.transformer_kandinsky6.Kandinsky6RoPE1D,
    sizes=[(8, range(9), 1.0), (64, [3, 1, 1000], 1.0)],
)
@case(dits.transformer_kandinsky6.Kandinsky6RoPE1D, sizes=[(64, range(700), 1.0 / 3)])
def of_kandinskys_text(module: Any, dim: int, pos: Any, freqs_scaling: float) -> Peer:
    fields = {} if freqs_scaling == 1 else {"freqs_scaling": freqs_scaling}
    rope = module(dim, **fields)(torch.tensor([*pos]))[:, 0]
    names = {"dim": dim, "max_period": 10000, "pos": pos, "freqs_scaling": freqs_scaling}
    return sines(rope, max(pos), **names)


@case(
    dits.transformer_lumina2.Lumina2RotaryPosEmbed,
    dits.transformer_z_image.RopeEmbedder,
    sizes=LISTS,
)
def of_complex_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    rope = module(256, axes_dim, [64, 128, 128])
    if module is dits.transformer_lumina2.Lumina2RotaryPosEmbed:
        table = rope._get_freqs_cis(torch.tensor(ids)[None])[0]
    else:
        table = rope(torch.tensor(ids))
    return sines(table, max(lengths), theta=256, axes_dim=axes_dim, ids=ids)


@case(dits.transformer_hidream_image.HiDreamImageEmbedND, sizes=LISTS, rounded_once=True)
@case(dits.transformer_prx.PRXEmbedND, sizes=LISTS, rounded_once=True)
@case(dits.transformer_ernie_image.ErnieImageEmbedND3, sizes=LISTS)
def of_batches_of_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    if module is dits.transformer_hidream_image.HiDreamImageEmbedND:
        result = module(10000, axes_dim)(torch.tensor(ids * 1.0)[None])[0, :, 0]
    elif module is dits.transformer_prx.PRXEmbedND:
        result = module(sum(axes_dim), 10000, axes_dim)(torch.tensor(ids)[None])[0, 0]
    else:
        given = torch.tensor(ids, dtype=torch.get_default_dtype())[None]
        turned = module(sum(axes_dim), 10000, axes_dim)(given)[0, :, 0]
        result = turned.cos(), turned.sin()
    return sines(result, max(lengths), theta=10000, axes_dim=axes_dim, ids=ids)


@case(
    dits.transformer_minimax_h3.MiniMaxH3RotaryPosEmbed, sizes=[(4, [3, 4, 5]), (16, [2, 34, 60])]
)
def of_minimax(module: Any, n: int, lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    tables = module(n)(torch.tensor(ids))
    return sines(tables, max(lengths), n=n, rope_theta=10000, position_ids=ids)


@case(
    ("QwenEmbedRope with scale_rope", dits.transformer_qwenimage.QwenEmbedRope),
    ("NucleusMoEEmbedRope with scale_rope", dits.transformer_nucleusmoe_image.NucleusMoEEmbedRope),
    sizes=[([8, 12, 12], [1, 5, 7]), ([16, 56, 56], [2, 64, 62])],
)
def of_qwen(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    image, _ = module(10000, axes_dim, scale_rope=True)((*lengths,), max_txt_seq_len=1)
    return sines(image, max(lengths), theta=10000, axes_dim=axes_dim, **sized(lengths))


# The last layer is the condition image.
@case(
    ("QwenEmbedLayer3DRope with scale_rope", dits.transformer_qwenimage.QwenEmbedLayer3DRope),
    sizes=[([8, 12, 12], [2, 5, 7]), ([16, 56, 56], [4, 64, 62])],
)
def of_qwens_layers(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    layers, *sides = lengths
    image, _ = module(10000, axes_dim, scale_rope=True)([[(1, *sides)] * layers], 1)
    return sines(image, max(lengths), theta=10000, axes_dim=axes_dim, **sized(lengths))


@case(
    dits.transformer_qwenimage21.QwenImage21Rope,
    sizes=[([8, 12, 12], 3, [5, 7]), ([16, 56, 56], 60, [64, 62])],
)
def of_qwens_text_and_image(module: Any, axes_dim: list[int], n: int, sides: list[int]) -> Peer:
    is_image = torch.arange(n + math.prod(sides)) >= n
    table = module(10000, axes_dim)([(1, *sides)], is_image, torch.device("cpu"))
    return sines(table, max(n, *sides), theta=10000, axes_dim=axes_dim, n=n, **sized(sides))


# CogVideoX at its own size, which is a whole grid, followed by other sizes.
@case(
    ("get_3d_rotary_pos_embed for a whole grid", embeddings.get_3d_rotary_pos_embed),
    sizes=[(64, [3, 5, 7], "linspace"), (64, [3, 5, 7], "slice"), (64, [13, 30, 45], "linspace")],
)
def of_whole_grids(function: Any, d: int, lengths: list[int], grid_type: str) -> Peer:
    frames, *sides = lengths
    edges = (0, 0), sides
    tables = function(d, edges, sides, frames, grid_type=grid_type, max_size=(64, 64))
    return sines(tables, max(lengths), d=d, theta=10000, **sized(lengths))


def cropped(tables: Any, d: int, lengths: list[int], edges: Any) -> Peer:
    (top, left), (bottom, right) = edges
    names = {"top": top, "left": left, "bottom": bottom, "right": right}
    reach = max(*lengths, bottom, right)
    return sines(tables, reach, d=d, theta=10000, **names, **sized(lengths))


@case(
    ("get_3d_rotary_pos_embed for a crop", embeddings.get_3d_rotary_pos_embed),
    sizes=[(64, [3, 5, 7], ((2, 0), (9, 11))), (64, [3, 48, 42], ((0, 9), (30, 36)))],
)
def of_crops(function: Any, d: int, lengths: list[int], edges: Any) -> Peer:
    frames, *sides = lengths
    return cropped(function(d, edges, sides, frames), d, lengths, edges)


@case(
    dits.transformer_easyanimate.EasyAnimateRotaryPosEmbed,
    sizes=[(64, [3, 5, 7]), (64, [3, 48, 84])],
)
def of_easyanimate(module: Any, d: int, lengths: list[int]) -> Peer:
    rope = module(2, d)
    edges = rope.get_resize_crop_region_for_grid(lengths[1:], 45, 30)
    return cropped(rope(latents(lengths)), d, lengths, edges)


@case(
    embeddings.get_2d_rotary_pos_embed,
    sizes=[(32, [5, 7], ((2, 0), (9, 11))), (88, [64, 48], ((0, 4), (32, 28)))],
)
def of_images(function: Any, d: int, lengths: list[int], edges: Any) -> Peer:
    return cropped(function(d, edges, lengths), d, lengths, edges)


@case(
    dits.transformer_cosmos.CosmosRotaryPosEmbed,
    sizes=[(48, [3, 4, 5], (2.0, 1.0, 1.0), 24), (128, [4, 44, 80], (1.0, 3.0, 3.0), 30)],
)
def of_cosmos(module: Any, size: int, lengths: list[int], rope_scale: Any, fps: int) -> Peer:
    rope = module(size, rope_scale=rope_scale, base_fps=24)
    dims = [rope.dim_t, rope.dim_h, rope.dim_w]
    names = {"dims": dims, "rope_scale": rope_scale, "base_fps": 24, "fps": fps}
    return sines(rope(latents(lengths), fps), max(lengths), **names, **sized(lengths))


# A latent represents 32 by 32 pixels in 8 frames, except the first, which represents one frame.
@case(dits.transformer_ltx.LTXVideoRotaryPosEmbed, sizes=[(64, [3, 2, 4]), (2048, [2, 12, 16])])
@case(
    dits.transformer_ltx2.LTX2AudioVideoRotaryPosEmbed,
    dits.transformer_sana_wm_refiner.SanaWMLTX2AudioVideoRotaryPosEmbed,
    sizes=[(64, [3, 2, 4]), (4096, [2, 8, 12])],
)
def of_ltx(module: Any, dim: int, lengths: list[int]) -> Peer:
    rope = module(dim)
    frames, rows, columns = grid(*lengths)
    part = np.stack([np.maximum(8 * frames - 7, 0), 32 * rows, 32 * columns])
    whole = np.array([24 * rope.base_num_frames, rope.base_height, rope.base_width])
    if module is dits.transformer_ltx.LTXVideoRotaryPosEmbed:
        coordinates = torch.tensor(part, dtype=torch.get_default_dtype())
        coordinates[0] /= 24
        tables = rope(torch.empty(1), video_coords=coordinates[None])
    else:  # the midpoint between first and last
        part = part + np.stack([8 * frames + 1, 32 * rows + 32, 32 * columns + 32])
        whole = 2 * whole
        tables = rope(rope.prepare_video_coords(1, *lengths, torch.device("cpu"), fps=24))
    tables = [table[0] for table in tables]
    names = {"dim": dim, "theta": 10000, "part": part, "whole": whole}
    return sines(tables, np.pi / 2 * 10000, growth=np.log(10000), **names)


@case(connectors.LTX2RotaryPosEmbed1d, sizes=[(8, 9), (128, 1024)])
def of_ltx_text(module: Any, dim: int, pos: int) -> Peer:
    tables = [table[0] for table in module(dim)(1, pos, torch.device("cpu"))]
    names = {"dim": dim, "theta": 10000, "base_seq_len": 4096, "pos": pos}
    return sines(tables, np.pi / 2 * 10000, growth=np.log(10000), **names)


@case(
    ltx2_diffusion_decoder.LTX2VideoVaeRotaryPosEmbed3D, sizes=[(16, [3, 4, 5]), (64, [2, 30, 52])]
)
def of_ltx_decoder(module: Any, head_dim: int, lengths: list[int]) -> Peer:
    rope = module(head_dim)
    cosines_and_sines = rope(torch.eye(2)[0].repeat(1, *lengths, 1, head_dim // 2))
    names = {"rope_dim_split": rope.rope_dim_split, "base": 10000, **sized(lengths)}
    return sines(cosines_and_sines.flatten(0, 4), max(lengths), **names)


@case(
    autoencoder_kl_minimax_h3.MiniMaxH3VideoRotaryPosEmbed,
    sizes=[(12, [3, 4, 5]), (96, [2, 34, 60])],
)
def of_minimax_decoder(module: Any, dim: int, lengths: list[int]) -> Peer:
    middles = torch.tensor(grid(*lengths).T) + torch.tensor(0.5)
    tables = module(dim)((2 * (middles / torch.tensor(lengths)) - 1)[None])
    return sines(
        [table[0, :, 0] for table in tables], 2 * np.pi, dim=dim, theta=100, **sized(lengths)
    )


@case(
    embeddings.get_3d_rotary_pos_embed_allegro,
    sizes=[(axis, size) for axis in range(3) for size in ([3, 5, 7], [22, 90, 160])],
)
def of_allegro(function: Any, axis: int, lengths: list[int]) -> Peer:
    scale = (2.0, 2.5, 2.0)
    frames, *sides = lengths
    tables = function(96, ((0, 0), sides), sides, frames, scale)[axis]
    names = {"embed_dim": 96, "interpolation_scale": scale, "axis": axis, "lengths": lengths}
    return sines(tables, max(lengths), theta=10000, **names)


@case(
    dits.transformer_cogview4.CogView4RotaryPosEmbed,
    sizes=[(32, [5, 7], [11, 6]), (128, [64, 48], [256, 256])],
)
@case(dits.transformer_glm_image.GlmImageRotaryPosEmbed, sizes=[(32, [5, 7]), (128, [64, 48])])
def of_images_in_halves(module: Any, dim: int, lengths: list[int], *stretched: Any) -> Peer:
    tables = module(dim, 2, *stretched)(latents(lengths))
    names = {"dim": dim, "theta": 10000, "rope_axes_dim": [*stretched[0]] if stretched else []}
    return sines(tables, max(lengths + names["rope_axes_dim"]), **names, **sized(lengths))


# Image positions start at 65536.
@case(
    dits.transformer_ideogram4.Ideogram4MRoPE,
    sizes=[(16, (3, 3, 2), 0, [3, 4, 5]), (128, (24, 20, 20), 65536, [1, 32, 48])],
)
def of_ideogram4(module: Any, head_dim: int, section: Any, first: int, lengths: list[int]) -> Peer:
    ids = grid(*lengths).T + first
    tables = [table[0] for table in module(head_dim, 5000000, section)(torch.tensor(ids)[None])]
    names = {"head_dim": head_dim, "base": 5000000, "mrope_section": section, "position_ids": ids}
    return sines(tables, ids.max(), **names)


@case(
    dits.transformer_cosmos3.Cosmos3VLTextRotaryEmbedding,
    sizes=[(16, (3, 3, 2), [3, 4, 5]), (128, (24, 20, 20), [1, 32, 48])],
)
def of_cosmos3(module: Any, head_dim: int, axes_dim: Any, lengths: list[int]) -> Peer:
    ids = grid(*lengths)
    rope = module(head_dim, 5000000.0, axes_dim)
    tables = rope(torch.tensor(ids)[:, None], torch.device("cpu"), torch.get_default_dtype())
    names = {"head_dim": head_dim, "rope_theta": 5000000, "rope_axes_dim": axes_dim}
    return sines([table[0] for table in tables], max(lengths), position_ids=ids, **names)


CPU = torch.device("cpu")
SEQUENCES: dict[str, Callable[..., Any]] = {
    "get_1d_rotary_pos_embed": lambda dim, length, theta: embeddings.get_1d_rotary_pos_embed(
        dim, length, theta, use_real=True, repeat_interleave_real=False
    ),
    "StableAudio3RotaryEmbedding": lambda dim, length, theta: [
        function(
            dits.transformer_stable_audio3.StableAudio3RotaryEmbedding(dim, theta)(length, CPU)
        )
        for function in (torch.cos, torch.sin)
    ],
    "MiniMaxMusic3RotaryEmbedding": lambda dim, length, theta: (
        dits.transformer_minimax_music3.MiniMaxMusic3RotaryEmbedding(dim, theta)(length, CPU)
    ),
    "AudioDiTRotaryEmbedding": lambda dim, length, theta: (
        dits.transformer_longcat_audio_dit.AudioDiTRotaryEmbedding(dim, length, theta)(
            torch.empty(1, length)
        )
    ),
    "AnimaRotaryEmbedding": lambda dim, length, theta: [
        table[0]
        for table in condition_embedder_anima.AnimaRotaryEmbedding(dim, theta)(
            torch.empty(0), torch.arange(length)[None]
        )
    ],
    "_ace_step_rotary_freqs": lambda dim, length, theta: (
        dits.ace_step_transformer._ace_step_rotary_freqs(
            length, dim, theta, CPU, torch.get_default_dtype()
        )
    ),
}


@case(*SEQUENCES.items(), sizes=[(8, 10, 10000), (32, 1025, 1000000)])
def of_sequences(function: Any, dim: int, length: int, theta: int) -> Peer:
    return sines(function(dim, length, theta), length, dim=dim, length=length, theta=theta)


@case(
    embeddings.get_2d_rotary_pos_embed_lumina, sizes=[(8, [5, 7], 1, 1), (64, [48, 32], 1.5, 2.5)]
)
def of_lumina(function: Any, dim: int, lengths: list[int], linear: float, ntk: float) -> Peer:
    table = function(dim, *lengths, linear, ntk).flatten(0, 1)
    names = {"embed_dim": dim, "linear_factor": linear, "ntk_factor": ntk}
    return sines(table, max(lengths), **names, **sized(lengths))


@case(embeddings.SinusoidalPositionalEmbedding, sizes=[(8, 10), (320, 32)])
def of_motions(module: Any, embed_dim: int, max_seq_length: int) -> Peer:
    table = module(embed_dim, max_seq_length).pe[0]
    return sines(table, max_seq_length, embed_dim=embed_dim, max_seq_length=max_seq_length)


# The attention factor is below 2.
@case(
    dits.transformer_omnigen.OmniGenSuScaledRotaryEmbedding, sizes=[(8, 9), (96, 4096), (96, 4100)]
)
def of_omnigen(module: Any, dim: int, length: int) -> Peer:
    factors = {
        "short_factor": [1 + m / 64 for m in range(dim // 2)],
        "long_factor": [2 + m * m / 70 for m in range(dim // 2)],
    }
    lengths = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
    ids = range(max(0, length - 300), length)
    rope = module(dim, **lengths, rope_scaling=factors)
    tables = rope(torch.empty(0), torch.tensor([*ids])[None])
    return sines(tables, 2 * length, dim=dim, base=10000, position_ids=ids, **lengths, **factors)


STEPS = np.arange(0, 1000, 7)
# Noise levels of a flow-matching scheduler: 30 steps, shifted by 3; exact in float32.
SIGMAS = np.linspace(1, 1 / 30, 30)
FRACTIONS = (1000 * 3 * SIGMAS / (1 + 2 * SIGMAS)).astype(np.float32).astype(np.float64)
EMBEDDED = {
    "get_timestep_embedding": embeddings.get_timestep_embedding,
    "Timesteps": lambda t, dim, flip, shift: embeddings.Timesteps(dim, flip, shift)(t),
    "SkyReelsV2Timesteps": lambda t, dim, flip, _: dits.transformer_skyreels_v2.SkyReelsV2Timesteps(
        dim, flip
    )(t),
}


# Keyed by the option flip_sin_to_cos.
ORDERS = {False: "SINES_COSINES", True: "COSINES_SINES"}


def timesteps_in(*functions: str, kind: str) -> list[Any]:
    return [(f"{name} {kind}", EMBEDDED[name]) for name in functions]


@case(
    *timesteps_in("get_timestep_embedding", "Timesteps", kind="with shift 0"),
    ("SkyReelsV2Timesteps", EMBEDDED["SkyReelsV2Timesteps"]),
    sizes=[
        *((STEPS, dim, flip, 0) for dim, flip in ((6, False), (320, True))),
        *((FRACTIONS, dim, flip, 0) for dim, flip in ((6, False), (256, True))),
    ],
)
@case(
    *timesteps_in("get_timestep_embedding", "Timesteps", kind="with shift 0"),
    sizes=[(STEPS, 257, True, 0)],
)
@case(
    *timesteps_in("get_timestep_embedding", "Timesteps", kind="with shift 1"),
    sizes=[(STEPS, 7, False, 1), (FRACTIONS, 128, False, 1)],
)
def of_timesteps(function: Any, timesteps: Array, dim: int, flip: bool, shift: int) -> Peer:
    given = torch.tensor(timesteps, dtype=torch.get_default_dtype())
    table = function(given, dim, flip, shift)
    names = {"timesteps": timesteps, "embedding_dim": dim, "order": ORDERS[flip]}
    return sines(table, float(timesteps.max()), max_period=10000, **names)


# The same values, as times up to 1.
TIMES = (FRACTIONS / 1000).astype(np.float32).astype(np.float64)


@case(
    dits.transformer_longcat_audio_dit.AudioDiTSinusPositionEmbedding, sizes=[(6, 1000), (256, 500)]
)
@case(dits.transformer_qwenimage21.QwenImage21TemporalTimesteps, sizes=[(7, 1000), (256, 500)])
def of_times(module: Any, dim: int, factor: float) -> Peer:
    given = torch.tensor(TIMES, dtype=torch.get_default_dtype())
    if module is dits.transformer_qwenimage21.QwenImage21TemporalTimesteps:
        table = module(dim, time_factor=factor)(given)
    else:
        table = module(dim)(given, factor)
    return sines(table, factor, dim=dim, factor=factor, times=TIMES, max_period=10000)


@case(dits.transformer_stable_audio3.StableAudio3ExpoFourierFeatures, sizes=[(6,), (256,)])
def of_rising_times(module: Any, dim: int) -> Peer:
    table = module(dim)(torch.tensor(TIMES, dtype=torch.get_default_dtype()))
    names = {"dim": dim, "min_freq": 0.5, "max_freq": 10000, "times": TIMES}
    return sines(table, 2 * np.pi * 10000, growth=2 * np.log(10000), **names)


@case(dits.transformer_minimax_music3.MiniMaxMusic3FourierEmbedding, sizes=[(6,), (256,)])
def of_learned_times(module: Any, dim: int) -> Peer:
    embedding = module(dim)
    weight = embedding.weight.detach()[:, 0].numpy().astype(np.float64)
    table = embedding(torch.tensor(TIMES, dtype=torch.get_default_dtype()))
    return sines(table, 2 * np.pi * float(np.abs(weight).max()), weight=weight, times=TIMES)


@case(
    embeddings.get_2d_sincos_pos_embed,
    sizes=[(16, [5, 7], 1.5, 4), (1152, [32, 32], 1.0, 32), (384, [48, 36], 2.0, 64)],
)
def of_patches(function: Any, dim: int, lengths: list[int], scale: float, base_size: int) -> Peer:
    table = function(dim, lengths, interpolation_scale=scale, base_size=base_size)
    names = {"embed_dim": dim, "interpolation_scale": scale, "base_size": base_size}
    return sines(table, base_size, **names, **sized(lengths))


@case(
    embeddings.get_3d_sincos_pos_embed,
    sizes=[(16, [3, 5, 7], 1.0, 1.0), (1920, [13, 30, 45], 1.875, 1.0), (64, [4, 6, 5], 2.5, 0.3)],
)
def of_video_patches(
    function: Any, d: int, lengths: list[int], spatial: float, temporal: float
) -> Peer:
    frames, rows, columns = lengths
    table = function(d, (columns, rows), frames, spatial, temporal).reshape(-1, d)
    names = {"spatial_interpolation_scale": spatial, "temporal_interpolation_scale": temporal}
    return sines(table, max(lengths) / min(spatial, temporal), d=d, **names, **sized(lengths))


@case(
    ("GaussianFourierProjection without log", embeddings.GaussianFourierProjection),
    sizes=[(4, 1.0, False, False), (128, 16.0, True, False)],
)
@case(
    ("GaussianFourierProjection with log", embeddings.GaussianFourierProjection),
    sizes=[(4, 1.0, False, True), (128, 16.0, True, True)],
)
def of_gaussian(module: Any, size: int, scale: float, flip: bool, log: bool) -> Peer:
    torch.manual_seed(0)
    projection = module(size, scale, log=log, flip_sin_to_cos=flip)
    weight = projection.weight.detach().numpy().astype(np.float64)
    x = np.arange(1, 30)
    table = projection(torch.tensor(x, dtype=torch.get_default_dtype()))
    reach = 2 * np.pi * float(np.abs(weight).max()) * 30
    return sines(table, reach, weight=weight, x=x, order=ORDERS[flip])


@case(
    ("PatchEmbed.cropped_pos_embed", embeddings.PatchEmbed),
    sizes=[(16, [5, 7], 9, 4), (1536, [40, 24], 96, 64)],
)
def of_cropped_patches(
    module: Any, dim: int, lengths: list[int], max_size: int, base_size: int
) -> Peer:
    side = 2 * base_size
    patches = module(side, side, patch_size=2, embed_dim=dim, pos_embed_max_size=max_size)
    table = patches.cropped_pos_embed(2 * lengths[0], 2 * lengths[1])[0]
    names = {"embed_dim": dim, "interpolation_scale": 1, "base_size": base_size}
    return sines(table, base_size, pos_embed_max_size=max_size, **names, **sized(lengths))


@case(dits.transformer_mochi.MochiRoPE, sizes=[(4, 3, [2, 5, 7]), (24, 64, [3, 30, 53])])
def of_mochi(module: Any, heads: int, pairs: int, lengths: list[int]) -> Peer:
    rope, dtype = module(), torch.get_default_dtype()
    torch.manual_seed(0)
    frequencies = torch.randn(3, heads, pairs)
    positions = rope._get_positions(*lengths, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CPUs have no autocast to these types
        tables = rope(frequencies, *lengths, dtype=dtype)
    reach = 3 * float(positions.abs().max() * frequencies.abs().max())
    names = {"pos_frequencies": frequencies.numpy(), "positions": positions.numpy()}
    return sines(tables, reach, **names)


@case(pos_embed_sincos.RotaryEmbeddingMixed, sizes=[(64, 2, 4, [5, 7]), (384, 12, 6, [14, 14])])
def of_mixed(module: Any, dim: int, depth: int, heads: int, lengths: list[int]) -> Peer:
    torch.manual_seed(0)
    rope = module(dim, depth, heads)
    axes = pos_embed_sincos.get_mixed_grid(lengths, grid_indexing=rope.grid_indexing)
    freqs = rope.freqs.detach().numpy()
    reach = 2 * max(lengths) * float(np.abs(freqs).max())
    coordinates = [axis.numpy() for axis in axes]
    return sines(rope.get_embed(lengths), reach, freqs=freqs, coordinates=coordinates)


@case(timm_layers.RotaryEmbeddingDinoV3, sizes=[(16, [5, 7]), (64, [32, 48])])
def of_dinov3(module: Any, dim: int, lengths: list[int]) -> Peer:
    table = module(dim).get_embed(lengths)
    return sines(table, 2 * np.pi, dim=dim, temperature=100, **sized(lengths))


@case(timm_layers.RotaryEmbeddingCat, sizes=[(16, [5, 7], []), (64, [24, 32], [])])
@case(
    ("RotaryEmbeddingCat with ref_feat_shape", timm_layers.RotaryEmbeddingCat),
    sizes=[(16, [5, 7], [3, 9]), (64, [24, 32], [16, 16])],
)
def of_eva02(module: Any, dim: int, lengths: list[int], ref: list[int]) -> Peer:
    table = module(dim, in_pixels=False, ref_feat_shape=ref or None).get_embed(lengths)
    names = {"dim": dim, "temperature": 10000, "ref_feat_shape": ref}
    return sines(table, max(lengths + ref), **names, **sized(lengths))


def of_pixels(result: Any, lengths: list[int], max_res: int, linear: bool, **names: Any) -> Peer:
    bands = (np.linspace if linear else np.geomspace)(1, max_res / 2, names["num_bands"]) * np.pi
    reach, growth = np.pi * max_res / 2, 0 if linear else np.log(max_res / 2)
    return sines(result, reach, growth, bands=bands, **names, **sized(lengths))


PIXELS = [(16, [5, 7], 224, False), (64, [24, 32], 64, True)]


@case(("build_fourier_pos_embed with in_pixels", timm_layers.build_fourier_pos_embed), sizes=PIXELS)
def of_fourier_grids(function: Any, dim: int, lengths: list[int], most: int, linear: bool) -> Peer:
    bands = {"num_bands": dim // 4}
    tables = function(lengths, **bands, max_res=most, linear_bands=linear)
    return of_pixels([table.flatten(0, 1) for table in tables], lengths, most, linear, **bands)


@case(
    ("RotaryEmbedding with in_pixels", timm_layers.RotaryEmbedding),
    ("RotaryEmbeddingCat with in_pixels", timm_layers.RotaryEmbeddingCat),
    sizes=PIXELS,
)
def of_rotary_pixels(module: Any, dim: int, lengths: list[int], most: int, linear: bool) -> Peer:
    result = module(dim, most, linear_bands=linear).get_embed(lengths)
    return of_pixels(result, lengths, most, linear, num_bands=dim // 4)


@case(
    timm_layers.RotaryEmbeddingMRope,
    sizes=[(24, (4, 4, 4), [5, 7]), (72, (12, 12, 12), [24, 32]), (64, (8, 12, 12), [3, 40])],
)
def of_mrope(module: Any, dim: int, section: Any, lengths: list[int]) -> Peer:
    rope = module(dim, section)
    names = {"dim": dim, "temperature": 10000, "axis": rope.axis.tolist(), **sized(lengths)}
    return sines(rope.get_embed(lengths), max(lengths), **names)


@case(gemma4_vit.Gemma4RotaryEmbedding2D, sizes=[(16, [5, 7]), (64, [24, 32])])
def of_gemma4(module: Any, head_dim: int, lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    given = torch.empty(0, dtype=torch.get_default_dtype())
    tables = [table[0] for table in module(head_dim)(given, torch.tensor(ids)[None])]
    names = {"head_dim": head_dim, "rope_theta": 100, "position_ids": ids}
    return sines(tables, max(lengths), **names)


@case(timm_layers.build_sincos2d_pos_embed, sizes=[(16, [5, 7], False), (768, [14, 20], False)])
@case(
    ("build_sincos2d_pos_embed with interleave_sin_cos", timm_layers.build_sincos2d_pos_embed),
    sizes=[(16, [5, 7], True), (768, [14, 20], True)],
)
def of_sincos2d(function: Any, dim: int, lengths: list[int], interleave: bool) -> Peer:
    table = function(lengths, dim, interleave_sin_cos=interleave, dtype=torch.get_default_dtype())
    return sines(table, max(lengths), dim=dim, temperature=10000, **sized(lengths))


@case(
    ("xcit.PositionalEncodingFourier", xcit.PositionalEncodingFourier),
    ("edgenext.PositionalEncodingFourier", edgenext.PositionalEncodingFourier),
    sizes=[(8, [5, 7]), (32, [14, 20])],
)
def of_fourier(module: Any, hidden_dim: int, lengths: list[int]) -> Peer:
    encoding = module(hidden_dim, 2 * hidden_dim)
    torch.nn.init.dirac_(encoding.token_projection.weight)
    torch.nn.init.zeros_(encoding.token_projection.bias)
    shape = (1, *lengths)
    pixels = encoding(*shape) if module is xcit.PositionalEncodingFourier else encoding(shape)
    table = pixels[0].flatten(1).T
    return sines(table, 2 * np.pi, hidden_dim=hidden_dim, temperature=10000, **sized(lengths))


WINDOWS = [(3, [1, 1]), (4, [2, 3]), (4, [8, 12]), (32, [7, 7])]


def looked_up(module: Any, result: Callable[[], torch.Tensor], lengths: list[int]) -> Peer:
    table = module.relative_position_bias_table
    torch.nn.init.normal_(table)
    return Peer(result()[0], {"table": table.detach().numpy(), **sized(lengths)}, 0)


@case(timm_layers.RelPosBias, sizes=[(*window, 0) for window in WINDOWS])
@case(
    ("RelPosBias with a class token", timm_layers.RelPosBias),
    sizes=[(*window, 1) for window in [*WINDOWS, (12, [14, 10])]],
)
def of_rel_pos_bias(module: Any, num_heads: int, lengths: list[int], prefix_tokens: int) -> Peer:
    bias = module(lengths, num_heads, prefix_tokens)
    return looked_up(bias, bias.get_bias, lengths)


@case(WindowAttention, sizes=WINDOWS)
@case(("beit.Attention", beit.Attention), sizes=WINDOWS)
def of_attention(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, num_heads, window_size=tuple(lengths))
    return looked_up(attention, attention._get_rel_pos_bias, lengths)


@case(("beit.RelativePositionBias", beit.RelativePositionBias), sizes=WINDOWS)
def of_shared_bias(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    bias = module(lengths, num_heads)
    return looked_up(bias, lambda: bias()[None], lengths)


@case(timm_layers.RelPosBiasTf, sizes=WINDOWS)
def of_rel_pos_bias_tf(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    bias = module(lengths, num_heads)
    return looked_up(bias, lambda: bias.get_bias()[None], lengths)


@case(
    ("levit.Attention", levit.Attention),
    ("efficientformer.Attention", efficientformer.Attention),
    ("tiny_vit.Attention", tiny_vit.Attention),
    ("efficientformer_v2.Attention2d", efficientformer_v2.Attention2d),
    sizes=WINDOWS,
)
def of_levit(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    return of_magnitudes(module(num_heads, 1, num_heads, resolution=tuple(lengths)), lengths)


def of_magnitudes(attention: Any, lengths: list[int], **names: Any) -> Peer:
    table = attention.attention_biases
    torch.nn.init.normal_(table)
    bias = attention.get_attention_biases(table.device)
    return Peer(bias, {"table": table.detach().numpy(), **sized(lengths), **names}, 0)


@case(
    ("levit.AttentionDownsample", levit.AttentionDownsample),
    sizes=[(*window, stride) for window in WINDOWS for stride in (2, 3)],
)
def of_levit_downsample(module: Any, num_heads: int, lengths: list[int], stride: int) -> Peer:
    attention = module(4, 4, 1, num_heads, stride=stride, resolution=tuple(lengths))
    return of_magnitudes(attention, lengths, stride=stride)


@case(
    ("efficientformer_v2.Attention2dDownsample", efficientformer_v2.Attention2dDownsample),
    sizes=WINDOWS,
)
def of_efficientformer_downsample(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, 1, num_heads, resolution=tuple(lengths))
    return of_magnitudes(attention, lengths, stride=2)


@case(swin_transformer.ShiftedWindowAttention, sizes=WINDOWS)
def of_shifted_windows(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, lengths, [0, 0], num_heads)
    return looked_up(attention, attention.get_relative_position_bias, lengths)


@case(
    video_swin_transformer.ShiftedWindowAttention3d,
    sizes=[(3, [1, 1, 1]), (4, [2, 3, 4]), (24, [8, 7, 7])],
)
def of_shifted_windows_3d(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, lengths, [0, 0, 0], num_heads)
    return looked_up(attention, lambda: attention.get_relative_position_bias(lengths), lengths)


@case(
    (
        "ShiftedWindowAttention3d for clips smaller than its window",
        video_swin_transformer.ShiftedWindowAttention3d,
    ),
    sizes=[(4, [3, 3, 4], [2, 3, 4]), (4, [3, 4, 5], [2, 4, 3])],
)
def of_smaller_clips(
    module: Any, num_heads: int, window_size: list[int], lengths: list[int]
) -> Peer:
    attention = module(num_heads, window_size, [0, 0, 0], num_heads)
    peer = looked_up(attention, lambda: attention.get_relative_position_bias(lengths), lengths)
    return peer._replace(names=peer.names | {"window_size": window_size})


@case(maxvit.RelativePositionalMultiHeadAttention, sizes=[(4, [2, 2]), (16, [7, 7])])
def of_maxvit(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(32 * num_heads, 32, lengths[0] * lengths[1])
    return looked_up(attention, attention.get_relative_positional_bias, lengths)


@case(
    (
        "AuraFlowPatchEmbed.pe_selection_index_based_on_dim",
        dits.auraflow_transformer_2d.AuraFlowPatchEmbed,
    ),
    sizes=[(9, [5, 7]), (96, [64, 30])],
)
def of_auraflow(module: Any, side: int, lengths: list[int]) -> Peer:
    patches = module(2 * side, 2 * side, 2, 1, 6, side**2)
    places = patches.pe_selection_index_based_on_dim(*(2 * length for length in lengths))
    names = {"pos_embed": patches.pos_embed[0], "side": side}
    return Peer(patches.pos_embed[0, places], names | sized(lengths), 0)


CUBIC = Filter(cubic=True)
SMOOTH = Filter(cubic=True, antialias=True)


def resized(result: Any, table: Any, grid: Grid, how: Filter, **names: Any) -> Peer:
    return Peer(result, names, loss_of(table.numpy(), grid, how) / 2)


@case(
    timm_layers.resample_abs_pos_embed,
    sizes=[([5, 5], [7, 4], 1, SMOOTH), ([14, 14], [16, 24], 0, SMOOTH)],
)
@case(
    (
        'resample_abs_pos_embed with interpolation "bilinear" and antialias false',
        timm_layers.resample_abs_pos_embed,
    ),
    sizes=[([5, 5], [7, 4], 2, Filter()), ([16, 16], [12, 20], 1, Filter())],
)
def of_resized_positions(
    function: Any, old_size: list[int], new_size: list[int], prefix: int, how: Filter
) -> Peer:
    posemb = torch.randn(prefix + math.prod(old_size), 6)
    fields = {} if how.cubic else {"interpolation": "bilinear", "antialias": False}
    result = function(posemb[None], new_size, old_size, prefix, **fields)[0]
    names = {"posemb": posemb, "old_size": old_size, "new_size": new_size}
    names |= {"num_prefix_tokens": prefix}
    return resized(result, posemb, Grid(old_size, new_size, [None, None]), how, **names)


@case(timm_layers.resample_abs_pos_embed_nhwc, sizes=[([5, 6], [7, 4]), ([14, 14], [16, 9])])
def of_resized_images(function: Any, old_size: list[int], new_size: list[int]) -> Peer:
    posemb = torch.randn(1, *old_size, 6)
    result = function(posemb, new_size).flatten(0, 2)
    grid = Grid(old_size, new_size, [None, None])
    return resized(result, posemb, grid, SMOOTH, posemb=posemb, new_size=new_size)


@case(
    vision_transformer.interpolate_embeddings,
    sizes=[(5, 7, "bicubic"), (14, 24, "bicubic"), (14, 6, "bilinear")],
)
def of_resized_weights(function: Any, old: int, new: int, mode: str) -> Peer:
    table = torch.randn(1 + old**2, 6)
    state = function(16 * new, 16, {"encoder.pos_embedding": table[None]}, mode)
    how = Filter(cubic=mode == "bicubic", align_corners=True)
    names = {"pos_embedding": table, "old": old, "new": new, "filter": mode.removeprefix("bi")}
    grid = Grid([old] * 2, [new] * 2, [None, None])
    return resized(state["encoder.pos_embedding"][0], table, grid, how, **names)


@case(timm_layers.resize_rel_pos_bias_table_simple, sizes=[(4, 3, [2, 5], 0), (4, 7, [12, 12], 0)])
@case(
    (
        "resize_rel_pos_bias_table_simple with extra tokens",
        timm_layers.resize_rel_pos_bias_table_simple,
    ),
    sizes=[(4, 3, [2, 5], 1), (4, 7, [12, 12], 1)],
)
def of_resized_windows(
    function: Any, num_heads: int, side: int, lengths: list[int], prefix_tokens: int
) -> Peer:
    source, target = [2 * side - 1] * 2, [2 * length - 1 for length in lengths]
    table = torch.randn(math.prod(source) + 3 * prefix_tokens, num_heads)
    shape = (math.prod(target) + 3 * prefix_tokens, num_heads)
    bias = timm_layers.RelPosBias(lengths, num_heads, prefix_tokens)
    bias.relative_position_bias_table = torch.nn.Parameter(function(table, lengths, shape))
    names = {"rel_pos_bias": table, "src_size": source, **sized(lengths)}
    grid = Grid(source, target, [None, None])
    return resized(bias.get_bias()[0], table, grid, CUBIC, **names)


@case(timm_layers.resize_rel_pos_bias_table_levit, sizes=[(4, 7, 3), (4, 7, 14), (4, 5, 6)])
def of_resized_levit(function: Any, num_heads: int, old: int, new: int) -> Peer:
    table = torch.randn(old**2, num_heads)
    attention = tiny_vit.Attention(num_heads, 1, num_heads, resolution=(new, new))
    biases = function(table, (new**2, num_heads))
    attention.attention_biases = torch.nn.Parameter(biases.T.contiguous())
    bias = attention.get_attention_biases(table.device)
    names = {"position_bias_table": table, "S1": old, **sized([new, new])}
    return resized(bias, table, Grid([old] * 2, [new] * 2, [None, None]), SMOOTH, **names)


def layers_of(hidden: Any, output: Any) -> list[attnbias.MlpLayer]:
    return [attnbias.MlpLayer(layer.weight, bias=layer.bias) for layer in (hidden, output)]


def computed(hidden: Any, output: Any, bias: Any, lengths: list[int], sides: Any) -> Peer:
    for parameter in (hidden.weight, hidden.bias, output.weight):
        torch.nn.init.normal_(parameter, std=0.3)
    network: Any = SimpleNamespace(
        continuous_position_bias_mlp=(hidden, None, output), window_size=lengths
    )
    _, moves = in_float64(network, sides)
    block = np.ascontiguousarray((moves + 16).transpose(2, 0, 1)[:, ::-1, ::-1])
    loss = ROUNDINGS / 2 * attnbias.BlockToeplitz(block).dense()
    result = bias()[0]
    prefix = result.shape[-1] - loss.shape[-1]  # its values are zero
    loss = np.pad(loss, ((0, 0), (prefix, 0), (prefix, 0)))
    names = {"layers": layers_of(hidden, output), "pretrained_window_size": sides}
    return Peer(result, names | sized(lengths), loss)


@case(
    ("RelPosMlp in mode swin", timm_layers.RelPosMlp),
    sizes=[(4, [2, 3], None), (4, [8, 12], None), (16, [8, 8], None)],
)
@case(
    ("RelPosMlp in mode swin with pretrained_window_size", timm_layers.RelPosMlp),
    sizes=[(4, [3, 5], (12, 6)), (16, [16, 16], (8, 8))],
)
@case(
    ("RelPosMlp in mode swin with prefix_tokens = 1", timm_layers.RelPosMlp),
    sizes=[(4, [2, 3], None, 1), (16, [8, 8], None, 1)],
)
def of_rel_pos_mlp(
    module: Any, num_heads: int, lengths: list[int], pretrained: Any, prefix_tokens: int = 0
) -> Peer:
    fields = {"pretrained_window_size": pretrained} if pretrained else {}
    fields |= {"prefix_tokens": prefix_tokens}
    bias = module(lengths, num_heads, hidden_dim=512, mode="swin", **fields).eval()
    return computed(bias.mlp.fc1, bias.mlp.fc2, bias.get_bias, lengths, pretrained or lengths)


@case(
    ("RelPosMlp in mode cr", timm_layers.RelPosMlp),
    swin_transformer_v2_cr.WindowMultiHeadAttention,
    sizes=[(4, [2, 3]), (4, [8, 12]), (16, [8, 8])],
)
def of_rel_pos_mlp_without_sigmoid(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    """A sum of n terms has an error of n half epsilons times the sum of their magnitudes.

    A coordinate adds a few more.
    """
    if module is timm_layers.RelPosMlp:
        bias = module(lengths, num_heads, hidden_dim=512, mode="cr").eval()
        network, result = bias.mlp, bias.get_bias
    else:
        attention = module(num_heads, num_heads, lengths).eval()
        network, result = attention.meta_mlp, attention._relative_positional_encodings
    hidden, output = network.fc1, network.fc2
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weight, first, out, last = (
        np.abs(p.detach().double().numpy())
        for p in (hidden.weight, hidden.bias, output.weight, output.bias)
    )
    axes = (np.log1p(np.abs(np.arange(1 - side, side))) for side in lengths)
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    most = (x @ weight.T + first) @ out.T + last
    loss = ROUNDINGS / 2 * attnbias.BlockToeplitz(most.transpose(2, 0, 1).copy()).dense()
    names = {"layers": layers_of(hidden, output), **sized(lengths)}
    return Peer(result()[0], names, loss)


@case(swin_transformer.ShiftedWindowAttentionV2, sizes=[(4, [2, 3]), (4, [8, 12]), (16, [8, 8])])
def of_shifted_windows_v2(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, lengths, [0, 0], num_heads)
    hidden, _, output = attention.cpb_mlp
    return computed(hidden, output, attention.get_relative_position_bias, lengths, lengths)


# A row with five cells is a request.
ROWS = {
    name: row
    for row in rows_of(PAGE)
    if len(row.cells) == 5
    for name in row.cells[0].replace("`", "").split(", ")
}


@contextlib.contextmanager
def floats_of(dtype: torch.dtype) -> Iterator[None]:
    """Makes float32 mean `dtype`, including in parameter defaults."""
    before = torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch:
        if dtype == torch.float64:
            for function in (
                embeddings.get_1d_rotary_pos_embed,
                pos_embed_sincos._build_grid,
                pos_embed_sincos.RotaryEmbeddingDinoV3._compute_periods,
            ):
                defaults = [dtype if d is torch.float32 else d for d in function.__defaults__]
                patch.setattr(function, "__defaults__", (*defaults,))
            patch.setattr(torch, "float32", dtype)
            patch.setattr(torch, "float", dtype)
            patch.setattr(torch, "complex64", torch.complex128)
            patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def code_of(cell: str) -> str:
    found = CODE.search(cell)
    assert found, cell
    return found[1]


def grid_of(positions: Any) -> dict[str, list[int]]:
    """Returns the extent of the grid with these tokens; empty if no grid has them."""
    axes = np.asarray(positions)
    if axes.ndim != 2 or len(axes) == 1 or axes.dtype.kind == "f":
        return {}
    first = axes.min(axis=1)
    lengths = axes.max(axis=1) - first + 1
    if axes.shape[1] != np.prod(lengths) or np.any(axes != grid(*lengths) + first[:, None]):
        return {}
    return {"grid": lengths.tolist(), "grid_offset": first.tolist()}


def assert_same_over_grid(
    client: attnbias.Client, asked: attnbias.Encoding, extent: dict[str, Any], got: Any
) -> None:
    """Compares the tables for listed positions with those for the grid."""
    by_axis = client.get(asked, **extent)
    dense = client.get(asked, form="dense", **extent)
    tables = [each if isinstance(each, tuple) else (each,) for each in (got, by_axis, dense)]
    for want, axes, whole in zip(*tables, strict=True):
        assert isinstance(axes, attnbias.GridTable)
        assert_same_bits(axes.dense(), want)
        assert_same_bits(whole, want)


def answer_of(client: attnbias.Client, row: Row, names: Names, data_type: str) -> list[Array]:
    """Returns the result that a row on the page promises."""
    _, _, encoding, positions, result = row.cells
    asked = eval(code_of(encoding), FUNCTIONS | names)
    extent: Names = {}
    if CODE.search(positions):
        said = code_of(positions)
        named = said if re.match(r"\w+=", said) else f"position_ids={said}"
        extent = eval(f"dict({named})", FUNCTIONS | names)
    got = client.get(asked, data_type=data_type, **extent)
    if tokens := grid_of(extent.get("position_ids", [])):
        assert_same_over_grid(client, asked, tokens | {"data_type": data_type}, got)
    if isinstance(got, attnbias.BlockToeplitz):
        answer: Names = {"bias": got.dense()}
    elif isinstance(got, np.ndarray):
        answer = {"table": got, "bias": got}
    else:
        answer = {"cos": got.cos, "sin": got.sin}
    arrays = eval(code_of(result), FUNCTIONS | names | answer)
    return [*arrays] if isinstance(arrays, tuple) else [arrays]


DATA_TYPES = {"float32": "f32", "complex64": "f32", "float64": "f64", "complex128": "f64"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=[case.function for case in CASES])
def test_each_row_matches_its_function(
    client: attnbias.Client, case: Case, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    with floats_of(dtype), torch.no_grad():
        peer = case.run()
    results = peer.result if isinstance(peer.result, list | tuple) else [peer.result]
    wanted = [np.ascontiguousarray(result.detach().numpy()) for result in results]
    answer = answer_of(client, ROWS[case.function], peer.names, DATA_TYPES[wanted[0].dtype.name])
    loss = 0 if case.rounded_once and dtype == torch.float32 else peer.loss
    for got, want in zip(answer, wanted, strict=True):
        if np.all(loss == 0):
            assert_same_bits(np.ascontiguousarray(got), want)
        else:
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            off = np.abs(got.astype(np.clongdouble) - want)
            assert (off <= torch.finfo(dtype).eps * loss).all()


@pytest.mark.parametrize(
    "function", ["WanRotaryPosEmbed", "HunyuanVideoRotaryPosEmbed", "FluxPosEmbed"]
)
def test_video_and_image_positions_are_grids(function: str) -> None:
    cases = [case for case in CASES if case.function == function]
    assert cases
    for case in cases:
        with floats_of(torch.float32), torch.no_grad():
            names = case.run().names
        positions = eval(code_of(ROWS[function].cells[3]), FUNCTIONS | names)
        assert grid_of(positions)["grid"]


def test_rows_and_cases_correspond() -> None:
    assert {case.function for case in CASES} == ROWS.keys()


def test_rows_of_other_packages_name_encodings() -> None:
    """Each row names an encoding or begins with "not supported"."""
    encodings = {code_of(row.cells[0]) for row in section_of("encodings.md", "Encodings")}
    for section in ("Positions of a sequence", "Relative positions"):
        for row in section_of(PAGE, section):
            served = row.cells[2]
            assert served.startswith("not supported: ") or code_of(served) in encodings, row
