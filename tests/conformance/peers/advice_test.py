# SPDX-License-Identifier: Apache-2.0
"""Follows docs/encodings.md to the letter for each model, with the sizes of published checkpoints,
and compares the numbers with those from the module in the installed transformers.

Every row of the page's tables of exceptions has a case, and every case a row.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from bits import Array, to_array
from default_configs_test import ARRANGED, BROKEN, assert_served
from pages import DOCS, configs_in, section_of
from ropes import (
    AXES,
    ROWS,
    Rope,
    Words,
    assert_gives,
    cos_and_sin,
    default_ropes,
    head_dim_of,
    inv_freq_of,
    module_of,
    relative_bound,
    rope_of,
    words_of,
)
from transformers.models.clvp.modeling_clvp import ClvpRotaryPositionalEmbedding
from transformers.models.codegen.modeling_codegen import (
    create_sinusoidal_positions as codegen_table,
)
from transformers.models.cohere_compass.modeling_cohere_compass import CohereCompassRotaryEmbedding
from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTRopePositionEmbedding
from transformers.models.eomt_dinov3.modeling_eomt_dinov3 import EomtDinov3RotaryEmbedding
from transformers.models.esm.modeling_esm import EsmRotaryEmbedding
from transformers.models.esmfold2.configuration_esmfold2 import EsmFold2AtomEncoderConfig
from transformers.models.esmfold2.modeling_esmfold2 import EsmFold2RotaryEmbedding
from transformers.models.evolla.configuration_evolla import SaProtConfig
from transformers.models.evolla.modeling_evolla import EvollaSaProtRotaryEmbedding
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions as gptj_table
from transformers.models.lightglue.modeling_lightglue import LightGluePositionalEncoder
from transformers.models.ministral3.modeling_ministral3 import (
    get_llama_4_attn_scale as ministral3_scale,
)
from transformers.models.mistral4.modeling_mistral4 import get_llama_4_attn_scale as mistral4_scale
from transformers.models.mlcd.modeling_mlcd import MLCDVisionModel
from transformers.models.musicflamingo.modeling_musicflamingo import (
    MusicFlamingoModel,
    MusicFlamingoRotaryEmbedding,
)
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
    Qwen3OmniMoeTalkerRotaryEmbedding,
)
from transformers.models.sapiens2.modeling_sapiens2 import Sapiens2RopePositionEmbedding
from transformers.models.seamless_m4t.modeling_seamless_m4t import (
    SeamlessM4TConformerRotaryPositionalEmbedding,
)
from transformers.models.vjepa2.modeling_vjepa2 import rotate_queries_or_keys
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertRotaryPositionalEmbedding,
)
from transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer import (
    Wav2Vec2ConformerRotaryPositionalEmbedding,
)

import attnbias

PAGE = "encodings.md"
Case = Callable[[attnbias.Client], None]
CASES: dict[str, list[Case]] = {}


def case(*configs: str) -> Callable[[Case], Case]:
    """Registers a function as the case for these configurations' rows."""

    def add(function: Case) -> Case:
        for config in configs:
            CASES.setdefault(config, []).append(function)
        return function

    return add


def check(
    client: attnbias.Client,
    rope: Rope,
    words: Words,
    axes: list[list[int]],
    want: tuple[Array, Array],
    **options: Any,
) -> None:
    assert_gives(client, words, axes, want, bound=relative_bound(rope), **options)


def made(name: str, **fields: Any) -> tuple[Rope, Any, list[float]]:
    """Returns the config with a checkpoint's sizes, its module and the module's frequencies."""
    rope = rope_of(getattr(hf, name)(**fields))
    module = module_of(rope)
    return rope, module, inv_freq_of(rope, module).tolist()


def given(frequencies: list[float], **fields: Any) -> Words:
    return {"head_dim": 2 * len(frequencies), "inverse_frequencies": frequencies, **fields}


def grid(height: int, width: int) -> tuple[Array, Array]:
    """Returns each patch's row and column, row by row."""
    rows, columns = np.divmod(np.arange(height * width), width)
    return rows, columns


