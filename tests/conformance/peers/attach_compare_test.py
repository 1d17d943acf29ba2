# SPDX-License-Identifier: Apache-2.0
"""attach compares a model's values with the server's before it replaces them.

Each model is changed after its creation: its configuration, a buffer, a weight, an attribute or a
method. transformers' own code then computes something other than what the configuration describes.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import attach_learned_test
import attach_rotary_test
import attach_sinusoidal_test
import attach_swin_v2_test
import attach_test
import attach_windows_test
import pytest
import torch
import transformers
from attach_learned_test import client_of_tables, mounted
from attach_rotary_test import GPTJ_HAS_ONE_TABLE, LENGTH, ORIGINAL, rope_of
from attached import assert_close, state
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import attnbias
from attnbias._models.families import rotary
from attnbias._models.register import MODELS

__all__ = ["client_of_tables", "mounted"]  # fixtures

Change = Callable[[Any, pytest.MonkeyPatch], None]
FAMILIES = {name: model.attach for name, model in MODELS.items() if model.attach is not None}


def parts(model: Any, *names: str) -> list[Any]:
    """Returns a model's modules whose class name contains one of these names."""
    found = [
        module for module in model.modules() if any(name in type(module).__name__ for name in names)
    ]
    assert found
    return found


def rotaries(model: Any) -> list[Any]:
    return parts(model, "RotaryEmbedding")


