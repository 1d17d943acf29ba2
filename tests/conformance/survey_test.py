# SPDX-License-Identifier: Apache-2.0
"""Every request of docs/survey.md against the own code of diffusers, timm and torchvision.

A case runs a peer twice: as it stands, and with float64 in the place of float32, which leaves only
the formula to be compared.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from bits import Array, assert_same_bits
from diffusers.models import embeddings
from diffusers.models.transformers import (
    transformer_anyflow,
    transformer_bria,
    transformer_bria_fibo,
    transformer_chronoedit,
    transformer_cogview4,
    transformer_cosmos,
    transformer_easyanimate,
    transformer_ernie_image,
    transformer_flux,
    transformer_flux2,
    transformer_flux3,
    transformer_glm_image,
    transformer_hidream_image,
    transformer_hunyuan_video,
    transformer_ideogram4,
    transformer_krea2,
    transformer_longcat_image,
    transformer_ltx,
    transformer_ltx2,
    transformer_lumina2,
    transformer_minimax_h3,
    transformer_motif_video,
    transformer_omnigen,
    transformer_ovis_image,
    transformer_prx,
    transformer_qwenimage,
    transformer_sana_wm,
    transformer_skyreels_v2,
    transformer_wan,
    transformer_z_image,
)
from pages import DOCS, Row, rows_of, section_of
from swin_v2 import ROUNDINGS, in_float64
from timm import layers as timm_layers
from timm.layers import pos_embed_sincos
from timm.models import edgenext, xcit
from torchvision.models import maxvit, swin_transformer

import attnbias

PAGE = "survey.md"
CODE = re.compile(r"`([^`]+)`")
Names = dict[str, Any]


def functions_of_the_page() -> Names:
    block = re.search(r"```python\n(.*?)```", (DOCS / PAGE).read_text(), re.DOTALL)
    assert block
    names: Names = {"np": np, **vars(attnbias)}
    exec(block[1], names)
    return names


FUNCTIONS = functions_of_the_page()
grid = FUNCTIONS["grid"]


class Peer(NamedTuple):
    """What a peer computes, and the values of the names in the page's row."""

    result: Any
    names: Names
    # Machine epsilons that the result may be off by; 0 for the same bits.
    loss: Any


class Case(NamedTuple):
    function: str
    run: Callable[[], Peer]
    # Its angles are float64 in any case, so that its float32 results are rounded once.
    rounded_once: bool


CASES: list[Case] = []
Run = Callable[..., Peer]


def case(*functions: Any, sizes: list[Any], rounded_once: bool = False) -> Callable[[Run], Run]:
    """Makes a case of each function and size; a function is (its name on the page, itself)."""

    def add(run: Run) -> Run:
        for function in functions:
            name, itself = (
                function if isinstance(function, tuple) else (function.__name__, function)
            )
            for size in sizes:
                CASES.append(Case(name, partial(run, itself, *size), rounded_once))
        return run

    return add


def angles(reach: float, growth: float = 0) -> float:
    """The loss of a sine or cosine at positions up to `reach`, for frequencies up to 1.

    An angle is made in at most 8 operations of half an epsilon each. An exponent's rounding grows
    with x = ln(1 / frequency), but the frequency falls faster: x exp(-x) < 1. Where frequencies
    rise with the exponent, it is as many half epsilons as their greatest logarithm, `growth`.
    """
    return 1 + (4 + growth / 2) * reach


def latents(*lengths: int, patch: int = 1) -> torch.Tensor:
    """[batch, channels, (frames,) rows, columns] whose shape is all that matters."""
    return torch.empty(1, 1, *lengths[:-2], lengths[-2] * patch, lengths[-1] * patch)


def sized(lengths: list[int]) -> Names:
    return dict(zip("THW"[-len(lengths) :], lengths, strict=True))


# A small grid, and an image of 1024 by 1024 pixels.
LISTS = [([8, 12, 12], [3, 5, 7]), ([16, 56, 56], [1, 64, 64])]
# A small grid, and frames of 480 by 832 pixels.
VIDEOS = [(96, [3, 4, 5]), (128, [2, 30, 52])]