# Rope parameters of Ministral 3 and Mistral Small 4.
SCALED = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "max_position_embeddings": 262144,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def llama_4_scaling_beta(client: attnbias.Client, rope: Rope, get_scale: Any) -> None:
    words = words_of(rope)
    with pytest.raises((TypeError, attnbias.InvalidArgumentError)):
        client.get(attnbias.Mrope(**words), positions=1)
    beta = words.pop("llama_4_scaling_beta")
    del words["max_position_embeddings"]
    check(client, rope, words, [ROWS], cos_and_sin(rope, module_of(rope), [ROWS]))

    length = words["original_max_position_embeddings"]
    positions = np.arange(0, 10**6, 4095)
    scale = to_array(get_scale(torch.tensor(positions)[None], beta, length)).ravel()
    want = 1 + beta * np.log1p(positions // length)
    assert np.allclose(scale, want, rtol=2e-7, atol=0)


@case("Ministral3Config")
def ministral_3(client: attnbias.Client) -> None:
    rope, _, _ = made("Ministral3Config", head_dim=128, rope_parameters=dict(SCALED))
    llama_4_scaling_beta(client, rope, ministral3_scale)


@case("Mistral4Config")
def mistral_4(client: attnbias.Client) -> None:
    rope, _, _ = made("Mistral4Config", rope_parameters=dict(SCALED))
    llama_4_scaling_beta(client, rope, mistral4_scale)


@case("MistralLarge4TextConfig")
def mistral_large_4(client: attnbias.Client) -> None:
    rope, module, frequencies = made("MistralLarge4TextConfig")
    alpha = torch.linspace(-0.5, 0.25, len(frequencies))
    module.alpha.copy_(alpha)
    learned = (np.array(frequencies) * np.exp(alpha.double().numpy())).tolist()
    check(client, rope, given(learned), [ROWS], cos_and_sin(rope, module, [ROWS]))


# Rope parameters of Hunyuan-7B and of HunyuanOCR.
ALPHA = {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0}


@case("HunYuanDenseV1Config", "HunYuanMoEV1Config")
def hunyuan(client: attnbias.Client) -> None:
    for name in ("HunYuanDenseV1Config", "HunYuanMoEV1Config"):
        fields = {"head_dim": 128, "max_position_embeddings": 2048}
        rope, module, _ = made(name, rope_parameters=dict(ALPHA), **fields)
        words = {"head_dim": 128, "rope_type": "NTK", "rope_theta": 10000.0, "factor": 1000.0}
        check(client, rope, words, [ROWS], cos_and_sin(rope, module, [ROWS]))


def columns_of_the_page() -> Callable[[Array, list[int]], Array]:
    """Returns the page's function for HunYuan-VL."""
    text = (DOCS / PAGE).read_text().split("#### Columns of HunYuan-VL\n")[1]
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {"np": np}
    exec(code[1], names)
    columns: Callable[[Array, list[int]], Array] = names["columns"]
    return columns


@case("HunYuanVLTextConfig")
def hunyuan_vl(client: attnbias.Client) -> None:
    for sections in ([16, 16, 16, 16], [24, 20, 20], [5, 30, 29], [64]):
        words = {**ALPHA, "mrope_section": sections}
        rope, module, _ = made(
            "HunYuanVLTextConfig", head_dim=128, max_position_embeddings=2048, rope_parameters=words
        )
        axes = AXES[: len(sections)]
        positions = torch.tensor(axes)[:, None]
        want = [to_array(part)[0] for part in module(torch.empty(0), positions)]
        encoding = attnbias.Rotary(
            head_dim=128, ntk=attnbias.Ntk(1000.0), rope_theta=10000.0, layout="compact"
        )
        flat = [position for axis in axes for position in axis]
        tables = client.get(encoding, position_ids=flat, data_type="f64")
        columns = columns_of_the_page()
        bound = np.max(axes, axis=0)[:, None] * relative_bound(rope) + 2.0**-21
        for part, theirs in zip((tables.cos, tables.sin), want, strict=True):
            ours = columns(part.reshape(len(axes), len(ROWS), 64), sections)
            assert ours.shape == theirs.shape
            assert np.all(np.abs(ours - theirs) <= bound)


@case("PhimoeConfig")
def phimoe(client: attnbias.Client) -> None:
    """Uses different mscales, since those of Phi-3.5-MoE are equal."""
    words = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1 + m / 64 for m in range(64)],
        "long_factor": [2 + m * m / 70 for m in range(64)],
        "short_mscale": 1.25,
        "long_mscale": 1.5,
        "original_max_position_embeddings": 4096,
    }
    fields = {"head_dim": 128, "max_position_embeddings": 131072}
    rope, module, _ = made("PhimoeConfig", rope_parameters=dict(words), **fields)
    asked = {name: words[name] for name in words if not name.endswith("mscale")}
    asked |= {"head_dim": 128, "sequence_length": 4096}
    for positions, factor in (([0, 7, 4095], 1.25), ([0, 7, 4096], 1.5)):
        want = cos_and_sin(rope, module, [positions])
        check(client, rope, asked | {"attention_factor": factor}, [positions], want)


