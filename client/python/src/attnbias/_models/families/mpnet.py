# SPDX-License-Identifier: Apache-2.0
"""MPNet: one bucketed bias for all layers, made by the encoder for every sequence of a batch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import probing
from attnbias._models.families import t5
from attnbias._models.families.bias import dense, embedded
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import T5
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._arrays.toeplitz import Toeplitz
    from attnbias._models.changes import Changes
    from attnbias._models.compare import Pair

_BUCKETS: Final = 32  # whatever the configuration states
_MAX_DISTANCE: Final = 128


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, module in context.modules(MPNetEncoder):
        length = context.max_length
        encoding = T5(
            bidirectional=True,
            num_buckets=_BUCKETS,
            max_distance=_MAX_DISTANCE,
            bucket_rule="float32_log",
        )
        request = Request(encoding, query_length=length, key_length=length, values="buckets")
        spared = t5.INDEX_BYTES * length**2
        compare = functools.partial(_pairs, module, length)
        yield Site(path, "compute_position_bias", module, request, _with_bias, spared, compare)


def _pairs(module: Any, length: int, answer: Toeplitz) -> Iterator[Pair]:
    with probing(module, relative_attention_bias=t5.numbered(module)):
        bias = module.compute_position_bias(torch.empty(1, length, 0, device="cpu"))[0]
    own = torch.cat((bias[:, -1], bias[:, 0, 1:]), dim=-1)
    yield t5.bucket_pair(own, to_torch(answer.diagonals))


def _with_bias(changes: Changes, module: Any, answer: Toeplitz) -> None:
    t5.add_buckets(changes, module, answer)
    changes.set_method(module, "compute_position_bias", _bias)


def _bias(
    module: Any,
    x: torch.Tensor,
    position_ids: torch.Tensor | None = None,
    num_buckets: int = _BUCKETS,
) -> torch.Tensor:
    if position_ids is not None or num_buckets != _BUCKETS:  # which its encoder never requests
        own = type(module).compute_position_bias
        computed: torch.Tensor = own(module, x, position_ids, num_buckets)
        return computed
    length = x.shape[1]
    return dense(embedded(module, length, length), length, length)


FAMILY: Final = Family(attentions=("eager",), sites=_sites)
