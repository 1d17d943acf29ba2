# SPDX-License-Identifier: Apache-2.0
"""Swin-V2, attached and unattached: the same network, in float64 when attached and in float32
otherwise."""

import copy
from typing import Any

import pytest
import torch
import transformers
from attach_windows_test import output
from attached import assert_close, compiled, make_other, state
from torch import Tensor, nn

import attnbias

FIELDS = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 1, 1],
    "num_heads": [2, 4, 4],
    "window_size": 6,  # the last stage, with 4 x 4 patches, has a smaller one
}
NETWORK = "continuous_position_bias_mlp"


def new_model(**fields: Any) -> Any:
    """Returns a model with large network weights: the initial ones make all biases close to 8."""
    torch.manual_seed(0)
    config = transformers.Swinv2Config(**FIELDS, **fields)
    model = transformers.Swinv2Model(config).eval()
    for attention in attentions(model):
        for parameter in getattr(attention, NETWORK).parameters():
            nn.init.normal_(parameter, std=0.3)
    return model.requires_grad_(False)


def attentions(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, NETWORK)]


def outputs_of_networks(model: Any) -> list[Tensor]:
    return [getattr(one, NETWORK)(one.relative_coords_table) for one in attentions(model)]


@pytest.mark.parametrize("pretrained", [[0, 0, 0], [4, 5, 3]])
def test_outputs_are_unchanged(client: attnbias.Client, pretrained: list[int]) -> None:
    model = new_model(pretrained_window_sizes=pretrained)
    own = copy.deepcopy(model)
    before, keys = state(model), [*model.state_dict()]
    with attnbias.attach(model, client, max_length=64):
        assert [*model.state_dict()] == keys
        assert_close(output(model), output(own))
        options = {"interpolate_pos_encoding": True}
        assert_close(output(model, 50, **options), output(own, 50, **options))
        for attention in attentions(model):
            coordinates = torch.full_like(attention.relative_coords_table, torch.nan)
            assert not getattr(attention, NETWORK)(coordinates).isnan().any()  # not run
    assert state(model) == before
    assert torch.equal(output(model), output(own))


@pytest.mark.parametrize(
    ("dtype", "most_error"), [(torch.float32, 4e-6), (torch.float16, 0.01), (torch.bfloat16, 0.08)]
)
def test_biases_are_more_accurate_than_the_module(
    client: attnbias.Client, dtype: torch.dtype, most_error: float
) -> None:
    """The attached biases are closer to those of the float64 network than the module's own are."""
    model = new_model().to(dtype)
    theirs = outputs_of_networks(model)
    with attnbias.attach(model, client, max_length=64):
        ours = outputs_of_networks(model)
    for attention, one, other in zip(attentions(model), ours, theirs, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        want = 16 * exact(attention).sigmoid()
        assert want.max() - want.min() > 8
        error, own_error = ((16 * each.sigmoid() - want).abs().max() for each in (one, other))
        assert error <= own_error
        assert error < most_error


def exact(attention: Any) -> Tensor:
    """Computes the network in float64, as a separate module."""
    network = copy.deepcopy(attention)
    getattr(network, NETWORK).double()
    coordinates, _ = network.create_coords_table_and_index()
    made: Tensor = getattr(network, NETWORK)(coordinates)
    return made


def test_model_can_be_cast(client: attnbias.Client) -> None:
    model = new_model()
    with attnbias.attach(model, client, max_length=64):
        before = outputs_of_networks(model)
        after = outputs_of_networks(model.bfloat16())
        assert torch.isfinite(output(model)).all()
    assert all(torch.equal(a.bfloat16(), b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("layer", [0, 2])
def test_changed_weights_are_used(client: attnbias.Client, layer: int) -> None:
    model = new_model()
    with attnbias.attach(model, client, max_length=64):
        before = output(model)
        for attention in attentions(model):
            getattr(attention, NETWORK)[layer].weight.neg_()
        attached = output(model)
        assert not torch.allclose(attached, before)
    assert torch.equal(attached, output(model))


def test_weights_are_trainable(client: attnbias.Client) -> None:
    model = new_model().requires_grad_(True)
    own = copy.deepcopy(model)
    with attnbias.attach(model, client, max_length=64):
        output(model).square().mean().backward()
    output(own).square().mean().backward()
    for got, want in zip(attentions(model), attentions(own), strict=True):
        for one, other in zip(
            getattr(got, NETWORK).parameters(), getattr(want, NETWORK).parameters(), strict=True
        ):
            assert other.grad.any()
            assert torch.equal(one.grad, other.grad)


def test_compiled_outputs_match(client: attnbias.Client) -> None:
    model = new_model()
    want = output(model)
    with attnbias.attach(model, client, max_length=64):
        assert_close(output(compiled(model)), want)


def test_replaced_module_is_rejected(client: attnbias.Client) -> None:
    model = new_model()
    make_other(attentions(model)[0])
    with pytest.raises(ValueError, match=r"^model: got .*\.attention\.self of Other, want "):
        attnbias.attach(model, client, max_length=64)


def test_report_lists_replacements(client: attnbias.Client) -> None:
    with attnbias.attach(new_model(), client, max_length=64) as attached:
        report = attached.report()
    blocks, heads, sides = ((0, 0), (0, 1), (1, 0), (2, 0)), (2, 2, 4, 4), (6, 6, 6, 4)
    assert [one.path for one in report] == [
        f"encoder.layers.{stage}.blocks.{block}.attention.self.{NETWORK}.forward"
        for stage, block in blocks
    ]
    areas = [(2 * side - 1) ** 2 for side in sides]
    shapes = [*zip(heads, areas, strict=True)]
    assert [one.fetched_bytes for one in report] == [8 * count * area for count, area in shapes]
    assert [one.spared_bytes for one in report] == [
        4 * area * (512 + count) for count, area in shapes
    ]
    assert all(isinstance(one.encoding, attnbias.MlpBias) for one in report)