@case("Ernie4_5_VLMoeTextConfig")
def ernie_4_5_vl(client: attnbias.Client) -> None:
    for h, t in ((22, 20), (12, 8)):
        words = {"rope_type": "default", "rope_theta": 5e5, "mrope_section": [h, h, t]}
        sizes = {"hidden_size": 40 * (2 * h + t), "num_attention_heads": 20}
        rope, module, _ = made("Ernie4_5_VLMoeTextConfig", rope_parameters=words, **sizes)
        asked = {
            "head_dim": 2 * (2 * h + t),
            "rope_theta": 5e5,
            "axes": [attnbias.Axis()] * 3,
            "pair_axis": [1, 2] * h + [0] * t,
            "layout": "INTERLEAVED",
        }
        check(client, rope, asked, AXES[:3], cos_and_sin(rope, module, AXES[:3]))


def axial(theta: float) -> Words:
    return {"rope_type": "axial", "rope_theta": theta}


def ladders(pairs: int, theta: float, *axes: dict[str, float]) -> Words:
    """Returns fields for this many pairs per axis; each axis has a complete progression."""
    ladder = attnbias.Ladder(base=theta)
    return {
        "head_dim": 2 * pairs * len(axes),
        "axes": [attnbias.Axis(ladder=ladder, **axis) for axis in axes],
    }


