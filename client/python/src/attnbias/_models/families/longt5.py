# SPDX-License-Identifier: Apache-2.0
"""LongT5: an encoder that attends in blocks, and T5's decoder."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.longt5.modeling_longt5 import (
    LongT5Attention,
    LongT5LocalAttention,
    LongT5TransientGlobalAttention,
)

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import probing
from attnbias._models.families import t5
from attnbias._models.families.bias import Diagonals, dense, near, require_length
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.toeplitz import Toeplitz
    from attnbias._models.changes import Changes
    from attnbias._models.compare import Pair


def _sites(context: AttachContext) -> Iterator[Site]:
    known = (LongT5LocalAttention, LongT5TransientGlobalAttention)
    for path, module in context.modules(known):
        if not module.has_relative_attention_bias:
            continue
        block = module.block_len
        # The block's queries, and the keys of the previous, the same and the next block.
        request = Request(
            t5.encoding_of(module),
            query_length=2 * block,
            key_length=3 * block,
            query_offset=0,
            queries=(block, 2 * block),
            values="buckets",
        )
        replace = functools.partial(_with_local_bias, context.max_length)
        compare = functools.partial(_local_pairs, module)
        spared = t5.INDEX_BYTES * 3 * block**2
        yield Site(path, "compute_bias", module, request, replace, spared, compare)
        if isinstance(module, LongT5TransientGlobalAttention):
            # Positions are counted in blocks of another size; padding is in block -1.
            globals_ = context.max_length // module.global_block_size
            request = Request(
                t5.encoding_of(module),
                query_length=globals_ + 1,
                key_length=globals_ + 1,
                values="buckets",
            )
            method, compare = "_relative_position_bucket", functools.partial(_global_pairs, module)
            yield Site(path, method, module, request, _with_global_buckets, 0, compare)
    yield from t5.sites(context, (LongT5Attention,))


def _local_pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    """Compares buckets of a block's first and last query, which have all relative positions."""
    block = module.block_len
    with probing(module, relative_attention_bias=t5.numbered(module)):
        bias = module.compute_bias(block)[0, 0]
    own = torch.cat((bias[:, -1], bias[:, 0, -(block - 1) :]), dim=-1) if block > 1 else bias[:, 0]
    yield t5.bucket_pair(own, to_torch(answer.diagonals))


def _global_pairs(module: Any, answer: Toeplitz) -> Iterator[Pair]:
    served = to_torch(answer.diagonals)
    reach = len(served) // 2
    own = module._relative_position_bucket(
        torch.arange(-reach, reach + 1, device="cpu"),
        bidirectional=not module.is_decoder,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    yield t5.bucket_pair(own[None], served)


def _with_local_bias(max_length: int, changes: Changes, module: Any, answer: Toeplitz) -> None:
    t5.add_buckets(changes, module, answer)
    changes.set_method(module, "compute_bias", _local_bias)
    # Its bias covers a block, so it cannot check the length.
    changes.add_pre_hook(module, functools.partial(_check_length, max_length))


def _check_length(max_length: int, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    hidden_states = args[0] if args else options["hidden_states"]
    require_length(hidden_states.shape[1], max_length)


def _local_bias(module: Any, block_length: int) -> torch.Tensor:
    table = module.relative_attention_bias
    numbers = table(near(module.attnbias_buckets, table.weight)).t()
    return dense(Diagonals(numbers, block_length - 1), block_length, 3 * block_length)[None]


def _with_global_buckets(changes: Changes, module: Any, answer: Toeplitz) -> None:
    t5.add_buckets(changes, module, answer, "attnbias_global_buckets")
    changes.set_method(module, "_relative_position_bucket", _global_buckets)


def _global_buckets(module: Any, relative_position: torch.Tensor, **_: Any) -> torch.Tensor:
    buckets: torch.Tensor = module.attnbias_global_buckets.to(relative_position.device)
    return buckets[relative_position + buckets.shape[0] // 2]


FAMILY: Final = Family(attentions=("eager",), sites=_sites)
