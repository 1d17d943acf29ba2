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

from attnbias._config import from_config
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers import _learned, _rotary
from attnbias.transformers._bias import require_length
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attnbias.transformers._changes import Changes

_TABLE: Final = "attnbias_table"


def _sites(wanted: Wanted) -> Iterator[Site]:
    # Marian's encoder and decoder have one encoding.
    places = from_config(wanted.model.config)
    encoding = places["encoder.positions"]
    of_text = Request(encoding, positions=wanted.max_length)
    known = (MarianSinusoidalPositionalEmbedding, PegasusSinusoidalPositionalEmbedding)
    for path, module in wanted.modules(known):
        yield Site(path, "forward", module, of_text, _replacing(_forward), 0)
    encoders = list(wanted.modules(WhisperEncoder))
    for path, encoder in encoders:
        module = encoder.embed_positions
        # It always encodes half a minute.
        request = Request(encoding, positions=module.num_embeddings)
        replace = _replacing(_rows_at)
        yield Site(f"{path}.embed_positions", "forward", module, request, replace, 0)
    for path, module in wanted.modules(WhisperPositionalEmbedding):
        learned = places["decoder.positions"]
        # A decoder alone has nothing else to take.
        yield _learned.site(wanted, path, module, learned, required=not encoders)


def _replacing(forward: Callable[..., torch.Tensor]) -> Callable[[Changes, Any, Any], None]:
    return functools.partial(_with_table, forward=forward)


def _with_table(
    changes: Changes, module: Any, answer: Any, *, forward: Callable[..., torch.Tensor]
) -> None:
    bits = to_torch(answer, module.weight.device).view(torch.int32)
    changes.add_buffer(module, _TABLE, bits)
    changes.set_method(module, "forward", forward)


def _forward(
    module: Any,
    input_ids_shape: torch.Size,
    past_key_values_length: int = 0,
    position_ids: torch.Tensor | None = None,
) -> torch.Tensor:
    if position_ids is not None:
        return _rows_at(module, position_ids)
    past, length = past_key_values_length, input_ids_shape[1]
    table = getattr(module, _TABLE)
    require_length(past + length, table.shape[0])
    return _rows(module, table[past : past + length])


def _rows_at(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = getattr(module, _TABLE)
    _rotary.check_positions(position_ids, table.shape[0])
    return _rows(module, table[position_ids])


def _rows(module: Any, bits: torch.Tensor) -> torch.Tensor:
    """Of the weight's type, as the model has them."""
    rows: torch.Tensor = _rotary.numbers_of(bits).to(module.weight.dtype)
    return rows


FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=_sites, takes_any=True)
