# SPDX-License-Identifier: Apache-2.0
"""Vision models with a bias compute the same bits, attached and unattached."""

import copy
from typing import Any

import pytest
import torch
import transformers
from attached import (
    assert_same_gradients,
    chosen,
    compiled,
    counted_sdpa,
    gradients_of,
    make_other,
    other_attention,
    state,
)
from torch import Tensor

import attnbias

SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 1],
    "num_heads": [2, 4],
    "window_size": 4,
}
BEIT = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "swin": (transformers.SwinModel, SWIN),
    "beit": (transformers.BeitModel, BEIT | {"use_relative_position_bias": True}),
    "beit-shared": (transformers.BeitModel, BEIT | {"use_shared_relative_position_bias": True}),
    "beit-both": (
        transformers.BeitModel,
        BEIT | {"use_shared_relative_position_bias": True, "use_relative_position_bias": True},
    ),
}
ATTENTIONS = ("eager", "sdpa")
BIASES = ("SwinRelativePositionBias", "BeitRelativePositionBias")


def new_model(name: str, attention: str = "eager") -> Any:
    torch.manual_seed(0)
    kind, fields = KINDS[name]
    config = kind.config_class(**fields)
    model = kind._from_config(config, attn_implementation=attention).eval()
    for module in biases(model):
        torch.nn.init.normal_(module.relative_position_bias_table, std=2)
    return model.requires_grad_(False)


def biases(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__ in BIASES]


def output(model: Any, size: int = 32, **options: Any) -> Tensor:
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    answer: Tensor = model(images.to(model.dtype), **options).last_hidden_state
    return answer


