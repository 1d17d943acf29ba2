# SPDX-License-Identifier: Apache-2.0
"""attnbias.attach: an attached model returns the same outputs as the original.

The expected outputs come from transformers' code. If the attached code is the same, they are equal
bit for bit; FlexAttention sums in a different order.
"""

import copy
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from attached import assert_same_gradients, compiled, gradients_of, make_other, state
from torch import Tensor, nn

import attnbias
from attnbias._models.register import MODELS

LENGTH, DECODER_LENGTH, MAX_LENGTH = 200, 140, 256
HEADS = 6  # not a power of two
T5 = {
    "vocab_size": 100,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": HEADS,
    "decoder_start_token_id": 0,
}
LONG_T5 = {**T5, "local_radius": 15, "global_block_size": 8}
FALCON = {
    "vocab_size": 100,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,  # slopes that are not powers of two, so that products are rounded
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", T5),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "umt5": ("UMT5ForConditionalGeneration", T5),
    "switch_transformers": (
        "SwitchTransformersForConditionalGeneration",
        {**T5, "num_decoder_layers": 2},  # dense, since experts may tie
    ),
    "t5-encoder": ("T5EncoderModel", T5),
    "longt5-local": (
        "LongT5ForConditionalGeneration",
        {**LONG_T5, "encoder_attention_type": "local"},
    ),
    "longt5-global": (
        "LongT5ForConditionalGeneration",
        {**LONG_T5, "encoder_attention_type": "transient-global"},
    ),
    "mpnet": (
        "MPNetModel",
        {
            "vocab_size": 100,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "intermediate_size": 64,
        },
    ),
    "bloom": (
        "BloomForCausalLM",
        {"vocab_size": 100, "hidden_size": 48, "n_layer": 2, "n_head": HEADS},
    ),
    "mpt": (
        "MptForCausalLM",
        {"vocab_size": 100, "d_model": 48, "n_layers": 2, "n_heads": HEADS, "max_seq_len": 300},
    ),
    "falcon": ("FalconForCausalLM", {**FALCON, "alibi": True}),  # with one key head
    "falcon-groups": (
        "FalconForCausalLM",
        {**FALCON, "alibi": True, "new_decoder_architecture": True, "num_kv_heads": 4},
    ),
}
ATTENTIONS = {
    "t5": ("eager", "sdpa", "flex"),
    "mt5": ("eager", "sdpa", "flex"),
    "umt5": ("eager", "sdpa", "flex"),
    "switch_transformers": ("eager", "flex"),
    "t5-encoder": ("flex",),
    "longt5-local": ("eager",),
    "longt5-global": ("eager",),
    "mpnet": ("eager",),
    "bloom": ("eager", "flex"),
    "mpt": ("eager", "flex"),
    "falcon": ("eager", "sdpa", "flex"),
    "falcon-groups": ("sdpa", "flex"),
}
CASES = [(name, attention) for name, chosen in ATTENTIONS.items() for attention in chosen]
EAGER = [name for name, chosen in ATTENTIONS.items() if "eager" in chosen]
LEARNED = ["t5", "mt5", "umt5", "switch_transformers", "longt5-local", "longt5-global", "mpnet"]


def make(name: str, attention: str = "eager", **options: Any) -> Any:
    """Returns a model with random weights; learned biases are as large as trained ones."""
    torch.manual_seed(0)
    kind, fields = CONFIGS[name]
    model = getattr(transformers, kind)
    # With "eager", Falcon adds its bias twice: to the mask, and to the scores.
    near_flex = "sdpa" if kind.startswith("Falcon") else "eager"
    own = near_flex if attention == "flex" else attention
    config = model.config_class(**fields | options)
    made = model._from_config(config, attn_implementation=own).eval()
    for path, parameter in made.named_parameters():
        if "relative_attention_bias" in path:
            nn.init.normal_(parameter, std=2)
    return made


@cache
def tokens(length: int) -> Tensor:
    return torch.randint(2, 100, (2, length), generator=torch.Generator().manual_seed(1))


def masks(length: int) -> list[Tensor | None]:
    """Returns no mask, and masks that pad the first sequence on either side."""
    left, right = torch.ones(2, 2, length, dtype=torch.int64)
    left[0, :50] = 0
    right[0, -50:] = 0
    return [None, left, right]


