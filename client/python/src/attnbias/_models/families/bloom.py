# SPDX-License-Identifier: Apache-2.0
"""BLOOM: ALiBi that counts from the first token that is not padding."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional
from transformers.models.bloom.modeling_bloom import BloomAttention, BloomModel

from attnbias._models.families import alibi
from attnbias._models.families.bias import KeyRows, require_length
from attnbias._models.families.flex import attend
from attnbias._models.family import AttachContext, Family, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.toeplitz import KeyRow
    from attnbias._models.changes import Changes


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(BloomModel):
        own = functools.partial(_own_row, module)
        request = alibi.row_request(module, context.max_length, "key_from_start", own(2))
        compare = functools.partial(alibi.compare_row, own(context.max_length))
        yield Site(path, "build_alibi_tensor", module, request, _with_row, 0, compare)
    for site in alibi.flex_sites(context, BloomAttention, _forward):
        if site.module.pretraining_tp > 1 and site.module.slow_but_exact:
            raise ValueError('attention: got "flex" for a BLOOM with slow_but_exact, want "eager"')
        yield site


def _own_row(model: Any, length: int) -> torch.Tensor:
    mask = torch.ones(1, length, dtype=torch.int64, device="cpu")
    row: torch.Tensor = model.build_alibi_tensor(mask, model.num_heads, torch.float32)
    return row[:, 0]


def _with_row(changes: Changes, model: Any, answer: KeyRow) -> None:
    alibi.add_row(changes, model, answer)
    changes.set_method(model, "build_alibi_tensor", _alibi_tensor)
    # Without a mask its forward computes the numbers itself.
    changes.add_pre_hook(model, alibi.show_all)


def _alibi_tensor(
    model: Any, attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype
) -> torch.Tensor:
    batch, length = attention_mask.shape
    require_length(length, alibi.row_of(model).shape[-1])
    row = alibi.row_at(model, alibi.positions_of(attention_mask))
    return row.reshape(batch * num_heads, 1, length).to(dtype)


def _forward(
    attention: Any,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
    *,
    alibi: torch.Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    batch = hidden_states.shape[0]
    query, key, value = attention._reshape(attention.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = layer_past.update(key, value, attention.layer_idx)
    context, weights = attend(
        attention,
        query,
        key,
        value,
        attention_mask,
        position_bias=KeyRows(alibi.view(batch, attention.num_heads, -1)),
        dropout=attention.attention_dropout.p if attention.training else 0.0,
        scaling=attention.inv_norm_factor,
        output_attentions=output_attentions,
    )
    output = attention.dense(context.flatten(2))
    dropped = functional.dropout(output, attention.hidden_dropout, attention.training)
    return residual + dropped, weights


FAMILY: Final = Family(attentions=("eager", "flex"), sites=_sites)
