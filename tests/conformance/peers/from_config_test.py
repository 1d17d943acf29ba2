# SPDX-License-Identifier: Apache-2.0
"""attnbias.from_config against transformers: its classes' defaults and its modules' results.

Models whose checkpoints a server can mount are in checkpoint_test.py.
"""

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sinusoidal_axes_test as of_images
import torch
import transformers as hf
from bits import Array, assert_same_bits, to_array
from bounds import assert_near
from checkpoint_test import ENCODER_DECODER, PATCHED, check_config, detr_config
from ropes import ROWS, Rope, assert_rows, module_of
from rotary_test import ROPES
from transformers.models.bloom.modeling_bloom import _get_alibi_slopes, build_alibi_tensor
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as build_falcon_tensor

import attnbias
from attnbias._models.register import MODELS
from attnbias._models.rotary_places import with_length

Words = dict[str, Any]

# Heads have 128 columns, as the parameters in ROPES assume.
SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 2048,
    "num_hidden_layers": 7,
}
ROTARY = [
    name
    for name, model in MODELS.items()
    if model.rule in ("rotary", "falcon")
    and not {"layer_types", "default_type"} & model.arguments.keys()
    and name != "roformer"  # its code reads no rope parameters
]
LENGTHS = ("phi3", "phi4_multimodal")  # types with a field for the original length
SECTIONS = {64: [24, 20, 20], 48: [16, 16, 16], 32: [12, 10, 10]}  # in pairs
# The default of this type has an odd number of rotated columns.
NO_DEFAULT = "glm4_moe"
LAYERS = ["sliding_attention", "full_attention"]


@pytest.fixture(scope="module")
def plain(server: str) -> Iterator[attnbias.Client]:
    """Yields a plain client for many calls; rotary_test.py covers every access path."""
    with attnbias.Client(server) as connected:
        yield connected


# Model types that reuse another model's code.
REMOTE = {"kimi_k2": "deepseek_v3"}


def make_config(model_type: str, **fields: Any) -> Any:
    return hf.CONFIG_MAPPING[REMOTE.get(model_type, model_type)](**fields)


@pytest.mark.parametrize("model_type", [name for name in MODELS if name != NO_DEFAULT])
def test_omitted_config_fields_use_transformers_defaults(model_type: str) -> None:
    default = attnbias.from_config(make_config(model_type))
    assert attnbias.from_config({"model_type": model_type}) == default
    assert attnbias.from_config(make_config(model_type).to_diff_dict()) == default


@pytest.mark.parametrize(
    "model_type", [name for name in ROTARY if name not in (*LENGTHS, NO_DEFAULT)]
)
@pytest.mark.parametrize("rope_type", ["dynamic", "yarn"])
def test_omitted_length_uses_transformers_default(model_type: str, rope_type: str) -> None:
    scaling = {"rope_type": rope_type, "factor": 2.0}
    config = make_config(model_type, rope_scaling=dict(scaling))
    words = {"model_type": model_type, "rope_scaling": scaling}
    assert attnbias.from_config(words) == attnbias.from_config(config)


def test_server_mounts_every_registered_model_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "none"}')
    (known,) = re.findall("want one of (.*)", check_config(tmp_path).stderr)
    mounted = {name for name, model in MODELS.items() if model.tables}
    assert set(re.findall(r"[\w-]+", known)) == mounted


def sizes_of(model_type: str) -> Words:
    sizes = SIZES | {MODELS[model_type].arguments.get("head_dim", "head_dim"): 128}
    if model_type == "falcon":  # has no field for it
        del sizes["head_dim"]
    return sizes


def old_words(model_type: str, rope: Words) -> Words:
    """Returns the fields that configurations had before transformers 5."""
    model, rope = MODELS[model_type], dict(rope)
    words: Words = {}
    for word in ("rope_theta", "partial_rotary_factor"):
        if word in rope:
            words[model.arguments.get(word, word)] = rope.pop(word)
    rope["type"] = rope.pop("rope_type")
    is_needed = rope != {"type": "default"} or "rope_parameters" in model.defaults
    return words | ({"rope_scaling": rope} if is_needed else {})


