# SPDX-License-Identifier: Apache-2.0
"""Models with sinusoids, attached and unattached."""

import copy
import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from attached import (
    ENCODER_DECODER,
    LENGTH,
    assert_attention,
    assert_close,
    assert_same_gradients,
    chosen,
    compiled,
    gradients_of,
    make_other,
    state,
)
from torch import Tensor

import attnbias

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SIZES: dict[str, Any] = ENCODER_DECODER | TOKENS
TEXT = SIZES | {"max_position_embeddings": LENGTH}
SPEECH = SIZES | {"num_mel_bins": 8, "max_source_positions": 50, "max_target_positions": LENGTH}
SPEECH_2 = SIZES | {"input_feat_per_channel": 8, "conv_channels": 16, "pad_token_id": 1}
SPEECH_2 |= {"max_source_positions": 2 * LENGTH, "max_target_positions": LENGTH}
DENSE = {"encoder_sparse_step": 0, "decoder_sparse_step": 0}  # NLLB-MoE's router modifies itself
XGLM = {"num_layers": 2, "attention_heads": 4, "ffn_dim": 64, "pad_token_id": 1}
FSMT = {"src_vocab_size": 61, "tgt_vocab_size": 61, "pad_token_id": 1}
TYPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "marian": (transformers.MarianMTModel, TEXT),
    "pegasus": (transformers.PegasusForConditionalGeneration, TEXT),
    "whisper": (transformers.WhisperForConditionalGeneration, SPEECH),
    "m2m_100": (transformers.M2M100ForConditionalGeneration, TEXT | {"pad_token_id": 1}),
    "nllb-moe": (transformers.NllbMoeForConditionalGeneration, TEXT | DENSE),
    "speech_to_text": (transformers.Speech2TextForConditionalGeneration, SPEECH_2),
    "xglm": (transformers.XGLMForCausalLM, TEXT | XGLM),
    "fsmt": (transformers.FSMTForConditionalGeneration, TEXT | FSMT),
}
SDPA = [name for name, (kind, _) in TYPES.items() if kind._supports_sdpa]
# Position 0 has the row after the padding row.
AFTER_PADDING = ["m2m_100", "nllb-moe", "speech_to_text", "xglm", "fsmt"]
FIRST = dict.fromkeys(AFTER_PADDING, 2) | {"nllb-moe": 1}


def new_model(model_type: str) -> Any:
    torch.manual_seed(0)
    kind, fields = TYPES[model_type]
    made = kind(kind.config_class(**fields)).eval()
    for path, parameter in made.named_parameters():
        if parameter.dim() > 1 and "embed_positions" not in path:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return made.requires_grad_(False)


def sound_or_text(model_type: str) -> dict[str, Tensor]:
    """Returns a batch of two, the first of them padded if the model supports it."""
    made = torch.Generator().manual_seed(1)
    if model_type == "whisper":
        return {"input_features": torch.randn(2, 8, 100, generator=made)}
    mask = torch.ones(2, 40, dtype=torch.int64)
    if model_type == "speech_to_text":
        mask[0, 30:] = 0
        return {"input_features": torch.randn(2, 40, 8, generator=made), "attention_mask": mask}
    mask[0, slice(0, 10) if model_type == "xglm" else slice(30, 40)] = 0
    padding = TYPES[model_type][1]["pad_token_id"]
    ids = torch.randint(3, 61, (2, 40), generator=made).masked_fill(mask == 0, padding)
    return {"input_ids": ids, "attention_mask": mask}


def logits(model: Any, model_type: str, length: int = 40) -> Tensor:
    given = sound_or_text(model_type)
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.arange(3, 3 + length).repeat(2, 1)
    answer: Tensor = model(**given).logits
    return answer


def decoded(model: Any, model_type: str) -> Any:
    options: dict[str, Any] = {"do_sample": False, "num_beams": 1, "bad_words_ids": None}
    new = 64 if model.config.is_encoder_decoder else LENGTH - 40
    options |= {"max_new_tokens": new, "min_new_tokens": new}
    return model.generate(**sound_or_text(model_type), **options)


