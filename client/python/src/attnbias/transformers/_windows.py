# SPDX-License-Identifier: Apache-2.0
"""Swin and BEiT: a bias of each layer or of all, which is the same for all images of a size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.swin.modeling_swin import SwinRelativePositionBias

from attnbias._config import from_config
from attnbias._encodings import Beit, Swin
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers import _frozen
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from attnbias._grid import BlockToeplitz
    from attnbias.transformers._changes import Changes


def _sites(wanted: Wanted) -> Iterator[Site]:
    known = (SwinRelativePositionBias, BeitRelativePositionBias)
    modules = list(wanted.modules(known))
    # Both have their biases in the order of from_config's places, a shared one first.
    encodings = [
        encoding
        for encoding in from_config(wanted.model.config).values()
        if isinstance(encoding, (Swin, Beit))
    ]
    for (path, module), encoding in zip(modules, encodings, strict=True):
        table = module.relative_position_bias_table
        request = Request(replace(encoding, table=table))
        heads, area = table.shape[1], module.window_size[0] * module.window_size[1]
        tokens = area + 1 if isinstance(encoding, Beit) else area
        spared = table.dtype.itemsize * heads * tokens**2
        yield Site(path, "forward", module, request, _with_bias, spared)


def _with_bias(changes: Changes, module: Any, answer: BlockToeplitz) -> None:
    table = module.relative_position_bias_table
    bias = to_torch(answer, table.device)[None].contiguous()
    _frozen.hold(changes, module, bias.to(table.dtype))
    is_beit = isinstance(module, BeitRelativePositionBias)
    changes.set_method(module, "forward", _of_patches if is_beit else _of_window)


def _of_window(module: Any) -> torch.Tensor:
    bias = _frozen.held(module)
    if bias is None:
        bias = type(module).forward(module)
    return bias


def _of_patches(
    module: Any,
    window_size: tuple[int, int],
    interpolate_pos_encoding: bool = False,
    dim_size: int | None = None,
) -> torch.Tensor:
    trained = tuple(window_size) == tuple(module.window_size)
    bias = _frozen.held(module) if trained else None
    if bias is None:
        bias = type(module).forward(module, window_size, interpolate_pos_encoding, dim_size)
    return bias


FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=_sites)