def assert_rotary(
    client: attnbias.Client, encoding: Any, rope: Rope, positions: list[int] = ROWS
) -> None:
    axes = [positions]
    if encoding.axes is not None:
        axes = [positions, positions[::-1], [*positions[1:], positions[0]]]
    if rope.words["rope_type"] in ("dynamic", "longrope"):
        with pytest.raises(attnbias.InvalidArgumentError, match="sequence_length: not set"):
            client.get(encoding, position_ids=axes if len(axes) > 1 else positions)
        encoding = with_length(encoding, max(positions) + 1)
    assert_rows(client, encoding, rope, axes)


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("model_type", ROTARY)
def test_rotary_matches_module(plain: attnbias.Client, model_type: str, name: str) -> None:
    """The fields and transformers' own object, old and new, all yield the same encoding."""
    rope = {"partial_rotary_factor": 1.0} | ROPES[name]
    if model_type in LENGTHS and rope["rope_type"] not in ("default", "longrope"):
        pytest.skip("transformers refuses it")
    sizes = sizes_of(model_type)
    if "mrope_interleaved" in MODELS[model_type].arguments:
        pairs = int(64 * rope["partial_rotary_factor"])
        rope["mrope_section"] = SECTIONS[pairs if rope["rope_type"] != "proportional" else 64]
    if model_type in LENGTHS:  # their own length takes precedence over the one in the parameters
        sizes["original_max_position_embeddings"] = 1024
    encodings = []
    for words in (old_words(model_type, rope), {"rope_parameters": dict(rope)}):
        given = {"model_type": model_type, **sizes, **words}
        encodings.append(attnbias.from_config(given)["rotary"])
        config = make_config(model_type, **sizes, **copy.deepcopy(words))
        encodings.append(attnbias.from_config(config)["rotary"])
    assert encodings == 4 * [encodings[0]]
    for positions in (ROWS, [*ROWS, 8191]):
        assert_rotary(plain, encodings[0], Rope(model_type, config, None, rope), positions)


@pytest.mark.parametrize("factor", [0.5, 0.75])
@pytest.mark.parametrize("rope_type", ["default", "linear"])
@pytest.mark.parametrize("model_type", [name for name in ROTARY if name not in LENGTHS])
def test_partial_rotary_factor_matches_module(
    plain: attnbias.Client, model_type: str, rope_type: str, factor: float
) -> None:
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "partial_rotary_factor": factor}
    if rope_type == "linear":
        rope["factor"] = 3.0
    if "mrope_interleaved" in MODELS[model_type].arguments:
        rope["mrope_section"] = SECTIONS[int(64 * factor)]
    config = make_config(model_type, **sizes_of(model_type), rope_parameters=dict(rope))
    turns = module_of(Rope(model_type, config, None, rope)).inv_freq.numel() * 2
    if turns != 128 * factor:  # transformers' default ignores the parameter
        with pytest.raises(ValueError, match=r"partial_rotary_factor: got .*, want 1: "):
            attnbias.from_config(config)
        return
    encoding = attnbias.from_config(config)["rotary"]
    assert_rotary(plain, encoding, Rope(model_type, config, None, rope))


def test_odd_column_count_is_rejected() -> None:
    config = make_config("phi", **SIZES, partial_rotary_factor=0.055)
    with pytest.raises(
        ValueError, match=r"partial_rotary_factor: got 0.055, want an even .* not 7"
    ):
        attnbias.from_config(config)


def test_older_rope_types_of_phi3_mean_longrope(client: attnbias.Client) -> None:
    rope = {key: ROPES["longrope"][key] for key in ("short_factor", "long_factor")}
    rope["original_max_position_embeddings"] = 4096
    for old_name in ("su", "yarn"):
        words = {"rope_scaling": {"type": old_name, **rope}, "max_position_embeddings": 131072}
        given = {**SIZES, "original_max_position_embeddings": 4096, **words}
        config = make_config("phi3", **copy.deepcopy(given))
        encoding: Any = attnbias.from_config({"model_type": "phi3", **given})["rotary"]
        assert encoding.longrope.max_position_embeddings == 131072
        named = {**rope, "rope_type": "longrope", "rope_theta": 1e4}
        assert_rotary(client, encoding, Rope("phi3", config, None, named))


