# SPDX-License-Identifier: Apache-2.0
"""Swin-V2: a bias of a network, replaced by inputs of the layer's sigmoid."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import ULP, Pair, unreadable
from attnbias._models.families import frozen
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import MlpBias, MlpLayer
from attnbias._spec.presets import SwinV2
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.grid import BlockToeplitz
    from attnbias._models.changes import Changes

_NETWORK: Final = "continuous_position_bias_mlp"
_COORDINATE_ULPS: Final = 8  # of float32: a sum, a logarithm and two divisions
_FLOAT64: Final = 2.0**-40  # what sums of float64 may be off by


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, attention in context.modules(Swinv2SelfAttention):
        encoding = _encoding_of(attention)
        hidden, _, output = network = getattr(attention, _NETWORK)
        displacements = attention.relative_coords_table[..., 0].numel()
        spared = (
            output.weight.dtype.itemsize
            * displacements
            * (hidden.out_features + output.out_features)
        )
        request = Request(encoding, data_type="f64")  # to be rounded once
        reason = unreadable(*network.parameters(), attention.relative_coords_table)
        site = functools.partial(Site, f"{path}.{_NETWORK}", "forward", network, request)
        if reason:
            yield site(None, spared, reason=reason)
        else:
            yield site(_with_outputs, spared, functools.partial(_pairs, attention))


def _pairs(attention: Any, answer: BlockToeplitz) -> Iterator[Pair]:
    """Compares the network in float64, at the module's coordinates, with the answer.

    Those are float32 and then of the model's type; all else is exact to more digits than count.
    """
    network = copy.deepcopy(getattr(attention, _NETWORK)).double()
    coordinates = attention.relative_coords_table.detach()
    hidden, _, output = network
    with torch.no_grad():
        own = 16 * network.forward(coordinates.double()).sigmoid()
        sizes = coordinates.double().abs() @ hidden.weight.abs().t() @ output.weight.abs().t()
    digits = torch.finfo(coordinates.dtype).eps / 2 + _COORDINATE_ULPS * ULP
    # The slope of a sigmoid is at most 1/4.
    bound = (4 * digits * sizes + _FLOAT64).cpu()
    served = to_torch(answer.block).flip(-2, -1).movedim(0, -1)
    height, width, _ = served.shape
    rows, columns = (range(-(side // 2), side // 2 + 1) for side in (height, width))
    axes = {"row": rows, "column": columns, "head": range(served.shape[-1])}
    yield Pair("bias", own[0], served, axes, bound[0])


def _encoding_of(attention: Any) -> MlpBias:
    hidden, _, output = getattr(attention, _NETWORK)
    pairs = zip(attention.pretrained_window_size, attention.window_size, strict=True)
    return SwinV2(
        [MlpLayer(hidden.weight, bias=hidden.bias), MlpLayer(output.weight)],
        window=attention.window_size,
        num_heads=attention.num_attention_heads,
        pretrained_window=[pretrained or own for pretrained, own in pairs],
    )


def _with_outputs(changes: Changes, network: Any, answer: BlockToeplitz) -> None:
    """Holds logits of the answer: the layer's attention applies 16 sigmoid to them."""
    weight = network[-1].weight
    block = to_torch(answer.block, weight.device)
    # The block counts key - query, the network's input query - key.
    outputs = torch.logit(block.flip(-2, -1) / 16).movedim(0, -1)[None]
    frozen.hold(changes, network, outputs.to(weight.dtype).contiguous())
    changes.set_method(network, "forward", frozen.forward)


FAMILY: Final = Family(_sites)
