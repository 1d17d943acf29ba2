# SPDX-License-Identifier: Apache-2.0
"""Rotary positions as Llama has them: one module that makes cosines and sines for all layers."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from attnbias._config import from_config
from attnbias._encodings import Rotary
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers._bias import require_length
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from attnbias._client import Client
    from attnbias._results import RotaryTables
    from attnbias.transformers._changes import Changes

_LENGTHS_KEPT: Final = 4  # of a "dynamic" rope_type; each has a table of its own


def sites(wanted: Wanted) -> Iterator[Site]:
    """The module, once for each table that it has."""
    for path, module in wanted.modules(_class_of(wanted.model)):
        for place, encoding in from_config(module.config).items():
            # A model whose layers differ has a table for each type of them.
            _, _, layer_type = place.partition(".")
            if layer_type in getattr(module, "layer_types", [""]):
                # The two halves of a row are the same numbers, so one of them is fetched.
                assert isinstance(encoding, Rotary)
                compact = replace(encoding, layout="compact")
                yield from _of_table(wanted, path, module, layer_type, compact)


def _class_of(model: PreTrainedModel) -> type:
    names = (kind.__module__ for kind in type(model).__mro__)
    file = sys.modules[next(name for name in names if name.startswith("transformers.models."))]
    (found,) = (kind for name, kind in vars(file).items() if name.endswith("RotaryEmbedding"))
    known: type = found
    return known


def _of_table(
    wanted: Wanted, path: str, module: Any, layer_type: str, encoding: Rotary
) -> Iterator[Site]:
    def site(
        encoding: Rotary, length: int, put: Callable[[Changes, Any, RotaryTables], None]
    ) -> Site:
        return Site(path, "forward", module, Request(encoding, positions=length), put, 0)

    def with_table(changes: Changes, module: Any, answer: RotaryTables) -> None:
        _add(changes, module, _name(layer_type), answer)
        changes.set_method(module, "forward", _FORWARDS.get(type(module).__name__, _forward))

    def with_long_table(changes: Changes, module: Any, answer: RotaryTables) -> None:
        _add(changes, module, _name(layer_type, "long"), answer)

    def with_lengths(changes: Changes, module: Any, answer: RotaryTables) -> None:
        with_table(changes, module, answer)
        changes.set(module, _name(layer_type, "length"), length)
        changes.set(module, _name(layer_type, "max_length"), wanted.max_length)
        changes.set(module, _name(layer_type, "at"), _fetcher(wanted.client, encoding))

    if encoding.rope_type == "longrope":
        length = _needed(encoding.original_max_position_embeddings)
        short = replace(encoding, sequence_length=length)
        yield site(short, min(length, wanted.max_length), with_table)
        if wanted.max_length > length:
            long = replace(encoding, sequence_length=wanted.max_length)
            yield site(long, wanted.max_length, with_long_table)
    elif encoding.rope_type == "dynamic":
        length = _needed(encoding.max_position_embeddings)
        trained = replace(encoding, sequence_length=length)
        if wanted.max_length > length:
            yield site(trained, length, with_lengths)
        else:
            yield site(trained, wanted.max_length, with_table)
    else:
        yield site(encoding, wanted.max_length, with_table)


def _needed(length: int | None) -> int:
    """A length that the encoding's rope_type always has."""
    assert length is not None
    return length


def _name(layer_type: str, what: str = "table") -> str:
    return "_".join(filter(None, ("attnbias", layer_type, what)))


def _add(changes: Changes, module: Any, name: str, answer: RotaryTables) -> None:
    device = next(module.buffers()).device
    changes.add_buffer(module, name, bits_of(answer.cos, answer.sin).to(device))


def bits_of(*parts: Any) -> torch.Tensor:
    """Tables of float32, stacked; as bits, since a cast of the model is none of theirs."""
    return torch.stack([to_torch(part) for part in parts]).view(torch.int32)


def numbers_of(bits: torch.Tensor) -> torch.Tensor:
    """The numbers of ``bits_of``."""
    return bits.view(torch.float32)


def check_positions(position_ids: torch.Tensor, max_length: int) -> None:
    """Refuses those without a row, where looking at them makes no device wait."""
    if (
        position_ids.device.type != "cpu"
        or torch.compiler.is_compiling()
        or not position_ids.numel()
    ):
        return
    first, last = (int(position) for position in torch.aminmax(position_ids))
    if first < 0:
        raise ValueError(f"position_ids: got {first}, want positions from 0 on")
    require_length(last + 1, max_length)


def _fetcher(client: Client, encoding: Rotary) -> Callable[[int, int], torch.Tensor]:
    """Rows of the table for a length, from a position on to the table's end."""

    @functools.lru_cache(_LENGTHS_KEPT)
    def rows(length: int, first: int) -> torch.Tensor:
        of_length = replace(encoding, sequence_length=length)
        tables = client.get(of_length, positions=(first, length))
        return bits_of(tables.cos, tables.sin)

    return rows


def _rows(module: Any, position_ids: torch.Tensor, layer_type: str) -> torch.Tensor:
    """Cosines and sines of positions ``[batch, length]``, as ``[2, batch, length, pairs]``."""
    table = numbers_of(getattr(module, _name(layer_type)))
    at = getattr(module, _name(layer_type, "at"), None)
    if at is not None:
        return _rows_of_length(module, position_ids, layer_type, table, at)
    long_bits = getattr(module, _name(layer_type, "long"), None)
    if long_bits is None:
        check_positions(position_ids, table.shape[1])
        return table[:, position_ids]
    long_table = numbers_of(long_bits)
    check_positions(position_ids, long_table.shape[1])
    trained = table.shape[1]
    # As transformers does: one long sequence makes the whole batch one. No device has to wait.
    return torch.where(
        position_ids.max() >= trained,
        long_table[:, position_ids],
        table[:, position_ids.clamp(max=trained - 1)],
    )


# It looks at the positions, and may ask the server.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _rows_of_length(
    module: Any,
    position_ids: torch.Tensor,
    layer_type: str,
    table: torch.Tensor,
    at: Callable[[int, int], torch.Tensor],
) -> torch.Tensor:
    """As transformers has it: the length grows, until a sequence is as short as those trained."""
    check_positions(position_ids, getattr(module, _name(layer_type, "max_length")))
    first, last = (int(position) for position in torch.aminmax(position_ids))
    trained, name = table.shape[1], _name(layer_type, "length")
    length = max(getattr(module, name), last + 1)
    if last + 1 < trained:
        length = trained
    setattr(module, name, length)
    if length <= trained:
        return table[:, position_ids]
    return numbers_of(at(length, first).to(table.device))[:, position_ids - first]


def _forward(
    module: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = _rows(module, position_ids, layer_type or "").to(x.dtype)
    cos, sin = torch.cat((rows, rows), dim=-1)
    return cos, sin


def _complex_forward(module: Any, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    del x  # whose type transformers does not ask for either
    cos, sin = _rows(module, position_ids, "")
    return torch.complex(cos, sin)


_FORWARDS: Final = {"DeepseekV2RotaryEmbedding": _complex_forward}

FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=sites, takes_any=True)
