# SPDX-License-Identifier: Apache-2.0
"""Swin, BEiT and Swin-V2: one bias per layer or for all layers, the same for all images of a size.

A bias is computed from weights and is valid until they change.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from attnbias._arrays.convert import to_torch
from attnbias._arrays.grid import BlockToeplitz
from attnbias._models.changes import Changes
from attnbias._models.compare import ULP, Pair, probing, unreadable
from attnbias._models.family import AttachContext, Family, Site
from attnbias._models.places import beit_bias
from attnbias._spec.encodings import MlpLayer
from attnbias._spec.presets import Swin, SwinV2
from attnbias._spec.request import Request

_NUMBERS: Final = "attnbias_numbers"
_MADE_OF: Final = "attnbias_made_of"  # the weights and the version of each
_NETWORK: Final = "continuous_position_bias_mlp"
_COORDINATE_ULPS: Final = 8  # of float32: a sum, a logarithm and two divisions
_FLOAT64: Final = 2.0**-40  # the error of sums in float64


def _sites(context: AttachContext) -> Iterator[Site]:
    known = (SwinRelativePositionBias, BeitRelativePositionBias)
    for path, module in context.modules(known):
        table = module.relative_position_bias_table
        window, heads = module.window_size, table.shape[1]
        kind = beit_bias if _is_beit(module) else Swin
        request = Request(kind(window, num_heads=heads, table=table))
        tokens = math.prod(window) + _is_beit(module)
        spared = table.dtype.itemsize * heads * tokens**2
        compare = functools.partial(_pairs, module)
        reason = unreadable(table)
        replace = None if reason else functools.partial(_with_numbers, _bias_of)
        yield Site(path, "forward", module, request, replace, spared, compare, reason)
    for path, attention in context.modules(Swinv2SelfAttention):
        hidden, _, output = network = getattr(attention, _NETWORK)
        displacements = attention.relative_coords_table[..., 0].numel()
        sizes = displacements * (hidden.out_features + output.out_features)
        reason = unreadable(*network.parameters(), attention.relative_coords_table)
        spared = output.weight.dtype.itemsize * sizes
        compare = functools.partial(_network_pairs, attention)
        request = _network_request(attention)
        replace = None if reason else functools.partial(_with_numbers, _outputs_of)
        place = f"{path}.{_NETWORK}"
        yield Site(place, "forward", network, request, replace, spared, compare, reason)


def _is_beit(module: Any) -> bool:
    return isinstance(module, BeitRelativePositionBias)


def _pairs(module: Any, answer: BlockToeplitz) -> Iterator[Pair]:
    with probing(module):
        own = module.forward(module.window_size) if _is_beit(module) else module.forward()
    served = to_torch(answer).to(own.dtype)
    axes = dict(zip(("head", "query", "key"), map(range, served.shape), strict=True))
    yield Pair("bias", own[0], served, axes, _bound(module) if _is_beit(module) else 0.0)


def _bound(module: Any) -> float:
    """Bounds the error of torch's bilinear interpolation, which rounds sample positions."""
    height, width = module.window_size
    if height == width:
        return 0.0
    table = module.relative_position_bias_table.detach()
    units = 24 * (height + width) + 96
    return float(units * torch.finfo(table.dtype).eps / 2 * table.abs().max())


def _network_request(attention: Any) -> Request:
    hidden, _, output = getattr(attention, _NETWORK)
    pairs = zip(attention.pretrained_window_size, attention.window_size, strict=True)
    encoding = SwinV2(
        [MlpLayer(hidden.weight, bias=hidden.bias), MlpLayer(output.weight)],
        window=attention.window_size,
        num_heads=attention.num_attention_heads,
        pretrained_window=[pretrained or own for pretrained, own in pairs],
    )
    return Request(encoding, data_type="f64")  # before the single rounding


def _network_pairs(attention: Any, answer: BlockToeplitz) -> Iterator[Pair]:
    """Compares the network in float64, at the module's coordinates, with the fetched block.

    The coordinates are float32 and then cast to the model's type; all other steps are precise
    enough to be considered exact.
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


def _bias_of(module: Any, answer: BlockToeplitz) -> torch.Tensor:
    table = module.relative_position_bias_table
    return to_torch(answer, table.device)[None].contiguous().to(table.dtype)


def _outputs_of(network: Any, answer: BlockToeplitz) -> torch.Tensor:
    """Returns the fetched block's logits; the layer's attention applies 16 * sigmoid to them."""
    weight = network[-1].weight
    block = to_torch(answer.block, weight.device)
    # The block is indexed by key - query, the network's input by query - key.
    outputs = torch.logit(block.flip(-2, -1) / 16).movedim(0, -1)[None]
    return outputs.to(weight.dtype).contiguous()


class _Origin(list[tuple[torch.Tensor, int]]):
    """Empty in a copy of the module, since the copy's weights have new version counters."""

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[()]]:
        return type(self), ()


def _with_numbers(
    numbers: Callable[[Any, BlockToeplitz], torch.Tensor],
    changes: Changes,
    module: Any,
    answer: BlockToeplitz,
) -> None:
    """Adds values computed from a module's parameters; they move with the module.

    Rejects parameters whose changes cannot be detected.
    """
    if any(weight.is_inference() for weight in module.parameters()):
        raise ValueError(
            "model: got weights created under torch.inference_mode(), which does not track changes "
            "to them; want them created outside it"
        )
    held = numbers(module, answer)
    changes.add_buffer(module, _NUMBERS, held, held)
    made_of = ((weight, weight._version) for weight in module.parameters())
    changes.set(module, _MADE_OF, _Origin(made_of))
    changes.set_method(module, "forward", _forward_of_patches if _is_beit(module) else _forward)


def _forward(module: Any, *arguments: Any) -> torch.Tensor:
    """Returns the stored values if they are valid, otherwise what the module's forward returns."""
    if _is_valid(module):
        return getattr(module, _NUMBERS)
    return type(module).forward(module, *arguments)


def _is_valid(module: Any) -> bool:
    """Reports whether all parameters are unchanged and none is being trained.

    False under torch.compile, since a compiled program cannot detect that a weight has changed.
    """
    if torch.compiler.is_compiling():
        return False
    origin, weights = getattr(module, _MADE_OF), list(module.parameters())
    return len(origin) == len(weights) and all(
        weight is made_of
        and weight._version == version
        and not (weight.requires_grad and torch.is_grad_enabled())
        for weight, (made_of, version) in zip(weights, origin, strict=True)
    )


def _forward_of_patches(
    module: Any,
    window_size: tuple[int, int],
    interpolate_pos_encoding: bool = False,
    dim_size: int | None = None,
) -> torch.Tensor:
    trained = tuple(window_size) == tuple(module.window_size)
    forward = _forward if trained else type(module).forward
    return forward(module, window_size, interpolate_pos_encoding, dim_size)


FAMILY: Final = Family(_sites)
