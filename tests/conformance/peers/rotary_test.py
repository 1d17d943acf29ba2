# SPDX-License-Identifier: Apache-2.0
"""Rotary tables against transformers' modules, with every rope type, and against real numbers."""

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
import torch
from bits import assert_same_bits, to_array
from bounds import assert_near, assert_within_1_ulp
from real import NUMPY_TYPES, PRECISION, rounded_array
from transformers import (
    DeepseekV3Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2VLTextConfig,
    Qwen3VLTextConfig,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3RotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding
from x_transformers.x_transformers import RotaryEmbedding

import attnbias

Array = npt.NDArray[Any]
Parameters = dict[str, Any]

# Rows to compare: all of a short table, and some distant ones.
POSITIONS = [*range(700), 4095, 4096, 32767, 65535, 131071, 999999, 1048575]

LONGROPE = {
    "original_max_position_embeddings": 4096,
    "short_factor": [1 + m / 64 for m in range(64)],
    "long_factor": [2 + m * m / 70 for m in range(64)],
}

# transformers' rope_parameters by name; heads have 128 columns.
ROPES: dict[str, Parameters] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "default of Llama 3": {"rope_type": "default", "rope_theta": 500000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
    "yarn, not truncated": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
    "yarn, other betas": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 2048,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "attention_factor": 0.75,
    },
    "yarn, mscales": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.707,
        "mscale_all_dim": 1.0,
    },
    "longrope": {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 32.0, **LONGROPE},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "proportional": {
        "rope_type": "proportional",
        "rope_theta": 1000000.0,
        "partial_rotary_factor": 0.25,
    },
}


def test_every_rope_type_is_compared() -> None:
    assert {rope["rope_type"] for rope in ROPES.values()} == {"default", *ROPE_INIT_FUNCTIONS}


def encoding_of(rope: Parameters, **fields: Any) -> attnbias.Rotary:
    """Returns the encoding for a config's own fields."""
    parameters = {"head_dim": 128, **rope, "rope_type": rope["rope_type"].upper(), **fields}
    return attnbias.Mrope(**parameters)


def given(module: torch.nn.Module, **fields: Any) -> attnbias.Rotary:
    """Returns the encoding for a module's own frequencies, with angles computed as in torch."""
    frequencies = module.inv_freq.tolist()
    parameters = {"head_dim": 2 * len(frequencies), **fields}
    return attnbias.Mrope(inverse_frequencies=frequencies, angle="FLOAT32", **parameters)


def module_of(
    rope: Parameters,
    config: type[PreTrainedConfig] = LlamaConfig,
    module: type[torch.nn.Module] = LlamaRotaryEmbedding,
    **fields: Any,
) -> Any:
    parameters = {"hidden_size": 256, "num_attention_heads": 2, "head_dim": 128, **fields}
    length = {"max_position_embeddings": 2048} if rope["rope_type"] == "dynamic" else {}
    return module(config(rope_parameters=dict(rope), **length, **parameters))


def float32_factor(module: Any) -> float:
    """Returns the factor by which torch multiplies cosines and sines."""
    return float(np.float32(module.attention_scaling))


def forward(module: Any, position_ids: Any) -> tuple[Array, Array]:
    positions = torch.tensor(position_ids)
    while positions.ndim < 2:
        positions = positions[None]
    cos, sin = module(torch.empty(0), positions)
    return to_array(cos[0]), to_array(sin[0])


# [YaRN's factor, and the numbers of cosines and of sines that differ by more than 1 ulp].
DIFFERENCES = Path(__file__).with_name("rotary_factor_differences.json")
SECTION = [16, 24, 24]
# Modules that are not shared: config, module, and fields for 128-column heads.
MODELS: dict[str, tuple[Any, Any, Parameters, Parameters]] = {
    "Llama": (LlamaConfig, LlamaRotaryEmbedding, {}, {}),
    "Mistral": (MistralConfig, MistralRotaryEmbedding, {}, {}),
    "GPT-NeoX": (GPTNeoXConfig, GPTNeoXRotaryEmbedding, {}, {"partial_rotary_factor": 1.0}),
    "DeepSeek-V3": (DeepseekV3Config, DeepseekV3RotaryEmbedding, {"qk_rope_head_dim": 128}, {}),
    "Qwen2-VL": (Qwen2VLTextConfig, Qwen2VLRotaryEmbedding, {}, {"mrope_section": SECTION}),
}
in_every_model = pytest.mark.parametrize("model", MODELS)


def module_in(model: str, rope: Parameters) -> Any:
    config, module, fields, more = MODELS[model]
    return module_of({**more, **rope}, config, module, **fields)


