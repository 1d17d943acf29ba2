# SPDX-License-Identifier: Apache-2.0
"""Attention that reads a bias as diagonals, registered with transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    AttentionMaskInterface,
    and_masks,
    bidirectional_mask_function,
    flex_attention_mask,
    padding_mask_function,
    prepare_padding_mask,
    sdpa_mask,
)

from attnbias._models.families.bias import CompactBias, dense, of_few_shapes, score_mod

# Below one FlexAttention block, as in decoding, SDPA is faster and its bias is small.
LEAST_QUERIES: Final = 128
_BLOCK: Final = 128  # queries and keys, as in torch's own block masks
# A model has a few kinds of biases and masks, each with one or two programs. Beyond the limit,
# fullgraph raises an error; without fullgraph, FlexAttention would materialize all scores.
_compiled: Final = torch.compile(
    flex_attention, fullgraph=True, recompile_limit=64, isolate_recompiles=True
)


def register(name: str) -> None:
    """Registers these functions with transformers."""
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, mask)


def mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., torch.Tensor],
    attention_mask: torch.Tensor | None = None,
    device: torch.device,
    **options: Any,
) -> torch.Tensor | BlockMask | None:
    """Makes the mask for ``attend``; see ``transformers.masking_utils`` for the arguments."""
    lengths = {"q_length": q_length, "kv_length": kv_length, "device": device}
    if q_length < LEAST_QUERIES:
        options |= {"mask_function": mask_function, "attention_mask": attention_mask}
        return sdpa_mask(q_offset=q_offset, kv_offset=kv_offset, **lengths, **options)
    shows_all = attention_mask is None or (
        not torch.compiler.is_compiling() and bool(attention_mask.all())
    )
    if shows_all and mask_function is bidirectional_mask_function:
        return None
    if not shows_all:
        padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
        padding = padding_mask_function(of_few_shapes(padding))
        mask_function = and_masks(mask_function, padding)
    # A tensor, since torch.compile would recompile for each int.
    offset = torch.as_tensor(q_offset, device=device)
    return flex_attention_mask(
        q_offset=offset, kv_offset=kv_offset, mask_function=mask_function, **lengths, **options
    )


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | BlockMask | None,
    *,
    position_bias: CompactBias | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Computes attention over ``[batch, heads, length, head_dim]``; a bias of None means zeros."""
    refuse_weights(options)
    if dropout > 0:
        _refuse(f"a dropout of {dropout}", "FlexAttention has none: use model.eval(), or 0")
    queries, keys = query.shape[2], key.shape[2]
    is_plain = position_bias is None and attention_mask is None
    if queries < LEAST_QUERIES or isinstance(attention_mask, torch.Tensor) or is_plain:
        bias = None if position_bias is None else dense(position_bias, queries, keys)
        options |= {"scaling": scaling, "position_bias": bias}
        if queries >= LEAST_QUERIES:
            options["is_causal"] = False  # ``mask`` determines it
        output: torch.Tensor = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )[0]
        return output, None

    learns = [query, key, value]
    if position_bias is not None:
        learns.append(position_bias.numbers)
    has_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in learns)
    if has_gradients and query.device.type == "cpu":
        _refuse("gradients", 'FlexAttention computes none on a CPU: use torch.no_grad(), or "sdpa"')
    # In a model compiled as a whole, torch 2.15 on a CPU rejects a bias computed in the same
    # program, so attention gets a program of its own.
    on_cpu = query.device.type == "cpu"
    attention = _flex_apart if on_cpu else _flex
    if on_cpu and attention_mask is None:
        attention_mask = _all_blocks(queries, keys, query.device)
    output = attention(
        query,
        key,
        value,
        bias=position_bias,
        block_mask=attention_mask,
        scale=scaling,
        kernel_options=options.get("kernel_options"),
    )
    return output.transpose(1, 2).contiguous(), None


def refuse_weights(options: dict[str, Any]) -> None:
    """Rejects ``output_attentions=True`` among a call's options."""
    if options.get("output_attentions"):
        _refuse("output_attentions=True", 'FlexAttention has no attention weights: use "eager"')


def _flex(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    bias: CompactBias | None,
    block_mask: BlockMask | None,
    scale: float | None,
    kernel_options: dict[str, Any] | None,
) -> torch.Tensor:
    function = flex_attention if torch.compiler.is_compiling() else _compiled
    return function(
        query,
        key,
        value,
        score_mod=None if bias is None else score_mod(bias),
        block_mask=block_mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
        kernel_options=kernel_options,
    )


def _all_blocks(queries: int, keys: int, device: torch.device) -> BlockMask:
    """Returns a mask that hides nothing.

    A CPU thread holds the scores of one block. Without a mask, a single block would cover all
    queries and keys.
    """
    rows, columns = (-(-length // _BLOCK) for length in (queries, keys))
    return BlockMask.from_kv_blocks(
        torch.full((1, 1, rows), columns, dtype=torch.int32, device=device),
        torch.arange(columns, dtype=torch.int32, device=device).repeat(1, 1, rows, 1),
        BLOCK_SIZE=_BLOCK,
        seq_lengths=(queries, keys),
    )


_flex_apart: Final = torch.compiler.disable(_flex)


def _refuse(what: str, why: str) -> None:
    raise ValueError(f'attention: the model was attached with "flex", but got {what}; {why}')
