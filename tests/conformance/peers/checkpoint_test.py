# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as transformers saves them: the server's tensors equal the model's results.

Tensor names and the meaning of configurations must agree between transformers and
core/mount/checkpoint_rules.cc; these tests fail if they diverge. Models are tiny and their position
tensors random. If modules compute positions, their outputs are captured while the model runs.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
import transformers as hf
from bits import Array, assert_same_bits, to_array
from conftest import serving
from resampling import Filter, Grid, loss_of
from safetensors.numpy import save_file
from swin_v2 import assert_near_transformers
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.data2vec.modeling_data2vec_vision import Data2VecVisionRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

import attnbias
from attnbias._models.register import MODELS
from tests.support.server import run_server

# At distance 621, decoders' buckets are torch's own; the exact buckets are smaller.
BIASED = {
    "vocab_size": 16,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 8,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 24,
    "relative_attention_max_distance": 889,
}
LENGTH = 700
BLOCK = 16
GLOBAL = {"encoder_attention_type": "transient-global", "global_block_size": BLOCK}
PLAIN = {
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
}
WINDOWED = {
    "image_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 2],
    "num_heads": [2, 4],
}
PATCHED = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "image_size": 16,
    "patch_size": 4,
}
ENCODER_DECODER = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p"], "max_relative_positions": 20}


class Answer(NamedTuple):
    """The values that a model computes at a place, and the extent to add to the place's spec."""

    want: Array
    extent: dict[str, Any]


Answers = dict[str, Answer]

# Substrings of the names of tensors that hold positions.
PLACES = ("position", "relative", "wpe", "rel_embeddings")


def make_model(config: Any) -> Any:
    torch.manual_seed(7)
    model = hf.AutoModel.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if any(part in name for part in PLACES):
            torch.nn.init.normal_(parameter, std=0.3 if "mlp" in name else 3)
    return model


def caught(model: Any, modules: dict[str, Any], *inputs: Any, **named: Any) -> dict[str, Array]:
    """Returns the outputs of these modules while the model runs, without the batch axis."""
    outputs = {}

    def catch(place: str) -> Callable[[Any, Any, Any], None]:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            outputs[place] = to_array(output if output.dim() == 2 else output[0])

        return hook

    handles = [module.register_forward_hook(catch(place)) for place, module in modules.items()]
    model(*inputs, **named)
    for handle in handles:
        handle.remove()
    assert outputs.keys() == modules.keys()
    return outputs


def self_attention(block: Any) -> Any:
    layer = block.layer[0]
    for name in ("SelfAttention", "LocalSelfAttention", "TransientGlobalSelfAttention"):
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AssertionError(layer)


def t5_bias(block: Any) -> Answer:
    bias = self_attention(block).compute_bias(LENGTH, LENGTH)[0]
    return Answer(to_array(bias), {"query_length": LENGTH, "key_length": LENGTH})


def t5(model: Any) -> Answers:
    return {side: t5_bias(getattr(model, side).block[0]) for side in ("encoder", "decoder")}


def umt5(model: Any) -> Answers:
    return {
        f"{side}.layers.{i}": t5_bias(block)
        for side in ("encoder", "decoder")
        for i, block in enumerate(getattr(model, side).block)
    }