@case("PixtralVisionConfig")
def pixtral(client: attnbias.Client) -> None:
    rope, module, frequencies = made(
        "PixtralVisionConfig", hidden_size=1408, num_attention_heads=16, rope_parameters=axial(1e4)
    )
    n = len(frequencies)
    asked = ladders(n // 2, 1e4, {}, {"scale": 1e4 ** (-1 / n)})
    check(client, rope, asked, AXES[:2], cos_and_sin(rope, module, AXES[:2]))


def in_turn(frequencies: list[float]) -> Words:
    return {"mrope_section": [len(frequencies)] * 2, "mrope_interleaved": True}


@case("Kimi_K25VisionConfig")
def kimi(client: attnbias.Client) -> None:
    rope, module, frequencies = made(
        "Kimi_K25VisionConfig", hidden_size=1152, num_attention_heads=12, rope_parameters=axial(1e3)
    )
    rows, columns = AXES[:2]
    want = cos_and_sin(rope, module, [rows, columns])
    check(client, rope, words_of(rope) | in_turn(frequencies), [columns, rows], want)


@case("EfficientLoFTRConfig")
def efficient_loftr(client: attnbias.Client) -> None:
    words = {"rope_type": "default", "rope_theta": 5e3, "partial_rotary_factor": 4.0}
    rope, module, frequencies = made("EfficientLoFTRConfig", rope_parameters=words)
    height, width = 3, 5
    step, kernel = rope.config.q_aggregation_stride, rope.config.q_aggregation_kernel_size
    features = torch.empty(1, 1, (height - 1) * step + kernel, (width - 1) * step + kernel)
    cos, sin = (to_array(each).reshape(height * width, -1) for each in module(features))
    axes = [(axis + 1).tolist() for axis in grid(height, width)]
    asked = axial(5e3) | {"head_dim": 4 * len(frequencies), "layout": "INTERLEAVED"}
    check(client, rope, asked | in_turn(frequencies), axes, (cos, sin))


@case("Inkling2VisionConfig")
def inkling(client: attnbias.Client) -> None:
    rope, module, _ = made("Inkling2VisionConfig", rope_parameters=axial(1e3))
    rows, columns = AXES[:2]
    want = cos_and_sin(rope, module, [rows, columns])
    words = words_of(rope) | {"layout": "INTERLEAVED"}
    check(client, rope, words, [columns, rows], want)


@case("Step3p7VisionConfig")
def step(client: attnbias.Client) -> None:
    rope, module, _ = made("Step3p7VisionConfig", rope_parameters=axial(1e3))
    rows, columns = AXES[:2]
    want = cos_and_sin(rope, module, [rows, columns])
    check(client, rope, words_of(rope), [columns, rows], want)


def blockwise(parts: int) -> Callable[[Array], Array]:
    """Repeats each part of the columns."""

    def repeated(columns: Array) -> Array:
        blocks = np.split(columns, parts, axis=1)
        return np.concatenate([np.tile(block, 2) for block in blocks], axis=1)

    return repeated


@case("Gemma4VisionConfig")
def gemma_4_vision(client: attnbias.Client) -> None:
    rope, module, _ = made("Gemma4VisionConfig", head_dim=72, rope_parameters=axial(1e2))
    want = cos_and_sin(rope, module, AXES[:2])
    words = words_of(rope) | {"layout": "COMPACT"}
    check(client, rope, words, AXES[:2], want, arranged=blockwise(2))


@case("MLCDVisionConfig")
def mlcd(client: attnbias.Client) -> None:
    """Compares with the input to the model's encoder, for an image of 3 x 5 patches."""
    config = hf.MLCDVisionConfig(
        hidden_size=96,
        num_attention_heads=2,
        num_hidden_layers=1,
        intermediate_size=8,
        patch_size=4,
        image_size=20,
        rope_parameters=axial(1e2),
    )
    model = MLCDVisionModel(config).eval()
    handed: list[Any] = []
    model.encoder.register_forward_pre_hook(
        lambda _, __, given: handed.append(given["position_embeddings"]), with_kwargs=True
    )
    with torch.no_grad():
        model(torch.zeros(1, 3, 12, 20))
    [cos, sin] = map(to_array, handed[0])
    weight = np.tile(to_array(model.class_pos_emb), 2)
    assert np.allclose(cos[:1], np.cos(weight), atol=1e-6)
    assert np.allclose(sin[:1], np.sin(weight), atol=1e-6)
    rope = rope_of(config)
    axes = [axis.tolist() for axis in grid(3, 5)]
    check(client, rope, words_of(rope), axes, (cos[1:], sin[1:]))


@case("MiniMaxM3VLVisionConfig")
def minimax_m3_vl(client: attnbias.Client) -> None:
    for heads in (16, 18):
        rope, module, frequencies = made(
            "MiniMaxM3VLVisionConfig",
            hidden_size=1152,
            num_attention_heads=heads,
            rope_parameters=axial(1e4),
        )
        k = head_dim_of(rope.config, None) // 6
        assert k == len(frequencies)
        words = words_of(rope) | {"head_dim": 6 * k, "mrope_section": [k, k, k]}
        check(client, rope, words, AXES[:3], cos_and_sin(rope, module, AXES[:3]))


@case("Llama4VisionConfig")
def llama_4_vision(client: attnbias.Client) -> None:
    theta = {"rope_type": "default", "rope_theta": 1e4}
    rope = rope_of(hf.Llama4VisionConfig(image_size=336, patch_size=28, rope_parameters=theta))
    module = module_of(rope)
    turns = to_array(torch.view_as_real(module(torch.empty(0)))).reshape(12 * 12 + 1, -1, 2)
    rows, columns = grid(12, 12)
    axes = [[*(columns + 1).tolist(), 0], [*(rows + 1).tolist(), 0]]
    words = words_of(rope) | {"rope_type": "axial", "layout": "COMPACT"}
    check(client, rope, words, axes, (turns[..., 0], turns[..., 1]))


CENTRES: dict[str, tuple[Any, Any]] = {
    "EomtDinov3Config": (hf.EomtDinov3Config, EomtDinov3RotaryEmbedding),
    "DINOv3ViTConfig": (hf.DINOv3ViTConfig, DINOv3ViTRopePositionEmbedding),
    "Sapiens2Config": (hf.Sapiens2Config, Sapiens2RopePositionEmbedding),
}


@case(*CENTRES)
def centres_of_patches(client: attnbias.Client) -> None:
    """Uses an image that is not square; angles go up to 2 pi."""
    for config_class, module_class in CENTRES.values():
        config = config_class(hidden_size=1024, num_attention_heads=16)
        module = module_class(config).eval()
        height, width = 14, 37
        patch = np.broadcast_to(config.patch_size, 2)
        image = torch.empty(1, 3, height * patch[0], width * patch[1])
        want = tuple(map(to_array, module(image)))
        axes = [axis.tolist() for axis in grid(height, width)]
        centres = [
            {"scale": 4 * np.pi, "offset": (1 - side) / 2, "length": side}
            for side in (height, width)
        ]
        has_words = hasattr(config, "rope_parameters")
        theta = (config.rope_parameters if has_words else vars(config))["rope_theta"]
        words = ladders(len(module.inv_freq), theta, *centres)
        assert_gives(client, words, axes, want, bound=2.0**-20, angles=np.full(len(axes[0]), 6.3))

        module.train()  # shifted at random
        config.pos_embed_shift = 0.5
        assert np.max(np.abs(to_array(module(image)[0]) - want[0])) > 1e-3


@case("MusicFlamingoConfig")
def music_flamingo(client: attnbias.Client) -> None:
    config = hf.MusicFlamingoConfig(audio_token_id=5)
    module = MusicFlamingoRotaryEmbedding(config)
    windows, frames = 3, 750
    # The times for one sample of three windows, computed as in the model.
    build = MusicFlamingoModel._build_audio_timestamps
    tokens = torch.full((1, windows * frames), 5)
    lengths = torch.full((windows,), frames)
    times = build(SimpleNamespace(config=config), tokens, lengths, frames)
    want = tuple(to_array(part).reshape(windows * frames, -1) for part in module(times, frames))

    step, most = 4 * config.audio_frame_step, config.max_position_embeddings
    window, frame = grid(windows, frames)
    at = window * frames + frame
    axes = [(at * window).tolist(), (at * frame).tolist()]
    turn = -2 * np.pi * step / most
    theta = config.rope_parameters["rope_theta"]
    words = ladders(len(module.inv_freq), theta, {"scale": turn}, {"scale": 2 * np.pi * turn})
    words |= {"layout": "INTERLEAVED"}
    angles = 4 * np.pi**2 * step / most * np.max(np.abs(axes), axis=0)
    assert_gives(client, words, axes, want, bound=2.0**-20, angles=angles)


@case("Glm4MoeConfig")
def glm_4_moe(client: attnbias.Client) -> None:
    words = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    rope, module, _ = made("Glm4MoeConfig", head_dim=128, rope_parameters=words)  # GLM-4.5's
    check(client, rope, words_of(rope), [ROWS], cos_and_sin(rope, module, [ROWS]))
    rope, module, frequencies = made("Glm4MoeConfig")
    odd = int(head_dim_of(rope.config, None) * rope.words["partial_rotary_factor"])
    spaced = rope.words["rope_theta"] ** (-np.arange(0, odd, 2) / odd)
    assert odd % 2 == 1
    assert np.allclose(frequencies, spaced, rtol=1e-5)
    check(client, rope, given(frequencies), [ROWS], cos_and_sin(rope, module, [ROWS]))


@case("Qwen3OmniMoeTextConfig")
def qwen_3_omni(client: attnbias.Client) -> None:
    words = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20]}
    rope, module, _ = made("Qwen3OmniMoeTextConfig", head_dim=128, rope_parameters=words)
    asked = words_of(rope) | {"mrope_interleaved": True}
    check(client, rope, asked, AXES[:3], cos_and_sin(rope, module, AXES[:3]))
    rope, module, frequencies = made("Qwen3OmniMoeTextConfig")
    check(client, rope, given(frequencies), [ROWS], cos_and_sin(rope, module, [ROWS] * 3))


