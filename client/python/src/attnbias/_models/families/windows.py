# SPDX-License-Identifier: Apache-2.0
"""Swin and BEiT: a bias per layer or for all layers, the same for all images of a size."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import Pair, probing, unreadable
from attnbias._models.families import frozen
from attnbias._models.family import AttachContext, Family, Site
from attnbias._models.places import beit_bias
from attnbias._spec.presets import Swin
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.grid import BlockToeplitz
    from attnbias._models.changes import Changes


def _sites(context: AttachContext) -> Iterator[Site]:
    known = (SwinRelativePositionBias, BeitRelativePositionBias)
    for path, module in context.modules(known):
        table = module.relative_position_bias_table
        window, heads = module.window_size, table.shape[1]
        kind = beit_bias if _is_beit(module) else Swin
        request = Request(kind(window, num_heads=heads, table=table))
        tokens = math.prod(window) + _is_beit(module)
        spared = table.dtype.itemsize * heads * tokens**2
        reason = unreadable(table)
        if reason:
            yield Site(path, "forward", module, request, None, spared, reason=reason)
        else:
            compare = functools.partial(_pairs, module)
            yield Site(path, "forward", module, request, _with_bias, spared, compare)


def _is_beit(module: Any) -> bool:
    return isinstance(module, BeitRelativePositionBias)


def _pairs(module: Any, answer: BlockToeplitz) -> Iterator[Pair]:
    with probing(module):
        own = module.forward(module.window_size) if _is_beit(module) else module.forward()
    served = to_torch(answer).to(own.dtype)
    axes = dict(zip(("head", "query", "key"), map(range, served.shape), strict=True))
    yield Pair("bias", own[0], served, axes, _bound(module) if _is_beit(module) else 0.0)


def _bound(module: Any) -> float:
    """Bounds the error of torch's bilinear interpolation, whose places have rounding errors."""
    height, width = module.window_size
    if height == width:
        return 0.0
    table = module.relative_position_bias_table.detach()
    units = 24 * (height + width) + 96
    return float(units * torch.finfo(table.dtype).eps / 2 * table.abs().max())


def _with_bias(changes: Changes, module: Any, answer: BlockToeplitz) -> None:
    table = module.relative_position_bias_table
    bias = to_torch(answer, table.device)[None].contiguous()
    frozen.hold(changes, module, bias.to(table.dtype))
    changes.set_method(module, "forward", _of_patches if _is_beit(module) else frozen.forward)


def _of_patches(
    module: Any,
    window_size: tuple[int, int],
    interpolate_pos_encoding: bool = False,
    dim_size: int | None = None,
) -> torch.Tensor:
    trained = tuple(window_size) == tuple(module.window_size)
    forward = frozen.forward if trained else type(module).forward
    bias: torch.Tensor = forward(module, window_size, interpolate_pos_encoding, dim_size)
    return bias


FAMILY: Final = Family(_sites)