def longt5(model: Any) -> Answers:
    """Local: a block of queries between two blocks of keys. Global: tokens against blocks."""
    attention = self_attention(model.encoder.block[0])
    local = to_array(attention.compute_bias(BLOCK)[0, 0])
    extent = {"query_length": BLOCK, "key_length": 3 * BLOCK, "query_offset": BLOCK}
    answers = {"encoder": Answer(local, extent), "decoder": t5_bias(model.decoder.block[0])}
    if hasattr(attention, "compute_side_bias"):
        blocks = 40
        mask, segments = torch.ones(1, BLOCK * blocks), torch.ones(1, blocks)
        side = to_array(attention.compute_side_bias(mask, segments)[0])
        ids = [position // BLOCK for position in range(BLOCK * blocks)]
        answers["encoder.global"] = Answer(side, {"query_positions": ids, "key_length": blocks})
    return answers


TOKENS = torch.tensor([[5, 6, 7, 8, 9]])


def positions(module: str) -> Callable[[Any], Answers]:
    def answers(model: Any) -> Answers:
        got = caught(model, {"positions": model.get_submodule(module)}, TOKENS)
        return {"positions": Answer(got["positions"], {"positions": TOKENS.shape[1]})}

    return answers


def roberta(model: Any) -> Answers:
    """The padding row precedes the first position's row."""
    tokens = torch.tensor([[5, 6, 7, 1, 1]])
    got = caught(model, {"positions": model.embeddings.position_embeddings}, tokens)
    return {"positions": Answer(got["positions"], {"position_ids": [0, 1, 2, -1, -1]})}


def mpnet(model: Any) -> Answers:
    bias = to_array(model.encoder.compute_position_bias(torch.zeros(1, LENGTH, 8))[0])
    return roberta(model) | {
        "encoder": Answer(bias, {"query_length": LENGTH, "key_length": LENGTH})
    }


def opt(model: Any) -> Answers:
    """Masked tokens also use the row before the first position's."""
    mask = torch.tensor([[0, 0, 1, 1, 1]])
    module = model.decoder.embed_positions
    got = caught(model, {"positions": module}, TOKENS, attention_mask=mask)
    return {"positions": Answer(got["positions"], {"position_ids": [-1, -1, 0, 1, 2]})}


def bart(model: Any) -> Answers:
    modules = {
        f"{side}.positions": getattr(model, side).embed_positions for side in ("encoder", "decoder")
    }
    got = caught(model, modules, TOKENS, decoder_input_ids=TOKENS)
    return {place: Answer(rows, {"positions": TOKENS.shape[1]}) for place, rows in got.items()}


def image(model: Any) -> torch.Tensor:
    size = model.config.image_size
    return torch.zeros(1, 3, *(size if isinstance(size, (list, tuple)) else (size, size)))


def of_patches(model: Any) -> Answers:
    """Returns the values added to all-zero tokens, including the class token."""
    for name, parameter in model.embeddings.named_parameters():
        if name != "position_embeddings":
            torch.nn.init.zeros_(parameter)
    output = model.embeddings(image(model))
    rows = to_array((output[0] if isinstance(output, tuple) else output)[0])
    return {"positions": Answer(rows, {"positions": len(rows)})}


def swin(model: Any) -> Answers:
    modules = {
        name.removesuffix(".attention.relative_position_bias"): module
        for name, module in model.named_modules()
        if isinstance(module, SwinRelativePositionBias)
    }
    got = caught(model, modules, image(model))
    return {place: Answer(bias, {}) for place, bias in got.items()} | of_patches(model)


def beit(model: Any) -> Answers:
    modules = {}
    for name, module in model.named_modules():
        if isinstance(module, (BeitRelativePositionBias, Data2VecVisionRelativePositionBias)):
            number = re.search(r"\.(\d+)\.", name)
            modules[f"encoder.layers.{number[1]}" if number else "encoder"] = module
    got = caught(model, modules, image(model))
    answers = {place: Answer(bias, {}) for place, bias in got.items()}
    if model.config.use_absolute_position_embeddings:
        answers |= of_patches(model)
    return answers


def detr(model: Any) -> Answers:
    """Uses a 5 by 7 feature map; the first half of the channels holds columns, the second rows."""
    shape = torch.Size([1, 8, 5, 7])
    learned = model.position_embedding(shape=shape, device="cpu", dtype=torch.float32)[0]
    columns, rows = learned.chunk(2)
    queries = to_array(model.query_position_embeddings.weight)
    return {
        "columns": Answer(to_array(columns[:, 0].T), {"positions": 7}),
        "rows": Answer(to_array(rows[:, :, 0].T), {"positions": 5}),
        "queries": Answer(queries, {"positions": len(queries)}),
    }


def deberta(model: Any) -> Answers:
    """Captures the indices with which attention gathers. 60 tokens exceed the maximum distance."""
    tokens = torch.randint(2, 16, (1, 60))
    with mock.patch.object(torch, "gather", wraps=torch.gather) as gather:
        module = {"positions": model.embeddings.position_embeddings}
        rows = caught(model, module, tokens)["positions"]
    indices = to_array(gather.call_args_list[0].kwargs["index"][0]).astype("i4")
    return {
        "positions": Answer(rows, {"positions": 60}),
        "encoder": Answer(indices, {"query_length": 60, "key_length": 60}),
    }


def detr_config(**fields: Any) -> Any:
    backbone = hf.ResNetConfig(
        embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", out_features=["stage1"]
    )
    return hf.DetrConfig(
        position_embedding_type="learned",
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        **fields,
    )


CASES: list[tuple[Any, Callable[[Any], Answers]]] = [
    (hf.T5Config(**BIASED), t5),
    (hf.MT5Config(**BIASED), t5),
    (hf.SwitchTransformersConfig(**BIASED), t5),
    (hf.UMT5Config(**BIASED), umt5),
    (hf.LongT5Config(**BIASED), longt5),
    (hf.LongT5Config(**BIASED, **GLOBAL), longt5),
    (hf.MPNetConfig(**PLAIN), mpnet),
    (hf.BertConfig(**PLAIN), positions("embeddings.position_embeddings")),
    (hf.RobertaConfig(**PLAIN), roberta),
    (hf.GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2), positions("wpe")),
    (hf.OPTConfig(**PLAIN, ffn_dim=8, word_embed_proj_dim=8, pad_token_id=1), opt),
    (hf.BartConfig(**ENCODER_DECODER, vocab_size=16), bart),
    (hf.SwinConfig(**WINDOWED, window_size=3, use_absolute_embeddings=True), swin),
    (hf.BeitConfig(**PATCHED, use_relative_position_bias=True), beit),
    (
        hf.BeitConfig(
            **PATCHED,
            use_shared_relative_position_bias=True,
            use_relative_position_bias=True,
            use_absolute_position_embeddings=True,
        ),
        beit,
    ),
    (hf.Data2VecVisionConfig(**PATCHED, use_relative_position_bias=True), beit),
    (hf.ViTConfig(**PATCHED), of_patches),
    (hf.DeiTConfig(**PATCHED | {"image_size": [16, 8]}), of_patches),
    (detr_config(num_queries=5, **ENCODER_DECODER), detr),
    (hf.DebertaV2Config(**PLAIN, **RELATIVE, position_buckets=8), deberta),
    # At distance 24 the float32 bucket differs from the exact one.
    (
        hf.DebertaV2Config(
            **PLAIN, **{**RELATIVE, "max_relative_positions": 65}, position_buckets=18
        ),
        deberta,
    ),
    (hf.DebertaV2Config(**PLAIN, **RELATIVE), deberta),
]


