# SPDX-License-Identifier: Apache-2.0
"""GPT-J: rows of a table of sines and cosines, one per model or one per layer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.gptj import modeling_gptj

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import ULP, Pair, angle_bound, probing, require_readable
from attnbias._models.families import rotary
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import Rotary
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.tables import RotaryTables
    from attnbias._models.changes import Changes

_TABLE: Final = "attnbias_table"
_BASE: Final = 10000.0
# Since transformers 5.24. Before, each layer copies its whole table for every sequence.
_EMBEDDING: Final = getattr(modeling_gptj, "GPTJRotaryEmbedding", None)
_METHOD: Final = "_get_embed_positions" if _EMBEDDING is None else "forward"


def _sites(context: AttachContext) -> Iterator[Site]:
    request: Request | None = None
    for path, module in context.modules(_EMBEDDING or modeling_gptj.GPTJAttention):
        if request is None:
            encoding = Rotary(head_dim=module.embed_positions.shape[-1], layout="compact")
            request = Request(encoding, positions=context.max_length)
        compare = functools.partial(_pairs, module)
        copied = module.embed_positions.nbytes if _EMBEDDING is None else 0
        yield Site(path, _METHOD, module, request, _replace, copied, compare)


def _pairs(module: Any, answer: RotaryTables) -> Iterator[Pair]:
    """Compares rows of its table with those fetched, as many as both have."""
    require_readable(module.embed_positions)
    served = torch.cat([to_torch(part) for part in (answer.sin, answer.cos)], dim=-1)
    count, pairs = min(len(module.embed_positions), len(served)), served.shape[1] // 2
    held = module.embed_positions.dtype  # a cast of the model casts its table
    ids = torch.arange(count, device=module.embed_positions.device)[None]
    with probing(module):
        if _EMBEDDING is None:
            own = module._get_embed_positions(ids)[0, :count]
        else:
            own = torch.cat(module.forward(ids.to(held), ids), dim=-1)[0]
    frequencies = _BASE ** -(torch.arange(pairs).double() / pairs)
    bound = angle_bound(range(count), frequencies, _BASE).repeat(1, 2)
    served, numbers = served[:count], torch.finfo(held)
    rounding = max(2 * ULP, numbers.eps) * served.double().abs() + numbers.eps * numbers.tiny
    axes = {"position": range(count), "column": range(2 * pairs)}
    yield Pair("sin and cos", own, served, axes, bound + rounding)


def _replace(changes: Changes, module: Any, answer: RotaryTables) -> None:
    bits = rotary.bits_of(answer.sin, answer.cos)  # in this order
    changes.add_buffer(module, _TABLE, torch.cat(tuple(bits), dim=-1), module.embed_positions)
    changes.set_method(module, _METHOD, _table if _EMBEDDING is None else _rows)


def _rows(
    embedding: Any, x: torch.Tensor, position_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    table = rotary.numbers_of(getattr(embedding, _TABLE), position_ids.device)
    rotary.check_positions(position_ids, table.shape[0])
    rows = rotary.rows_of(position_ids, table.shape[0], signed=False)
    sin, cos = table[rows].to(x.dtype).chunk(2, dim=-1)
    return sin, cos


def _table(attention: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = rotary.numbers_of(getattr(attention, _TABLE), position_ids.device)
    rotary.check_positions(position_ids, table.shape[0])
    return table.expand(position_ids.shape[0], -1, -1)


FAMILY: Final = Family(_sites, takes_any=True)
