# SPDX-License-Identifier: Apache-2.0
"""``python -m attnbias export``: afterwards a model attaches without a server."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnbias
from attnbias.__main__ import main

MAX_LENGTH = 64
TEXT = {"vocab_size": 100}
SMALL = {
    **TEXT,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
LONGROPE = {
    "rope_type": "longrope",
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
}
T5 = {**TEXT, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 6}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0}),
    "t5-encoder": ("T5EncoderModel", T5),
    "longt5": ("LongT5Model", {**T5, "encoder_attention_type": "transient-global"}),
    "mpnet": ("MPNetModel", SMALL),
    "bloom": ("BloomForCausalLM", {**TEXT, "hidden_size": 48, "n_layer": 2, "n_head": 6}),
    "mpt": ("MptForCausalLM", {**TEXT, "d_model": 48, "n_layers": 2, "n_heads": 6}),
    "falcon": ("FalconForCausalLM", {**SMALL, "alibi": True}),
    "falcon-rotary": ("FalconForCausalLM", SMALL),
    "gptj": ("GPTJForCausalLM", {**TEXT, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}),
    "marian": ("MarianMTModel", {**TEXT, "d_model": 32, "pad_token_id": 0}),
    "llama": ("LlamaForCausalLM", {**SMALL, "pad_token_id": 0}),
    "phi3-longrope": (
        "Phi3ForCausalLM",
        {
            **SMALL,
            "pad_token_id": 0,
            "original_max_position_embeddings": 32,
            "max_position_embeddings": 128,
            "rope_parameters": {"rope_theta": 10000.0, **LONGROPE},
        },
    ),
    "gemma3": ("Gemma3ForCausalLM", {**SMALL, "head_dim": 16}),
}


def output(model: Any) -> torch.Tensor:
    tokens = torch.arange(2, MAX_LENGTH + 2)[None]
    options = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        answer: torch.Tensor = model(input_ids=tokens, **options)[0]
    return answer


def export(fields: dict[str, Any], server: str, folder: Path) -> int:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    common = ["--config", str(path), "--max-length", str(MAX_LENGTH)]
    return main(["export", *common, "--cache", str(folder / "cache"), "--server", server])


@pytest.mark.parametrize("name", MODELS)
def test_attaches_offline_from_exported_cache(
    client: attnbias.Client, server: str, tmp_path: Path, name: str
) -> None:
    torch.manual_seed(0)
    kind, fields = MODELS[name]
    made = getattr(transformers, kind)
    model = made._from_config(made.config_class(**fields), attn_implementation="eager").eval()
    with attnbias.attach(model, client, max_length=MAX_LENGTH):
        want = output(model)
    assert export(model.config.to_dict(), server, tmp_path) == 0
    with (
        attnbias.Client(cache=tmp_path / "cache", offline=True) as offline,
        attnbias.attach(model, offline, max_length=MAX_LENGTH),
    ):
        assert torch.equal(output(model), want)


@pytest.mark.parametrize("model_type", ["bert", "bart", "opt", "swinv2"])
def test_encodings_stored_as_weights_are_skipped(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], model_type: str
) -> None:
    assert export({"model_type": model_type}, server, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert all(": left out: it" in line for line in lines)


def test_whisper_sinusoids_are_exported(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export({"model_type": "whisper"}, server, tmp_path) == 0
    lines = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [(place, how.split()[0]) for place, how, *_ in lines if place.startswith("attach")] == [
        ("attach encoder.embed_positions.forward", "fetched"),
        ("attach decoder.embed_positions.weight", "left"),
    ]


def test_models_that_attach_rejects_report_the_reason(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export({"model_type": "codegen"}, server, tmp_path) == 0
    out = capsys.readouterr().out
    assert "attach: left out: model: got model_type 'codegen'" in out
    assert "each layer indexes its own table" in out


def test_untested_version_is_reported(
    server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transformers, "__version__", "9.0.0")
    assert export({"model_type": "mpt"}, server, tmp_path) == 0
    assert "attach: left out: transformers: got version 9.0.0, want " in capsys.readouterr().out


def test_encodings_with_checkpoint_tables_are_skipped(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export({"model_type": "swin"}, server, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "encoder.layers.0.blocks.0 and 11 more",
        "attach encoder.layers.0.blocks.0.attention.relative_position_bias.forward and 11 more",
    ]


def test_config_error_of_transformers_is_one_line(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export({"model_type": "t5", "d_model": "wide"}, server, tmp_path) == 1
    path = tmp_path / "config.json"
    said = capsys.readouterr().err
    assert said.startswith(f"attnbias: {path}: transformers does not accept it: ")
    assert said.count("\n") == 1