@pytest.mark.parametrize(
    ("config", "answers"), CASES, ids=lambda value: getattr(value, "model_type", "")
)
@pytest.mark.parametrize("shards", ["1GB", "1KB"], ids=["whole", "sharded"])
def test_specs_match_model(
    tmp_path: Path, config: Any, answers: Callable[[Any], Answers], shards: str
) -> None:
    model = make_model(config)
    model.save_pretrained(tmp_path, max_shard_size=shards)
    with torch.no_grad():
        wanted = answers(model)
    with serving(tmp_path) as client:
        tables = {table.name: table for table in client.list_tables()}
        assert tables.keys() == {f"m/{place}" for place in wanted}
        by_config = attnbias.from_config(tmp_path, checkpoint="m")
        assert by_config.keys() == wanted.keys()
        for place, (want, extent) in wanted.items():
            for encoding in (tables[f"m/{place}"].encoding, by_config[place]):
                assert encoding is not None, place
                got = client.get(encoding, **extent)
                assert_same_bits(got if isinstance(got, np.ndarray) else got.dense(), want)


def test_beit_for_oblong_image_is_resampled(tmp_path: Path) -> None:
    """The grid's sides are swapped for the bias, and the positions come from a square grid."""
    config = hf.BeitConfig(
        **PATCHED | {"image_size": [16, 36]},
        use_relative_position_bias=True,
        use_absolute_position_embeddings=True,
    )
    model = make_model(config)
    model.save_pretrained(tmp_path)
    tables = {
        "positions": model.embeddings.position_embeddings[0],
        "encoder.layers.0": model.layers[0].relative_position_bias.relative_position_bias_table,
    }
    with torch.no_grad():
        wanted = beit(model)
    grids = {
        "positions": (Grid([6, 6], [4, 9], [None] * 2), Filter(cubic=True)),
        "encoder.layers.0": (Grid([17, 7], [7, 17], [None] * 2), Filter()),
    }
    with serving(tmp_path) as client:
        by_config = attnbias.from_config(tmp_path, checkpoint="m")
        mounted = {table.name: table.encoding for table in client.list_tables()}
        for place, (grid, how) in grids.items():
            want, extent = wanted[place]
            loss = loss_of(to_array(tables[place]), grid, how)
            for encoding in (mounted[f"m/{place}"], by_config[place]):
                assert encoding is not None
                got = client.get(encoding, **extent)
                array = got if isinstance(got, np.ndarray) else got.dense()
                off = np.abs(array.astype("f8") - want).max()
                assert off <= np.finfo(np.float32).eps / 2 * loss