@pytest.mark.parametrize("name", ["default", "linear", "llama3", "proportional"])
@pytest.mark.parametrize("old", [False, True], ids=["rope_parameters", "rope_scaling"])
def test_gemma_3_layer_types_have_their_own_rotary_tables(
    client: attnbias.Client, name: str, old: bool
) -> None:
    full = ROPES[name]
    sliding = {"rope_type": "default", "rope_theta": 20000.0}
    if old:
        scaling = {word: full[word] for word in full if word != "rope_theta"}
        words = {"rope_theta": full["rope_theta"], "rope_local_base_freq": 20000.0}
        words["rope_scaling"] = scaling
    else:
        words = {"rope_parameters": {"full_attention": dict(full), "sliding_attention": sliding}}
    config = make_config("gemma3_text", **SIZES, **copy.deepcopy(words))
    encodings = attnbias.from_config({"model_type": "gemma3_text", **SIZES, **words})
    assert attnbias.from_config(config) == encodings
    assert encodings.keys() == {f"rotary.{layer}" for layer in LAYERS}
    for layer, rope in zip(LAYERS, (sliding, full), strict=True):
        encoding = encodings[f"rotary.{layer}"]
        assert_rotary(client, encoding, Rope("gemma3_text", config, layer, rope))
    whole = hf.Gemma3Config(text_config=config)
    in_whole = attnbias.from_config(whole)
    assert in_whole.keys() == {*(f"text.{place}" for place in encodings), "vision.positions"}
    assert all(in_whole[f"text.{place}"] == encodings[place] for place in encodings)


def test_rotary_matches_rows_of_sines_then_cosines(client: attnbias.Client) -> None:
    """The rows are stored once per pair, in a buffer or a weight of the model or of a layer."""
    for config in (
        hf.CodeGenConfig(n_layer=1, n_embd=64, n_head=4, rotary_dim=8),
        hf.GPTJConfig(n_layer=1, n_embd=128, n_head=2, n_positions=700, rotary_dim=16),
        hf.RoFormerConfig(hidden_size=64, num_attention_heads=4, num_hidden_layers=1),
    ):
        model = hf.AutoModel.from_config(config)
        named = [*model.named_buffers(), *model.named_parameters()]
        table = next(to_array(each) for path, each in named if "embed_positions" in path)
        length = min(len(table), 700)
        sin, cos = np.split(table[:length], 2, axis=1)
        got = client.get(attnbias.from_config(config)["rotary"], positions=length)
        for ours, theirs in ((got.cos, cos), (got.sin, sin)):
            assert_near(ours, theirs.repeat(2, axis=1), np.arange(length))


@pytest.fixture
def powers_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces torch's float32 powers, whose last bit differs between AVX2 and AVX-512."""
    power = torch.pow

    def rounded_once(base: Any, exponent: torch.Tensor) -> torch.Tensor:
        return power(torch.as_tensor(base, dtype=torch.float64), exponent.double()).float()

    monkeypatch.setattr(torch, "pow", rounded_once)


@pytest.mark.usefixtures("powers_rounded_once")
@pytest.mark.parametrize("num_heads", [1, 2, 7, 8, 12, 16, 25, 71, 112, 127])
def test_alibi_matches_model(client: attnbias.Client, num_heads: int) -> None:
    length = 257  # the longest for which bf16 represents every position

    def row(config: Any, dtype: str = "f32") -> Array:
        encoding = attnbias.from_config(config)["decoder"]
        return client.get(encoding, query_length=length, key_length=length, data_type=dtype).row

    mask = torch.ones(1, length)
    bloom = hf.BloomConfig(n_head=num_heads, hidden_size=num_heads)
    want = build_alibi_tensor(mask, num_heads, torch.float32).reshape(num_heads, length)
    assert_same_bits(row(bloom), to_array(want))

    falcon = hf.FalconConfig(num_attention_heads=num_heads, hidden_size=num_heads, alibi=True)
    want = build_falcon_tensor(mask.long(), num_heads, torch.bfloat16).reshape(num_heads, length)
    assert_same_bits(row(falcon, "bf16"), to_array(want))

    mpt = hf.MptConfig(
        d_model=num_heads, n_heads=num_heads, n_layers=1, vocab_size=8, max_seq_len=length
    )
    model = hf.MptModel(mpt)
    want = model.build_mpt_alibi_tensor(model.num_heads, mpt.max_seq_len)[:, 0]
    assert_same_bits(row(mpt), to_array(want))


