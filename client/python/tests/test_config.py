# SPDX-License-Identifier: Apache-2.0
"""Conversion of a configuration's fields; tests/conformance/peers compares it with transformers."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

import attnbias
from attnbias import (
    T5,
    Axis,
    Beit,
    LearnedAbsolute,
    Linear,
    MlpLayer,
    Mrope,
    Resample,
    Rotary,
    Shaw,
    Swin,
    SwinV2,
    from_config,
)

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
SWIN = {"depths": [1, 2], "num_heads": [2, 4], "image_size": 32, "patch_size": 4}


class Config:
    """A configuration like those in transformers."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self._fields


def rotary_of(**fields: Any) -> Any:
    return from_config(LLAMA | fields)["rotary"]


def test_accepts_every_source(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    want = {"rotary": Rotary(head_dim=16, rope_theta=10000.0)}
    assert from_config(LLAMA) == want
    assert from_config(Config(**LLAMA)) == want
    for source in (path, tmp_path, str(path), str(tmp_path)):
        assert from_config(source) == want


def test_rejects_invalid_sources(tmp_path: Path) -> None:
    for source in (7, None, Config, [LLAMA]):
        with pytest.raises(TypeError, match=r"config: got .*; want a dict, an object with to_dict"):
            from_config(source)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        from_config(tmp_path)
    path = tmp_path / "config.json"
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(
        FileNotFoundError,
        match=r"has no config\.json \(files: adapter_config\.json\), want config\.json or its "
        r"folder",
    ):
        from_config(tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"config\.json: not JSON: "):
        from_config(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"config\.json: got list, want a JSON object"):
        from_config(path)
    path.write_text('{"model_type": "t5", "num_heads": "many"}')
    with pytest.raises(ValueError, match=r"config\.json: num_heads: got 'many', want an integer"):
        from_config(path)


def test_rejects_files_that_are_not_regular(tmp_path: Path) -> None:
    """A FIFO, closed by the writer so that no reader waits forever."""
    os.mkfifo(tmp_path / "fifo")
    writer = threading.Thread(
        target=lambda: os.close(os.open(tmp_path / "fifo", os.O_WRONLY)), daemon=True
    )
    writer.start()
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    for name in ("fifo", "device", "folder"):
        with pytest.raises(ValueError, match="got a folder, a FIFO or a device, want a regular "):
            from_config(tmp_path / name)


def test_rejects_files_above_server_limit(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("w") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ValueError, match=r"got 67108865 bytes, want at most 67108864$"):
        from_config(tmp_path)


def test_old_and_new_rope_fields_are_equivalent() -> None:
    old = rotary_of(rope_theta=500000.0, rope_scaling=LLAMA3)
    assert old == rotary_of(rope_parameters=LLAMA3 | {"rope_theta": 500000.0})
    assert old == Mrope(16, rope_theta=500000.0, **LLAMA3)


@pytest.mark.parametrize(
    ("rope", "fields"),
    [
        ({"type": "linear", "factor": 2}, {"factor": 2.0}),
        ({"rope_type": "dynamic", "factor": 2.5}, {"factor": 2.5, "max_position_embeddings": 4096}),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_fast": 0, "mscale": 0.7, "truncate": False},
            {"factor": 4.0, "original_max_position_embeddings": 4096, "truncate": False},
        ),
        (
            {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0},
            {
                "factor": 4.0,
                "original_max_position_embeddings": 4096,
                "mscale": 0.7,
                "mscale_all_dim": 1.0,
            },
        ),
        (
            {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2] * 8},
            {
                "short_factor": (1.0,) * 8,
                "long_factor": (2.0,) * 8,
                "original_max_position_embeddings": 4096,
                "max_position_embeddings": 4096,
            },
        ),
        (
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "attention_factor": 1.2,
                "original_max_position_embeddings": 512,
            },
            {
                "short_factor": (1.0,) * 8,
                "long_factor": (2.0,) * 8,
                "attention_factor": 1.2,
                "original_max_position_embeddings": 512,
            },
        ),
        (
            {"rope_type": "proportional", "partial_rotary_factor": 0.25},
            {"partial_rotary_factor": 0.25},
        ),
    ],
)
def test_rope_type_sets_matching_fields(rope: dict[str, Any], fields: dict[str, Any]) -> None:
    rope_type = rope.get("rope_type", "linear")
    want = Mrope(16, rope_theta=10000.0, rope_type=rope_type, **fields)
    assert rotary_of(rope_scaling=rope) == want


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rope_scaling": {"type": "ntk-by-parts"}},
            "rope_scaling.type: got 'ntk-by-parts', want ",
        ),
        ({"rope_parameters": {"rope_type": 3}}, "rope_parameters.rope_type: got 3, want one of "),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0, "fast": 32}},
            "rope_scaling.fast: got 32, want a field of rope_type 'linear', or an ignored field. "
            "Use attnbias.attach(model, client, max_length=...), which takes the numbers from the "
            "model's module, or request Rotary(head_dim=..., inverse_frequencies=",
        ),
        (
            {"rope_scaling": {"type": "linear", "factr": 2.0}},
            "rope_scaling.factor: not set, want a number that a float can hold; got type, factr",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": "2"}},
            "rope_scaling.factor: got '2', want a number",
        ),
        (
            {"rope_scaling": LLAMA3 | {"low_freq_factor": None}},
            "rope_scaling.low_freq_factor: got None, want a number",
        ),
        ({"rope_scaling": "linear"}, "rope_scaling: got 'linear', want a dict"),
        (
            {"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 1e4}},
            "want none in addition to rope_parameters",
        ),
        ({"rope_theta": None}, "rope_theta: got None, want a number"),
        ({"rope_theta": True}, "rope_theta: got True, want a number"),
        ({"num_attention_heads": 0}, "num_attention_heads: got 0, want an integer of at least 1"),
        ({"head_dim": 16.0}, "head_dim: got 16.0, want an integer of at least 1"),
        (
            {"partial_rotary_factor": 0.5},
            "partial_rotary_factor: got 0.5, want 1: this model rotates all columns",
        ),
        ({"alibi": True}, "alibi: got True, want no such field: its effect on positions"),
        (
            {"position_embedding_type": "rope2"},
            "position_embedding_type: got 'rope2', want no such",
        ),
        ({"use_mrope": True}, "use_mrope: got True, want no such field"),
        ({"rotary_pct": 0.25}, "rotary_pct: got 0.25, want no such field"),
        *(
            ({name: 2}, f"{name}: got 2, want no such field")
            for name in (
                "use_dynamic_ntk",
                "ntk_alpha",
                "yarn_factor",
                "longrope_scaling",
                "use_logn_attn",
                "use_rel_pos",
                "rel_bias",
                "use_abs_pos",
                "abs_pos_embed",
                "use_xpos",
                "posemb",
                "sinusoidal_pos",
            )
        ),
    ],
)
def test_unsupported_rope_fields_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rotary_of(**fields)