def output(model: Any, length: int = LENGTH, mask: Tensor | None = None, **options: Any) -> Tensor:
    """Returns the output for the tokens that the mask keeps."""
    if model.config.is_encoder_decoder:
        options["decoder_input_ids"] = tokens(DECODER_LENGTH)
    answer = model(input_ids=tokens(length), attention_mask=mask, **options)
    made: Tensor = answer[0]
    shown = mask if mask is not None and made.shape[1] == length else torch.ones(made.shape[:2])
    return made[shown.bool()]


def outputs(model: Any) -> list[Tensor]:
    with torch.no_grad():
        return [output(model, mask=mask) for mask in masks(LENGTH)]


def assert_near(got: list[Tensor], want: list[Tensor], attention: str) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        if attention == "eager":
            assert torch.equal(one, other)
        else:
            atol = 1e-5 * float(other.abs().max())
            torch.testing.assert_close(one, other, rtol=1e-5, atol=atol)


def test_flex_holds_scores_of_one_block(
    client: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mask, torch's CPU code uses a single block for all scores."""
    blocks = []

    def compiled(query: Tensor, *_: Any, block_mask: Any, **options: Any) -> Tensor:
        blocks.append(block_mask.BLOCK_SIZE)
        return query

    monkeypatch.setattr("attnbias._models.families.flex._compiled", compiled)
    model = make("t5-encoder", "flex")
    with torch.no_grad(), attnbias.attach(model, client, max_length=512, attention="flex"):
        output(model)
    assert blocks == [(128, 128)] * model.config.num_layers


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_outputs_are_unchanged(client: attnbias.Client, name: str, attention: Any) -> None:
    model = make(name, attention)
    before = outputs(model)
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention=attention):
        attached = outputs(model)
    assert_near(attached, before, attention)
    assert_near(outputs(model), before, "eager")


def decoded(model: Any, **options: Any) -> Tensor:
    made: Tensor = model.generate(
        tokens(LENGTH)[:, :160],
        attention_mask=masks(LENGTH)[1][:, :160],
        max_new_tokens=64,
        min_new_tokens=64,
        do_sample=False,
        pad_token_id=0,
        **options,
    )
    return made


DECODERS = [case for case in CASES if case[0] not in ("mpnet", "t5-encoder")]


@pytest.mark.parametrize(("name", "attention"), DECODERS)
def test_greedy_decoding_is_unchanged(client: attnbias.Client, name: str, attention: Any) -> None:
    model = make(name, attention)
    before = decoded(model)
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention=attention):
        assert torch.equal(decoded(model), before)


# Falcon's own code does not generate with such a cache; "flex" is in attach_flex_test.py.
@pytest.mark.parametrize(
    ("name", "attention"), [("t5", "eager"), ("t5", "sdpa"), ("bloom", "eager"), ("mpt", "eager")]
)
def test_static_cache_outputs_match(client: attnbias.Client, name: str, attention: Any) -> None:
    """The number of keys is the maximum, and the number of past tokens is a tensor."""
    model = make(name, attention)
    before = decoded(model, cache_implementation="static")
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention=attention):
        assert torch.equal(decoded(model, cache_implementation="static"), before)


def biased(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if hasattr(module, "relative_attention_bias"))


@pytest.mark.parametrize("attention", ["eager", "flex"])
@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_bias_matches_transformers(client: attnbias.Client, name: str, attention: Any) -> None:
    model = make(name)
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention=attention):
        for module in biased(model):
            own = type(module).compute_bias
            for new, keys, past in ((256, 256, 0), (1, 200, 199), (130, 160, 30), (5, 9, 4)):
                with torch.no_grad():
                    want = own(module, new, keys, past_seen_tokens=past)
                    for seen in (past, torch.tensor(past)):
                        got = module.compute_bias(new, keys, past_seen_tokens=seen)
                        if attention == "flex":
                            got = expanded(got, new, keys)
                        assert torch.equal(got, want)


def expanded(bias: Any, queries: int, keys: int) -> Tensor:
    first = int(bias.first)
    rows = [bias.numbers[:, first - q : first - q + keys] for q in range(queries)]
    return torch.stack(rows, 1)[None]


