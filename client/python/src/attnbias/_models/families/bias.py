# SPDX-License-Identifier: Apache-2.0
"""Compact biases, passed from the module that makes them to attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.nn import functional


class Diagonals(NamedTuple):
    """``bias[b, h, q, k] = numbers[h, k - q + first]``.

    A tuple, so that torch.compile can trace it. ``first`` is a tensor if positions are, as with
    transformers' StaticCache.
    """

    numbers: torch.Tensor
    first: int | torch.Tensor


class KeyRows(NamedTuple):
    """``bias[b, h, q, k] = numbers[b, h, k]``."""

    numbers: torch.Tensor


CompactBias: TypeAlias = Diagonals | KeyRows


def dense(bias: CompactBias, queries: int, keys: int) -> torch.Tensor:
    """Returns the bias ``[1 or batch, heads, queries, keys]``; for KeyRows, queries is 1."""
    if isinstance(bias, KeyRows):
        return bias.numbers[:, :, None, :keys]
    numbers, first = bias
    if isinstance(first, torch.Tensor):
        device = numbers.device
        places = torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]
        return numbers[None, :, places + first]
    window = numbers[:, first - queries + 1 : first + keys]
    return window.unfold(-1, keys, 1).flip(-2)[None]


def score_mod(bias: CompactBias) -> Callable[..., torch.Tensor]:
    """Returns a ``score_mod`` for FlexAttention that adds the bias."""
    numbers = bias.numbers
    if isinstance(bias, KeyRows):
        numbers = of_few_shapes(numbers)
        return lambda score, b, h, q, k: score + numbers[b, h, k]
    place = bias.first
    if not isinstance(place, torch.Tensor):
        # torch.compile would recompile for each int.
        place = torch.full((), place, dtype=torch.int64, device=numbers.device)
    return lambda score, b, h, q, k: score + numbers[h, k - q + place]


def of_few_shapes(tensor: torch.Tensor) -> torch.Tensor:
    """Pads a tensor that FlexAttention indexes by batch and key on a CPU; returns others unchanged.

    In a program for tensors of any shape, torch 2.15 confuses the names of the tensor sizes with
    its own names (cpp_flex_attention_template.py), and the C++ compiler rejects the program. Each
    program is therefore compiled for one shape, and padding the last axis to a power of two limits
    the number of shapes.
    """
    if tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return tensor
    length = tensor.shape[-1]
    padded = functional.pad(tensor, (0, (1 << (length - 1).bit_length()) - length))
    torch._dynamo.mark_static(padded)
    return padded


def embedded(
    module: Any, queries: int, keys: int, past: int | torch.Tensor = 0, *, whole: bool = False
) -> Diagonals:
    """Returns a window's diagonals from a learned table, or all diagonals if ``whole``.

    The module has the table, ``[buckets, heads]``, and a buffer ``attnbias_buckets`` with the
    table's row for each relative position from ``1 - max_length`` to ``max_length - 1``. Keys begin
    at position 0, queries at ``past``.
    """
    buckets, table = module.attnbias_buckets, module.relative_attention_bias
    max_length = (buckets.shape[0] + 1) // 2
    first = max_length - 1 - past
    require_length(keys, max_length)
    if not isinstance(past, torch.Tensor):
        require_length(queries + past, max_length)
    if not isinstance(past, torch.Tensor) and not whole:
        buckets = buckets[first - queries + 1 : first + keys]
        first = queries - 1
    return Diagonals(table(near(buckets, table.weight)).t().contiguous(), first)


def near(numbers: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Moves values to a weight's device, unless accelerate has offloaded the weight."""
    return numbers if weight.is_meta else numbers.to(weight.device)


def require_length(length: int, max_length: int) -> None:
    """Rejects more positions than the model was attached for."""
    if length > max_length:
        raise ValueError(
            f"max_length: the model was attached with {max_length}, but got {length} positions; "
            "detach() it and attach it with more"
        )