def test_rope_fields_of_custom_model_code_are_rejected() -> None:
    rope = {"rope_type": "dynamic", "factor": 1.0, "alpha": 1000.0}
    with pytest.raises(ValueError, match=r"alpha: got 1000\.0, want none: .* attnbias\.attach"):
        from_config({"model_type": "hunyuan_v1_dense", "rope_scaling": rope})


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (LLAMA | {"rope_scaling": {"factor": 2.0}}, "rope_scaling.factor = 2.0"),
        (
            LLAMA | {"rope_scaling": {"type": "linear", "factor": 2, "finetuned": True}},
            "rope_scaling.finetuned = True",
        ),
        (
            LLAMA | {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attn_factor": 1.5}},
            "rope_parameters.attn_factor = 1.5",
        ),
        (
            LLAMA
            | {"rope_scaling": {"type": "yarn", "factor": 2, "low_freq_factor": 1, "alpha": 3}},
            "rope_scaling.alpha = 3, rope_scaling.low_freq_factor = 1",
        ),
        ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config.alibi = False"),
        (
            {"model_type": "mpt", "attn_config": {"alibi_bias_max": 16}},
            "attn_config.alibi_bias_max = 16",
        ),
        (
            {"model_type": "bart", "static_position_embeddings": True},
            "static_position_embeddings = True",
        ),
        ({"model_type": "gptj", "rotary": False}, "rotary = False"),
    ],
)
def test_one_warning_names_all_ignored_fields(config: dict[str, Any], names: str) -> None:
    message = f"from_config: the model's code ignores {names}, and so do these encodings"
    with pytest.warns(UserWarning, match=re.escape(message)) as warned:
        from_config(config)
    assert len(warned) == 1
    assert warned[0].filename == __file__