def test_alibi_matches_transformers(client: attnbias.Client) -> None:
    bloom, mpt = make("bloom").transformer, make("mpt").transformer
    mask = masks(MAX_LENGTH)[1]
    for model, name, arguments in (
        (bloom, "build_alibi_tensor", (mask, HEADS, torch.float32)),
        (bloom, "build_alibi_tensor", (mask, HEADS, torch.bfloat16)),
        (mpt, "build_mpt_alibi_tensor", (HEADS, MAX_LENGTH)),
    ):
        want = getattr(type(model), name)(model, *arguments)
        with attnbias.attach(model, client, max_length=MAX_LENGTH):
            assert torch.equal(getattr(model, name)(*arguments), want)


def test_mpt_beyond_its_length_matches_longer_model(client: attnbias.Client) -> None:
    """Compares with a model that has a greater max_seq_len."""
    model = make("mpt")
    config = transformers.MptConfig(**{**CONFIGS["mpt"][1], "max_seq_len": 500})
    longer = transformers.MptForCausalLM(config).eval()
    longer.load_state_dict(model.state_dict())
    with torch.no_grad(), attnbias.attach(model, client, max_length=500):
        assert torch.equal(output(model, 500), output(longer, 500))


def test_falcon_beyond_exact_bf16_positions_is_unchanged(client: attnbias.Client) -> None:
    """Covers lengths at which Falcon rounds positions to bfloat16."""
    model = make("falcon")
    with torch.no_grad():
        before = output(model, 700)
        with attnbias.attach(model, client, max_length=700):
            assert torch.equal(output(model, 700), before)


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_detach_restores_the_model(client: attnbias.Client, name: str, attention: Any) -> None:
    model = make(name)
    before, keys = state(model), list(model.state_dict())
    attached = attnbias.attach(model, client, max_length=MAX_LENGTH, attention=attention)
    assert state(model) != before
    assert list(model.state_dict()) == keys
    attached.detach()
    assert state(model) == before
    attached.detach()
    assert state(model) == before


