# SPDX-License-Identifier: Apache-2.0
"""GPT-J: each layer copies its whole table for every sequence, before it looks rows up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.gptj.modeling_gptj import GPTJAttention

from attnbias._config import from_config
from attnbias._request import Request
from attnbias.transformers import _rotary
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._results import RotaryTables
    from attnbias.transformers._changes import Changes

_TABLE: Final = "attnbias_table"


def _sites(wanted: Wanted) -> Iterator[Site]:
    encoding: Any = from_config(wanted.model.config)["rotary"]
    compact = replace(encoding, layout="compact")
    request = Request(compact, positions=wanted.max_length)
    for path, module in wanted.modules(GPTJAttention):
        copied = module.embed_positions.nbytes
        yield Site(path, "_get_embed_positions", module, request, _with_table, copied)


def _with_table(changes: Changes, attention: Any, answer: RotaryTables) -> None:
    bits = _rotary.bits_of(answer.sin, answer.cos)  # in this order
    device = attention.embed_positions.device
    changes.add_buffer(attention, _TABLE, torch.cat(tuple(bits), dim=-1).to(device))
    changes.set_method(attention, "_get_embed_positions", _table)


def _table(attention: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = _rotary.numbers_of(getattr(attention, _TABLE))
    _rotary.check_positions(position_ids, table.shape[0])
    return table.expand(position_ids.shape[0], -1, -1)


FAMILY: Final = Family(attentions=("eager",), sites=_sites, takes_any=True)