@in_every_model
@pytest.mark.parametrize("name", ROPES)
def test_float32_angles_match_framework(client: attnbias.Client, name: str, model: str) -> None:
    module = module_in(model, ROPES[name])
    if model == "Qwen2-VL":
        axes = [POSITIONS] * 3
        cos, sin = module(torch.empty(0), torch.tensor(axes)[:, None])
        want = to_array(cos[0]), to_array(sin[0])
        extent = {"position_ids": axes}
        encoding = given(module, mrope_section=SECTION)
    else:
        want = forward(module, POSITIONS)
        extent = {"position_ids": POSITIONS}
        encoding = given(module)
    scale = float32_factor(module)
    assert_within_1_ulp(client.get(encoding, **extent, scale=scale), want)


def test_unrounded_attention_factor_exceeds_1_ulp(client: attnbias.Client) -> None:
    """The float32 factor stays within 1 ulp of torch; the float64 factor from which it is rounded
    does not.

    The stored counts are relative to correctly rounded cosines and sines times the float32 factor,
    not to torch's, so that they do not depend on torch's vector library.
    """
    rows = []
    for factor in range(2, 65, 2):
        rope = {**ROPES["yarn"], "rope_theta": 10000.0, "factor": float(factor)}
        module = module_of(rope)
        cos, sin = (part[:, :64] for part in forward(module, range(2048)))
        unscaled, rounded, double = (
            client.get(given(module, layout="COMPACT"), positions=2048, scale=scale)
            for scale in (1, float32_factor(module), module.attention_scaling)
        )
        assert_within_1_ulp(rounded, (cos, sin))
        beyond = [
            np.count_nonzero(np.abs(got - want) > np.spacing(np.abs(want)))
            for got, want in zip(
                (double.cos, double.sin),
                (
                    np.float32(module.attention_scaling) * part
                    for part in (unscaled.cos, unscaled.sin)
                ),
                strict=True,
            )
        ]
        if any(beyond):
            rows.append([factor, *beyond])
    assert rows == json.loads(DIFFERENCES.read_text())


@in_every_model
@pytest.mark.parametrize("name", ROPES)
def test_parameters_match_transformers(client: attnbias.Client, name: str, model: str) -> None:
    """Compares to within the error of transformers' float32 powers, quotients and blends: the
    exponent's rounding is multiplied by ln(theta), a blend's by up to 16.
    """
    rope = ROPES[name]
    module = module_in(model, rope)
    lengths: Parameters = {}
    if rope["rope_type"] in ("dynamic", "longrope"):
        lengths["sequence_length"] = 1
    if rope["rope_type"] == "dynamic":
        lengths["max_position_embeddings"] = 2048
    derived = client.describe(encoding_of(rope, **lengths), positions=1).derived
    assert derived["attention_factor"] == pytest.approx([module.attention_scaling], rel=4e-16)
    ours = np.array(derived["inverse_frequencies"])
    theirs = to_array(module.inv_freq).astype(np.float64)
    bound = (math.log(rope["rope_theta"]) + 16) * 2.0**-23
    assert np.all(np.abs(ours - theirs) <= bound * ours)


@pytest.mark.parametrize("theta", [1e4, 5e5, 1e6])
def test_float32_error_matches_docs(client: attnbias.Client, theta: float) -> None:
    """Checks the figures in docs/encodings/rotary.md: the errors in frequencies and, at distant
    positions, in cosines.
    """
    module = module_of({"rope_type": "default", "rope_theta": theta})
    with mpmath.workprec(PRECISION):
        exact = [mpmath.power(theta, -mpmath.mpf(m) / 64) for m in range(64)]
    different = rounded_array(exact, "f32") != to_array(module.inv_freq)
    assert 18 <= np.count_nonzero(different) <= 24
    for position, least, most in ((131071, 3e-3, 8e-3), (1048575, 2e-2, 7e-2)):
        cos, sin = forward(module, [position])
        encoding = attnbias.Rotary(head_dim=128, rope_theta=theta)
        got = client.get(encoding, position_ids=[position], data_type="f64")
        assert least <= max(np.abs(got.cos - cos).max(), np.abs(got.sin - sin).max()) <= most


@pytest.mark.parametrize("length", [2048, 2049, 4096, 8192])
def test_dynamic_frequencies_match_at_each_length(client: attnbias.Client, length: int) -> None:
    rope = ROPES["dynamic"]
    module = module_of(rope)
    positions = [*range(50), length - 1]
    want = forward(module, positions)
    assert_within_1_ulp(client.get(given(module), position_ids=positions), want)
    encoding = encoding_of(rope, max_position_embeddings=2048, sequence_length=length)
    derived = client.describe(encoding, positions=1).derived
    ours = np.array(derived["inverse_frequencies"])
    assert np.all(np.abs(ours - to_array(module.inv_freq)) <= 1e-5 * ours)
    theta = 10000 * (2 * length / 2048 - 1) ** (128 / 126)
    assert derived["rope_theta"] == pytest.approx([theta], rel=1e-14)


