# SPDX-License-Identifier: Apache-2.0
"""Falcon: rotary, or ALiBi whose numbers are bfloat16 in every model type."""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.falcon.modeling_falcon import FalconAttention, FalconModel

from attnbias._models.compare import require_class_method
from attnbias._models.families import alibi, rotary
from attnbias._models.families.bias import KeyRows, require_length
from attnbias._models.families.flex import attend
from attnbias._models.family import AttachContext, Family, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.toeplitz import KeyRow
    from attnbias._models.changes import Changes

_NAME: Final = "build_alibi_tensor"


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(FalconModel):
        if not module.use_alibi:
            if context.attention == "flex":
                raise ValueError(
                    'attention: got "flex" for a Falcon without alibi, want "eager" or "sdpa"'
                )
            yield from rotary.sites(context)
            continue
        require_class_method(path, module, "forward")
        # Rounding may move the last position beyond max_length.
        places = _rounded(torch.arange(context.max_length, device="cpu"))
        last = int(places[-1])
        own = functools.partial(_own_row, module)
        request = alibi.row_request(module, last + 1, "key_from_start", own(2), "bf16")
        replace = functools.partial(_with_row, context)
        compare = functools.partial(alibi.compare_row, own(context.max_length), places=places)
        yield Site(path, _NAME, module, request, replace, 0, compare)
        yield from alibi.flex_sites(context, FalconAttention, _forward)


def _own_row(model: Any, length: int) -> torch.Tensor:
    mask = torch.ones(1, length, dtype=torch.int64, device="cpu")
    build = inspect.unwrap(type(model).forward).__globals__[_NAME]
    row: torch.Tensor = build(mask, model.num_heads, torch.bfloat16)
    return row[:, 0]


def _with_row(context: AttachContext, changes: Changes, model: Any, answer: KeyRow) -> None:
    alibi.add_row(changes, model, answer)

    def build(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
        batch, length = attention_mask.shape
        require_length(length, context.max_length)
        positions = _rounded(alibi.positions_of(attention_mask))
        return alibi.row_at(model, positions).reshape(batch * num_heads, 1, length).to(dtype)

    # A function of the file, not a method.
    functions: dict[str, Any] = {_NAME: build}
    if context.attention == "flex":
        functions["create_causal_mask"] = alibi.opaque_causal_mask
    changes.set_names(model, **functions)


def _rounded(positions: torch.Tensor) -> torch.Tensor:
    """Rounds positions to bfloat16, as Falcon does before it multiplies them."""
    return positions.bfloat16().long()


def _forward(
    attention: Any,
    hidden_states: torch.Tensor,
    *,
    alibi: torch.Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    batch = hidden_states.shape[0]
    split = attention._split_heads(attention.query_key_value(hidden_states))
    query, key, value = (states.transpose(1, 2) for states in split)
    if layer_past is not None:
        key, value = layer_past.update(key, value, attention.layer_idx)
    numbers = alibi.view(batch, attention.num_heads, -1) / math.sqrt(attention.head_dim)
    context, weights = attend(
        attention,
        query,
        key,
        value,
        attention_mask.mask,
        position_bias=KeyRows(numbers),
        dropout=attention.attention_dropout.p if attention.training else 0.0,
        scaling=attention.inv_norm_factor,
        output_attentions=output_attentions,
    )
    return attention.dense(context.flatten(2)), weights


FAMILY: Final = Family(attentions=("eager", "sdpa", "flex"), sites=_sites)
