# SPDX-License-Identifier: Apache-2.0
"""LongT5: an encoder that attends in blocks, and T5's decoder."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from transformers.models.longt5.modeling_longt5 import (
    LongT5Attention,
    LongT5LocalAttention,
    LongT5TransientGlobalAttention,
)

from attnbias._request import Request
from attnbias.transformers import _t5
from attnbias.transformers._bias import Diagonals, dense, require_length
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from attnbias._tensors import Toeplitz
    from attnbias.transformers._changes import Changes


def _sites(wanted: Wanted) -> Iterator[Site]:
    known = (LongT5LocalAttention, LongT5TransientGlobalAttention)
    for path, module in wanted.modules(known):
        if not module.has_relative_attention_bias:
            continue
        block = module.block_len
        # Of a block's queries, and of the keys of that before it, its own, and that after it.
        spans: Any = {"queries": (block, 2 * block), "keys": 3 * block, "query_offset": 0}
        request = Request(_t5.encoding_of(module), values="buckets", **spans)
        replace = functools.partial(_with_local_bias, wanted.max_length)
        yield Site(path, "compute_bias", module, request, replace, _t5.INDEX_BYTES * 3 * block**2)
        if isinstance(module, LongT5TransientGlobalAttention):
            # Positions are counted in blocks of another size; padding is in block -1.
            globals_ = wanted.max_length // module.global_block_size
            request = Request(
                _t5.encoding_of(module), queries=globals_ + 1, keys=globals_ + 1, values="buckets"
            )
            yield Site(path, "_relative_position_bucket", module, request, _with_global_buckets, 0)
    yield from _t5.sites(wanted, (LongT5Attention,))


def _with_local_bias(max_length: int, changes: Changes, module: Any, answer: Toeplitz) -> None:
    _t5.add_buckets(changes, module, answer)
    changes.set_method(module, "compute_bias", _local_bias)
    # Its bias is of a block, whatever the length is.
    changes.add_pre_hook(module, functools.partial(_check_length, max_length))


def _check_length(max_length: int, _: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    hidden_states = args[0] if args else options["hidden_states"]
    require_length(hidden_states.shape[1], max_length)


def _local_bias(module: Any, block_length: int) -> torch.Tensor:
    numbers = module.relative_attention_bias(module.attnbias_buckets).t()
    return dense(Diagonals(numbers, block_length - 1), block_length, 3 * block_length)[None]


def _with_global_buckets(changes: Changes, module: Any, answer: Toeplitz) -> None:
    _t5.add_buckets(changes, module, answer, "attnbias_global_buckets")
    changes.set_method(module, "_relative_position_bucket", _global_buckets)


def _global_buckets(module: Any, relative_position: torch.Tensor, **_: Any) -> torch.Tensor:
    buckets: torch.Tensor = module.attnbias_global_buckets
    return buckets[relative_position + buckets.shape[0] // 2]


FAMILY: Final = Family(attentions=("eager",), sites=_sites)
