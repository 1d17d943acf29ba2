# SPDX-License-Identifier: Apache-2.0
"""Marian, Pegasus and Whisper: sinusoids, which their files hold as frozen weights.

The decoder of Whisper has a learned table, which is the server's if it has one of these numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding
from transformers.models.whisper.modeling_whisper import WhisperEncoder, WhisperPositionalEmbedding

from attnbias._encodings import Sinusoidal
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers import _learned, _rotary
from attnbias.transformers._bias import require_length
from attnbias.transformers._compare import (
    ULP,
    Pair,
    angle_bound,
    held_in,
    probing,
    require_readable,
)
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attnbias.transformers._changes import Changes

_TABLE: Final = "attnbias_table"
_BASE: Final = 10000.0
_FLOAT64: Final = 2.0**-29  # its unit in the last place, in those of float32


def _sites(wanted: Wanted) -> Iterator[Site]:
    of_text: Request | None = None  # one for both sides of a model
    known = (MarianSinusoidalPositionalEmbedding, PegasusSinusoidalPositionalEmbedding)
    for path, module in wanted.modules(known):
        if of_text is None:
            encoding = Sinusoidal(dim=module.embedding_dim, layout="concatenated")
            of_text = Request(encoding, positions=wanted.max_length)
        compare = functools.partial(_pairs, module, _of_text, _FLOAT64)
        yield Site(path, "forward", module, of_text, _replacing(_forward), 0, compare)
    encoders = list(wanted.modules(WhisperEncoder))
    for path, encoder in encoders:
        module = encoder.embed_positions
        # It always encodes half a minute.
        encoding = Sinusoidal(dim=module.embedding_dim, layout="tensor2tensor")
        request = Request(encoding, positions=module.num_embeddings)
        replace, compare = _replacing(_rows_at), functools.partial(_pairs, module, _of_sound, 1.0)
        yield Site(f"{path}.embed_positions", "forward", module, request, replace, 0, compare)
    for path, module in wanted.modules(WhisperPositionalEmbedding):
        # A decoder alone has nothing else to take.
        yield _learned.site(wanted, path, module, required=not encoders)


def _of_text(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = module.forward(position_ids.shape, position_ids=position_ids)
    return made


def _of_sound(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = module.forward(position_ids)
    return made


def _pairs(
    module: Any,
    rows: Callable[[Any, torch.Tensor], torch.Tensor],
    unit: float,
    answer: Any,
) -> Iterator[Pair]:
    """Rows of the module's table beside those that were fetched, as many as both have.

    Whisper's angles are float32; those of Marian and Pegasus float64, ``unit`` times as coarse.
    """
    require_readable(module.weight)
    served = to_torch(answer)
    count, dim = min(len(module.weight), len(served)), served.shape[1]
    with probing(module):
        own = rows(module, torch.arange(count, device=module.weight.device)).cpu()
    served = served[:count]
    frequencies = _BASE ** -(torch.arange(dim // 2).double() / (dim // 2))
    angles = unit * angle_bound(range(count), frequencies, _BASE).repeat(1, 2)
    # What a cast, or the type of a checkpoint's file, has rounded.
    held = torch.finfo(held_in(own))
    bound = angles + max(held.eps, 2 * ULP) * served.double().abs() + held.eps * held.tiny
    axes = {"position": range(count), "column": range(dim)}
    yield Pair("sinusoid", own, served, axes, bound)


def _replacing(forward: Callable[..., torch.Tensor]) -> Callable[[Changes, Any, Any], None]:
    return functools.partial(_with_table, forward=forward)


def _with_table(
    changes: Changes, module: Any, answer: Any, *, forward: Callable[..., torch.Tensor]
) -> None:
    changes.add_buffer(module, _TABLE, to_torch(answer).view(torch.int32), module.weight)
    changes.set_method(module, "forward", forward)


def _forward(
    module: Any,
    input_ids_shape: torch.Size,
    cache_length: int = 0,
    position_ids: torch.Tensor | None = None,
    *,
    past_key_values_length: int = 0,  # the second's name before transformers 5.24
) -> torch.Tensor:
    if position_ids is not None:
        return _rows_at(module, position_ids)
    past, length = cache_length or past_key_values_length, input_ids_shape[1]
    table = getattr(module, _TABLE)
    require_length(past + length, table.shape[0])
    return _rows(module, table[past : past + length])


def _rows_at(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = getattr(module, _TABLE)
    count = table.shape[0]
    _rotary.check_positions(position_ids, count)
    rows = _rotary.rows_of(position_ids, count, signed=False)
    return _rows(module, table.to(rows.device)[rows])


def _rows(module: Any, bits: torch.Tensor) -> torch.Tensor:
    """Of the weight's type, as the model has them."""
    rows: torch.Tensor = _rotary.numbers_of(bits, module.weight.device).to(module.weight.dtype)
    return rows


FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=_sites, takes_any=True)