@case(
    transformer_flux.FluxPosEmbed,
    transformer_flux2.Flux2PosEmbed,
    transformer_flux3.Flux3PosEmbed,
    transformer_ovis_image.OvisImagePosEmbed,
    transformer_longcat_image.LongCatImagePosEmbed,
    transformer_bria.BriaPosEmbed,
    transformer_bria_fibo.BriaFiboEmbedND,
    transformer_krea2.Krea2RotaryPosEmbed,
    sizes=LISTS,
    rounded_once=True,
)
@case(
    transformer_flux2.Flux2PosEmbed,
    transformer_flux3.Flux3PosEmbed,
    sizes=[([32, 32, 32, 32], [2, 3, 5, 4])],
    rounded_once=True,
)
def of_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    names = {"theta": 2000, "axes_dim": axes_dim, "ids": ids}
    return Peer(module(2000, axes_dim)(torch.tensor(ids)), names, angles(max(lengths)))


@case(
    transformer_wan.WanRotaryPosEmbed,
    transformer_skyreels_v2.SkyReelsV2RotaryPosEmbed,
    transformer_chronoedit.ChronoEditRotaryPosEmbed,
    sizes=VIDEOS,
    rounded_once=True,
)
def of_videos(module: Any, d: int, lengths: list[int]) -> Peer:
    if module is transformer_chronoedit.ChronoEditRotaryPosEmbed:
        lengths = [3, *lengths[1:]]  # two frames stand for the first and the last
    tables = module(d, (1, 2, 2), 1024)(latents(*lengths, patch=2))
    names = {"d": d, "theta": 10000, **sized(lengths)}
    return Peer([table[0, :, 0] for table in tables], names, angles(max(lengths)))