@case("BltConfig")
def blt(client: attnbias.Client) -> None:
    config = hf.BltConfig()
    assert module_of(rope_of(config)) is None
    parts = [config.patcher_config, config.encoder_config, config.decoder_config]
    for part in [*parts, config.global_config]:
        rope = rope_of(part)
        words = words_of(rope) | {"layout": "INTERLEAVED"}
        check(client, rope, words, [ROWS], cos_and_sin(rope, module_of(rope), [ROWS]))


# Checkpoint sizes for models whose default sizes are inconsistent: GLM-4.1V, GLM-4.5V, GLM-Image,
# Qwen3-Omni, North-Micro-Vision.
SIZES: dict[str, Words] = {
    "Glm4vTextConfig": {"partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]},
    "Glm4vMoeTextConfig": {"partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]},
    "GlmImageTextConfig": {"partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]},
    "Qwen3OmniMoeTalkerTextConfig": {"mrope_section": [24, 20, 20]},
    "CohereCompassTextConfig": {"mrope_section": [24, 20, 20]},
}


@pytest.mark.parametrize("name", SIZES)
def test_configs_with_checkpoint_sizes_are_served(client: attnbias.Client, name: str) -> None:
    assert SIZES.keys() == BROKEN - CASES.keys()
    words: Words = {"rope_type": "default", "rope_theta": 1e4, **SIZES[name]}
    fields = {"hidden_size": 4096, "num_attention_heads": 32}
    config_class = getattr(hf, name)
    if "head_dim" in inspect.signature(config_class).parameters:
        fields["head_dim"] = 128
    layer = "full_attention" if name == "CohereCompassTextConfig" else None
    config = config_class(rope_parameters={layer: words} if layer else words, **fields)
    assert name in ARRANGED
    assert_served(client, rope_of(config, layer))


# Configurations without rope_parameters.


@case("GPTJConfig", "CodeGenConfig")
def gpt_j(client: attnbias.Client) -> None:
    for table in (gptj_table, codegen_table):
        sin, cos = np.split(to_array(table(2048, 64)), 2, axis=1)
        for layout, repeats in (("COMPACT", 1), ("INTERLEAVED", 2)):
            want = cos.repeat(repeats, axis=1), sin.repeat(repeats, axis=1)
            words = {"head_dim": 64, "layout": layout}
            assert_gives(client, words, [list(range(2048))], want, bound=2.0**-18)


@case("EsmConfig", "SaProtConfig")
def esm(client: attnbias.Client) -> None:
    modules = (hf.EsmConfig, EsmRotaryEmbedding), (SaProtConfig, EvollaSaProtRotaryEmbedding)
    for config_class, module_class in modules:
        config = config_class(
            vocab_size=33, hidden_size=1280, num_attention_heads=20, rope_theta=5e4
        )
        cos, sin = module_class(config)(torch.empty(0), torch.tensor([ROWS]))
        want = to_array(cos[0]), to_array(sin[0])
        words = {"head_dim": 64, "rope_theta": 5e4}
        assert_gives(client, words, [ROWS], want, bound=2.0**-18)


@case("Wav2Vec2BertConfig", "Wav2Vec2ConformerConfig", "SeamlessM4TConfig")
def speech(client: attnbias.Client) -> None:
    sizes: Words = {"hidden_size": 1024, "rotary_embedding_base": 5000}
    for module in (
        Wav2Vec2BertRotaryPositionalEmbedding(hf.Wav2Vec2BertConfig(**sizes)),
        Wav2Vec2ConformerRotaryPositionalEmbedding(
            hf.Wav2Vec2ConformerConfig(**sizes, num_attention_heads=16)
        ),
        SeamlessM4TConformerRotaryPositionalEmbedding(
            hf.SeamlessM4TConfig(**sizes, speech_encoder_attention_heads=16)
        ),
    ):
        cos, sin = module(torch.empty(1, 500, 1024))
        want = to_array(cos[:, 0, 0]), to_array(sin[:, 0, 0])
        words = {"head_dim": 64, "rope_theta": 5000.0}
        assert_gives(client, words, [list(range(500))], want, bound=2.0**-18)


@case("ClvpEncoderConfig")
def clvp(client: attnbias.Client) -> None:
    for projection_dim, head_dim in ((768, 32), (1536, 64)):
        config = hf.ClvpEncoderConfig(projection_dim=projection_dim, num_attention_heads=12)
        angles = to_array(ClvpRotaryPositionalEmbedding(config)(torch.empty(1, 500, 1))[0])
        want = np.cos(angles), np.sin(angles)
        assert_gives(client, {"head_dim": head_dim}, [list(range(500))], want, bound=2.0**-18)


@case("VJEPA2Config")
def vjepa_2(client: attnbias.Client) -> None:
    """Compares rotated queries, since the model computes no separate tables."""
    head_dim, k = 64, 10
    axes = AXES[:3]
    got = client.get(
        attnbias.Mrope(6 * k, [k, k, k], rope_type="axial", layout="compact"),
        position_ids=axes,
        data_type="f64",
    )
    cos, sin = (blockwise(3)(part) for part in (got.cos, got.sin))
    query = torch.randn(1, 1, len(ROWS), 6 * k, generator=torch.Generator().manual_seed(0))
    parts = query.split(2 * k, dim=-1)
    turned = [
        rotate_queries_or_keys(part, torch.tensor(axis)[None, None])
        for part, axis in zip(parts, axes, strict=True)
    ]
    assert 2 * k == 2 * (head_dim // 3 // 2)
    pairs = query[0, 0].double().numpy().reshape(len(ROWS), -1, 2)
    other = np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(len(ROWS), -1)
    ours = pairs.reshape(len(ROWS), -1) * cos + other * sin
    bound = np.max(axes, axis=0)[:, None] * 2.0**-17 + 2.0**-19
    assert np.all(np.abs(ours - to_array(torch.cat(turned, dim=-1)[0, 0])) <= bound)


@case("EsmFold2AtomEncoderConfig")
def esm_fold_2(client: attnbias.Client) -> None:
    config = EsmFold2AtomEncoderConfig()
    coordinates = torch.randn(1, 40, 3, generator=torch.Generator().manual_seed(0)) * 10
    uids = torch.arange(40)[None] // 3
    want = EsmFold2RotaryEmbedding(config)(coordinates, uids, torch.float32)
    pairs, uid_pairs = config.num_spatial_rope_pairs_per_axis, config.num_uid_rope_pairs
    rest = config.head_dim // 2 - 3 * pairs
    uid_frequencies = np.zeros(rest)
    uid_frequencies[:uid_pairs] = config.uid_rope_base_frequency ** (
        -np.arange(uid_pairs) / uid_pairs
    )
    spatial = attnbias.Axis(ladder=attnbias.Ladder(base=config.spatial_rope_base_frequency))
    uid = attnbias.Axis(ladder=attnbias.Ladder(frequencies=uid_frequencies))
    encoding = attnbias.Rotary(
        config.head_dim,
        axes=[spatial, spatial, spatial, uid],
        pair_axis=[*np.repeat([0, 1, 2], pairs).tolist(), *[3] * rest],
    )
    got = client.get(encoding, position_ids=[*to_array(coordinates[0].T), to_array(uids[0])])
    largest = float(coordinates.abs().max()) + 40
    for ours, theirs in zip((got.cos, got.sin), want, strict=True):
        assert np.abs(ours - to_array(theirs[0])).max() <= 2.0**-20 * largest


@case("LightGlueConfig")
def light_glue(client: attnbias.Client) -> None:
    module = LightGluePositionalEncoder(hf.LightGlueConfig())
    keypoints = torch.rand(30, 2, generator=torch.Generator().manual_seed(0))
    matrix = to_array(module.projector.weight.detach().T.contiguous())
    encoding = attnbias.Rotary(
        2 * matrix.shape[1],
        layout="interleaved",
        axes=[attnbias.Axis()] * 2,
        frequency_matrix=matrix,
    )
    got = client.get(encoding, position_ids=[*to_array(keypoints.T)])
    largest = np.abs(matrix).sum(axis=0).max() + 1
    for ours, theirs in zip((got.cos, got.sin), module(keypoints)[0], strict=True):
        assert np.abs(ours - to_array(theirs.detach())).max() <= 2.0**-20 * largest


# Modules that no default configuration creates.
MADE_HERE = [
    ClvpRotaryPositionalEmbedding,
    CohereCompassRotaryEmbedding,
    DINOv3ViTRopePositionEmbedding,
    EsmFold2RotaryEmbedding,
    EsmRotaryEmbedding,
    EvollaSaProtRotaryEmbedding,
    Qwen3OmniMoeTalkerRotaryEmbedding,  # the Thinker's under another name
    Sapiens2RopePositionEmbedding,
    SeamlessM4TConformerRotaryPositionalEmbedding,
    Wav2Vec2BertRotaryPositionalEmbedding,
    Wav2Vec2ConformerRotaryPositionalEmbedding,
]


def test_every_rotary_module_is_compared() -> None:
    compared = {type(module_of(rope)).__name__ for rope in default_ropes()[0]}
    compared |= {kind.__name__ for kind in MADE_HERE}
    found = set()
    for path in Path(hf.models.__path__[0]).glob("*/modeling_*.py"):
        named = re.findall(
            r"^class (\w*(?:Rotary|R[Oo][Pp][Ee])\w*Embedding)\(", path.read_text(), re.M
        )
        found.update(named)
    assert len(found) > 200
    assert found - compared == set()


TABLES = ("Configurations that need other parameters", "Configurations without `rope_parameters`")
DOCUMENTED = [
    name for table in TABLES for row in section_of(PAGE, table) for name in configs_in(row.cells[0])
]


def test_every_row_has_a_case() -> None:
    assert sorted(DOCUMENTED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_documented_request_matches_module(client: attnbias.Client, name: str) -> None:
    for run in CASES[name]:
        run(client)