def test_fields_equal_to_code_defaults_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    from_config({"model_type": "mpt", "attn_config": {"alibi": True, "alibi_bias_max": 8}})
    rotary_of(rope_scaling={"type": "linear", "factor": 2.0, "beta_fast": None})
    assert not recwarn.list


@pytest.mark.parametrize(
    "fields",
    [
        {"use_mrope": False},
        {"use_dynamic_ntk": False},
        {"rope_scaling": None},
        {"n_positions": 7},
        {"properties": 1},
        {"purpose": "chat"},
    ],
)
def test_disabled_or_unrelated_rope_fields_are_ignored(fields: dict[str, Any]) -> None:
    assert rotary_of(**fields) == rotary_of()


def test_unknown_model_type_suggests_known_ones() -> None:
    another = "or another model type in docs/models.md$"
    with pytest.raises(ValueError, match=rf"^model_type: got 'lama', want 'llama', .* {another}"):
        from_config({"model_type": "lama"})
    for config in ({}, {"model_type": 3}, {"model_type": "zzz"}):
        with pytest.raises(ValueError, match=r"^model_type: .*, want a model type in docs/models"):
            from_config(config)


def test_layer_types_have_separate_encodings() -> None:
    config = {"model_type": "gemma3_text", "head_dim": 8}
    old = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 8.0}}
    want = {
        "rotary.full_attention": Rotary(head_dim=8, rope_theta=5e5, linear=Linear(8.0)),
        "rotary.sliding_attention": Rotary(head_dim=8, rope_theta=10000.0),
    }
    assert from_config(config | old) == want
    nested = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}}
    assert from_config(config | {"rope_parameters": nested}) == want
    with pytest.raises(ValueError, match=r"rope_parameters\.chunked_attention: got "):
        from_config(config | {"rope_parameters": nested | {"chunked_attention": {"factor": 2}}})
    text = {"rope_parameters": {"full_attention": {"rope_type": "su"}}}
    with pytest.raises(
        ValueError, match=r"text_config\.rope_parameters\.full_attention\.rope_type"
    ):
        from_config({"model_type": "gemma3", "text_config": text})


def test_nested_truncate_is_ignored_with_warning() -> None:
    """The model code reads truncate only one level up, next to the layer types."""
    words = {"rope_type": "yarn", "factor": 2.0, "truncate": False}
    config = {"model_type": "gemma3_text", "rope_parameters": {"full_attention": words}}
    with pytest.warns(UserWarning, match="full_attention.truncate = False"):
        encoding: Any = from_config(config)["rotary.full_attention"]
    assert encoding.yarn.truncate is None


def test_unserved_model_type_names_the_reason() -> None:
    with pytest.raises(ValueError, match=r"got 'mamba', want one .* provides: it has no positions"):
        from_config({"model_type": "mamba"})


