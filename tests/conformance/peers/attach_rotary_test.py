# SPDX-License-Identifier: Apache-2.0
"""Models with rotary positions, attached and unattached."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from attached import (
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
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.gptj import modeling_gptj

import attnbias

ORIGINAL = 32
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
THETA = {"rope_theta": 10000.0}
IMAGE_TOKEN = 60
QWEN2_VL = {
    "vision_config": {
        "embed_dim": 32,
        "hidden_size": 64,
        "depth": 1,
        "num_heads": 2,
        "mlp_ratio": 1,
        "patch_size": 4,
    },
    "image_token_id": IMAGE_TOKEN,
    "video_token_id": 59,
    "vision_start_token_id": 58,
    "vision_end_token_id": 57,
}
LONG = {"short_factor": [1.0 + m / 8 for m in range(8)], "long_factor": [4.0 + m for m in range(8)]}
ROPE_TYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
    "longrope": {"factor": 3.0, "original_max_position_embeddings": ORIGINAL, **LONG},
    "proportional": {"partial_rotary_factor": 0.5},
}
# Settings that each model type needs in addition to the sizes.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "qwen2": {},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": EXPERTS | {"head_dim": 16},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "phi": {},
    "phi3": {},
    "gpt_neox": {},
    "gptj": {"n_positions": LENGTH, "n_inner": 64, "rotary_dim": 8},
    "granite": {},
    "starcoder2": {},
    "stablelm": {},
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "olmo2": {},
    "olmo3": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
    "cohere": {},
    "gpt_oss": {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
    "llama4_text": {"head_dim": 16, "intermediate_size_mlp": 64, "num_local_experts": 2},
    "modernbert-decoder": {"global_attn_every_n_layers": 2, "local_attention": 16},
    "qwen2_vl": {},
}
DEEPSEEK_YARN = ROPE_TYPES["yarn"] | {"mscale": 0.7, "mscale_all_dim": 0.8}

# True from transformers 5.24 on; in earlier versions each layer has its own table.
GPTJ_HAS_ONE_TABLE = hasattr(modeling_gptj, "GPTJRotaryEmbedding")


@pytest.fixture(scope="session")
def client(server: str) -> Iterator[attnbias.Client]:
    """Yields a client that makes each request once, since "dynamic" requests a table per token."""
    with attnbias.Client(server) as connected:
        yield connected


def new_model(model_type: str, rope: dict[str, Any] | None = None, **fields: Any) -> Any:
    sizes = SIZES | MODELS[model_type] | fields
    if rope is not None:
        sizes["rope_parameters"] = rope
    auto = transformers.AutoModelForCausalLM
    if model_type == "qwen2_vl":
        auto = transformers.AutoModelForImageTextToText
        sections = {"rope_type": "default", "mrope_section": [2, 3, 3]} | THETA
        sizes = {"text_config": sizes | {"rope_parameters": rope or sections}, **QWEN2_VL}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    model = auto.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # large enough for attention to be selective
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
    return model.requires_grad_(False)


def rope_of(rope_type: str, **fields: Any) -> dict[str, Any]:
    return {"rope_type": rope_type} | THETA | ROPE_TYPES[rope_type] | fields


def tokens(batch: int, length: int) -> Any:
    ids = np.random.default_rng([batch, length]).integers(2, 57, (batch, length))
    return torch.from_numpy(ids)


def padded(length: int = 24) -> dict[str, Any]:
    ids, mask = tokens(2, length), torch.ones(2, length, dtype=torch.int64)
    mask[0, :9] = 0
    return {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}


def decoded(model: Any, prompt: dict[str, Any], **options: Any) -> Any:
    return model.generate(**prompt, do_sample=False, max_new_tokens=64, **options)


@pytest.mark.parametrize("model_type", MODELS)
def test_outputs_are_unchanged(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    own = copy.deepcopy(model)
    before, keys = state(model), [*model.state_dict()]
    prompt = padded()
    with attnbias.attach(model, client, max_length=LENGTH) as attached:
        assert [*model.state_dict()] == keys
        assert_close(model(tokens(1, LENGTH)).logits, own(tokens(1, LENGTH)).logits)
        shown = prompt["attention_mask"].bool()
        assert_close(model(**prompt).logits[shown], own(**prompt).logits[shown])
        cached = model(tokens(1, 40)[:, :39], use_cache=True)
        step = model(tokens(1, 40)[:, 39:], past_key_values=cached.past_key_values)
        assert_close(step.logits[:, 0], own(tokens(1, 40)).logits[:, -1])
        assert torch.equal(decoded(model, prompt), decoded(own, prompt))
        assert attached.report()
    assert state(model) == before
    assert torch.equal(model(**prompt).logits, own(**prompt).logits)


@pytest.mark.parametrize("model_type", ["llama", "gptj", "falcon"])
def test_static_cache_outputs_match(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    before = decoded(model, padded(), cache_implementation="static")
    with attnbias.attach(model, client, max_length=LENGTH):
        after = decoded(model, padded(), cache_implementation="static")
    assert torch.equal(after, before)


def llama(rope_type: str, **fields: Any) -> Any:
    """Returns a model trained for the original length."""
    if rope_type == "dynamic":
        fields["max_position_embeddings"] = ORIGINAL
    return new_model("llama", rope_of(rope_type), **fields)


@pytest.mark.parametrize("rope_type", ROPE_TYPES)
def test_every_rope_type_matches(client: attnbias.Client, rope_type: str) -> None:
    model = llama(rope_type)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=LENGTH):
        # Below, at and above the original length, and below again.
        for length in (ORIGINAL - 1, ORIGINAL, ORIGINAL + 1, LENGTH, ORIGINAL + 5, ORIGINAL, 7):
            assert_close(model(tokens(2, length)).logits, own(tokens(2, length)).logits)
        prompt = padded()
        assert torch.equal(decoded(model, prompt), decoded(own, prompt))
    assert torch.equal(model(**prompt).logits, own(**prompt).logits)


@pytest.mark.parametrize(
    ("model_type", "rope"),
    [
        ("phi3", rope_of("longrope")),
        ("deepseek_v2", rope_of("yarn", **DEEPSEEK_YARN)),
        ("deepseek_v3", rope_of("yarn", **DEEPSEEK_YARN)),
        ("falcon", rope_of("linear")),
        ("gpt_neox", rope_of("default", partial_rotary_factor=0.5)),
        (
            "gemma3_text",
            {"sliding_attention": rope_of("default"), "full_attention": rope_of("linear")},
        ),
    ],
)
def test_tables_follow_configuration(
    client: attnbias.Client, model_type: str, rope: dict[str, Any]
) -> None:
    fields = {"original_max_position_embeddings": ORIGINAL} if model_type == "phi3" else {}
    model = new_model(model_type, rope, **fields)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=LENGTH):
        for length in (ORIGINAL, LENGTH):
            assert_close(model(tokens(2, length)).logits, own(tokens(2, length)).logits)
        assert torch.equal(decoded(model, padded()), decoded(own, padded()))


def gemma_3_that_sees() -> Any:
    text = SIZES | MODELS["gemma3_text"] | {"sliding_window": 8}
    sight = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}
    config = transformers.Gemma3Config(
        text_config=text, vision_config=sight | {"patch_size": 14, "intermediate_size": 16}
    )
    torch.manual_seed(0)
    return transformers.Gemma3ForConditionalGeneration(config).eval().requires_grad_(False)


def test_multimodal_gemma_3_outputs_match(client: attnbias.Client) -> None:
    model = gemma_3_that_sees()
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=LENGTH) as attached:
        paths = {one.path for one in attached.report()}
        assert_close(model(tokens(1, LENGTH)).logits, own(tokens(1, LENGTH)).logits)
    assert paths == {"model.language_model.rotary_emb.forward"}


def test_multimodal_qwen2_vl_outputs_match(client: attnbias.Client) -> None:
    """An image's positions differ between the axes, and its patches have two axes of their own."""
    model = new_model("qwen2_vl")
    own = copy.deepcopy(model)
    ids = tokens(1, 40)
    ids[0, 3], ids[0, 4:13] = 58, IMAGE_TOKEN  # 6 by 6 patches, 4 per token
    made = torch.Generator().manual_seed(1)
    given = {
        "input_ids": ids,
        "mm_token_type_ids": (ids == IMAGE_TOKEN).long(),
        "pixel_values": torch.randn(36, 3 * 2 * 4 * 4, generator=made),
        "image_grid_thw": torch.tensor([[1, 6, 6]]),
    }
    want = own(**given).logits
    with attnbias.attach(model, client, max_length=LENGTH) as attached:
        paths = {one.path for one in attached.report()}
        assert_close(model(**given).logits, want)
    assert paths == {
        "model.language_model.rotary_emb.forward",
        "model.visual.rotary_pos_emb.forward",
    }
    given["pixel_values"] = given["pixel_values"].flip(0)
    assert not torch.allclose(own(**given).logits, want, atol=1e-3)


