# SPDX-License-Identifier: Apache-2.0
"""GPT-J: each layer copies its whole table for every sequence, before it looks rows up."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.gptj.modeling_gptj import GPTJAttention

from attnbias._encodings import Rotary
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers import _rotary
from attnbias.transformers._compare import (
    ULP,
    Pair,
    angle_bound,
    probing,
    require_readable,
)
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._results import RotaryTables
    from attnbias.transformers._changes import Changes

_TABLE: Final = "attnbias_table"
_BASE: Final = 10000.0


def _sites(wanted: Wanted) -> Iterator[Site]:
    request: Request | None = None
    for path, module in wanted.modules(GPTJAttention):
        if request is None:
            encoding = Rotary(head_dim=module.embed_positions.shape[-1], layout="compact")
            request = Request(encoding, positions=wanted.max_length)
        compare = functools.partial(_pairs, module)
        copied = module.embed_positions.nbytes
        yield Site(path, "_get_embed_positions", module, request, _with_table, copied, compare)


def _pairs(attention: Any, answer: RotaryTables) -> Iterator[Pair]:
    """Its table beside the rows that were fetched, as many as both have."""
    require_readable(attention.embed_positions)
    with probing(attention):
        ids = torch.zeros(1, 1, dtype=torch.int64, device=attention.embed_positions.device)
        own = attention._get_embed_positions(ids)[0].cpu()
    served = torch.cat([to_torch(part) for part in (answer.sin, answer.cos)], dim=-1)
    count = min(len(own), len(served))
    own, served, pairs = own[:count], served[:count], served.shape[1] // 2
    frequencies = _BASE ** -(torch.arange(pairs).double() / pairs)
    bound = angle_bound(range(count), frequencies, _BASE).repeat(1, 2)
    held = torch.finfo(own.dtype)  # a cast of the model casts its table
    rounding = max(2 * ULP, held.eps) * served.double().abs() + held.eps * held.tiny
    axes = {"position": range(count), "column": range(2 * pairs)}
    yield Pair("sin and cos", own, served, axes, bound + rounding)


def _with_table(changes: Changes, attention: Any, answer: RotaryTables) -> None:
    bits = _rotary.bits_of(answer.sin, answer.cos)  # in this order
    near = attention.embed_positions
    changes.add_buffer(attention, _TABLE, torch.cat(tuple(bits), dim=-1), near)
    changes.set_method(attention, "_get_embed_positions", _table)


def _table(attention: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = _rotary.numbers_of(getattr(attention, _TABLE), position_ids.device)
    _rotary.check_positions(position_ids, table.shape[0])
    return table.expand(position_ids.shape[0], -1, -1)


FAMILY: Final = Family(attentions=("eager",), sites=_sites, takes_any=True)