@pytest.mark.parametrize("length", [4096, 4097])
def test_longrope_switches_beyond_original_length(client: attnbias.Client, length: int) -> None:
    rope = ROPES["longrope"]
    module = module_of(rope)
    positions = [*range(50), length - 1]
    want = forward(module, positions)
    scale = float32_factor(module)
    got = client.get(given(module), position_ids=positions, scale=scale)
    assert_within_1_ulp(got, want)
    derived = client.describe(encoding_of(rope, sequence_length=length), positions=1).derived
    ours = np.array(derived["inverse_frequencies"])
    assert np.all(np.abs(ours - to_array(module.inv_freq)) <= 1e-6 * ours)


def test_partial_rotary_matches_gpt_neox(client: attnbias.Client) -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}
    module = module_of(rope, GPTNeoXConfig, GPTNeoXRotaryEmbedding)
    want = forward(module, POSITIONS)
    encoding = given(module, head_dim=128, partial_rotary_factor=0.25)
    got = client.get(encoding, position_ids=POSITIONS)
    assert got.cos.shape == (len(POSITIONS), 32)
    assert_within_1_ulp(got, want)


def test_matches_deepseek_v3(client: attnbias.Client) -> None:
    rope = {**ROPES["yarn, mscales"], "mscale": 1.0}
    config = DeepseekV3Config(rope_parameters=dict(rope), qk_rope_head_dim=64)
    module = DeepseekV3RotaryEmbedding(config)
    assert len(module.inv_freq) == 32
    want = forward(module, POSITIONS)
    assert_within_1_ulp(client.get(given(module), position_ids=POSITIONS), want)
    derived = client.describe(encoding_of(rope, head_dim=64), positions=1).derived
    assert derived["attention_factor"] == (1.0,)
    ours = np.array(derived["inverse_frequencies"])
    assert np.all(np.abs(ours - to_array(module.inv_freq)) <= 25 * 2.0**-23 * ours)


def test_matches_gpt_j(client: attnbias.Client) -> None:
    """GPT-J's table is compact; its attention repeats each column in pairs."""
    table = to_array(create_sinusoidal_positions(2048, 64))
    sin, cos = table[:, :32], table[:, 32:]
    frequencies = 1.0 / (10000 ** (torch.arange(0, 64, 2, dtype=torch.int64) / 64))
    fields = {"inverse_frequencies": frequencies.tolist(), "angle": "FLOAT32"}
    compact = attnbias.Rotary(head_dim=64, layout="COMPACT", **fields)
    assert_within_1_ulp(client.get(compact, positions=2048), (cos, sin))
    pairs = attnbias.Rotary(head_dim=64, layout="INTERLEAVED", **fields)
    repeated = (cos.repeat(2, axis=1), sin.repeat(2, axis=1))
    assert_within_1_ulp(client.get(pairs, positions=2048), repeated)


def multimodal_positions() -> list[list[int]]:
    random = np.random.default_rng(1)
    return [random.integers(0, 20000, 500).tolist() for _ in range(3)]


