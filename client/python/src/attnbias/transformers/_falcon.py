# SPDX-License-Identifier: Apache-2.0
"""Falcon: rotary, or ALiBi whose numbers are bfloat16 whatever the model's type is."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.falcon.modeling_falcon import FalconModel

from attnbias.transformers import _alibi, _rotary
from attnbias.transformers._bias import require_length
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._tensors import KeyRow
    from attnbias.transformers._changes import Changes

_NAME: Final = "build_alibi_tensor"


def _sites(wanted: Wanted) -> Iterator[Site]:
    for path, module in wanted.modules(FalconModel):
        if not module.use_alibi:
            yield from _rotary.sites(wanted)
            continue
        # That of the last, rounded as all are.
        last = int(_rounded(torch.tensor(wanted.max_length - 1)))
        request = _alibi.row_request(module, last + 1, "bf16")
        replace = functools.partial(_with_row, max_length=wanted.max_length)
        yield Site(path, _NAME, module, request, replace, 0)


def _with_row(changes: Changes, model: Any, answer: KeyRow, *, max_length: int) -> None:
    _alibi.add_row(changes, model, answer)
    # It is no method but a function of the file, so forward is made anew with another.
    forward = type(model).forward

    def build(attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype) -> torch.Tensor:
        batch, length = attention_mask.shape
        require_length(length, max_length)
        positions = _rounded(_alibi.positions_of(attention_mask))
        return _alibi.row_at(model, positions).reshape(batch * num_heads, 1, length).to(dtype)

    names = forward.__globals__ | {_NAME: build}
    rebuilt = FunctionType(forward.__code__, names, "forward", forward.__defaults__)
    changes.set_method(model, "forward", rebuilt)


def _rounded(positions: torch.Tensor) -> torch.Tensor:
    """As Falcon rounds positions before it multiplies them: to bfloat16."""
    return positions.bfloat16().long()


FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=_sites)