def test_older_flat_multimodal_configs_equal_nested_ones() -> None:
    """The flat one has the text fields at the top, and a part with the whole model's model_type."""
    scaling = {"type": "mrope", "mrope_section": [16, 24, 24]}
    text = {"hidden_size": 256, "num_attention_heads": 2, "rope_scaling": scaling}
    flat = {"model_type": "qwen2_5_vl", **text, "vision_config": {"model_type": "qwen2_5_vl"}}
    places = from_config(flat)
    assert places == from_config({"model_type": "qwen2_5_vl", "text_config": text})
    assert places["text.rotary"] == Rotary(
        head_dim=128, rope_theta=1e6, axes=[Axis()] * 3, pair_axis=16 * [0] + 24 * [1] + 24 * [2]
    )


def test_table_names_follow_checkpoint() -> None:
    t5 = {"model_type": "t5", "num_heads": 2, "relative_attention_num_buckets": 16}
    with_table = from_config(t5, checkpoint="small")
    assert with_table["decoder"] == T5(
        bidirectional=False,
        num_heads=2,
        num_buckets=16,
        max_distance=128,
        table="small/decoder",
        bucket_rule="float32_log",
    )
    without: Any = from_config(t5)["decoder"]
    assert without.table is None
    swin = from_config({"model_type": "swin", "window_size": 3, **SWIN}, checkpoint="m")
    assert swin["encoder.layers.1.blocks.1"] == Swin(
        (3, 3), num_heads=4, table="m/encoder.layers.1.blocks.1"
    )
    place = "encoder.layers.1.blocks.0"
    sizes = {"window_size": 6, "pretrained_window_sizes": [0, 12]}
    assert from_config({"model_type": "swinv2", **SWIN, **sizes}, checkpoint="m")[place] == SwinV2(
        [
            MlpLayer(f"m/{place}.mlp.0.weight", bias=f"m/{place}.mlp.0.bias"),
            MlpLayer(f"m/{place}.mlp.2.weight"),
        ],
        window=(4, 4),
        num_heads=4,
        pretrained_window=(12, 12),
    )
    with pytest.raises(ValueError, match=r"checkpoint: got 'm', want None: .*'llama'"):
        from_config(LLAMA, checkpoint="m")


def test_beit_for_oblong_image_is_resampled() -> None:
    beit = {"model_type": "beit", "image_size": [64, 144], "patch_size": 16}
    beit |= {"use_shared_relative_position_bias": True, "use_absolute_position_embeddings": True}
    from_square = Resample(source=(6, 6), target=(4, 9), prefix_rows=1, filter="cubic")
    assert from_config(beit, checkpoint="m") == {
        "encoder": Beit((4, 9), num_heads=12, table="m/encoder", resample=Resample(source=(17, 7))),
        "positions": LearnedAbsolute("m/positions", offset=0, resample=from_square),
    }