def test_failed_attach_leaves_model_unchanged(
    client: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("t5")
    before = state(model)
    monkeypatch.setattr(
        "attnbias._models.families.t5.dense_bias", property()
    )  # not a function, so never bound as a method
    with pytest.raises(TypeError):
        attnbias.attach(model, client, max_length=MAX_LENGTH)
    assert state(model) == before


@pytest.mark.parametrize(("name", "attention"), [case for case in CASES if case[1] != "flex"])
def test_gradients_are_unchanged(client: attnbias.Client, name: str, attention: Any) -> None:
    """Compares the gradients of all weights; a learned bias uses updated weights immediately."""
    model = make(name, attention)

    def gradients() -> dict[str, Tensor]:
        return gradients_of(model, output(model, mask=masks(LENGTH)[2]))

    want = gradients()
    with attnbias.attach(model, client, max_length=MAX_LENGTH):
        got = gradients()
        assert_same_gradients(got, want)
        tables = [path for path in got if "relative_attention_bias" in path]
        assert bool(tables) == (name in LEARNED)
        assert all(got[path].any() for path in tables)
        with torch.no_grad():
            for path in tables:
                model.get_parameter(path).add_(got[path] + 1)
        attached = outputs(model)
    assert_near(attached, outputs(model), attention)


@pytest.mark.parametrize("name", ["t5-encoder", "bloom", "mpt", "falcon"])
def test_gradients_of_short_sequences_are_unchanged(client: attnbias.Client, name: str) -> None:
    """Also covers the CPU, where FlexAttention has no gradients."""
    model = make(name, "flex")
    want = gradients_of(model, output(model, 100, masks(100)[2]))
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
        assert_same_gradients(gradients_of(model, output(model, 100, masks(100)[2])), want)


@pytest.mark.parametrize("name", EAGER)
def test_model_can_be_cast(client: attnbias.Client, name: str) -> None:
    model = make(name)
    with attnbias.attach(model, client, max_length=MAX_LENGTH):
        model.bfloat16()
        attached = outputs(model)
    assert_near(attached, outputs(model), "eager")


def test_copy_has_its_own_table(client: attnbias.Client) -> None:
    model = make("t5")
    attached = attnbias.attach(model, client, max_length=MAX_LENGTH)
    before = outputs(model)
    copied = copy.deepcopy(model)
    for module in biased(copied):
        nn.init.zeros_(module.relative_attention_bias.weight)
    assert not torch.equal(outputs(copied)[0], before[0])
    attached.detach()
    assert_near(outputs(model), before, "eager")


def test_compiled_flex_outputs_match(client: attnbias.Client) -> None:
    model = make("t5-encoder")
    with torch.no_grad():
        before = [output(model, length) for length in (LENGTH, 150)]
        with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
            faster = torch.compile(model)
            assert_near([output(faster, length) for length in (LENGTH, 150)], before, "flex")
            with pytest.raises(torch._dynamo.exc.Unsupported):
                output(compiled(model))


@pytest.mark.parametrize(
    ("name", "attention"),
    [(name, "eager") for name in EAGER] + [("t5", "sdpa"), ("falcon", "sdpa")],
)
def test_compiled_outputs_match(client: attnbias.Client, name: str, attention: Any) -> None:
    fields = {"num_layers": 1} if "t5" in name else {}
    model = make(name, attention, **fields)
    with torch.no_grad():
        before = output(model, mask=masks(LENGTH)[1])
        with attnbias.attach(model, client, max_length=MAX_LENGTH):
            got = output(compiled(model), mask=masks(LENGTH)[1])
    assert_near([got], [before], attention)


def test_report_lists_replacements(client: attnbias.Client) -> None:
    model = make("t5")
    with attnbias.attach(model, client, max_length=100, attention="flex") as attached:
        report = attached.report()
    first, second, *cross = report
    assert first.path == "encoder.block.0.layer.0.SelfAttention.compute_bias"
    assert isinstance(first.encoding, attnbias.T5)
    assert first.encoding.bidirectional
    assert first.fetched_bytes == 4 * 199
    assert first.spared_bytes == 8 * 100 * 100 + 4 * HEADS * 100 * 100
    assert second.path == "decoder.block.0.layer.0.SelfAttention.compute_bias"
    assert isinstance(second.encoding, attnbias.T5)
    assert not second.encoding.bidirectional
    assert [one.path for one in cross] == [
        f"decoder.block.{layer}.layer.1.EncDecAttention.forward" for layer in range(2)
    ]
    assert all((one.encoding, one.fetched_bytes) == (None, 0) for one in cross)
    assert str(first) == (
        "encoder.block.0.layer.0.SelfAttention.compute_bias: T5(bidirectional=True, "
        "num_buckets=32, max_distance=128, bucket_rule='float32_log'); "
        "796 bytes fetched, 320000 bytes not computed"
    )


INDICES = 8 * 100**2  # int64 bytes for 100 tokens
BIAS = 4 * HEADS * 100**2
LONG_T5_GLOBAL = "encoder.block.0.layer.0.TransientGlobalSelfAttention"


@pytest.mark.parametrize(
    ("name", "attention", "want"),
    [
        (
            "longt5-local",
            "eager",
            [
                ("encoder.block.0.layer.0.LocalSelfAttention.compute_bias", 4 * 63, 8 * 3 * 16**2),
                ("decoder.block.0.layer.0.SelfAttention.compute_bias", 4 * 199, INDICES),
                ("decoder.block.0.layer.1.EncDecAttention.forward", 0, BIAS),
                ("decoder.block.1.layer.1.EncDecAttention.forward", 0, BIAS),
            ],
        ),
        (
            "longt5-global",
            "eager",
            [
                (f"{LONG_T5_GLOBAL}.compute_bias", 4 * 63, 8 * 3 * 16**2),
                (f"{LONG_T5_GLOBAL}._relative_position_bucket", 4 * 25, 0),  # for 12 blocks of 8
                ("decoder.block.0.layer.0.SelfAttention.compute_bias", 4 * 199, INDICES),
                ("decoder.block.0.layer.1.EncDecAttention.forward", 0, BIAS),
                ("decoder.block.1.layer.1.EncDecAttention.forward", 0, BIAS),
            ],
        ),
        ("mpnet", "eager", [("encoder.compute_position_bias", 4 * 199, INDICES)]),
        ("bloom", "eager", [("transformer.build_alibi_tensor", 4 * HEADS * 100, 0)]),
        (
            "bloom",
            "flex",
            [
                ("transformer.build_alibi_tensor", 4 * HEADS * 100, 0),
                ("transformer.h.0.self_attention.forward", 0, BIAS),
                ("transformer.h.1.self_attention.forward", 0, BIAS),
            ],
        ),
        (
            "mpt",
            "flex",
            [
                ("transformer.build_mpt_alibi_tensor", 4 * HEADS * 100, 0),
                ("transformer.blocks.0.attn.forward", 0, BIAS),
                ("transformer.blocks.1.attn.forward", 0, BIAS),
            ],
        ),
        (
            "falcon",
            "flex",
            [
                ("transformer.build_alibi_tensor", 2 * 12 * 100, 0),  # bfloat16
                ("transformer.h.0.self_attention.forward", 0, 2 * BIAS),  # for 12 heads
                ("transformer.h.1.self_attention.forward", 0, 2 * BIAS),
            ],
        ),
    ],
)
def test_report_counts_fetched_and_spared_bytes(
    client: attnbias.Client, name: str, attention: Any, want: list[tuple[str, int, int]]
) -> None:
    with attnbias.attach(make(name), client, max_length=100, attention=attention) as attached:
        report = attached.report()
    assert [(one.path, one.fetched_bytes, one.spared_bytes) for one in report] == want


def test_layers_share_fetched_tensors(client: attnbias.Client) -> None:
    with attnbias.attach(make("umt5"), client, max_length=100) as attached:
        fetched = [one.fetched_bytes for one in attached.report() if one.encoding is not None]
    assert fetched == [4 * 199, 0, 4 * 199, 0]


@pytest.mark.parametrize("name", EAGER)
def test_input_longer_than_max_length_is_rejected(client: attnbias.Client, name: str) -> None:
    model = make(name)
    attnbias.attach(model, client, max_length=LENGTH - 8)
    with pytest.raises(ValueError, match=r"^max_length: the model was attached with 192, but"):
        output(model)


def refusal(client: Any, model: Any, **options: Any) -> str:
    with pytest.raises((TypeError, ValueError)) as caught:
        attnbias.attach(model, client, **{"max_length": MAX_LENGTH, **options})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "want"),
    [
        ("t5", {"max_length": 0}, "max_length: got 0, want a positive integer"),
        ("t5", {"max_length": True}, "max_length: got True, want a positive integer"),
        (
            "t5",
            {"attention": "flash"},
            'attention: got \'flash\', want "eager" or "sdpa" or "flex" for '
            "T5ForConditionalGeneration",
        ),
        ("mpnet", {"attention": "flex"}, "attention: got 'flex', want \"eager\" for MPNetModel"),
        (
            "longt5-local",
            {"attention": "sdpa"},
            "attention: got 'sdpa', want \"eager\" for LongT5ForConditionalGeneration",
        ),
        (
            "bloom",
            {"attention": "sdpa"},
            'attention: got \'sdpa\', want "eager" or "flex" for BloomForCausalLM',
        ),
        (
            "mpt",
            {"attention": "sdpa"},
            'attention: got \'sdpa\', want "eager" or "flex" for MptForCausalLM',
        ),
    ],
)
def test_unsupported_models_and_options_are_rejected(
    client: attnbias.Client, name: str, options: dict[str, Any], want: str
) -> None:
    assert refusal(client, make(name), **options) == want