class Counting(attnbias.Client):
    asked = 0

    def get(self, *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        return super().get(*arguments, **options)


def test_dynamic_fetches_each_length_once(server: str) -> None:
    model = llama("dynamic")
    with Counting(server) as client, attnbias.attach(model, client, max_length=LENGTH):
        for length, asked in ((ORIGINAL, 0), (40, 1), (40, 1), (39, 1), (41, 2), (ORIGINAL - 1, 2)):
            model(tokens(1, length))
            assert client.asked == asked
        for length in range(40, 60):
            model(tokens(1, length))
        (rows,) = (
            value for name, value in vars(model.model.rotary_emb).items() if name == "attnbias_at"
        )
        assert rows.cache_info().currsize == 4


def test_copy_has_its_own_table(client: attnbias.Client) -> None:
    model = new_model("llama")
    want = model(tokens(1, 20)).logits
    with attnbias.attach(model, client, max_length=LENGTH):
        copied = copy.deepcopy(model)
        model.model.rotary_emb.attnbias_table.zero_()
        assert not torch.equal(model(tokens(1, 20)).logits, want)
    assert_close(copied(tokens(1, 20)).logits, want)


def test_numbers_are_correctly_rounded(client: attnbias.Client) -> None:
    model = new_model("llama")
    with attnbias.attach(model, client, max_length=LENGTH):
        cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(LENGTH)[None])
    turns = np.arange(LENGTH)[:, None] * 10000.0 ** (-np.arange(8) / 8)
    np.testing.assert_array_equal(cos[0, :, :8], np.cos(turns).astype("f4"))
    np.testing.assert_array_equal(sin[0, :, 8:], np.sin(turns).astype("f4"))