def test_bert_position_type_selects_the_encoding() -> None:
    bert = {"model_type": "bert", "num_hidden_layers": 2, "max_position_embeddings": 40}
    assert from_config(bert) == {"positions": LearnedAbsolute(table=None, offset=0)}
    relative = from_config(bert | {"position_embedding_type": "relative_key"}, checkpoint="b")
    assert relative == {
        f"encoder.layers.{layer}": Shaw(
            left=39,
            right=39,
            table=f"b/encoder.layers.{layer}",
            beyond="refuse",
            sign="query_minus_key",
        )
        for layer in (0, 1)
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "bert", "position_embedding_type": "relative_value"},
            "position_embedding_type: got 'relative_value', want one of absolute, relative_key",
        ),
        (
            {"model_type": "detr", "position_embedding_type": "v3"},
            "position_embedding_type: got 'v3', want one of sine, learned",
        ),
        (
            {"model_type": "roberta", "pad_token_id": None},
            "pad_token_id: got None, want an integer",
        ),
        (
            {"model_type": "longt5", "encoder_attention_type": "global"},
            "encoder_attention_type: got 'global', want one of local, transient-global",
        ),
        (
            {"model_type": "mpnet", "relative_attention_num_buckets": 64},
            "relative_attention_num_buckets: got 64, want 32, the only value that",
        ),
        (
            {"model_type": "mpt", "attn_config": {"rope": True}},
            "attn_config.rope: got True, want no",
        ),
        ({"model_type": "falcon", "alibi": "yes"}, "alibi: got 'yes', want true or false"),
        (
            {"model_type": "swin", "depths": [2, 2], "num_heads": [3]},
            "num_heads: got [3], want one for each of the 2 stages",
        ),
        ({"model_type": "swin", "depths": 4}, "depths: got 4, want a list of integers"),
        ({"model_type": "vit", "relative_bias": 3}, "relative_bias: got 3, want no such field"),
        (
            {"model_type": "beit", "use_relative_position_bias": True, "image_size": [32, "wide"]},
            "image_size: got [32, 'wide'], want a positive integer, or two",
        ),
        (
            {
                "model_type": "beit",
                "use_absolute_position_embeddings": True,
                "image_size": [32, 64],
            },
            "image_size: got [32, 64], want a size with a square number of patches",
        ),
        (
            {"model_type": "swinv2", "image_size": 8, "patch_size": 4},
            "image_size: got 8, want a size that leaves pixels for stage 2",
        ),
        ({"model_type": "gptj", "rotary_dim": None}, "rotary_dim: got None, want an integer"),
        ({"model_type": "gemma3", "vision_config": 3}, "vision_config: got 3, want a dict"),
    ],
)
def test_unsupported_fields_are_rejected(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        from_config(config)


def test_str_omits_unset_fields() -> None:
    assert str(rotary_of()) == "Rotary(head_dim=16, rope_theta=10000.0)"
    assert str(MlpLayer(weight=None)) == "MlpLayer()"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"rope_theta": 10**400}, "rope_theta: got 1000.*, want a number that a float can hold"),
        (
            {"hidden_size": 8, "num_attention_heads": 9},
            "num_attention_heads: got 9, want at most hidden_size, which is 8",
        ),
        ({"head_dim": 1 << 31}, "head_dim: got 2147483648, want an integer of at most 2147483647"),
    ],
)
def test_invalid_sizes_are_rejected(config: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        attnbias.from_config({"model_type": "llama", **config})


@pytest.mark.parametrize(
    ("model_type", "name", "more"),
    [
        ("t5", "num_heads", {}),
        ("umt5", "num_layers", {}),
        ("umt5", "num_decoder_layers", {}),
        ("mpnet", "num_attention_heads", {}),
        ("bloom", "n_head", {}),
        ("mpt", "n_heads", {}),
        ("falcon", "num_attention_heads", {"alibi": True}),
        ("bert", "num_hidden_layers", {"position_embedding_type": "relative_key"}),
        ("beit", "num_hidden_layers", {"use_relative_position_bias": True}),
        ("beit", "num_attention_heads", {"use_shared_relative_position_bias": True}),
    ],
)
def test_head_and_layer_counts_are_bounded(
    model_type: str, name: str, more: dict[str, Any]
) -> None:
    """The client checks the count before it creates a list of that length."""
    says = rf"^{name}: got 1{'0' * 30}, want an integer of at most 65536$"
    with pytest.raises(ValueError, match=says):
        from_config({"model_type": model_type, name: 10**30, **more})


@pytest.mark.parametrize("name", ["depths", "num_heads"])
def test_stage_lists_are_bounded(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name}: .*, want a list of integers, each at most 65536"
    ):
        from_config({"model_type": "swin", **SWIN, name: [2, 10**30]})


def test_non_string_field_names_are_rejected() -> None:
    config: Any = {"model_type": "llama", 1: 2}
    with pytest.raises(TypeError, match="config: got an object of type int; want fields whose"):
        attnbias.from_config(config)


@pytest.mark.parametrize(("checkpoint", "error"), [("", ValueError), (5, TypeError)])
def test_invalid_checkpoint_name_is_rejected(checkpoint: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"checkpoint: got .* want a name, or None"):
        attnbias.from_config({"model_type": "t5"}, checkpoint=checkpoint)
