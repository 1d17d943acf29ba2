# SPDX-License-Identifier: Apache-2.0
"""position_ids in attached models: eager and compiled code follow the same rule.

A row serves both p and -p, with the values that transformers computes. A position without a row is
rejected in all modes; in compiled code torch's own indexing rejects it.
"""

import copy
from collections.abc import Callable
from typing import Any

import attach_rotary_test
import attach_sinusoidal_test
import pytest
import torch
from attach_rotary_test import LENGTH, ORIGINAL, rope_of, tokens
from attached import assert_close
from torch import Tensor

import attnbias

MODES = [None, "eager", "aot_eager", "inductor"]
MODULES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "llama": ("llama", None),
    "gemma3_text": ("gemma3_text", None),
    "deepseek_v2": ("deepseek_v2", None),
    "longrope": ("llama", rope_of("longrope")),
    "dynamic": ("llama", rope_of("dynamic")),
    "cohere": ("cohere", None),
    "olmo3": ("olmo3", None),
    "gpt_oss": ("gpt_oss", rope_of("yarn")),
    "llama4_text": ("llama4_text", None),
    "qwen2_vl": ("qwen2_vl", None),
}
# Compiling takes seconds.
IN_MODES = [
    pytest.param(name, mode, marks=[] if name in some else [pytest.mark.exhaustive])
    for mode, some in {
        None: MODULES,
        "eager": ["longrope", "qwen2_vl"],
        "aot_eager": ["qwen2_vl"],
        "inductor": ["longrope", "qwen2_vl"],
    }.items()
    for name in MODULES
]
MIXED = [[-1, 0, 5, -7], [-16, 16, 3, -3]]
LONG = [[-1, 0, 70, -70], [-95, 95, 33, -33]]
REFUSED: dict[str, list[list[float]]] = {
    "too large": [[0, LENGTH]],
    "too small": [[0, -LENGTH]],
    "smallest": [[0, torch.iinfo(torch.int64).min]],
    "fraction": [[0.0, 2.5]],
    "negative fraction": [[0.0, -0.5]],
    "not a number": [[0.0, float("nan")]],
    "infinite": [[0.0, float("inf")]],
}


def rotary_of(name: str) -> Any:
    model_type, rope = MODULES[name]
    fields = {"max_position_embeddings": ORIGINAL} if name == "dynamic" else {}
    return attach_rotary_test.new_model(model_type, rope, **fields)


def module_of(model: Any) -> Any:
    return next(module for path, module in model.named_modules() if path.endswith("rotary_emb"))


def rows(module: Any, mode: str | None) -> Callable[[Any], list[Tensor]]:
    """Returns a function from positions to a module's rows, in one of the modes."""
    options = {"layer_type": "full_attention"} if hasattr(module, "layer_types") else {}

    def forward(position_ids: Tensor) -> list[Tensor]:
        made = module.forward(torch.zeros(1), position_ids, **options)
        return [made.real, made.imag] if isinstance(made, Tensor) else [*made]

    if mode is not None:
        torch.compiler.reset()
        forward = torch.compile(forward, backend=mode)
    return lambda positions: forward(torch.as_tensor(positions))


@pytest.mark.parametrize(("name", "mode"), IN_MODES)
def test_negative_positions_match_transformers(
    client: attnbias.Client, name: str, mode: str | None
) -> None:
    model = rotary_of(name)
    module = module_of(model)
    own = copy.deepcopy(module)
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module, mode)
        for positions in (MIXED, LONG, MIXED, [[-1, -1]]):
            for given in (torch.tensor(positions), torch.tensor(positions, dtype=torch.float32)):
                for ours, its in zip(made(given), rows(own, None)(given), strict=True):
                    torch.testing.assert_close(ours, its, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.bfloat16])