FLEX = ["t5-encoder", "mt5", "umt5", "bloom", "mpt", "falcon"]


@pytest.mark.parametrize("name", FLEX)
def test_flex_rejects_output_attentions(client: attnbias.Client, name: str) -> None:
    """Covers a model that always returns them, and one call that requests them."""
    model = make(name)
    model.config.output_attentions = True
    assert refusal(client, model, attention="flex") == (
        'attention: got "flex" for a model with output_attentions=True, want "eager": '
        "FlexAttention has no attention weights"
    )
    model.config.output_attentions = False
    prefix = 'attention: the model was attached with "flex", but got'
    with (
        attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"),
        pytest.raises(ValueError, match=f"^{prefix} output_attentions=True; "),
    ):
        output(model, 8, output_attentions=True)


T5_ATTENTIONS = "T5Attention or MT5Attention or UMT5Attention or SwitchTransformersAttention"
ALIBI_MODELS = "BloomModel or MptModel or FalconModel"
ALIBI_ATTENTIONS = "BloomAttention or MptAttention or FalconAttention"
LONG_T5_ATTENTIONS = "LongT5LocalAttention or LongT5TransientGlobalAttention"


@pytest.mark.parametrize(
    ("name", "attention", "path", "want"),
    [
        ("t5", None, "encoder.block.0.layer.0.SelfAttention", T5_ATTENTIONS),
        ("umt5", None, "decoder.block.1.layer.1.EncDecAttention", T5_ATTENTIONS),
        ("longt5-local", None, "encoder.block.0.layer.0.LocalSelfAttention", LONG_T5_ATTENTIONS),
        ("longt5-global", None, "decoder.block.0.layer.0.SelfAttention", "LongT5Attention"),
        ("mpnet", None, "encoder", "MPNetEncoder"),
        ("bloom", None, "transformer", ALIBI_MODELS),
        ("bloom", "flex", "transformer.h.1.self_attention", ALIBI_ATTENTIONS),
        ("mpt", None, "transformer", ALIBI_MODELS),
        ("mpt", "flex", "transformer.blocks.1.attn", ALIBI_ATTENTIONS),
        ("falcon", None, "transformer", ALIBI_MODELS),
        ("falcon", "flex", "transformer.h.1.self_attention", ALIBI_ATTENTIONS),
    ],
)
def test_replaced_layers_are_rejected(
    client: attnbias.Client, name: str, attention: Any, path: str, want: str
) -> None:
    model = make(name)
    make_other(model.get_submodule(path))
    refused = refusal(client, model, attention=attention)
    assert refused == f"model: got {path} of Other, want transformers' {want}"


