# SPDX-License-Identifier: Apache-2.0
"""T5, LongT5, MPNet and similar models: a bucketed bias, either shared by all layers or per layer.

LongT5's encoder attends in blocks; its decoder is T5's. MPNet's encoder copies the bias for each
sequence in a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from transformers.models.longt5.modeling_longt5 import (
    LongT5Attention,
    LongT5LocalAttention,
    LongT5TransientGlobalAttention,
)
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder
from transformers.models.mt5.modeling_mt5 import MT5Attention
from transformers.models.switch_transformers.modeling_switch_transformers import (
    SwitchTransformersAttention,
)
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.umt5.modeling_umt5 import UMT5Attention

from attnbias._arrays.convert import to_torch
from attnbias._arrays.toeplitz import Toeplitz
from attnbias._models.changes import Changes
from attnbias._models.compare import Pair, probing
from attnbias._models.families.bias import Diagonals, dense, embedded, near, require_length
from attnbias._models.families.flex import LEAST_QUERIES
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import T5
from attnbias._spec.request import Request

_LOCAL: Final = (LongT5LocalAttention, LongT5TransientGlobalAttention)
_INDEX_BYTES: Final = 8  # size of an int64
_MPNET_BUCKETS: Final = 32  # regardless of the configuration
_MPNET_MAX_DISTANCE: Final = 128


def _sites(context: AttachContext) -> Iterator[Site]:
    yield from _local_sites(context)
    yield from _mpnet_sites(context)
    known = (T5Attention, MT5Attention, UMT5Attention, SwitchTransformersAttention)
    for attentions in (known, (LongT5Attention,)):
        yield from _t5_sites(context, attentions)


def _t5_sites(context: AttachContext, attentions: tuple[type, ...]) -> Iterator[Site]:
    """Yields the bias of self-attention, and the zeros that cross-attention uses instead."""
    requests: dict[Any, Request] = {}
    pairs = context.max_length**2
    for path, module in context.modules(attentions):
        bias_bytes = module.q.weight.dtype.itemsize * module.n_heads * pairs
        if not module.has_relative_attention_bias:
            if path.endswith("EncDecAttention"):
                yield Site(path, "forward", module, None, _without_bias, bias_bytes)
            continue
        t5 = _encoding_of(module)
        key = (t5.bidirectional, t5.num_buckets, t5.max_distance)
        request = requests.setdefault(key, _request(t5, context.max_length))
        flex = context.attention == "flex"
        spared = _INDEX_BYTES * pairs + (bias_bytes if flex else 0)
        replace = functools.partial(_with_bias, compact_bias if flex else dense_bias)
        compare = functools.partial(_pairs, module)
        yield Site(path, "compute_bias", module, request, replace, spared, compare)


def _local_sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(_LOCAL):
        if not module.has_relative_attention_bias:
            continue
        block = module.block_len
        # The block's queries, and the keys of the previous, current and next blocks.
        request = Request(
            _encoding_of(module),
            query_length=2 * block,
            key_length=3 * block,
            query_offset=0,
            queries=(block, 2 * block),
            values="buckets",
        )
        replace = functools.partial(_with_local_bias, context.max_length)
        compare = functools.partial(_local_pairs, module)
        spared = _INDEX_BYTES * 3 * block**2
        yield Site(path, "compute_bias", module, request, replace, spared, compare)
        if isinstance(module, LongT5TransientGlobalAttention):
            # Positions are counted in blocks of a different size; padding is in block -1.
            globals_ = context.max_length // module.global_block_size
            request = _request(_encoding_of(module), globals_ + 1)
            method, compare = "_relative_position_bucket", functools.partial(_global_pairs, module)
            yield Site(path, method, module, request, _with_global_buckets, 0, compare)


def _mpnet_sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(MPNetEncoder):
        length, method = context.max_length, "compute_position_bias"
        encoding = T5(
            bidirectional=True,
            num_buckets=_MPNET_BUCKETS,
            max_distance=_MPNET_MAX_DISTANCE,
            bucket_rule="float32_log",
        )
        request, compare = _request(encoding, length), functools.partial(_mpnet_pairs, module)
        spared = _INDEX_BYTES * length**2
        yield Site(path, method, module, request, _with_mpnet_bias, spared, compare)


def _request(encoding: T5, length: int) -> Request:
    return Request(encoding, query_length=length, key_length=length, values="buckets")


def _encoding_of(module: Any) -> T5:
    """Returns the encoding of an attention module, derived from its attributes."""
    return T5(
        bidirectional=not module.is_decoder,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
        bucket_rule="float32_log",
    )


def _numbered(module: Any) -> nn.Embedding:
    """Returns a table whose row b is b in each column, so that each bias is its bucket index.

    The comparison then covers the fetched values, regardless of where the weights are.
    """
    rows, heads = module.relative_attention_bias.weight.shape
    numbers = torch.arange(rows, dtype=torch.float64, device="cpu")
    return nn.Embedding.from_pretrained(numbers[:, None].repeat(1, heads))


def _pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    """Compares buckets of the first and the last query, which cover all relative positions."""
    served = to_torch(answer.diagonals)
    length = (len(served) + 1) // 2
    with probing(module, relative_attention_bias=_numbered(module)):
        first, last = (
            module.compute_bias(1, length, device=torch.device("cpu"), past_seen_tokens=past)
            for past in (0, length - 1)
        )
    own = torch.cat((last[0, :, 0], first[0, :, 0, 1:]), dim=-1)
    yield _bucket_pair(own, served)


def _local_pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    """Compares buckets of a block's first and last query, which cover all relative positions."""
    block = module.block_len
    with probing(module, relative_attention_bias=_numbered(module)):
        bias = module.compute_bias(block)[0, 0]
    own = torch.cat((bias[:, -1], bias[:, 0, -(block - 1) :]), dim=-1) if block > 1 else bias[:, 0]
    yield _bucket_pair(own, to_torch(answer.diagonals))