def shapes_of(config: Any) -> dict[str, list[int]]:
    """Returns the shapes of the tensors that hold positions, keyed by the names under which they
    are saved.
    """
    is_siglip = config.model_type == "siglip_text_model"  # which AutoModel does not know
    with torch.device("meta"):
        model = hf.SiglipTextModel(config) if is_siglip else hf.AutoModel.from_config(config)
    return {
        name: list(tensor.shape)
        for name, tensor in revert_weight_conversion(model, model.state_dict()).items()
        if any(part in name for part in PLACES)
    }


def others(value: Any) -> list[Any]:
    """Returns integers other than `value`, or, if it is a list, lists of other integers."""
    if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
        return []
    if isinstance(value, int):
        return [2 * value, value // 2] if value > 1 else []
    return [[2 * each for each in value]] if all(isinstance(v, int) for v in value) else []


def write_zeros(folder: Path, config: dict[str, Any], shapes: dict[str, list[int]]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    zeros = {name: np.zeros(shape, "f2") for name, shape in shapes.items()}
    save_file(zeros, folder / "model.safetensors")


def check_config(folder: Path) -> subprocess.CompletedProcess[str]:
    return run_server("--check-config", f"--checkpoint=m={folder}")


@pytest.mark.parametrize("config", [config for config, _ in CASES], ids=lambda c: c.model_type)
def test_config_contradicting_tensor_shapes_is_rejected(tmp_path: Path, config: Any) -> None:
    """Covers every field that changes the shapes of transformers' tensors."""
    saved = config.to_dict()
    shapes = shapes_of(config)
    telling = set()
    for field, value in saved.items():
        for other in others(value):
            changed = saved | {field: other}
            try:
                wanted = shapes_of(type(config)(**changed))
            except Exception:  # an impossible model
                continue
            differ = any(wanted.get(name, shape) != shape for name, shape in shapes.items())
            write_zeros(tmp_path, changed, shapes)
            done = check_config(tmp_path)
            assert done.returncode == (2 if differ else 0), (field, other, done.stderr)
            if differ:
                telling.add(field)
                assert f"{field} = " in done.stderr, done.stderr
    assert len(telling) >= 2


WITH_TABLES = {
    "swin": {"use_absolute_embeddings": True},
    "swinv2": {"use_absolute_embeddings": True},
    "beit": {"use_absolute_position_embeddings": True, "use_relative_position_bias": True},
    "data2vec-vision": {"use_relative_position_bias": True},
    "deberta-v2": {"relative_attention": True},
}


@pytest.mark.parametrize("model_type", [name for name, model in MODELS.items() if model.tables])
def test_omitted_config_fields_use_transformers_defaults(tmp_path: Path, model_type: str) -> None:
    make = detr_config if model_type == "detr" else hf.CONFIG_MAPPING[model_type]
    shapes = shapes_of(make(**WITH_TABLES.get(model_type, {})))
    write_zeros(tmp_path, {"model_type": model_type}, shapes)
    done = check_config(tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("pretrained", [[0, 0], [3, 12]])
@pytest.mark.parametrize("shards", ["1GB", "1KB"], ids=["whole", "sharded"])
def test_swin_v2_matches_model(tmp_path: Path, pretrained: list[int], shards: str) -> None:
    """The second stage has only 4 tokens per side for a window of 6."""
    config = hf.Swinv2Config(**WINDOWED, window_size=6, pretrained_window_sizes=pretrained)
    model = make_model(config)
    model(image(model))
    model.save_pretrained(tmp_path, max_shard_size=shards)
    modules = {
        name.removesuffix(".attention.self"): module
        for name, module in model.named_modules()
        if isinstance(module, Swinv2SelfAttention)
    }
    assert {module.window_size for module in modules.values()} == {(6, 6), (4, 4)}
    parts = ("mlp.0.weight", "mlp.0.bias", "mlp.2.weight")
    with serving(tmp_path) as client:
        tables = {table.name: table for table in client.list_tables()}
        by_config = attnbias.from_config(config, checkpoint="m")
        assert tables.keys() == {f"m/{place}.{part}" for place in modules for part in parts}
        assert by_config.keys() == modules.keys()
        for place, module in modules.items():
            side = module.pretrained_window_size[0] or module.window_size[0]
            specs = {str(tables[f"m/{place}.{part}"].encoding) for part in parts}
            assert len(specs) == 1
            for encoding in (tables[f"m/{place}.{parts[0]}"].encoding, by_config[place]):
                assert_near_transformers(client.get(encoding), module, (side, side))


def test_unsupported_models_have_no_spec(tmp_path: Path) -> None:
    """BEiT fails unless its patches form a square; Swin-V2 has one position too many."""
    oblong = PATCHED | {"image_size": [16, 8]}
    model = make_model(hf.BeitConfig(**oblong, use_absolute_position_embeddings=True))
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        model(image(model))
    model.save_pretrained(tmp_path / "beit")
    with pytest.raises(ValueError, match=r"image_size: got \[16, 8\], want a size with a"):
        attnbias.from_config(model.config)
    with serving(tmp_path / "beit") as client:
        (table,) = client.list_tables()
    assert table.encoding is None

    model = make_model(hf.Swinv2Config(**WINDOWED, use_absolute_embeddings=True))
    with pytest.raises(RuntimeError, match="must match"):
        model(image(model))
    model.save_pretrained(tmp_path / "swinv2")
    with pytest.raises(ValueError, match="use_absolute_embeddings: got True, want False"):
        attnbias.from_config(tmp_path / "swinv2")
    with serving(tmp_path / "swinv2") as client:
        (table,) = (t for t in client.list_tables() if t.name == "m/positions")
    assert table.encoding is None


def test_swin_stage_smaller_than_window_keeps_full_table(tmp_path: Path) -> None:
    """The table and spec are nevertheless those for a whole window."""
    model = make_model(hf.SwinConfig(**WINDOWED, window_size=6))
    with pytest.raises(RuntimeError, match="must match"):
        model(image(model))
    model.save_pretrained(tmp_path)
    with serving(tmp_path) as client:
        (table,) = (t for t in client.list_tables() if t.name == "m/encoder.layers.1.blocks.0")
        got = client.get(table.encoding).dense()
    module = model.encoder.layers[1].blocks[0].attention.relative_position_bias
    with torch.no_grad():
        assert_same_bits(got, to_array(module()[0]))
