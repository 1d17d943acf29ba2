# SPDX-License-Identifier: Apache-2.0
"""T5 and similar models: a bucketed bias, shared by all layers or one per layer."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersAttention,
)
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.umt5.modeling_umt5 import UMT5Attention

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import Pair, probing
from attnbias._models.families.bias import Diagonals, dense, embedded
from attnbias._models.families.flex import LEAST_QUERIES
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import T5
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attnbias._arrays.toeplitz import Toeplitz
    from attnbias._models.changes import Changes

ATTENTIONS: Final = (T5Attention, MT5Attention, UMT5Attention, SwitchTransformersAttention)
INDEX_BYTES: Final = 8  # of an int64


def sites(context: AttachContext, attentions: tuple[type, ...] = ATTENTIONS) -> Iterator[Site]:
    """Yields the bias of self-attention, and the zeros that cross-attention has instead."""
    requests: dict[Any, Request] = {}
    pairs = context.max_length**2
    for path, module in context.modules(attentions):
        bias_bytes = module.q.weight.dtype.itemsize * module.n_heads * pairs
        if not module.has_relative_attention_bias:
            if path.endswith("EncDecAttention"):
                yield Site(path, "forward", module, None, _without_bias, bias_bytes)
            continue
        t5 = encoding_of(module)
        key = (t5.bidirectional, t5.num_buckets, t5.max_distance)
        length = context.max_length
        request = Request(t5, query_length=length, key_length=length, values="buckets")
        flex = context.attention == "flex"
        yield Site(
            path,
            "compute_bias",
            module,
            requests.setdefault(key, request),
            functools.partial(_with_bias, compact_bias if flex else dense_bias),
            INDEX_BYTES * pairs + (bias_bytes if flex else 0),
            functools.partial(_pairs, module),
        )


def encoding_of(module: Any) -> T5:
    """Returns the encoding of an attention module, by its attributes."""
    return T5(
        bidirectional=not module.is_decoder,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
        bucket_rule="float32_log",
    )


def numbered(module: Any) -> nn.Embedding:
    """Returns a table whose row b is b in each column, so that biases are buckets.

    The comparison then covers the fetched numbers, wherever the weights are.
    """
    rows, heads = module.relative_attention_bias.weight.shape
    numbers = torch.arange(rows, dtype=torch.float64, device="cpu")
    return nn.Embedding.from_pretrained(numbers[:, None].repeat(1, heads))


def _pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    """Compares buckets of the first and the last query, which have all relative positions."""
    served = to_torch(answer.diagonals)
    length = (len(served) + 1) // 2
    with probing(module, relative_attention_bias=numbered(module)):
        first, last = (
            module.compute_bias(1, length, device=torch.device("cpu"), past_seen_tokens=past)
            for past in (0, length - 1)
        )
    own = torch.cat((last[0, :, 0], first[0, :, 0, 1:]), dim=-1)
    yield bucket_pair(own, served)


def bucket_pair(own: torch.Tensor, served: torch.Tensor) -> Pair:
    """Pairs buckets of each head, ``[heads, relative positions]``, with those fetched."""
    reach = len(served) // 2
    axes = {"head": range(len(own)), "relative position": range(-reach, len(served) - reach)}
    return Pair("bucket", own, served.expand(len(own), -1), axes)


def _with_bias(bias: Callable[..., Any], changes: Changes, module: Any, answer: Toeplitz) -> None:
    add_buckets(changes, module, answer)
    changes.set_method(module, "compute_bias", bias)


def add_buckets(
    changes: Changes, module: Any, answer: Toeplitz, name: str = "attnbias_buckets"
) -> None:
    """Adds the table's row of each relative position, on the table's device."""
    near = module.relative_attention_bias.weight
    changes.add_buffer(module, name, to_torch(answer.diagonals), near)


def _without_bias(changes: Changes, module: Any, _: None) -> None:
    """Makes forward call ``compute_bias`` instead of making zeros."""
    changes.set(module, "has_relative_attention_bias", True)
    changes.set_method(module, "compute_bias", no_bias)


def no_bias(module: Any, *_: Any, **__: Any) -> None:
    """Replaces ``compute_bias`` of cross-attention, which has none."""


def compact_bias(
    module: Any,
    query_length: int,
    key_length: int,
    device: torch.device | None = None,
    past_seen_tokens: int | torch.Tensor = 0,
) -> Diagonals:
    """Replaces ``compute_bias`` for attention that reads diagonals."""
    del device  # that of the table, as in transformers
    # FlexAttention is compiled for each number of diagonals, so it always gets all of them.
    whole = query_length >= LEAST_QUERIES
    return embedded(module, query_length, key_length, past_seen_tokens, whole=whole)


def dense_bias(
    module: Any,
    query_length: int,
    key_length: int,
    device: torch.device | None = None,
    past_seen_tokens: int | torch.Tensor = 0,
) -> torch.Tensor:
    """Replaces ``compute_bias`` for other attention."""
    del device
    bias = embedded(module, query_length, key_length, past_seen_tokens)
    return dense(bias, query_length, key_length)


FAMILY: Final = Family(attentions=("eager", "sdpa", "flex"), sites=sites)