def test_alibi_slopes_are_within_1_ulp_of_torch() -> None:
    for num_heads in range(1, 129):
        encoding: Any = attnbias.from_config({"model_type": "bloom", "n_head": num_heads})
        ours = np.float32(encoding["decoder"].slopes)
        theirs = to_array(_get_alibi_slopes(num_heads, torch.device("cpu")))
        assert len(ours) == num_heads
        assert np.all(np.abs(ours - theirs) <= np.spacing(theirs))


LENGTH = 40
SEQUENCES = {**ENCODER_DECODER, "d_model": 12, "vocab_size": 16, "pad_token_id": 1}
ALL_POSITIONS = {"max_position_embeddings": LENGTH}


@pytest.mark.parametrize("model_type", ["marian", "pegasus", "whisper"])
def test_sinusoids_match_model(client: attnbias.Client, model_type: str) -> None:
    sizes = {"max_source_positions": LENGTH} if model_type == "whisper" else ALL_POSITIONS
    config = make_config(model_type, **SEQUENCES, **sizes)
    model = hf.AutoModel.from_config(config)
    encodings = attnbias.from_config(config)
    sides = ["encoder"] if model_type == "whisper" else ["encoder", "decoder"]
    for side in sides:
        want = to_array(getattr(model, side).embed_positions.weight)
        got = client.get(encodings[f"{side}.positions"], positions=LENGTH)
        assert_near(got, want, np.arange(LENGTH))


@pytest.mark.parametrize(
    ("model_type", "sides"),
    [
        ("mbart", ["encoder", "decoder"]),
        ("plbart", ["encoder", "decoder"]),
        ("blenderbot", ["encoder", "decoder"]),
        ("blenderbot-small", ["encoder", "decoder"]),
        ("whisper", ["decoder"]),
    ],
)
def test_learned_sequence_positions_match_model(
    client: attnbias.Client, model_type: str, sides: list[str]
) -> None:
    """Covers models that no server mounts; each module is called as its model calls it."""
    lengths = {"max_target_positions": LENGTH} if model_type == "whisper" else ALL_POSITIONS
    config = make_config(model_type, **SEQUENCES, **lengths)
    torch.manual_seed(7)
    model = hf.AutoModel.from_config(config).eval()
    encodings: Any = attnbias.from_config(config)
    for side in sides:
        module = getattr(model, side).embed_positions
        encoding = encodings[f"{side}.positions"]
        with pytest.raises(attnbias.InvalidArgumentError, match="table: not set"):
            client.get(encoding, positions=9)
        tokens = torch.zeros(1, 9, dtype=torch.long)
        by_shape = model_type in ("blenderbot", "blenderbot-small")
        with torch.no_grad():
            want = to_array(module(tokens.shape if by_shape else tokens)).reshape(9, -1)
        got = client.get(replace(encoding, table=module.weight), positions=9)
        assert_same_bits(got, want)


def test_learned_siglip_positions_match_model(client: attnbias.Client) -> None:
    config = hf.SiglipVisionConfig(**PATCHED)
    embeddings = hf.SiglipVisionModel(config).eval().embeddings
    torch.nn.init.zeros_(embeddings.patch_embedding.weight)
    torch.nn.init.zeros_(embeddings.patch_embedding.bias)
    with torch.no_grad():
        want = to_array(embeddings(torch.zeros(1, 3, 16, 16))[0])
    encoding: Any = attnbias.from_config(config)["positions"]
    table = embeddings.position_embedding.weight
    assert_same_bits(client.get(replace(encoding, table=table), positions=len(want)), want)


def test_detr_sine_positions_match_model(client: attnbias.Client) -> None:
    config = detr_config(num_queries=5, **ENCODER_DECODER)
    config.position_embedding_type = "sine"
    with torch.device("meta"):
        model = hf.AutoModel.from_config(config)
    (module,) = (m for m in model.modules() if isinstance(m, DetrSinePositionEmbedding))
    height, width = 5, 7
    want = of_images.computed(module, torch.float32, torch.ones(1, height, width).bool())
    encoding: Any = attnbias.from_config(config)["positions"]
    rows_and_columns = of_images.grid(height, width, 1)
    with pytest.raises(attnbias.InvalidArgumentError, match=r"DetrSinusoidal\.height: got 0"):
        client.get(encoding, position_ids=rows_and_columns)
    whole = attnbias.DetrSinusoidal(encoding.dim, height=height, width=width)
    got = client.get(whole, position_ids=rows_and_columns, data_type="f64")
    of_images.assert_near(got, want, 2 * math.pi, 10000)