@pytest.mark.parametrize(
    ("interleaved", "section", "config", "module"),
    [
        (False, [16, 24, 24], Qwen2VLTextConfig, Qwen2VLRotaryEmbedding),
        (True, [24, 20, 20], Qwen3VLTextConfig, Qwen3VLTextRotaryEmbedding),
    ],
)
def test_multimodal_sections_match_module(
    client: attnbias.Client,
    interleaved: bool,
    section: list[int],
    config: type[PreTrainedConfig],
    module: type[torch.nn.Module],
) -> None:
    rope = {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": section}
    peer = module_of(rope, config, module)
    positions = multimodal_positions()
    cos, sin = peer(torch.empty(0), torch.tensor(positions)[:, None])
    want = (to_array(cos[0]), to_array(sin[0]))
    encoding = given(peer, mrope_section=section, mrope_interleaved=interleaved)
    assert_within_1_ulp(client.get(encoding, position_ids=positions), want)


def test_axial_sections_match_formula(client: attnbias.Client) -> None:
    """Qwen2-VL's vision tower has rows, then columns, each starting at the highest frequency."""
    random = np.random.default_rng(2)
    rows, columns = (random.integers(0, 64, 300).tolist() for _ in range(2))
    frequencies = 1.0 / (10000.0 ** (np.arange(0, 40, 2) / 40))
    angles = np.concatenate([np.outer(rows, frequencies), np.outer(columns, frequencies)], axis=1)
    angles = np.concatenate([angles, angles], axis=1)
    encoding = attnbias.Mrope(80, rope_type="axial")
    got = client.get(encoding, position_ids=[rows, columns])
    # The error of double precision, plus the single rounding to float32.
    assert np.max(np.abs(got.cos - np.cos(angles))) <= 2.0**-25 + 1e-13
    assert np.max(np.abs(got.sin - np.sin(angles))) <= 2.0**-25 + 1e-13


def yarn_frequency(rope: Parameters, m: int) -> mpmath.mpf:
    base, factor = mpmath.mpf(rope["rope_theta"]), mpmath.mpf(rope["factor"])
    original = rope["original_max_position_embeddings"]

    def correction(rotations: int) -> mpmath.mpf:
        return 128 * mpmath.log(original / (rotations * 2 * mpmath.pi)) / (2 * mpmath.log(base))

    low, high = correction(32), correction(1)
    if rope.get("truncate", True):
        low, high = mpmath.floor(low), mpmath.ceil(high)
    ramp = min(max((m - low) / (high - low), mpmath.mpf(0)), mpmath.mpf(1))
    frequency = base ** (-mpmath.mpf(2 * m) / 128)
    return frequency / factor * ramp + frequency * (1 - ramp)


def llama3_frequency(rope: Parameters, m: int) -> mpmath.mpf:
    frequency = mpmath.mpf(rope["rope_theta"]) ** (-mpmath.mpf(2 * m) / 128)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequency / (2 * mpmath.pi)
    smooth = min(max((turns - low) / (high - low), mpmath.mpf(0)), mpmath.mpf(1))
    return (1 - smooth) * frequency / rope["factor"] + smooth * frequency


@pytest.mark.parametrize(
    "name", ["default of Llama 3", "linear", "yarn", "yarn, not truncated", "llama3"]
)
def test_tables_are_correctly_rounded(client: attnbias.Client, name: str) -> None:
    rope = ROPES[name]
    random = np.random.default_rng(5)
    positions = [0, 1, 131071, *random.integers(-131072, 1 << 40, 30).tolist()]
    with mpmath.workprec(PRECISION + 100):
        factor = mpmath.mpf(1)
        if rope["rope_type"] == "yarn":
            factor += mpmath.log(rope["factor"]) / 10
            frequencies = [yarn_frequency(rope, m) for m in range(64)]
        elif rope["rope_type"] == "llama3":
            frequencies = [llama3_frequency(rope, m) for m in range(64)]
        else:
            base, divisor = mpmath.mpf(rope["rope_theta"]), rope.get("factor", 1)
            frequencies = [base ** (-mpmath.mpf(m) / 64) / divisor for m in range(64)]
        cos = [factor * mpmath.cos(p * f) for p in positions for f in frequencies]
        sin = [factor * mpmath.sin(p * f) for p in positions for f in frequencies]
    for dtype in NUMPY_TYPES:
        encoding = encoding_of(rope, layout="COMPACT")
        got = client.get(encoding, position_ids=positions, data_type=dtype)
        assert_same_bits(got.cos.ravel(), rounded_array(cos, dtype))
        assert_same_bits(got.sin.ravel(), rounded_array(sin, dtype))


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        ({}, {}),
        ({"interpolation_factor": 2.5}, {"linear": attnbias.Linear(2.5)}),
        ({"base_rescale_factor": 4.0}, {"ntk": attnbias.Ntk(4)}),
    ],
)
def test_matches_x_transformers(
    client: attnbias.Client, parameters: Parameters, fields: Parameters
) -> None:
    """x-transformers leaves the cosine of the angles to its attention."""
    length, dim = 700, 64
    angles = to_array(RotaryEmbedding(dim, **parameters).forward_from_seq_len(length)[0][0])
    encoding = attnbias.Rotary(head_dim=dim, layout="INTERLEAVED", **fields)
    got = client.get(encoding, positions=length, data_type="f64")
    for ours, theirs in ((got.cos, np.cos(angles.astype("f8"))), (got.sin, np.sin(angles))):
        assert_near(ours, theirs, np.arange(length))


def test_xpos_matches_x_transformers(client: attnbias.Client) -> None:
    """x-transformers' decay: one float32 base and exponent, and a power within 2 ulp."""
    length, dim = 700, 64
    _, want = RotaryEmbedding(dim, use_xpos=True).forward_from_seq_len(length)
    encoding = attnbias.Xpos(dim, center=length // 2, layout="INTERLEAVED")
    got = client.get(encoding, positions=length).scale
    exponents = np.abs(np.arange(length) - length // 2)[:, None] / 512
    pairs = np.arange(dim) // 2 * 2
    logarithm = np.abs(np.log((pairs + 0.4 * dim) / (1.4 * dim)))
    bound = 2.0**-23 * (3 + exponents * (2 + logarithm))
    assert np.all(np.abs(got - to_array(want[0])) <= bound * got)
