# SPDX-License-Identifier: Apache-2.0
"""Attached models as users handle them: pickled, partly offloaded, and under torch's modes.

Also covers models with missing attributes, which attach rejects with its own messages.
"""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from attach_compare_test import made, rotaries
from attach_sinusoidal_test import logits
from attached import gradients_of, state
from torch import nn

import attnbias

LENGTH = 40
TABLES = ["t5", "mpnet", "longt5"]
SINUSOIDS = ["marian", "fsmt", "whisper"]


def attached(client: attnbias.Client, model: Any) -> Any:
    return attnbias.attach(model, client, max_length=96)


def output(model: Any) -> torch.Tensor:
    model_type = model.config.model_type
    if model_type in SINUSOIDS:
        return logits(model, model_type)
    if model_type in ("swin", "beit"):
        pixels: torch.Tensor = model(torch.ones(1, 3, 32, 32)).last_hidden_state
        return pixels
    tokens = torch.arange(3, 3 + LENGTH)[None]
    decoder = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    made: torch.Tensor = model(tokens, **decoder)[0]
    return made


@pytest.mark.parametrize("name", ["t5", "mpnet", "llama", "bloom", "gptj", "marian", "swin"])
def test_attached_model_can_be_pickled(client: attnbias.Client, name: str) -> None:
    model, file = made(name), io.BytesIO()
    with torch.no_grad(), attached(client, model):
        want = output(model)
        torch.save(model, file)
    file.seek(0)
    with torch.no_grad():
        assert torch.equal(output(torch.load(file, weights_only=False)), want)


def test_model_attached_in_inference_mode_trains(client: attnbias.Client) -> None:
    model = made("t5").requires_grad_()
    with torch.inference_mode():
        attachment = attached(client, model)
    with attachment:
        assert gradients_of(model, output(model))


@pytest.mark.parametrize("name", ["t5", "llama", "gptj", "marian", "bloom", "swin"])
def test_default_device_does_not_matter(client: attnbias.Client, name: str) -> None:
    model = made(name)
    with torch.device("meta"):
        attachment = attached(client, model)
    assert not any(site.reason for site in attachment.report())
    with torch.no_grad(), attachment:
        assert not output(model).is_meta


def put_away(model: nn.Module) -> None:
    """Keeps weights on the meta device between calls to their modules, as accelerate does."""
    for module in model.modules():
        weights = dict(module.named_parameters(recurse=False))
        if not weights:
            continue

        def set_weights(device: str, module: Any = module, weights: Any = weights) -> None:
            for name, weight in weights.items():
                setattr(module, name, nn.Parameter(weight.to(device), requires_grad=False))

        def forward(
            *given: Any, module: Any = module, load: Any = set_weights, **options: Any
        ) -> Any:
            load("cpu")
            answer = module._old_forward(*given, **options)
            load("meta")
            return answer

        module._old_forward = module.forward
        module.forward = forward
        set_weights("meta")


@pytest.mark.parametrize("name", [*TABLES, *SINUSOIDS])
def test_offloaded_weights_keep_outputs(client: attnbias.Client, name: str) -> None:
    model = made(name)
    with torch.no_grad(), attached(client, model):
        want = output(model)
    put_away(model)
    with torch.no_grad():
        own = output(model)
        with attached(client, model):
            assert torch.equal(output(model), want)
        assert torch.equal(output(model), own)


@pytest.mark.parametrize("name", SINUSOIDS)
def test_trainable_sinusoids_are_rejected(client: attnbias.Client, name: str) -> None:
    """In an unattached model, training changes the sinusoids; FSMT's are trained unless frozen."""
    model = made(name).requires_grad_()
    with attached(client, model):
        with pytest.raises(ValueError, match=r"^model: got gradients for a table of sinusoids "):
            output(model)
        with torch.no_grad():
            output(model)


def no_frequencies(module: Any) -> None:
    module.inv_freq = None


def one_frequency(module: Any) -> None:
    module.inv_freq = torch.tensor(1.0)


def learned_frequencies(module: Any) -> None:
    frequencies = module._buffers.pop("inv_freq")
    module.inv_freq = nn.Parameter(frequencies)


def no_configuration(module: Any) -> None:
    module.config = None


def no_scaling(module: Any) -> None:
    module.attention_scaling = None


BROKEN = [no_frequencies, one_frequency, learned_frequencies, no_configuration, no_scaling]


@pytest.mark.parametrize("change", BROKEN)
@pytest.mark.parametrize("name", ["llama", "qwen2_vl"])
def test_modules_without_expected_attributes_are_rejected(
    client: attnbias.Client, name: str, change: Callable[[Any], None]
) -> None:
    model = made(name)
    for module in rotaries(model):
        change(module)
    before = state(model)
    with pytest.raises(ValueError, match=r"^model: got .* with custom code or attributes, "):
        attached(client, model)
    assert state(model) == before


def test_non_buffer_frequencies_are_accepted(client: attnbias.Client) -> None:
    model = made("llama")
    for module in rotaries(model):
        for name in list(module._buffers):
            vars(module)[name] = module._buffers.pop(name)
    with torch.no_grad(), attached(client, model):
        output(model)


def test_error_names_unknown_model_type(client: attnbias.Client) -> None:
    model = made("llama")
    model.config.model_type = "mine"
    with pytest.raises(ValueError, match=r"^model: got model_type 'mine', .*models\.md\. Leave "):
        attached(client, model)