def test_position_dtypes_are_equivalent(client: attnbias.Client, dtype: torch.dtype) -> None:
    model = rotary_of("llama")
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module_of(model), None)
        for one, other in zip(made(MIXED), made(torch.tensor(MIXED).to(dtype)), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("mode", MODES)
def test_three_position_axes_match_transformers(client: attnbias.Client, mode: str | None) -> None:
    model = rotary_of("qwen2_vl")
    module = module_of(model)
    own = copy.deepcopy(module)
    ids = torch.tensor([MIXED, LONG, [[3, 1, -4, 1], [5, 9, 2, -6]]])
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module, mode)
        for given in (ids, ids.flip(0), ids[:1]):
            for ours, its in zip(made(given), rows(own, None)(given), strict=True):
                torch.testing.assert_close(ours, its, rtol=0, atol=1e-5)
        error = ValueError if mode is None else (ValueError, IndexError, RuntimeError)
        with pytest.raises(error):
            made(torch.full((3, 1, 1), LENGTH))


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize(("name", "mode"), IN_MODES)
def test_positions_without_row_are_rejected(
    client: attnbias.Client, name: str, mode: str | None, case: str
) -> None:
    model = rotary_of(name)
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module_of(model), mode)
        made(torch.tensor(REFUSED[case]).nan_to_num(0, 0).clamp(-9, 9).round())
        # torch._inductor raises a RuntimeError, torch's own functions an IndexError.
        error = ValueError if mode is None else (ValueError, IndexError, RuntimeError)
        with pytest.raises(error):
            made(REFUSED[case])


def test_position_errors_name_the_value(client: attnbias.Client) -> None:
    model = rotary_of("llama")
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module_of(model), None)
        with pytest.raises(ValueError, match=r"^position_ids: got 2\.5, want integers: "):
            made([[0.0, 2.5]])
        with pytest.raises(
            ValueError, match=r"^position_ids: got -96, want positions of at least -95$"
        ):
            made([[-96]])
        with pytest.raises(ValueError, match=r"^max_length: .* attached with 96, but got 97 "):
            made([[96]])


@pytest.mark.parametrize("mode", MODES)
def test_short_sequence_rejects_long_positions(client: attnbias.Client, mode: str | None) -> None:
    """transformers then uses the short frequencies at any position, but the table ends."""
    model = rotary_of("longrope")
    with attnbias.attach(model, client, max_length=LENGTH):
        made = rows(module_of(model), mode)
        made([[-ORIGINAL + 1, 0]])
        with pytest.raises((ValueError, IndexError, RuntimeError)):
            made([[-ORIGINAL, 0]])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model_type", ["marian", "pegasus", "whisper", "xglm"])
def test_sinusoids_reject_negative_positions(
    client: attnbias.Client, model_type: str, mode: str | None
) -> None:
    model = attach_sinusoidal_test.new_model(model_type)
    module = attach_sinusoidal_test.positions_of(model)
    count = 50 if model_type == "whisper" else LENGTH
    takes_ids = model_type in ("whisper", "xglm")
    with attnbias.attach(model, client, max_length=LENGTH):

        def forward(ids: Tensor) -> Tensor:
            given = (ids,) if takes_ids else (ids.shape, 0, ids)
            made: Tensor = module.forward(*given)
            return made

        if mode is not None:
            torch.compiler.reset()
            forward = torch.compile(forward, backend=mode)
        assert forward(torch.tensor([[0, count - 1]])).shape == (1, 2, 32)
        least = -attach_sinusoidal_test.FIRST.get(model_type, 0)
        for ids in ([[least - 1, 0]], [[0, count]], [[0.0, 1.5]]):
            with pytest.raises((ValueError, IndexError, RuntimeError)):
                forward(torch.tensor(ids))


@pytest.mark.parametrize(
    "model_type", ["llama", "gpt_neox", "falcon", "stablelm", "cohere", "olmo2"]
)
def test_outputs_match_with_padding_position_of_minus_one(
    client: attnbias.Client, model_type: str
) -> None:
    model = attach_rotary_test.new_model(model_type)
    own = copy.deepcopy(model)
    mask = torch.ones(2, 24, dtype=torch.int64)
    mask[0, :9] = 0
    given = {"attention_mask": mask, "position_ids": mask.cumsum(-1) - 1}
    assert given["position_ids"].min() == -1
    with attnbias.attach(model, client, max_length=LENGTH):
        got, want = (each(tokens(2, 24), **given).logits for each in (model, own))
        assert_close(got[mask.bool()], want[mask.bool()])
        assert_close(got, want)