@pytest.mark.parametrize("model_type", TYPES)
def test_outputs_are_unchanged(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    own = copy.deepcopy(model)
    before, keys = state(model), [*model.state_dict()]
    with attnbias.attach(model, client, max_length=LENGTH):
        assert [*model.state_dict()] == keys
        assert_close(logits(model, model_type), logits(own, model_type))
        assert torch.equal(decoded(model, model_type), decoded(own, model_type))
        assert decoded(model, model_type).shape[1] >= 64
    assert state(model) == before
    assert torch.equal(logits(model, model_type), logits(own, model_type))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("model_type", SDPA)
def test_attention_implementation_is_used(
    client: attnbias.Client, model_type: str, attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(model_type)
    run = partial(logits, model, model_type)
    assert_attention(model, attention, client, monkeypatch, run)


@pytest.mark.parametrize("model_type", [name for name in TYPES if name not in SDPA])
def test_attention_missing_in_model_is_rejected(client: attnbias.Client, model_type: str) -> None:
    """The model's own code would misread SDPA's mask and return other outputs."""
    model = new_model(model_type)
    with pytest.raises(ValueError, match=r"^attention: got 'sdpa', want \"eager\" for "):
        attnbias.attach(model, client, max_length=LENGTH, attention="sdpa")


@pytest.mark.parametrize("model_type", TYPES)
def test_weights_are_trainable(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    for path, parameter in model.named_parameters():
        parameter.requires_grad = "embed_positions" not in path
    want = gradients_of(model, logits(model, model_type))
    with attnbias.attach(model, client, max_length=LENGTH):
        assert_same_gradients(gradients_of(model, logits(model, model_type)), want)


@pytest.mark.parametrize("model_type", chosen(TYPES, "marian", "whisper"))
def test_compiled_outputs_match(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    want = logits(model, model_type)
    with attnbias.attach(model, client, max_length=LENGTH):
        assert_close(logits(compiled(model), model_type), want)


def test_replaced_module_is_rejected(client: attnbias.Client) -> None:
    for model_type, want in (
        ("marian", "MarianSinusoidalPositionalEmbedding or PegasusSinusoidalPositionalEmbedding"),
        ("whisper", "WhisperEncoder"),
    ):
        model = new_model(model_type)
        encoder = model.model.encoder
        make_other(encoder if model_type == "whisper" else encoder.embed_positions)
        with pytest.raises(ValueError, match=rf"^model: got .* of Other, want .* {want}$"):
            attnbias.attach(model, client, max_length=LENGTH)


@pytest.mark.parametrize("model_type", ["marian", "pegasus"])
def test_max_length_replaces_model_length(client: attnbias.Client, model_type: str) -> None:
    """Covers lengths beyond the model's own, compared with a model that has a longer table."""
    model = new_model(model_type)
    longer = copy.deepcopy(model)
    for side in (longer.model.encoder, longer.model.decoder):
        kind = type(side.embed_positions)
        positions = kind(2 * LENGTH, SIZES["d_model"])
        positions.weight = torch.nn.Parameter(positions.create_weight(), requires_grad=False)
        side.embed_positions = positions
    with attnbias.attach(model, client, max_length=2 * LENGTH):
        ids = {
            "decoder_input_ids": torch.full((1, 2 * LENGTH), 5),
            "input_ids": torch.ones(1, 3).long(),
        }
        assert_close(model(**ids).logits, longer(**ids).logits)
        ids["decoder_input_ids"] = torch.full((1, 2 * LENGTH + 1), 5)
        with pytest.raises(ValueError, match="attached with 192, but got 193 positions"):
            model(**ids)
        with pytest.raises(ValueError, match="attached with 192, but got 194 positions"):
            model.model.encoder(torch.full((1, 2 * LENGTH + 2), 5))
        positions, its = model.model.decoder.embed_positions, longer.model.decoder.embed_positions
        _, past, _ = inspect.signature(its.forward).parameters  # the name differs by version
        for got in (positions((1, 5), 7), positions((1, 5), **{past: 7})):
            torch.testing.assert_close(got, its((1, 5), 7), rtol=0, atol=1e-7)


def positions_of(model: Any) -> Any:
    """Returns the position module of the encoder or the decoder."""
    return next(module for path, module in model.named_modules() if path.endswith("positions"))


def asked_for(model_type: str, count: int) -> Any:
    """Returns the input for which the module returns the rows for the first positions."""
    if model_type in ("marian", "pegasus"):
        return (1, count)
    if model_type in ("whisper", "xglm"):
        return torch.arange(count)[None]
    return torch.full((1, count), 5)  # a token that is not padding


@pytest.mark.parametrize("model_type", TYPES)
def test_numbers_are_correctly_rounded(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    positions = positions_of(model)
    count, pairs = (50 if model_type == "whisper" else LENGTH), SIZES["d_model"] // 2
    exponents = np.arange(pairs) / (pairs if model_type in ("marian", "pegasus") else pairs - 1)
    rows = FIRST.get(model_type, 0) + np.arange(count)
    turns = rows[:, None] * 10000.0**-exponents
    asked = asked_for(model_type, count)
    with attnbias.attach(model, client, max_length=LENGTH):
        got = positions(asked).reshape(count, -1)
        np.testing.assert_array_equal(
            got.numpy(), np.concatenate([np.sin(turns), np.cos(turns)], axis=1).astype("f4")
        )
        model.bfloat16()
        assert torch.equal(positions(asked).reshape(count, -1), got.bfloat16())


@pytest.mark.parametrize("model_type", AFTER_PADDING)
def test_padding_is_zero_and_longer_positions_match(
    client: attnbias.Client, model_type: str
) -> None:
    """Padding rows are zero; rows beyond the model's own equal those of a longer table."""
    model = new_model(model_type)
    positions, padding = positions_of(model), model.config.pad_token_id
    longer = copy.deepcopy(positions)
    asked = asked_for(model_type, 2 * LENGTH)
    want = longer(asked)  # the table grows
    with attnbias.attach(model, client, max_length=2 * LENGTH):
        torch.testing.assert_close(positions(asked), want, rtol=0, atol=1e-4)
        if model_type != "xglm":
            assert not positions(torch.full((1, 3), padding)).any()
        with pytest.raises(ValueError, match="attached with 192, but got 193 positions"):
            positions(asked_for(model_type, 2 * LENGTH + 1))
    assert torch.equal(positions(asked), want)


def test_report_lists_replacements(client: attnbias.Client) -> None:
    with attnbias.attach(new_model("marian"), client, max_length=LENGTH) as attached:
        encoder, decoder = attached.report()
    assert encoder.path == "model.encoder.embed_positions.forward"
    assert encoder.encoding == attnbias.Sinusoidal(32, columns="sines_cosines")
    assert (encoder.fetched_bytes, encoder.spared_bytes) == (4 * 32 * LENGTH, 0)
    assert (decoder.path, decoder.fetched_bytes) == ("model.decoder.embed_positions.forward", 0)

    # attach_learned_test.py covers its decoder.
    with attnbias.attach(new_model("whisper"), client, max_length=LENGTH) as attached:
        encoder = attached.report()[0]
    assert encoder.path == "model.encoder.embed_positions.forward"
    assert encoder.fetched_bytes == 4 * 32 * 50
