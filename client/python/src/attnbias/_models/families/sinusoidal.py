# SPDX-License-Identifier: Apache-2.0
"""Marian, GPT-J, Whisper, M2M100 and similar models: sinusoids in frozen weights or a buffer.

GPT-J's rotary table equals Marian's. M2M100 and similar models count positions from the row after
the padding row, which is zero. Whisper's decoder has a learned table, which is replaced if the
server has a table with the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import torch
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding
from transformers.models.gptj import modeling_gptj
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSinusoidalPositionalEmbedding
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding
from transformers.models.speech_to_text.modeling_speech_to_text import (
    Speech2TextSinusoidalPositionalEmbedding,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder, WhisperPositionalEmbedding
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding

from attnbias._arrays.convert import to_torch
from attnbias._models.changes import Changes
from attnbias._models.compare import (
    ULP,
    Pair,
    angle_bound,
    held_in,
    probing,
    require_readable,
)
from attnbias._models.families import learned, rotary
from attnbias._models.families.bias import require_length
from attnbias._models.family import AttachContext, Family, Site, class_of
from attnbias._spec.encodings import Sinusoidal
from attnbias._spec.presets import Tensor2Tensor
from attnbias._spec.request import Request

_TABLE: Final = "attnbias_table"
_BASE: Final = 10000.0
_FLOAT64: Final = 2.0**-29  # ulp of float64, in ulps of float32
_MARIAN: Final = (MarianSinusoidalPositionalEmbedding, PegasusSinusoidalPositionalEmbedding)
# Since transformers 5.24; earlier versions copy the whole table for every sequence in each layer.
_GPTJ: Final = getattr(modeling_gptj, "GPTJRotaryEmbedding", None)
_GPTJ_METHOD: Final = "_get_embed_positions" if _GPTJ is None else "forward"


def _sites(context: AttachContext) -> Iterator[Site]:
    length = context.max_length
    of_text: Request | None = None  # one shared by encoder and decoder
    for path, module in context.modules(_MARIAN):
        if of_text is None:
            of_text = _request_of_text(module, length)
        replace = partial(_with_table, _forward)
        compare = partial(_pairs, module, _of_shape, _FLOAT64)
        yield Site(path, "forward", module, of_text, replace, 0, compare)
    for path, module in context.modules(_GPTJ or modeling_gptj.GPTJAttention):
        if of_text is None:
            of_text = _request_of_text(module, length)
        replace = partial(_with_table, _gptj_table if _GPTJ is None else _gptj_rows)
        compare = partial(_pairs, module, _of_gptj, 1.0)
        copied = module.embed_positions.nbytes if _GPTJ is None else 0
        yield Site(path, _GPTJ_METHOD, module, of_text, replace, copied, compare)
    of_rows: dict[int, Request] = {}
    for path, module in context.modules(tuple(_FORWARDS)):
        first = _first_row(module)
        if first not in of_rows:
            encoding = Tensor2Tensor(module.embedding_dim)
            of_rows[first] = Request(encoding, positions=first + length)
        replace = partial(_with_table, _FORWARDS[class_of(module)])
        compare = partial(_pairs, module, _after_padding, 1.0)
        yield Site(path, "forward", module, of_rows[first], replace, 0, compare)
    encoders = list(context.modules(WhisperEncoder))
    for path, encoder in encoders:
        module = encoder.embed_positions
        # Whisper always encodes half a minute.
        encoding = Tensor2Tensor(module.embedding_dim)
        request = Request(encoding, positions=module.num_embeddings)
        replace = partial(_with_table, _rows_at)
        compare = partial(_pairs, module, lambda own, ids: own.forward(ids), 1.0)
        yield Site(f"{path}.embed_positions", "forward", module, request, replace, 0, compare)
    for path, module in context.modules(WhisperPositionalEmbedding):
        # A decoder alone has nothing else to replace.
        yield learned.site(context, path, module, required=not encoders)


def _request_of_text(module: Any, length: int) -> Request:
    dim = _weight_of(module).shape[-1]
    return Request(Sinusoidal(dim, columns="sines_cosines"), positions=length)


def _of_shape(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    return module.forward(position_ids.shape, position_ids=position_ids)


def _of_gptj(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    if _GPTJ is None:
        return module._get_embed_positions(position_ids[None])[0, : len(position_ids)]
    x = position_ids.to(module.embed_positions.dtype)
    return torch.cat(module.forward(x, position_ids), dim=-1)


def _after_padding(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    """Returns the rows for consecutive positions starting at 0."""
    is_xglm = isinstance(module, XGLMSinusoidalPositionalEmbedding)
    tokens = position_ids if is_xglm else torch.full_like(position_ids, module.padding_idx + 1)
    return module.forward(tokens[None])[0]


def _first_row(module: Any) -> int:
    """Returns the row for position 0."""
    if isinstance(module, XGLMSinusoidalPositionalEmbedding):
        return int(module.offset)
    is_padded = isinstance(module, tuple(_FORWARDS))
    return int(module.padding_idx) + 1 if is_padded else 0


def _weight_of(module: Any) -> torch.Tensor:
    weight: torch.Tensor = getattr(module, "weights", getattr(module, "embed_positions", None))
    return module.weight if weight is None else weight


def _table_of(module: Any, answer: Any) -> torch.Tensor:
    table = to_torch(answer)
    if _first_row(module):
        table = table.clone()
        table[module.padding_idx : module.padding_idx + 1] = 0  # the table may end before it
    return table


def _pairs(
    module: Any, rows: Callable[[Any, torch.Tensor], torch.Tensor], unit: float, answer: Any
) -> Iterator[Pair]:
    """Compares rows of the module's table with the fetched rows, as far as both exist.

    Angles are float32, except in Marian and Pegasus, where they are float64; ``unit`` scales the
    tolerance.
    """
    weight, first = _weight_of(module), _first_row(module)
    require_readable(weight)
    served = _table_of(module, answer)[first:]
    count, dim = min(len(weight) - first, len(served)), served.shape[1]
    with probing(module):
        own = rows(module, torch.arange(count, device=weight.device)).cpu()
    served = served[:count]
    frequencies = _BASE ** -(torch.arange(dim // 2).double() / (dim // 2))
    angles = unit * angle_bound(range(first, first + count), frequencies, _BASE).repeat(1, 2)
    # Rounding caused by a cast or by the type of the checkpoint.
    held = torch.finfo(held_in(own))
    bound = angles + max(held.eps, 2 * ULP) * served.double().abs() + held.eps * held.tiny
    axes = {"position": range(count), "column": range(dim)}
    yield Pair("sinusoid", own, served, axes, bound)


def _with_table(forward: Callable[..., Any], changes: Changes, module: Any, answer: Any) -> None:
    bits = _table_of(module, answer).view(torch.int32)
    changes.add_buffer(module, _TABLE, bits, _weight_of(module))
    method = _GPTJ_METHOD if forward is _gptj_table else "forward"
    changes.set_method(module, method, forward)


def _forward(
    module: Any,
    input_ids_shape: torch.Size,
    cache_length: int = 0,
    position_ids: torch.Tensor | None = None,
    *,
    past_key_values_length: int = 0,  # name of cache_length before transformers 5.24
) -> torch.Tensor:
    if position_ids is not None:
        return _rows_at(module, position_ids)
    past, length = cache_length or past_key_values_length, input_ids_shape[1]
    table = getattr(module, _TABLE)
    require_length(past + length, table.shape[0])
    return _rows(module, table[past : past + length])


def _of_tokens(
    module: Any,
    input_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
    cache_length: int = 0,
    *,
    past_key_values_length: int = 0,  # name of cache_length before transformers 5.24
) -> torch.Tensor:
    past, padding = cache_length + past_key_values_length, module.padding_idx
    if input_ids is None:
        rows = module.create_position_ids_from_inputs_embeds(inputs_embeds, past, padding)
    else:
        rows = module.create_position_ids_from_input_ids(input_ids, padding, past)
    return _rows_at(module, rows)


def _of_fsmt_tokens(
    module: Any, tokens: torch.Tensor, *, cache_length: int = 0, past_key_values_length: int = 0
) -> torch.Tensor:
    rows = module.make_positions(tokens, module.padding_idx)
    return _rows_at(module, rows + cache_length + past_key_values_length)


def _of_positions(module: Any, position_ids: torch.Tensor, cache_length: int = 0) -> torch.Tensor:
    del cache_length  # position_ids already account for it
    return _rows_at(module, position_ids + module.offset)


_FORWARDS: Final[dict[type, Callable[..., torch.Tensor]]] = {
    M2M100SinusoidalPositionalEmbedding: _of_tokens,
    NllbMoeSinusoidalPositionalEmbedding: _of_tokens,
    Speech2TextSinusoidalPositionalEmbedding: _of_tokens,
    SinusoidalPositionalEmbedding: _of_fsmt_tokens,
    XGLMSinusoidalPositionalEmbedding: _of_positions,
}


def _gptj_rows(
    module: Any, x: torch.Tensor, position_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = rotary.numbers_of(_bits_at(module, position_ids), position_ids.device)
    sin, cos = rows.to(x.dtype).chunk(2, dim=-1)
    return sin, cos


def _gptj_table(module: Any, position_ids: torch.Tensor) -> torch.Tensor:
    table = rotary.numbers_of(getattr(module, _TABLE), position_ids.device)
    rotary.check_positions(position_ids, table.shape[0])
    return table.expand(position_ids.shape[0], -1, -1)


def _rows_at(module: Any, places: torch.Tensor) -> torch.Tensor:
    return _rows(module, _bits_at(module, places))


def _bits_at(module: Any, places: torch.Tensor) -> torch.Tensor:
    """Returns rows of the table by index; position 0 is at ``_first_row``."""
    table, first = getattr(module, _TABLE), _first_row(module)
    count = table.shape[0]
    rotary.check_positions(places - first, count - first, least=-first)
    rows = rotary.rows_of(places, count, signed=False)
    return table.to(rows.device)[rows]


def _rows(module: Any, bits: torch.Tensor) -> torch.Tensor:
    """Returns rows in the weight's type."""
    weight = _weight_of(module)
    if weight.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "model: got gradients for a table of sinusoids that attach replaced; want "
            "embed_positions.requires_grad_(False), as for frozen modules, or torch.no_grad(); to "
            "train the table, detach() the model"
        )
    return rotary.numbers_of(bits, weight.device).to(weight.dtype)


FAMILY: Final = Family(_sites, takes_any=True)
