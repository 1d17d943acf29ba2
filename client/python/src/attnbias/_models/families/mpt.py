# SPDX-License-Identifier: Apache-2.0
"""MPT: ALiBi that counts from the last key."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.mpt.modeling_mpt import MptAttention, MptModel

from attnbias._models.compare import require_class_method
from attnbias._models.families import alibi
from attnbias._models.families.bias import KeyRows
from attnbias._models.families.flex import attend, refuse_weights
from attnbias._models.family import AttachContext, Family, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.toeplitz import KeyRow
    from attnbias._models.changes import Changes


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(MptModel):
        if context.attention == "flex":
            require_class_method(path, module, "forward")
        own = functools.partial(_own_row, module)
        request = alibi.row_request(module, context.max_length, "key_from_end", own(2))
        replace = functools.partial(_with_row, context)
        compare = functools.partial(alibi.compare_row, own(context.max_length))
        yield Site(path, "build_mpt_alibi_tensor", module, request, replace, 0, compare)
    yield from alibi.flex_sites(context, MptAttention, _forward)


def _own_row(model: Any, length: int) -> torch.Tensor:
    cpu = torch.device("cpu")
    row: torch.Tensor = model.build_mpt_alibi_tensor(model.num_heads, length, device=cpu)
    return row[:, 0]


def _with_row(context: AttachContext, changes: Changes, model: Any, answer: KeyRow) -> None:
    alibi.add_row(changes, model, answer)
    changes.set_method(model, "build_mpt_alibi_tensor", _alibi_tensor)
    changes.add_pre_hook(model, alibi.check_length)
    if context.attention == "flex":
        changes.add_pre_hook(model, _check_weights)
        changes.set_names(model, create_causal_mask=alibi.opaque_causal_mask)


def _check_weights(_: Any, __: tuple[Any, ...], options: dict[str, Any]) -> None:
    refuse_weights(options)  # its attention does not receive it


def _alibi_tensor(
    model: Any, *_: Any, device: torch.device | None = None, **__: Any
) -> torch.Tensor:
    # Its attention uses the last keys. The row has max_length keys, which may be more than the
    # configuration's max_seq_len.
    return alibi.row_of(model, device)[:, None]


def _forward(
    attention: Any,
    hidden_states: torch.Tensor,
    position_bias: torch.Tensor,
    *,
    attention_mask: Any = None,
    cache: Any = None,
    past_key_values: Any = None,  # the cache's name before transformers 5.24
) -> tuple[torch.Tensor, None]:
    mixed = attention.Wqkv(hidden_states)
    if attention.clip_qkv:
        mixed = mixed.clamp(min=-attention.clip_qkv, max=attention.clip_qkv)
    by_heads = mixed.unflatten(-1, (3, attention.n_heads, attention.head_dim))
    query, key, value = by_heads.permute(2, 0, 3, 1, 4)
    cache = past_key_values if cache is None else cache
    if cache is not None:
        key, value = cache.update(key, value, attention.layer_idx)
    numbers = position_bias[:, 0, -key.shape[2] :].expand(key.shape[0], -1, -1)
    context, weights = attend(
        attention,
        query,
        key,
        value,
        attention_mask.mask,
        position_bias=KeyRows(numbers),
        dropout=attention.attn_dropout_p if attention.training else 0.0,
        scaling=attention.softmax_scale,
    )
    return attention.out_proj(context.flatten(2)), weights


FAMILY: Final = Family(attentions=("eager", "flex"), sites=_sites)