def counted(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts calls to transformers' own forward."""
    calls: list[int] = []
    kind = type(biases(model)[0])
    own = kind.forward

    def forward(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return own(*arguments, **options)

    monkeypatch.setattr(kind, "forward", forward)
    return calls


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", KINDS)
def test_outputs_are_unchanged(
    client: attnbias.Client, name: str, attention: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attaches with an attention implementation that is not the model's own, then restores it."""
    model, own = new_model(name, other_attention(attention)), new_model(name, attention)
    calls, by_sdpa = counted(model, monkeypatch), counted_sdpa(monkeypatch)
    before, keys = state(model), [*model.state_dict()]
    want = output(own)
    by_sdpa.clear()
    with attnbias.attach(model, client, max_length=64, attention=attention):
        assert len(calls) == 2 * len(biases(model))  # by the original, and by the comparison
        calls.clear()
        assert [*model.state_dict()] == keys
        assert torch.equal(output(model), want)
        assert not calls
        assert bool(by_sdpa) == (attention == "sdpa")
    assert state(model) == before
    model.set_attn_implementation(attention)
    assert torch.equal(output(model), want)
    assert calls


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["swin", "beit"])
def test_outputs_are_unchanged_in_other_data_types(
    client: attnbias.Client, name: str, dtype: torch.dtype
) -> None:
    model = new_model(name).to(dtype)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=64):
        assert torch.equal(output(model), output(own))
        assert torch.equal(output(model.float()), output(own.float()))
    cast = new_model(name)
    with attnbias.attach(cast, client, max_length=64):
        assert torch.equal(output(cast.to(dtype)), output(own.to(dtype)))


@pytest.mark.parametrize("name", ["beit", "beit-shared"])
def test_other_image_size_uses_the_module(client: attnbias.Client, name: str) -> None:
    model = new_model(name)
    own = copy.deepcopy(model)
    options = {"interpolate_pos_encoding": True}
    with attnbias.attach(model, client, max_length=64):
        for size in (32, 48):
            assert torch.equal(output(model, size, **options), output(own, size, **options))


def test_bias_of_oblong_beit_is_resampled_once(
    client: attnbias.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's values are rounded once, and therefore differ from torch's in the last bits."""
    torch.manual_seed(0)
    sizes = BEIT | {"image_size": [32, 72], "use_relative_position_bias": True}
    model = transformers.BeitModel(transformers.BeitConfig(**sizes)).eval().requires_grad_(False)
    for module in biases(model):
        torch.nn.init.normal_(module.relative_position_bias_table, std=2)
    images = torch.randn(2, 3, 32, 72)
    want = model(images).last_hidden_state
    calls = counted(model, monkeypatch)
    with attnbias.attach(model, client, max_length=64):
        calls.clear()
        got = model(images).last_hidden_state
        assert not calls
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_other_image_size_keeps_windows(client: attnbias.Client) -> None:
    model = new_model("swin")
    own = copy.deepcopy(model)
    options = {"interpolate_pos_encoding": True}
    with attnbias.attach(model, client, max_length=64):
        assert torch.equal(output(model, 50, **options), output(own, 50, **options))


@pytest.mark.parametrize("name", ["swin", "beit"])
def test_changed_table_is_used(client: attnbias.Client, name: str) -> None:
    model = new_model(name)
    with attnbias.attach(model, client, max_length=64):
        before = output(model)
        for module in biases(model):
            module.relative_position_bias_table.neg_()
        attached = output(model)
        assert not torch.equal(attached, before)
    assert torch.equal(attached, output(model))


@pytest.mark.parametrize("name", ["swin", "beit"])
def test_model_is_trainable(client: attnbias.Client, name: str) -> None:
    """All weights are trainable, including the tables."""
    model = new_model(name).requires_grad_(True)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=64):
        got = gradients_of(model, output(model))
    want = gradients_of(own, output(own))
    assert_same_gradients(got, want)
    tables = [path for path in want if path.endswith("relative_position_bias_table")]
    assert tables
    for path in tables:
        assert want[path].any()
        assert torch.equal(got[path], want[path])


@pytest.mark.parametrize("name", chosen(KINDS, "swin", "beit-both"))
def test_compiled_outputs_match(client: attnbias.Client, name: str) -> None:
    """Changed tables are also used in compiled code."""
    model = new_model(name)
    want = output(model)
    with attnbias.attach(model, client, max_length=64):
        faster = compiled(model)
        assert torch.equal(output(faster), want)
        for module in biases(model):
            module.relative_position_bias_table.neg_()
        attached = output(faster)
        assert not torch.equal(attached, want)
    assert torch.equal(attached, output(model))


def test_copy_uses_its_own_table(client: attnbias.Client) -> None:
    model = new_model("swin")
    with attnbias.attach(model, client, max_length=64):
        other = copy.deepcopy(model)
        for module in biases(other):
            module.relative_position_bias_table.neg_()
        attached = output(other)
        assert not torch.equal(attached, output(model))
    plain = new_model("swin")
    plain.load_state_dict(other.state_dict())
    assert torch.equal(attached, output(plain))


def test_module_with_extra_parameters_keeps_its_own_code(client: attnbias.Client) -> None:
    model = new_model("swin")
    with attnbias.attach(model, client, max_length=64):
        before = output(model)
        for module in biases(model):
            module.register_parameter("added", torch.nn.Parameter(torch.zeros(1)))
        assert torch.equal(output(model.requires_grad_(False)), before)


def test_inference_mode_weights_are_rejected(client: attnbias.Client) -> None:
    with torch.inference_mode():
        model = new_model("swin")
    with pytest.raises(ValueError, match=r"^model: got weights created under torch\.inference_"):
        attnbias.attach(model, client, max_length=64)


def test_report_lists_replacements(client: attnbias.Client) -> None:
    with attnbias.attach(new_model("swin"), client, max_length=64) as attached:
        report = attached.report()
    assert [one.path for one in report] == [
        f"encoder.layers.{stage}.blocks.{block}.attention.relative_position_bias.forward"
        for stage, block in ((0, 0), (0, 1), (1, 0))
    ]
    assert [one.spared_bytes for one in report] == [4 * heads * 16**2 for heads in (2, 2, 4)]
    assert [one.fetched_bytes for one in report] == [4 * heads * 7**2 for heads in (2, 2, 4)]
    assert all(isinstance(one.encoding, attnbias.GridRelative) for one in report)

    with attnbias.attach(new_model("beit-both"), client, max_length=64) as attached:
        report = attached.report()
    assert [one.path.split(".")[0] for one in report] == [
        "shared_position_bias",
        "layers",
        "layers",
    ]
    assert all(one.fetched_bytes == 4 * 4 * (7**2 + 3) for one in report)
    assert all(one.spared_bytes == 4 * 4 * 17**2 for one in report)


def test_unsupported_or_replaced_module_is_rejected(client: attnbias.Client) -> None:
    without = transformers.BeitModel(transformers.BeitConfig(**BEIT))
    with pytest.raises(ValueError, match=r"^model: got BeitModel, which has no positions that"):
        attnbias.attach(without, client, max_length=64)
    for name in ("swin", "beit"):
        model = new_model(name)
        make_other(biases(model)[0])
        with pytest.raises(
            ValueError, match=r"^model: got .*\.relative_position_bias of Other, want"
        ):
            attnbias.attach(model, client, max_length=64)