def test_rejects_unsupported_models(client: attnbias.Client) -> None:
    roformer = transformers.RoFormerModel(transformers.RoFormerConfig(num_hidden_layers=1))
    want = "want one that attach supports; see docs/models.md"
    by_hand = "Leave it unattached, or use what Client.get returns: docs/encodings.md"
    why = MODELS["roformer"].unattached
    assert (
        refusal(client, roformer) == f"model: got model_type 'roformer', {want}: {why}. {by_hand}"
    )
    text = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 9}
    audio = {"encoder_layers": 1, "d_model": 16, "encoder_attention_heads": 2}
    config = transformers.Qwen2AudioConfig(
        text_config=text | {"model_type": "qwen2"}, audio_config=audio
    )
    with torch.device("meta"):
        whole = transformers.Qwen2AudioForConditionalGeneration(config)
    part = "Attach a part of it: attach(model.model.language_model, ...)"
    refused = refusal(client, whole)
    assert refused.startswith(f"model: got model_type 'qwen2_audio', {want}: part of it is not ")
    assert refused.endswith(part)
    want = "want a transformers model, such as transformers.T5Model"
    assert refusal(client, nn.Linear(1, 1)) == f"model: got an object of type Linear; {want}"
    assert refusal("localhost", make("t5")) == "client: got 'localhost'; want an attnbias.Client"


@pytest.mark.parametrize(
    ("package", "want"), [("torch", "<2.16,>=2.15"), ("transformers", "<5.25,>=5.23")]
)
def test_rejects_untested_versions(
    client: attnbias.Client, monkeypatch: pytest.MonkeyPatch, package: str, want: str
) -> None:
    model = make("t5")
    before = state(model)
    monkeypatch.setattr(sys.modules[package], "__version__", "9.0.0")
    with pytest.raises(ImportError) as caught:
        attnbias.attach(model, client, max_length=MAX_LENGTH)
    installed = "which pip install 'attnbias[transformers]' installs"
    assert str(caught.value) == f"{package}: got version 9.0.0, want {want}, {installed}"
    assert state(model) == before


def test_rejects_attached_model(client: attnbias.Client) -> None:
    model = make("t5")
    path = "block.0.layer.0.SelfAttention"
    attached = f"model: got a model that is already attached ({{}}{path}): detach() it first"
    with attnbias.attach(model, client, max_length=MAX_LENGTH):
        assert refusal(client, model) == attached.format("encoder.")
        assert refusal(client, model.encoder) == attached.format("")
    with attnbias.attach(model.encoder, client, max_length=MAX_LENGTH):
        assert refusal(client, model) == attached.format("encoder.")


def test_flex_rejects_falcon_with_rotary_positions(client: attnbias.Client) -> None:
    model = transformers.FalconModel(transformers.FalconConfig(**FALCON))
    want = 'attention: got "flex" for a Falcon without alibi, want "eager" or "sdpa"'
    assert refusal(client, model, attention="flex") == want


def test_flex_rejects_gradients_and_dropout(client: attnbias.Client) -> None:
    model = make("t5-encoder")
    with attnbias.attach(model, client, max_length=MAX_LENGTH, attention="flex"):
        prefix = 'attention: the model was attached with "flex", but got'
        with pytest.raises(ValueError, match=f"^{prefix} gradients; FlexAttention computes none"):
            output(model)
        with torch.no_grad(), pytest.raises(ValueError, match=f"^{prefix} a dropout of 0.1; "):
            output(model.train())