def edit_theta(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in rotaries(model):
        rope = module.config.rope_parameters
        for words in (
            [rope[each] for each in module.layer_types]
            if hasattr(module, "layer_types")
            else [rope]
        ):
            words["rope_theta"] *= 1.5


def scale_frequencies(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in rotaries(model):
        for name, buffer in module.named_buffers():
            if "original" not in name:
                buffer.mul_(1.001)


def set_attention_scaling(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in rotaries(model):
        for name in [name for name in vars(module) if name.endswith("attention_scaling")]:
            setattr(module, name, 1.01)


def cast(model: Any, _: pytest.MonkeyPatch) -> None:
    model.bfloat16()


def larger(made: Any) -> Any:
    if isinstance(made, tuple):
        return tuple(map(larger, made))
    of_numbers = made.is_floating_point() or made.is_complex()
    return made * 1.01 if of_numbers else made.clamp(max=3)


def replaced(name: str, *kinds: str) -> Change:
    """Replaces a method of an instance, as user code does."""

    def change(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in parts(model, *kinds):
            own = getattr(module, name)

            def method(*arguments: Any, own: Any = own, **options: Any) -> Any:
                return larger(own(*arguments, **options))

            monkeypatch.setattr(module, name, method)

    return change


def one_number(name: str, *kinds: str) -> Change:
    """Changes one element of a buffer or weight."""

    def change(model: Any, _: pytest.MonkeyPatch) -> None:
        for module in parts(model, *kinds):
            with torch.no_grad():
                getattr(module, name)[7, 0] += 0.01

    return change


def learned_weight(model: Any, _: pytest.MonkeyPatch) -> None:
    for table in attach_learned_test.weights(model, model.config.model_type).values():
        table[7, 0] += 0.01


def function_of_file(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = transformers.models.falcon.modeling_falcon
    own = file.build_alibi_tensor
    monkeypatch.setattr(file, "build_alibi_tensor", lambda *given, **more: own(*given, **more) * 2)


def scaled_coordinates(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in parts(model, "Swinv2SelfAttention"):
        module.relative_coords_table.mul_(1.001)


def network_replaced(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in parts(model, "Swinv2SelfAttention"):
        replaced("forward", "Sequential")(module.continuous_position_bias_mlp, monkeypatch)


def other_index(model: Any, _: pytest.MonkeyPatch) -> None:
    for module in parts(model, "SwinRelativePositionBias"):
        module.relative_position_index.copy_(module.relative_position_index.flip(0))


def made(model_type: str) -> Any:
    if model_type == "gemma3":
        return attach_rotary_test.gemma_3_that_sees()
    if model_type == "longt5":
        return attach_test.make("longt5-global")
    for known, make in (
        (attach_test.CONFIGS, attach_test.make),
        (attach_sinusoidal_test.TYPES, attach_sinusoidal_test.new_model),
        (attach_learned_test.KINDS, attach_learned_test.new_model),
        (attach_windows_test.KINDS, attach_windows_test.new_model),
        (attach_rotary_test.MODELS, attach_rotary_test.new_model),
    ):
        if model_type in known:
            return make(model_type)
    assert model_type == "swinv2"
    return attach_swin_v2_test.new_model()


ROTARY: dict[str, Change] = {
    "theta": edit_theta,
    "frequencies": scale_frequencies,
    "attention_scaling": set_attention_scaling,
    "forward": replaced("forward", "RotaryEmbedding"),
    "cast": cast,
}
ALIBI = "build_alibi_tensor"
GPTJ = "GPTJRotaryEmbedding" if GPTJ_HAS_ONE_TABLE else "GPTJAttention"
SINES = "SinusoidalPositionalEmbedding"
CHANGES: dict[str, dict[str, Change]] = {
    **dict.fromkeys(("gemma3", *attach_rotary_test.MODELS), ROTARY),
    **{name: {"bias": replaced("compute_bias", "T5Attention")} for name in ("t5", "mt5", "umt5")},
    "switch_transformers": {"bias": replaced("compute_bias", "SwitchTransformersAttention")},
    "longt5": {
        "local bias": replaced("compute_bias", "LongT5TransientGlobalAttention"),
        "decoder's bias": replaced("compute_bias", "LongT5Attention"),
        "buckets": replaced("_relative_position_bucket", "LongT5TransientGlobalAttention"),
    },
    "mpnet": {"bias": replaced("compute_position_bias", "MPNetEncoder")},
    "bloom": {"row": replaced(ALIBI, "BloomModel")},
    "mpt": {"row": replaced("build_mpt_alibi_tensor", "MptModel")},
    "falcon": {"row": function_of_file, "forward": replaced("forward", "FalconModel")},
    **{
        name: {"weight": one_number(weight, SINES), "forward": replaced("forward", SINES)}
        for name, weight in {
            "marian": "weight",
            "pegasus": "weight",
            "fsmt": "weight",
            **dict.fromkeys(("m2m_100", "nllb-moe", "speech_to_text", "xglm"), "weights"),
        }.items()
    },
    "whisper": {
        "weight": lambda model, _: model.model.encoder.embed_positions.weight[-1, 0].add_(0.01),
        "forward": lambda model, patch: replaced("forward", "Embedding")(
            model.model.encoder.embed_positions, patch
        ),
    },
    "swin": {"index": other_index, "forward": replaced("forward", "SwinRelativePositionBias")},
    "beit": {
        "index": replaced("generate_relative_position_index", "BeitRelativePositionBias"),
        "forward": replaced("forward", "BeitRelativePositionBias"),
    },
    "swinv2": {"coordinates": scaled_coordinates, "network": network_replaced},
    "gptj": {
        "table": one_number("embed_positions", GPTJ),
        "method": replaced("forward" if GPTJ_HAS_ONE_TABLE else "_get_embed_positions", GPTJ),
    },
    **{name: {"weight": learned_weight} for name in attach_learned_test.SAME},
}
CASES = [(name, change) for name, changes in CHANGES.items() for change in changes]


def test_every_family_is_compared() -> None:
    """Also covers each model type that the family tests construct."""
    assert {FAMILIES[name] for name in CHANGES} == set(FAMILIES.values())
    makers = (attach_test, attach_rotary_test, attach_sinusoidal_test, attach_windows_test)
    known = {name for maker in makers for name in vars(maker).get("CONFIGS", {})}
    known |= {*attach_rotary_test.MODELS, *attach_sinusoidal_test.TYPES, *attach_windows_test.KINDS}
    known |= {*attach_learned_test.KINDS}
    assert {name for name in known if name in FAMILIES} <= CHANGES.keys()


def with_few_layers(config: Any) -> Any:
    """Limits `config` to eight layers and experts, and its lists to the same length."""
    for key, value in [*vars(config).items()]:
        if isinstance(value, transformers.PretrainedConfig):
            with_few_layers(value)
        elif isinstance(value, list) and len(value) == getattr(config, "num_hidden_layers", 0):
            setattr(config, key, value[:8])
    for key in ("num_hidden_layers", "num_experts", "num_local_experts", "n_routed_experts"):
        if isinstance(number := getattr(config, key, None), int) and number > 8:
            setattr(config, key, 8)
    return config


def of_defaults(model_type: str) -> Any:
    """Returns a model without weights but with the rotary modules transformers uses by default."""
    config = with_few_layers(transformers.AutoConfig.for_model(model_type))
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, attn_implementation="eager")
    for path, module in [*model.named_modules()]:
        if type(module) in rotary._classes_of(model):
            model.set_submodule(path, type(module)(module.config))
    return model


def test_every_rotary_model_is_compared(server: str) -> None:
    rotary_types = [name for name, family in FAMILIES.items() if family == "rotary"]
    compared = set()
    with attnbias.Client(server) as client:
        for model_type in rotary_types:
            try:
                model = of_defaults(model_type)
            # Raised for parts of models, and for defaults that transformers itself fails on.
            except (AttributeError, ImportError, TypeError, ValueError):
                continue
            if not any("RotaryEmbedding" in type(module).__name__ for module in model.modules()):
                continue  # by default it has no positions
            with attnbias.attach(model, client, max_length=64) as attached:
                report = attached.report()
            assert not any(one.reason for one in report), model_type
            if any(one.encoding.inverse_frequencies for one in report):
                continue  # from_config rejects it, so the module's own frequencies are requested
            for name, buffer in model.named_buffers():
                if name.endswith("inv_freq") and not buffer.is_meta:
                    buffer.mul_(1.001)
            assert "the largest difference is " in refusal(model, client), model_type
            compared.add(model_type)
    assert len(compared) >= 150


def numbers(model: Any) -> dict[str, Tensor]:
    """Returns copies of all weights and buffers."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named if not tensor.is_meta}


def refusal(model: Any, client: attnbias.Client, **options: Any) -> str:
    """Returns attach's reason for rejecting a model, which it leaves unchanged."""
    before, had = state(model), numbers(model)
    with pytest.raises(ValueError, match=r"^model: got ") as caught:
        attnbias.attach(model, client, **{"max_length": 64, **options})
    assert state(model) == before
    assert all(torch.equal(number, had[name]) for name, number in numbers(model).items())
    return str(caught.value)


@pytest.mark.parametrize(("model_type", "change"), CASES)
def test_modified_model_is_rejected(
    client: attnbias.Client,
    client_of_tables: attnbias.Client,
    model_type: str,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made(model_type)
    served = client_of_tables if FAMILIES[model_type] == "learned" else client
    with torch.no_grad():
        CHANGES[model_type][change](model, monkeypatch)
    refused = refusal(model, served)
    if served is client_of_tables or (model_type, change) == ("falcon", "forward"):
        return  # the server lacks the changed table; Falcon never calls the method
    if change == "network":  # calls the float32 network although attach compares in float64
        assert "with custom code or attributes, which fail when they are compared: " in refused
        return
    assert "; the largest difference is " in refused
    assert ", above the bound of " in refused
    assert refused.endswith("; or leave it unattached")


def test_error_locates_largest_difference(client: attnbias.Client) -> None:
    model = attach_sinusoidal_test.new_model("marian")
    with torch.no_grad():
        model.model.decoder.embed_positions.weight[7, 3] += 0.25
        model.model.decoder.embed_positions.weight[9, 5] += 0.5
    refused = refusal(model, client)
    assert refused.startswith("model: got model.decoder.embed_positions.forward with sinusoid ")
    assert " at position 9, column 5, want the server's " in refused
    assert "; the largest difference is 0.5, above the bound of " in refused


def test_error_for_cast_model_names_the_cast(client: attnbias.Client) -> None:
    refused = refusal(attach_rotary_test.new_model("llama").bfloat16(), client)
    assert "Its frequencies were cast to bfloat16: load the model again" in refused


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
@pytest.mark.parametrize("field", ["original", "theta"])
def test_length_dependent_tables_are_compared(
    client: attnbias.Client, rope_type: str, field: str
) -> None:
    """Covers tables that the module computes only for longer sequences."""
    model = attach_rotary_test.llama(rope_type)
    if field == "theta":
        model.config.rope_parameters["rope_theta"] = 20000.0
    elif rope_type == "dynamic":
        model.config.max_position_embeddings = ORIGINAL // 2
    else:
        model.model.rotary_emb.long_inv_freq = torch.ones(8)
    assert refusal(model, client, max_length=LENGTH)


def test_grown_dynamic_frequencies_are_kept(client: attnbias.Client) -> None:
    """The frequencies remain those for the longest sequence so far, whether attached or not."""
    model = attach_rotary_test.llama("dynamic")
    tokens = attach_rotary_test.tokens
    model(tokens(1, LENGTH))
    own = copy.deepcopy(model)
    before = state(model)
    with attnbias.attach(model, client, max_length=LENGTH):
        for length in (40, ORIGINAL - 1, 40):
            assert_close(model(tokens(1, length)).logits, own(tokens(1, length)).logits)
    assert state(model) == before


@pytest.mark.parametrize(
    ("name", "kind"), [("bloom", "BloomAttention"), ("mpt", "MptAttention"), ("mpt", "MptModel")]
)
def test_overridden_forward_is_rejected(
    client: attnbias.Client, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers methods that attach replaces for FlexAttention."""
    model = attach_test.make(name)
    replaced("forward", kind)(model, monkeypatch)
    refused = refusal(model, client, attention="flex")
    assert refused.endswith(f"own forward, which attach would ignore, want that of {kind}")


def test_server_with_other_values_is_rejected(
    client_of_tables: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = attach_learned_test.new_model("gpt2")
    own = client_of_tables.get_many
    monkeypatch.setattr(
        client_of_tables, "get_many", lambda requests: [each + 1 for each in own(requests)]
    )
    assert "the largest difference is 1, " in refusal(model, client_of_tables)


IGNORED: dict[str, tuple[str, dict[str, Any]]] = {
    "attn_factor": ("yarn", {"attn_factor": 2.0}),
    "finetuned": ("linear", {"finetuned": True}),
    "low_freq_factor": ("yarn", {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "short_mscale": ("longrope", {"short_mscale": 1.1, "long_mscale": 1.2}),
    "factor": ("default", {"factor": 4.0}),
    "partial_rotary_factor": ("default", {"partial_rotary_factor": 0.5}),
    "unknown": ("llama3", {"a_word_of_some_project": 3}),
}


@pytest.mark.parametrize("words", IGNORED)
def test_ignored_rope_parameters_do_not_matter(client: attnbias.Client, words: str) -> None:
    rope_type, added = IGNORED[words]
    model = attach_rotary_test.new_model("llama", rope_of(rope_type, **added))
    own = copy.deepcopy(model)
    tokens = attach_rotary_test.tokens(1, LENGTH)
    with attnbias.attach(model, client, max_length=LENGTH) as attached:
        assert not any(one.reason for one in attached.report())
        assert_close(model(tokens).logits, own(tokens).logits)


def test_custom_rope_type_is_served(
    client: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """attach requests the module's frequencies, with its scale."""

    def mine(config: Any, *_: Any, **__: Any) -> tuple[Tensor, float]:
        return torch.linspace(1, 0.001, config.head_dim // 2), 1.25

    monkeypatch.setitem(ROPE_INIT_FUNCTIONS, "mine", mine)
    monkeypatch.setitem(attach_rotary_test.ROPE_TYPES, "mine", {})
    model = attach_rotary_test.new_model("llama", rope_of("mine"))
    own = copy.deepcopy(model)
    tokens = attach_rotary_test.tokens(1, LENGTH)
    with attnbias.attach(model, client, max_length=LENGTH):
        assert_close(model(tokens).logits, own(tokens).logits)
    replaced("forward", "RotaryEmbedding")(model, monkeypatch)
    assert "with cos 1.2625" in refusal(model, client)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("mpt", {"attn_config": {"alibi": False}}),
        ("mpt", {"attn_config": {"alibi_bias_max": 16}}),
        ("bloom", {"rotary": True}),
        ("falcon", {"rope_theta_of_some_project": 2.0}),
        ("mpnet", {"relative_attention_num_buckets": 40}),
    ],
)
def test_ignored_config_fields_do_not_matter(
    client: attnbias.Client, name: str, fields: dict[str, Any]
) -> None:
    model = attach_test.make(name, **fields)
    before = attach_test.outputs(model)
    with attnbias.attach(model, client, max_length=attach_test.MAX_LENGTH):
        attached = attach_test.outputs(model)
    attach_test.assert_near(attached, before, "eager")


def test_attach_replaces_positions_of_bert_that_ignores_relative_ones(
    client_of_tables: attnbias.Client,
) -> None:
    model = attach_learned_test.new_model("bert")
    model.config.position_embedding_type = "relative_key"
    with attnbias.attach(model, client_of_tables, max_length=64) as attached:
        assert [one.path for one in attached.report()] == [
            "bert.embeddings.position_embeddings.weight"
        ]


@pytest.fixture
def sharded() -> Iterator[Callable[[Any], None]]:
    """Shards a model over a single process."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))

    def shard(model: Any) -> None:
        for module in reversed([*model.modules()]):  # innermost first
            if isinstance(module, nn.ModuleList):
                for layer in module:
                    fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)

    yield shard
    torch.distributed.destroy_process_group()


def output(model: Any, model_type: str) -> Tensor:
    with torch.no_grad():
        if model_type in ("swin", "swinv2", "beit"):
            return attach_windows_test.output(model)
        if model_type in ("whisper", "m2m_100"):
            return attach_sinusoidal_test.logits(model, model_type)
        if model_type == "vit":
            (made,) = attach_learned_test.outputs(model, model_type, [None])
            return made
        ids: dict[str, Any] = {"input_ids": torch.arange(3, 43)[None]}
        if model.config.is_encoder_decoder:
            ids["decoder_input_ids"] = torch.arange(3, 33)[None]
        answer: Tensor = model(**ids)[0]
        return answer


SHARDED = {  # True if the model's values can be read
    "llama": True,
    "gemma3_text": True,
    "t5": True,
    "mpnet": True,
    "bloom": True,
    "falcon": True,
    "mpt": True,
    "gptj": True,
    "marian": False,
    "m2m_100": True,
    "qwen2_vl": True,
    "vit": False,
    "whisper": False,
    "bert": False,
    "bart": False,
    "swin": False,
    "beit": False,
    "swinv2": False,
}
# attach leaves these unchanged, since their tensors depend on weights.
LEFT = ("bert", "bart", "vit", "swin", "beit", "swinv2")


@pytest.mark.parametrize("model_type", SHARDED)
def test_sharded_model_keeps_its_outputs(
    client: attnbias.Client, sharded: Callable[[Any], None], model_type: str
) -> None:
    model = made(model_type).requires_grad_(True)
    want = output(model, model_type)
    sharded(model)
    with attnbias.attach(model, client, max_length=64) as attached:
        for one in attached.report():
            assert one.left == (model_type in LEFT or one.path.endswith(".weight"))
            readable = SHARDED[model_type] or one.encoding is None
            assert one.reason == ("" if readable else "its numbers are sharded (DTensor)")
            assert one.reason in str(one)
        assert_close(output(model, model_type), want)


@pytest.mark.parametrize("model_type", SHARDED)
def test_weights_may_be_loaded_after_attach_on_meta_device(
    client: attnbias.Client, model_type: str
) -> None:
    own = made(model_type)
    weights, want = own.state_dict(), output(own, model_type)
    with torch.device("meta"):
        model = type(own)._from_config(own.config, attn_implementation="eager").eval()
    by_meta = "its numbers are on the meta device"
    with attnbias.attach(model, client, max_length=64) as attached:
        for one in attached.report():
            assert one.left == (model_type in LEFT or one.path.endswith(".weight"))
            computed = "alibi" in one.path or "_bias" in one.path or one.encoding is None
            if not one.left and computed:
                assert not one.reason
            else:
                assert one.reason == by_meta
        if model_type in (*LEFT, "gemma3_text"):  # Gemma scales tokens by a buffer
            return
        # to_empty leaves every tensor uninitialized, including transformers' own buffers.
        model.to_empty(device="cpu")
        model.load_state_dict(weights)
        assert_close(output(model, model_type), want)