@case(
    transformer_anyflow.AnyFlowRotaryPosEmbed,
    transformer_sana_wm.SanaWMRotaryPosEmbed,
    sizes=VIDEOS,
)
def of_complex_videos(module: Any, d: int, lengths: list[int]) -> Peer:
    rope = module(d, (1, 2, 2), 1024)
    if isinstance(rope, transformer_anyflow.AnyFlowRotaryPosEmbed):
        table = rope._forward_full_frame(*lengths, torch.device("cpu"))
    else:
        table = rope(lengths)
    names = {"d": d, "theta": 10000, **sized(lengths)}
    return Peer(table.reshape(-1, d // 2), names, angles(max(lengths)))


def of_rope_dim(module: Any, rope_dim: list[int], lengths: list[int]) -> Peer:
    names = {"rope_dim": rope_dim, "theta": 256, **sized(lengths)}
    tables = module(2, 1, rope_dim)(latents(*lengths, patch=2))
    return Peer(tables, names, angles(max(lengths)))


VIDEOS_OF_ROPE_DIM = [([16, 56, 56], [3, 5, 7]), ([16, 56, 56], [3, 34, 60])]
case(transformer_hunyuan_video.HunyuanVideoRotaryPosEmbed, sizes=VIDEOS_OF_ROPE_DIM)(of_rope_dim)
case(transformer_motif_video.MotifVideoRotaryPosEmbed, sizes=VIDEOS_OF_ROPE_DIM, rounded_once=True)(
    of_rope_dim
)


@case(transformer_lumina2.Lumina2RotaryPosEmbed, transformer_z_image.RopeEmbedder, sizes=LISTS)
def of_complex_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    rope = module(256, axes_dim, [64, 128, 128])
    if isinstance(rope, transformer_lumina2.Lumina2RotaryPosEmbed):
        table = rope._get_freqs_cis(torch.tensor(ids)[None])[0]
    else:
        table = rope(torch.tensor(ids))
    names = {"theta": 256, "axes_dim": axes_dim, "ids": ids}
    return Peer(table, names, angles(max(lengths)))


@case(transformer_hidream_image.HiDreamImageEmbedND, sizes=LISTS, rounded_once=True)
@case(transformer_prx.PRXEmbedND, sizes=LISTS, rounded_once=True)
@case(transformer_ernie_image.ErnieImageEmbedND3, sizes=LISTS)
def of_batches_of_lists(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    names = {"theta": 10000, "axes_dim": axes_dim, "ids": ids}
    if module is transformer_hidream_image.HiDreamImageEmbedND:
        result = module(10000, axes_dim)(torch.tensor(ids, dtype=torch.double)[None])[0, :, 0]
    else:
        result = module(sum(axes_dim), 10000, axes_dim)(
            torch.tensor(ids * 1.0).to(torch.float32)[None]
        )
        result = result[0].squeeze(1 if result.shape[2] == 1 else 0)
        if module is transformer_ernie_image.ErnieImageEmbedND3:
            result = result.cos(), result.sin()
    return Peer(result, names, angles(max(lengths)))


@case(transformer_minimax_h3.MiniMaxH3RotaryPosEmbed, sizes=[(4, [3, 4, 5]), (16, [2, 34, 60])])
def of_minimax(module: Any, n: int, lengths: list[int]) -> Peer:
    ids = grid(*lengths).T
    names = {"n": n, "rope_theta": 10000, "position_ids": ids}
    return Peer(module(n)(torch.tensor(ids)), names, angles(max(lengths)))


@case(
    ("QwenEmbedRope with scale_rope", transformer_qwenimage.QwenEmbedRope),
    sizes=[([16, 56, 56], [1, 5, 7]), ([16, 56, 56], [2, 64, 62])],
)
def of_qwen(module: Any, axes_dim: list[int], lengths: list[int]) -> Peer:
    rope = module(10000, axes_dim, scale_rope=True)
    image, _ = rope(tuple(lengths), max_txt_seq_len=1)
    names = {"theta": 10000, "axes_dim": axes_dim, **sized(lengths)}
    return Peer(image, names, angles(max(lengths)))


# CogVideoX at its own size, which is a whole grid, and at others.
@case(
    ("get_3d_rotary_pos_embed of a whole grid", embeddings.get_3d_rotary_pos_embed),
    sizes=[(64, [3, 5, 7]), (64, [13, 30, 45])],
)
def of_whole_grids(function: Any, d: int, lengths: list[int]) -> Peer:
    names = {"d": d, "theta": 10000, **sized(lengths)}
    frames, *sides = lengths
    tables = function(d, ((0, 0), sides), sides, frames)
    for ours, theirs in zip(
        tables, function(d, None, sides, frames, grid_type="slice", max_size=(64, 64)), strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-4)
    return Peer(tables, names, angles(max(lengths)))


def cropped(d: int, lengths: list[int], edges: Any) -> tuple[Names, float]:
    (top, left), (bottom, right) = edges
    names = {"top": top, "left": left, "bottom": bottom, "right": right}
    reach = max(*lengths, bottom, right)
    return names | {"d": d, "theta": 10000, **sized(lengths)}, angles(reach)


@case(
    ("get_3d_rotary_pos_embed of a crop", embeddings.get_3d_rotary_pos_embed),
    sizes=[(64, [3, 5, 7], ((2, 0), (9, 11))), (64, [3, 48, 42], ((0, 9), (30, 36)))],
)
def of_crops(function: Any, d: int, lengths: list[int], edges: Any) -> Peer:
    frames, *sides = lengths
    return Peer(function(d, edges, sides, frames), *cropped(d, lengths, edges))


@case(transformer_easyanimate.EasyAnimateRotaryPosEmbed, sizes=[(64, [3, 5, 7]), (64, [3, 48, 84])])
def of_easyanimate(module: Any, d: int, lengths: list[int]) -> Peer:
    rope = module(2, d)
    edges = rope.get_resize_crop_region_for_grid(lengths[1:], 45, 30)
    return Peer(rope(latents(*lengths, patch=2)), *cropped(d, lengths, edges))


@case(
    embeddings.get_2d_rotary_pos_embed,
    sizes=[(32, [5, 7], ((2, 0), (9, 11))), (88, [64, 48], ((0, 4), (32, 28)))],
)
def of_images(function: Any, d: int, lengths: list[int], edges: Any) -> Peer:
    return Peer(function(d, edges, lengths), *cropped(d, lengths, edges))


@case(
    transformer_cosmos.CosmosRotaryPosEmbed,
    sizes=[(48, [3, 4, 5], (2.0, 1.0, 1.0), 24), (128, [4, 44, 80], (1.0, 3.0, 3.0), 30)],
)
def of_cosmos(
    module: Any, hidden_size: int, lengths: list[int], rope_scale: tuple[float, ...], fps: int
) -> Peer:
    rope = module(hidden_size, rope_scale=rope_scale)
    names = {
        "dims": [rope.dim_t, rope.dim_h, rope.dim_w],
        "rope_scale": rope_scale,
        "base_fps": rope.base_fps,
        "fps": fps,
        **sized(lengths),
    }
    return Peer(rope(latents(*lengths, patch=2), fps), names, angles(max(lengths)))


# A latent stands for 8 frames, of which the first is one frame, and for 32 by 32 pixels.
@case(transformer_ltx.LTXVideoRotaryPosEmbed, sizes=[(64, [3, 2, 4]), (2048, [3, 16, 22])])
@case(transformer_ltx2.LTX2AudioVideoRotaryPosEmbed, sizes=[(64, [3, 2, 4]), (4096, [2, 12, 20])])
def of_ltx(module: Any, dim: int, lengths: list[int]) -> Peer:
    rope = module(dim)
    frames, rows, columns = grid(*lengths)
    if module is transformer_ltx.LTXVideoRotaryPosEmbed:
        part = np.stack([np.maximum(8 * frames - 7, 0), 32 * rows, 32 * columns])
        whole = [25 * rope.base_num_frames, rope.base_height, rope.base_width]
        coordinates = torch.tensor(part * 1.0).to(torch.float32)
        coordinates[0] /= 25
        tables = rope(torch.empty(1), video_coords=coordinates[None])
    else:  # the middle between first and last
        part = np.stack(
            [np.maximum(8 * frames - 7, 0) + 8 * frames + 1, 64 * rows + 32, 64 * columns + 32]
        )
        whole = [2 * 24 * rope.base_num_frames, 2 * rope.base_height, 2 * rope.base_width]
        tables = rope(rope.prepare_video_coords(1, *lengths, torch.device("cpu")))
    names = {"dim": dim, "theta": 10000, "part": part, "whole": whole}
    return Peer(
        [table[0] for table in tables], names, angles(np.pi / 2 * 10000, growth=np.log(10000))
    )


@case(
    embeddings.get_3d_rotary_pos_embed_allegro,
    sizes=[(axis, size) for axis in range(3) for size in ([3, 5, 7], [22, 90, 160])],
)
def of_allegro(function: Any, axis: int, lengths: list[int]) -> Peer:
    scale = (2.0, 2.5, 2.0)
    frames, *sides = lengths
    tables = function(96, ((0, 0), sides), sides, frames, scale)[axis]
    names = {
        "embed_dim": 96,
        "theta": 10000,
        "interpolation_scale": scale,
        "axis": axis,
        "lengths": lengths,
    }
    return Peer(tables, names, angles(max(lengths)))


@case(
    transformer_cogview4.CogView4RotaryPosEmbed,
    sizes=[(32, [5, 7], (11, 6)), (128, [64, 48], (256, 256))],
)
@case(transformer_glm_image.GlmImageRotaryPosEmbed, sizes=[(32, [5, 7]), (128, [64, 48])])
def of_cogview4(
    module: Any, dim: int, lengths: list[int], rope_axes_dim: tuple[int, ...] = ()
) -> Peer:
    arguments = [rope_axes_dim] if rope_axes_dim else []
    tables = module(dim, 2, *arguments)(latents(*lengths, patch=2))
    names = {"dim": dim, "theta": 10000, "rope_axes_dim": rope_axes_dim, **sized(lengths)}
    return Peer(tables, names, angles(max(*lengths, *rope_axes_dim)))


# Images stand from 65536 on.
@case(
    transformer_ideogram4.Ideogram4MRoPE,
    sizes=[(16, (3, 3, 2), 0, [3, 4, 5]), (128, (24, 20, 20), 65536, [1, 32, 48])],
)
def of_ideogram4(
    module: Any, head_dim: int, section: tuple[int, ...], first: int, lengths: list[int]
) -> Peer:
    ids = grid(*lengths).T + first
    tables = module(head_dim, 5000000, section)(torch.tensor(ids)[None])
    names = {"head_dim": head_dim, "base": 5000000, "mrope_section": section, "position_ids": ids}
    return Peer([table[0] for table in tables], names, angles(ids.max()))


@case(embeddings.get_1d_rotary_pos_embed, sizes=[(8, 10), (32, 1025)])
def of_stable_audio(function: Any, dim: int, pos: int) -> Peer:
    tables = function(dim, pos, use_real=True, repeat_interleave_real=False)
    return Peer(tables, {"dim": dim, "pos": pos, "theta": 10000}, angles(pos))


@case(transformer_omnigen.OmniGenSuScaledRotaryEmbedding, sizes=[(8, 9), (96, 4096), (96, 4100)])
def of_omnigen(module: Any, dim: int, length: int) -> Peer:
    factors = {
        "short_factor": [1 + m / 64 for m in range(dim // 2)],
        "long_factor": [2 + m * m / 70 for m in range(dim // 2)],
    }
    ids = range(max(0, length - 300), length)
    tables = module(dim, rope_scaling=factors)(torch.empty(0), torch.tensor([*ids])[None])
    names = {
        "dim": dim,
        "base": 10000,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "position_ids": ids,
        **factors,
    }
    return Peer(tables, names, 2 * angles(length))  # the attention factor is below 2


def embedded(function: Any, timesteps: torch.Tensor, dim: int, flip: bool, shift: int) -> Any:
    if function is embeddings.get_timestep_embedding:
        return function(timesteps, dim, flip, shift)
    if function is transformer_skyreels_v2.SkyReelsV2Timesteps:
        return function(dim, flip)(timesteps)
    return function(dim, flip, shift)(timesteps)


def of_timesteps(
    function: Any, timesteps: Array, dim: int, flip_sin_to_cos: bool, shift: int
) -> Peer:
    given = torch.tensor(timesteps * 1.0).to(torch.float32)
    names = {
        "timesteps": timesteps,
        "embedding_dim": dim,
        "flip_sin_to_cos": flip_sin_to_cos,
        "max_period": 10000,
    }
    result = embedded(function, given, dim, flip_sin_to_cos, shift)
    return Peer(result, names, angles(float(np.max(timesteps))))


STEPS = np.arange(0, 1000, 7)
# What a scheduler of flow matching makes of 30 steps, shifted by 3; exact in float32.
SIGMAS = np.linspace(1, 1 / 30, 30)
FRACTIONS = (1000 * 3 * SIGMAS / (1 + 2 * SIGMAS)).astype(np.float32).astype(np.float64)
for function in (embeddings.get_timestep_embedding, embeddings.Timesteps):
    name = function.__name__
    case(
        (f"{name} with shift 0", function),
        sizes=[(STEPS, 6, False, 0), (STEPS, 320, True, 0), (STEPS, 256, False, 0)],
    )(of_timesteps)
    case(
        (f"{name} with shift 1", function),
        sizes=[(STEPS, 7, False, 1), (STEPS, 128, False, 1)],
    )(of_timesteps)
for function in (embeddings.get_timestep_embedding, transformer_skyreels_v2.SkyReelsV2Timesteps):
    case(
        (f"{function.__name__} of fractions", function),
        sizes=[(FRACTIONS, 6, False, 0), (FRACTIONS, 256, True, 0)],
    )(of_timesteps)


@case(
    embeddings.get_2d_sincos_pos_embed,
    sizes=[(16, [5, 7], 1.5, 4), (1152, [32, 32], 1.0, 32), (384, [48, 36], 2.0, 64)],
)
def of_patches(
    function: Any, embed_dim: int, lengths: list[int], interpolation_scale: float, base_size: int
) -> Peer:
    table = function(
        embed_dim, lengths, interpolation_scale=interpolation_scale, base_size=base_size
    )
    names = {
        "embed_dim": embed_dim,
        "interpolation_scale": interpolation_scale,
        "base_size": base_size,
        **sized(lengths),
    }
    return Peer(table, names, angles(base_size))


@case(
    ("PatchEmbed.cropped_pos_embed", embeddings.PatchEmbed),
    sizes=[(16, [5, 7], 9, 4), (1536, [40, 24], 96, 64)],
)
def of_cropped_patches(
    module: Any, embed_dim: int, lengths: list[int], pos_embed_max_size: int, base_size: int
) -> Peer:
    patches = module(
        height=2 * base_size,
        width=2 * base_size,
        patch_size=2,
        embed_dim=embed_dim,
        pos_embed_max_size=pos_embed_max_size,
    )
    table = patches.cropped_pos_embed(2 * lengths[0], 2 * lengths[1])[0]
    names = {
        "embed_dim": embed_dim,
        "interpolation_scale": 1,
        "base_size": base_size,
        "pos_embed_max_size": pos_embed_max_size,
        **sized(lengths),
    }
    return Peer(table, names, angles(base_size))


@case(timm_layers.RotaryEmbeddingDinoV3, sizes=[(16, [5, 7]), (64, [32, 48])])
def of_dinov3(module: Any, dim: int, lengths: list[int]) -> Peer:
    names = {"dim": dim, "temperature": 100.0, **sized(lengths)}
    return Peer(module(dim).get_embed(lengths), names, angles(2 * np.pi))


@case(
    timm_layers.RotaryEmbeddingCat,
    sizes=[(16, [5, 7]), (64, [24, 32])],
)
@case(
    ("RotaryEmbeddingCat with ref_feat_shape", timm_layers.RotaryEmbeddingCat),
    sizes=[(16, [5, 7], [3, 9]), (64, [24, 32], [16, 16])],
)
def of_eva02(
    module: Any, dim: int, lengths: list[int], ref_feat_shape: list[int] | None = None
) -> Peer:
    rope = module(dim, in_pixels=False, ref_feat_shape=ref_feat_shape)
    names = {
        "dim": dim,
        "temperature": 10000,
        "ref_feat_shape": ref_feat_shape,
        **sized(lengths),
    }
    return Peer(rope.get_embed(lengths), names, angles(max(*lengths, *(ref_feat_shape or []))))


@case(
    ("build_sincos2d_pos_embed with interleave_sin_cos", timm_layers.build_sincos2d_pos_embed),
    sizes=[(16, [5, 7]), (768, [14, 20])],
)
def of_sincos2d(function: Any, dim: int, lengths: list[int]) -> Peer:
    table = function(lengths, dim, interleave_sin_cos=True, dtype=torch.get_default_dtype())
    names = {"dim": dim, "temperature": 10000, **sized(lengths)}
    return Peer(table, names, angles(max(lengths)))


@case(
    ("xcit.PositionalEncodingFourier", xcit.PositionalEncodingFourier),
    ("edgenext.PositionalEncodingFourier", edgenext.PositionalEncodingFourier),
    sizes=[(8, [5, 7]), (32, [14, 20])],
)
def of_fourier(module: Any, hidden_dim: int, lengths: list[int]) -> Peer:
    encoding = module(hidden_dim, 2 * hidden_dim)
    torch.nn.init.dirac_(encoding.token_projection.weight)
    torch.nn.init.zeros_(encoding.token_projection.bias)
    one = module is edgenext.PositionalEncodingFourier
    pixels = encoding((1, *lengths)) if one else encoding(1, *lengths)
    names = {"hidden_dim": hidden_dim, "temperature": 10000, **sized(lengths)}
    return Peer(pixels[0].flatten(1).T, names, angles(2 * np.pi))


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


@case(timm_layers.RelPosBiasTf, sizes=WINDOWS)
def of_rel_pos_bias_tf(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    bias = module(lengths, num_heads)
    return looked_up(bias, lambda: bias.get_bias()[None], lengths)


@case(swin_transformer.ShiftedWindowAttention, sizes=WINDOWS)
def of_shifted_windows(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, lengths, [0, 0], num_heads)
    return looked_up(attention, attention.get_relative_position_bias, lengths)


@case(maxvit.RelativePositionalMultiHeadAttention, sizes=[(4, [2, 2]), (16, [7, 7])])
def of_maxvit(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(32 * num_heads, 32, lengths[0] * lengths[1])
    return looked_up(attention, attention.get_relative_positional_bias, lengths)


def computed(hidden: Any, output: Any, bias: Any, lengths: list[int], sides: Any) -> Peer:
    for parameter in (hidden.weight, hidden.bias, output.weight):
        torch.nn.init.normal_(parameter, std=0.3)
    network: Any = SimpleNamespace(
        continuous_position_bias_mlp=(hidden, None, output), window_size=lengths
    )
    _, moves = in_float64(network, sides)
    moves = attnbias.BlockToeplitz(
        np.ascontiguousarray((moves + 16).transpose(2, 0, 1)[:, ::-1, ::-1])
    ).dense()
    names = {
        "hidden_weight": hidden.weight,
        "hidden_bias": hidden.bias,
        "output_weight": output.weight,
        "pretrained_window_size": sides,
        **sized(lengths),
    }
    return Peer(bias()[0], names, ROUNDINGS / 2 * moves)


@case(
    ("RelPosMlp of mode swin", timm_layers.RelPosMlp),
    sizes=[(4, [2, 3], None), (4, [8, 12], None), (16, [8, 8], None)],
)
@case(
    ("RelPosMlp of mode swin with pretrained_window_size", timm_layers.RelPosMlp),
    sizes=[(4, [3, 5], (12, 6)), (16, [16, 16], (8, 8))],
)
def of_rel_pos_mlp(module: Any, num_heads: int, lengths: list[int], pretrained: Any) -> Peer:
    bias = module(
        lengths,
        num_heads,
        hidden_dim=512,
        mode="swin",
        pretrained_window_size=pretrained or (0, 0),
    ).eval()
    return computed(bias.mlp.fc1, bias.mlp.fc2, bias.get_bias, lengths, pretrained or lengths)


@case(swin_transformer.ShiftedWindowAttentionV2, sizes=[(4, [2, 3]), (4, [8, 12]), (16, [8, 8])])
def of_shifted_windows_v2(module: Any, num_heads: int, lengths: list[int]) -> Peer:
    attention = module(num_heads, lengths, [0, 0], num_heads)
    hidden, _, output = attention.cpb_mlp
    return computed(hidden, output, attention.get_relative_position_bias, lengths, lengths)


def names_of(row: Row) -> list[str]:
    return row.cells[0].replace("`", "").split(", ")


# A row of five cells is a request.
ROWS = {name: row for row in rows_of(PAGE) if len(row.cells) == 5 for name in names_of(row)}


@contextlib.contextmanager
def floats_of(dtype: torch.dtype) -> Iterator[None]:
    """Makes float32 mean `dtype`, in defaults of parameters too."""
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


def answer_of(client: attnbias.Client, row: Row, names: Names, data_type: str) -> list[Array]:
    """The result that a row of the page promises."""
    _, _, encoding, positions, result = row.cells
    asked = eval(code_of(encoding), FUNCTIONS | names)
    extent = {}
    if CODE.search(positions):
        extent["position_ids"] = eval(code_of(positions), FUNCTIONS | names)
    got = client.get(asked, data_type=data_type, **extent)
    if isinstance(got, attnbias.BlockToeplitz):
        answer: Names = {"bias": got.dense()}
    elif isinstance(got, np.ndarray):
        answer = {"table": got}
    else:
        answer = {"cos": got.cos, "sin": got.sin}
    arrays = eval(code_of(result), FUNCTIONS | names | answer)
    return [*arrays] if isinstance(arrays, tuple) else [arrays]


DATA_TYPES = {"float32": "f32", "complex64": "f32", "float64": "f64", "complex128": "f64"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=[case.function for case in CASES])
def test_requests(client: attnbias.Client, case: Case, dtype: torch.dtype) -> None:
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


def test_every_row_has_a_case_and_every_case_a_row() -> None:
    assert {case.function for case in CASES} == ROWS.keys()


def test_other_packages_name_encodings() -> None:
    """Or say that none serves them."""
    encodings = {code_of(row.cells[0]) for row in section_of("encodings.md", "Encodings")}
    for section in ("Positions of a sequence", "Relative positions"):
        for row in section_of(PAGE, section):
            served = row.cells[2]
            assert served.startswith("not served: ") or code_of(served) in encodings, row