def test_cast_model_keeps_table_precision(client: attnbias.Client) -> None:
    model = new_model("llama")
    ids = torch.arange(LENGTH)[None]
    with attnbias.attach(model, client, max_length=LENGTH):
        before = model.model.rotary_emb(torch.zeros(1), ids)
        model.bfloat16()
        after = model.model.rotary_emb(torch.zeros(1), ids)
        half = model.model.rotary_emb(torch.zeros(1, dtype=torch.bfloat16), ids)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(torch.equal(a.bfloat16(), b) for a, b in zip(before, half, strict=True))


def test_report_lists_replacements(client: attnbias.Client) -> None:
    table_bytes = 2 * LENGTH * 8 * 4  # half of the columns, since both halves are the same
    with attnbias.attach(new_model("llama"), client, max_length=LENGTH) as attached:
        (only,) = attached.report()
    assert only.path == "model.rotary_emb.forward"
    assert only.encoding == attnbias.Rotary(head_dim=16, rope_theta=10000.0, layout="compact")
    assert (only.fetched_bytes, only.spared_bytes) == (table_bytes, 0)

    long = llama("longrope")
    with attnbias.attach(long, client, max_length=LENGTH) as attached:
        lengths = [
            (r.encoding.longrope.sequence_length, r.fetched_bytes) for r in attached.report()
        ]
    assert lengths == [(ORIGINAL, table_bytes * ORIGINAL // LENGTH), (LENGTH, table_bytes)]

    with attnbias.attach(new_model("gemma3_text"), client, max_length=LENGTH) as attached:
        thetas = {r.encoding.rope_theta for r in attached.report()}
    assert thetas == {10000.0, 1000000.0}

    with attnbias.attach(new_model("gptj"), client, max_length=LENGTH) as attached:
        first, *rest = attached.report()
    assert first.fetched_bytes == LENGTH * 8 * 4
    if GPTJ_HAS_ONE_TABLE:
        assert (first.path, first.spared_bytes, rest) == ("transformer.rotary_emb.forward", 0, [])
    else:
        assert first.path == "transformer.h.0.attn._get_embed_positions"
        assert first.spared_bytes == LENGTH * 8 * 4
        assert [replaced.fetched_bytes for replaced in rest] == [0]


@pytest.mark.parametrize("model_type", ["llama", "gptj", "deepseek_v2", "gemma3_text"])
def test_position_without_row_is_rejected(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type)
    with attnbias.attach(model, client, max_length=16):
        model(tokens(1, 16))
        with pytest.raises(ValueError, match=r"max_length: .* attached with 16, but got 17 "):
            model(tokens(1, 17))
        least = 0 if model_type == "gptj" else -15
        with pytest.raises(ValueError, match=f"got -16, want positions of at least {least}"):
            model(tokens(1, 2), position_ids=torch.tensor([[-16, 0]]))


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
@pytest.mark.parametrize("max_length", [ORIGINAL - 2, ORIGINAL, ORIGINAL + 2])
def test_outputs_match_up_to_max_length_near_original_length(
    client: attnbias.Client, rope_type: str, max_length: int
) -> None:
    model = llama(rope_type)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=max_length):
        assert_close(model(tokens(1, max_length)).logits, own(tokens(1, max_length)).logits)
        with pytest.raises(ValueError, match=f"attached with {max_length}, but got"):
            model(tokens(1, max_length + 1))


def test_packed_sequences_may_exceed_max_length(client: attnbias.Client) -> None:
    model = new_model("llama")
    own = copy.deepcopy(model)
    ids = torch.arange(16).repeat(3)[None]
    with attnbias.attach(model, client, max_length=16):
        assert_close(
            model(tokens(1, 48), position_ids=ids).logits,
            own(tokens(1, 48), position_ids=ids).logits,
        )


def test_custom_attention_implementation_is_kept(client: attnbias.Client) -> None:
    calls = []

    def attend(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments[0])
        return sdpa_attention_forward(*arguments, **options)

    AttentionInterface.register("of_a_user", attend)
    AttentionMaskInterface.register("of_a_user", sdpa_mask)
    model = new_model("llama")
    model.set_attn_implementation("of_a_user")
    own = model(tokens(1, LENGTH)).logits
    calls.clear()
    with attnbias.attach(model, client, max_length=LENGTH):
        assert_close(model(tokens(1, LENGTH)).logits, own)
    assert len(calls) == model.config.num_hidden_layers


@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_outputs_match_with_transformers_own_flex_attention(
    client: attnbias.Client, model_type: str
) -> None:
    """Covers head groups, padding and a sliding window; on a CPU, FlexAttention is wrong if there
    are only a few tokens.
    """
    fields = {"sliding_window": 12} if model_type == "mistral" else {}
    model = new_model(model_type, **fields)
    own = copy.deepcopy(model)
    for each in (model, own):
        each.set_attn_implementation("flex_attention")
    prompt = padded(LENGTH)
    shown = prompt["attention_mask"].bool()
    with attnbias.attach(model, client, max_length=LENGTH):
        assert model.config._attn_implementation == "flex_attention"
        assert_close(model(**prompt).logits[shown], own(**prompt).logits[shown])


def test_unsupported_attention_is_rejected(client: attnbias.Client) -> None:
    with pytest.raises(ValueError, match=r"^attention: ") as caught:
        attnbias.attach(new_model("llama"), client, max_length=4, attention="flex")
    assert str(caught.value) == (
        'attention: got \'flex\', want "eager" or "sdpa" for LlamaForCausalLM; or the '
        'one that transformers uses: model.set_attn_implementation("flex_attention"), and omit '
        "the attention argument"
    )


def test_attention_missing_in_model_is_rejected(client: attnbias.Client) -> None:
    """transformers' SDPA ignores GPT-OSS's sinks, so the outputs would differ."""
    with pytest.raises(ValueError, match=r"^attention: got 'sdpa', want \"eager\" for GptOss"):
        attnbias.attach(new_model("gpt_oss"), client, max_length=4, attention="sdpa")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "model_type", ["llama", "gpt_neox", "falcon", *["gptj"] * GPTJ_HAS_ONE_TABLE]
)
def test_attention_implementation_is_used(
    client: attnbias.Client, model_type: str, attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(model_type)
    assert_attention(model, attention, client, monkeypatch, lambda: model(tokens(1, LENGTH)).logits)


def test_gpt_j_beyond_its_length_matches_longer_model(client: attnbias.Client) -> None:
    """Compares with a model that has a longer table."""
    lengths = {"n_positions": 2 * LENGTH, "max_position_embeddings": 2 * LENGTH}
    model, longer = new_model("gptj"), new_model("gptj", **lengths)
    with attnbias.attach(model, client, max_length=2 * LENGTH):
        ids = tokens(1, 2 * LENGTH)
        assert_close(model(ids).logits, longer(ids).logits)


@pytest.mark.parametrize("model_type", ["llama", "gptj", "deepseek_v2", "falcon"])
def test_weights_are_trainable(client: attnbias.Client, model_type: str) -> None:
    model = new_model(model_type).requires_grad_(True)
    want = gradients_of(model, model(**padded()).logits)
    with attnbias.attach(model, client, max_length=LENGTH):
        assert_same_gradients(gradients_of(model, model(**padded()).logits), want)


@pytest.mark.parametrize(
    ("model_type", "path", "want"),
    [
        ("llama", "model.rotary_emb", "LlamaRotaryEmbedding"),
        ("gemma3_text", "model.rotary_emb", "Gemma3RotaryEmbedding"),
        ("cohere", "model.rotary_emb", "CohereRotaryEmbedding"),
        ("gptj", "transformer.rotary_emb", "GPTJRotaryEmbedding")
        if GPTJ_HAS_ONE_TABLE
        else ("gptj", "transformer.h.1.attn", "GPTJAttention"),
    ],
)
def test_replaced_layers_are_rejected(
    client: attnbias.Client, model_type: str, path: str, want: str
) -> None:
    model = new_model(model_type)
    make_other(model.get_submodule(path))
    with pytest.raises(ValueError, match=r"^model: ") as caught:
        attnbias.attach(model, client, max_length=LENGTH)
    assert str(caught.value) == f"model: got {path} of Other, want transformers' {want}"


@pytest.mark.parametrize("model_type", chosen(MODELS, "llama", "gptj", "gemma3_text", "qwen2_vl"))
def test_compiled_outputs_match(client: attnbias.Client, model_type: str) -> None:
    has_types = model_type in ("gemma3_text", "olmo3", "qwen2_vl", "modernbert-decoder")
    fields = {} if has_types else {"num_hidden_layers": 1}
    model = new_model(model_type, **fields)
    want = model(tokens(1, 40)).logits
    with attnbias.attach(model, client, max_length=LENGTH):
        backend = "inductor" if model_type == "llama" else "eager"
        got = compiled(model, backend)(tokens(1, 40)).logits
    assert_close(got, want)
    assert torch.equal(got.argmax(-1), want.argmax(-1))


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_compiled_outputs_match_at_other_lengths(client: attnbias.Client, rope_type: str) -> None:
    """Covers tables that differ by length; the one for "dynamic" is requested between two
    graphs."""
    model = llama(rope_type, num_hidden_layers=1)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=LENGTH):
        torch.compiler.reset()
        faster = torch.compile(model, backend="eager", fullgraph=rope_type != "dynamic")
        for length in (ORIGINAL, LENGTH, ORIGINAL - 1):
            assert_close(faster(tokens(1, length)).logits, own(tokens(1, length)).logits)
        if rope_type == "dynamic":
            for each in (model, own):
                with pytest.raises(torch._dynamo.exc.Unsupported):
                    compiled(each)(tokens(1, LENGTH))
