# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of attached models."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

import attnbias

LENGTH = 96
ENCODER_DECODER = {
    "vocab_size": 61,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "forced_eos_token_id": None,
}


def chosen(values: Iterable[Any], *always: Any) -> list[Any]:
    """Returns all values of a parameter; only the `exhaustive` step runs those not in `always`."""
    return [v if v in always else pytest.param(v, marks=pytest.mark.exhaustive) for v in values]


def state(model: PreTrainedModel) -> dict[str, Any]:
    """Returns the complete state of a module, including the members of its dictionaries and
    sets."""

    def frozen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: id(item) for key, item in value.items()}
        return set(value) if isinstance(value, set) else id(value)

    found = {
        path: {
            name: frozen(value)
            for name, value in vars(module).items()
            if name != "rope_deltas"  # which Qwen2-VL keeps between calls
        }
        for path, module in model.named_modules()
    }
    implementations = [
        module.config._attn_implementation
        for module in model.modules()
        if isinstance(module, PreTrainedModel)
    ]
    return {"modules": found, "implementations": implementations}


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    """Compares to within 1e-5 of the largest magnitude."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5 * float(theirs.abs().max()))


def gradients_of(model: Any, output: Tensor) -> dict[str, Tensor]:
    """Returns the gradients of an output's mean square with respect to all parameters."""
    model.zero_grad()
    output.square().mean().backward()
    return {path: p.grad.clone() for path, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert any(gradient.any() for gradient in theirs.values())
    for path, gradient in theirs.items():
        if not path.endswith("k_proj.bias"):  # softmax ignores it, so only rounding errors remain
            assert_close(ours[path], gradient)


def compiled(model: Any, backend: str = "eager") -> Any:
    """Compiles with graph breaks forbidden, so attached code must not cause any."""
    torch.compiler.reset()
    return torch.compile(model, backend=backend, fullgraph=True)


def make_other(module: Any) -> None:
    """Changes a module's class to one that may compute differently."""
    module.__class__ = type("Other", (type(module),), {})


def other_attention(attention: str) -> str:
    return "sdpa" if attention == "eager" else "eager"


def assert_attention(
    model: Any,
    attention: Any,
    client: attnbias.Client,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[], Tensor],
) -> None:
    """Attaches with an attention implementation that is not the model's own, then restores it."""
    model.set_attn_implementation(attention)
    want = run()
    model.set_attn_implementation(other_attention(attention))
    before, by_sdpa = state(model), counted_sdpa(monkeypatch)
    with attnbias.attach(model, client, max_length=LENGTH, attention=attention):
        assert_close(run(), want)
        assert bool(by_sdpa) == (attention == "sdpa")
    assert state(model) == before


def counted_sdpa(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list to which each SDPA call appends one item."""
    calls: list[int] = []
    own = functional.scaled_dot_product_attention

    def attend(*arguments: Any, **options: Any) -> Tensor:
        calls.append(1)
        return own(*arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", attend)
    return calls
