# SPDX-License-Identifier: Apache-2.0
"""GPT-J: rows of a table of sines and cosines, which the model has once or in each layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.gptj import modeling_gptj

from attnbias._config import from_config
from attnbias._request import Request
from attnbias.transformers import _rotary
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._results import RotaryTables
    from attnbias.transformers._changes import Changes

_TABLE: Final = "attnbias_table"
# From transformers 5.24 on. Before, each layer copies its whole table for every sequence.
_EMBEDDING: Final = getattr(modeling_gptj, "GPTJRotaryEmbedding", None)


def _sites(wanted: Wanted) -> Iterator[Site]:
    encoding: Any = from_config(wanted.model.config)["rotary"]
    compact = replace(encoding, layout="compact")
    request = Request(compact, positions=wanted.max_length)
    if _EMBEDDING is not None:
        for path, module in wanted.modules(_EMBEDDING):
            yield Site(path, "forward", module, request, _with_rows, 0)
        return
    for path, module in wanted.modules(modeling_gptj.GPTJAttention):
        copied = module.embed_positions.nbytes
        yield Site(path, "_get_embed_positions", module, request, _with_table, copied)


def _with_rows(changes: Changes, embedding: Any, answer: RotaryTables) -> None:
    _add_table(changes, embedding, answer)
    changes.set_method(embedding, "forward", _rows)


def _with_table(changes: Changes, attention: Any, answer: RotaryTables) -> None:
    _add_table(changes, attention, answer)
    changes.set_method(attention, "_get_embed_positions", _table)


def _add_table(changes: Changes, module: Any, answer: RotaryTables) -> None:
    bits = _rotary.bits_of(answer.sin, answer.cos)  # in this order
    device = module.embed_positions.device
    changes.add_buffer(module, _TABLE, torch.cat(tuple(bits), dim=-1).to(device))


def _rows(
    embedding: Any, x: torch.Tensor, position_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    table = _rotary.numbers_of(getattr(embedding, _TABLE))
    _rotary.check_positions(position_ids, table.shape[0])
    sin, cos = table[position_ids].to(x.dtype).chunk(2, dim=-1)
    return sin, cos


def _table(attention: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = _rotary.numbers_of(getattr(attention, _TABLE))
    _rotary.check_positions(position_ids, table.shape[0])
    return table.expand(position_ids.shape[0], -1, -1)


FAMILY: Final = Family(
    attentions=("eager",) if _EMBEDDING is None else ("eager", "sdpa"),
    sites=_sites,
    takes_any=True,
)