def _global_pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    served = to_torch(answer.diagonals)
    reach = len(served) // 2
    own = module._relative_position_bucket(
        torch.arange(-reach, reach + 1, device="cpu"),
        bidirectional=not module.is_decoder,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    yield _bucket_pair(own[None], served)


def _mpnet_pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    served = to_torch(answer.diagonals)
    length = (len(served) + 1) // 2
    with probing(module, relative_attention_bias=_numbered(module)):
        bias = module.compute_position_bias(torch.empty(1, length, 0, device="cpu"))[0]
    yield _bucket_pair(torch.cat((bias[:, -1], bias[:, 0, 1:]), dim=-1), served)


def _bucket_pair(own: torch.Tensor, served: torch.Tensor) -> Pair:
    """Pairs each head's buckets, ``[heads, relative positions]``, with the fetched buckets."""
    reach = len(served) // 2
    axes = {"head": range(len(own)), "relative position": range(-reach, len(served) - reach)}
    return Pair("bucket", own, served.expand(len(own), -1), axes)


def _with_bias(bias: Callable[..., Any], changes: Changes, module: Any, answer: Toeplitz) -> None:
    _add_buckets(changes, module, answer)
    changes.set_method(module, "compute_bias", bias)


def _with_local_bias(max_length: int, changes: Changes, module: Any, answer: Toeplitz) -> None:
    _with_bias(_local_bias, changes, module, answer)
    # This bias covers only one block, so its code cannot check the length.
    changes.add_pre_hook(module, functools.partial(_check_length, max_length))


def _with_global_buckets(changes: Changes, module: Any, answer: Toeplitz) -> None:
    _add_buckets(changes, module, answer, "attnbias_global_buckets")
    changes.set_method(module, "_relative_position_bucket", _global_buckets)


def _with_mpnet_bias(changes: Changes, module: Any, answer: Toeplitz) -> None:
    _add_buckets(changes, module, answer)
    changes.set_method(module, "compute_position_bias", _mpnet_bias)


def _add_buckets(
    changes: Changes, module: Any, answer: Toeplitz, name: str = "attnbias_buckets"
) -> None:
    """Adds the table's row for each relative position, on the table's device."""
    weight = module.relative_attention_bias.weight
    changes.add_buffer(module, name, to_torch(answer.diagonals), weight)


def _without_bias(changes: Changes, module: Any, _: None) -> None:
    """Makes forward call ``compute_bias`` instead of creating zeros."""
    changes.set(module, "has_relative_attention_bias", True)
    changes.set_method(module, "compute_bias", _no_bias)


def _no_bias(module: Any, *_: Any, **__: Any) -> None:
    """Replaces ``compute_bias`` in cross-attention, which has no bias."""


def compact_bias(
    module: Any,
    query_length: int,
    key_length: int,
    device: torch.device | None = None,
    past_seen_tokens: int | torch.Tensor = 0,
) -> Diagonals:
    """Replaces ``compute_bias`` for attention that reads diagonals."""
    # FlexAttention is compiled for each number of diagonals, so all diagonals are always passed.
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
    bias = embedded(module, query_length, key_length, past_seen_tokens)
    return dense(bias, query_length, key_length)


def _check_length(max_length: int, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    hidden_states = args[0] if args else options["hidden_states"]
    require_length(hidden_states.shape[1], max_length)


def _local_bias(module: Any, block_length: int) -> torch.Tensor:
    table = module.relative_attention_bias
    numbers = table(near(module.attnbias_buckets, table.weight)).t()
    return dense(Diagonals(numbers, block_length - 1), block_length, 3 * block_length)[None]


def _global_buckets(module: Any, relative_position: torch.Tensor, **_: Any) -> torch.Tensor:
    buckets: torch.Tensor = module.attnbias_global_buckets.to(relative_position.device)
    return buckets[relative_position + buckets.shape[0] // 2]


def _mpnet_bias(
    module: Any,
    x: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    num_buckets: int = _MPNET_BUCKETS,
) -> torch.Tensor:
    # MPNet's encoder never passes these.
    if position_ids is not None or num_buckets != _MPNET_BUCKETS:
        return type(module).compute_position_bias(module, x, position_ids, num_buckets)
    length = x.shape[1]
    return dense(embedded(module, length, length), length, length)


FAMILY: Final = Family(_sites, flex=("t5", "mt5", "umt5", "switch_transformers"))
