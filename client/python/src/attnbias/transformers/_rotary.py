# SPDX-License-Identifier: Apache-2.0
"""Rotary positions as Llama has them: one module that makes cosines and sines for all layers."""

from __future__ import annotations

import functools
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from attnbias._config import from_config
from attnbias._encodings import Rotary
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers._bias import require_length
from attnbias.transformers._compare import (
    ULP,
    Pair,
    angle_bound,
    probes,
    probing,
    require_readable,
    unreadable,
)
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from transformers import PreTrainedModel

    from attnbias._client import Client
    from attnbias._results import RotaryTables
    from attnbias.transformers._changes import Changes

_LENGTHS_KEPT: Final = 4  # of a "dynamic" rope_type; each has a table of its own


def sites(wanted: Wanted) -> Iterator[Site]:
    """The module, once for each table that it has."""
    for path, module in wanted.modules(_class_of(wanted.model)):
        for layer_type, encoding, scale in _encodings_of(module):
            tables = _Tables(wanted, path, module, layer_type, encoding=encoding, scale=scale)
            yield from tables.sites()


def _class_of(model: PreTrainedModel) -> type:
    names = (kind.__module__ for kind in type(model).__mro__)
    file = sys.modules[next(name for name in names if name.startswith("transformers.models."))]
    (found,) = (kind for name, kind in vars(file).items() if name.endswith("RotaryEmbedding"))
    known: type = found
    return known


def _encodings_of(module: Any) -> Iterator[tuple[str, Rotary, float | None]]:
    """Type of layers, encoding and scale of each table.

    The encodings are the configuration's. If ``from_config`` refuses it, as for a field whose
    effect is not known there, they have the frequencies and the scale that the module has.
    """
    # A model whose layers differ has a table for each type of them.
    layer_types = getattr(module, "layer_types", [""])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fields that change nothing, as comparing proves
            places = from_config(module.config)
    except ValueError:
        frequencies = {each: getattr(module, _own(each, "inv_freq")) for each in layer_types}
        if _has_lengths(module) or unreadable(*frequencies.values()):
            raise
        for layer_type, numbers in frequencies.items():
            given = Rotary(
                head_dim=2 * len(numbers),
                inverse_frequencies=numbers.float().tolist(),
                layout="compact",
            )
            # As torch rounds it when it multiplies float32.
            scale = float(np.float32(getattr(module, _own(layer_type, "attention_scaling"))))
            yield layer_type, given, scale
        return
    for place, encoding in places.items():
        _, _, layer_type = place.partition(".")
        if layer_type in layer_types:
            # The two halves of a row are the same numbers, so one of them is fetched.
            assert isinstance(encoding, Rotary)
            yield layer_type, replace(encoding, layout="compact"), None


def _has_lengths(module: Any) -> bool:
    """Whether frequencies depend on how long a sequence is."""
    types = module.rope_type.values() if isinstance(module.rope_type, dict) else [module.rope_type]
    return any("dynamic" in each or each == "longrope" for each in types)


def _own(layer_type: str, what: str) -> str:
    """Name of transformers' attribute for a type of layers."""
    return "_".join(filter(None, (layer_type, what)))


def _name(layer_type: str, what: str = "table") -> str:
    return "_".join(filter(None, ("attnbias", layer_type, what)))


class _Tables:
    """The tables of a module for one type of layers."""

    def __init__(
        self,
        wanted: Wanted,
        path: str,
        module: Any,
        layer_type: str,
        *,
        encoding: Rotary,
        scale: float | None,
    ) -> None:
        self._wanted = wanted
        self._path = path
        self._module = module
        self._layer_type = layer_type
        self._encoding = encoding
        self._scale = scale

    def sites(self) -> Iterator[Site]:
        """One for each table that ``max_length`` needs."""
        encoding, longest = self._encoding, self._wanted.max_length
        if encoding.rope_type == "longrope":
            length = _needed(encoding.original_max_position_embeddings)
            short = replace(encoding, sequence_length=length)
            yield self._site(short, min(length, longest), self._with_table)
            if longest > length:
                long = replace(encoding, sequence_length=longest)
                yield self._site(long, longest, self._with_long_table)
        elif encoding.rope_type == "dynamic":
            length = _needed(encoding.max_position_embeddings)
            trained = replace(encoding, sequence_length=length)
            if longest > length:
                put = functools.partial(self._with_lengths, length)
                yield self._site(trained, length, put)
                # It is only compared: tables of greater lengths are asked for when they are needed.
                last = replace(encoding, sequence_length=longest)
                yield self._site(last, longest, _without_change, first=longest - 1)
            else:
                yield self._site(trained, longest, self._with_table)
        else:
            yield self._site(encoding, longest, self._with_table)

    def _site(
        self,
        encoding: Rotary,
        length: int,
        put: Callable[[Changes, Any, RotaryTables], None],
        first: int = 0,
    ) -> Site:
        request = Request(encoding, positions=(first, length), scale=self._scale)
        compare = functools.partial(self._pairs, encoding, first, length)
        return Site(self._path, "forward", self._module, request, put, 0, compare)

    def _with_table(self, changes: Changes, module: Any, answer: RotaryTables) -> None:
        _add(changes, module, _name(self._layer_type), answer)
        changes.set_method(module, "forward", _FORWARDS.get(type(module).__name__, _forward))

    def _with_long_table(self, changes: Changes, module: Any, answer: RotaryTables) -> None:
        _add(changes, module, _name(self._layer_type, "long"), answer)

    def _with_lengths(
        self, trained: int, changes: Changes, module: Any, answer: RotaryTables
    ) -> None:
        self._with_table(changes, module, answer)
        seen = max(trained, int(getattr(module, self._own_length())))
        changes.set(module, _name(self._layer_type, "length"), seen)
        changes.set(module, _name(self._layer_type, "max_length"), self._wanted.max_length)
        fetcher = _fetcher(self._wanted.client, self._encoding)
        changes.set(module, _name(self._layer_type, "at"), fetcher)

    def _own_length(self) -> str:
        """Name of transformers' attribute for the longest sequence seen, of "dynamic"."""
        name = _own(self._layer_type, "max_seq_len_cached")
        return name if hasattr(self._module, name) else "max_seq_len_cached"

    def _pairs(
        self, encoding: Rotary, first: int, length: int, answer: RotaryTables
    ) -> Iterator[Pair]:
        """What the module makes of some positions beside the rows that were fetched."""
        module, layer_type = self._module, self._layer_type
        require_readable(*module.buffers())
        trained = module.original_max_seq_len
        if encoding.rope_type == "dynamic":
            yield Pair(
                "original_max_seq_len",
                torch.tensor([trained]),
                torch.tensor([encoding.max_position_embeddings]),
                {"index": [0]},
            )
        positions = [first] if first else probes(length)
        ids = torch.tensor([positions], device="cpu")
        options = {"layer_type": layer_type} if layer_type else {}
        with probing(module):
            x = torch.zeros(1, dtype=torch.float32, device="cpu")
            if encoding.rope_type == "dynamic":
                # A short sequence undoes what longer ones have changed before.
                module.forward(x, ids.new_zeros(1, 1), **options)
            made = module.forward(x, ids, **options)
        own = (made.real, made.imag) if isinstance(made, torch.Tensor) else made
        served = [to_torch(part) for part in (answer.cos, answer.sin)]
        bound = _bound(encoding, positions, served, from_row=first)
        rows = [position - first for position in positions]
        frequencies = getattr(module, _own(layer_type, "inv_freq"))
        for quantity, ours, its in zip(("cos", "sin"), served, own, strict=True):
            wanted = ours[rows]
            limit = bound + 2 * ULP * wanted.double().abs()
            if its.shape[-1] == 2 * wanted.shape[-1]:
                wanted, limit = (torch.cat((each, each), -1) for each in (wanted, limit))
            yield Pair(
                quantity,
                its[0],
                wanted,
                {"position": positions, "column": range(wanted.shape[-1])},
                limit,
                ""
                if frequencies.dtype == torch.float32
                else f"Its frequencies were cast to {frequencies.dtype}".replace("torch.", ""),
            )


def _bound(
    encoding: Rotary, positions: Sequence[int], served: Sequence[torch.Tensor], from_row: int
) -> torch.Tensor:
    cos, sin = (part.double() for part in served)
    pairs = cos.shape[1]
    factor = torch.hypot(cos[0, 0], sin[0, 0])
    if encoding.inverse_frequencies is not None:
        frequencies, theta = torch.tensor(encoding.inverse_frequencies).double(), 1.0
    else:
        theta = 10000.0 if encoding.rope_theta is None else encoding.rope_theta
        frequencies = theta ** -(torch.arange(pairs).double() / pairs)
        if len(cos) > 1 and not from_row:  # factors of longrope may make them greater
            frequencies = torch.maximum(frequencies, torch.atan2(sin[1], cos[1]))
    return factor * angle_bound(positions, frequencies, theta)


def _without_change(changes: Changes, module: Any, answer: RotaryTables) -> None:
    """Replaces nothing."""


def _needed(length: int | None) -> int:
    """A length that the encoding's rope_type always has."""
    assert length is not None
    return length


def _add(changes: Changes, module: Any, name: str, answer: RotaryTables) -> None:
    changes.add_buffer(module, name, bits_of(answer.cos, answer.sin), next(module.buffers()))


def bits_of(*parts: Any) -> torch.Tensor:
    """Tables of float32, stacked; as bits, since a cast of the model is none of theirs."""
    return torch.stack([to_torch(part) for part in parts]).view(torch.int32)


def numbers_of(bits: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The numbers of ``bits_of``, where they are needed."""
    return bits.view(torch.float32).to(device)


def check_positions(position_ids: torch.Tensor, max_length: int, *, least: int = 0) -> None:
    """Refuses those without a row, where looking at them makes no device wait."""
    if (
        position_ids.device.type != "cpu"
        or torch.compiler.is_compiling()
        or not position_ids.numel()
    ):
        return
    fractions = position_ids[(position_ids != position_ids.trunc()) | position_ids.isinf()]
    if fractions.numel():
        raise ValueError(
            f"position_ids: got {float(fractions[0])}, want whole numbers: the model was attached "
            "to a table with a row for each; detach() it for what lies between"
        )
    first, last = (int(position) for position in torch.aminmax(position_ids))
    if first < least:
        raise ValueError(f"position_ids: got {first}, want positions from {least} on")
    require_length(last + 1, max_length)


def rows_of(position_ids: torch.Tensor, rows: int, *, signed: bool = True) -> torch.Tensor:
    """Row of each position p, which is that of |p| if there are ``signed`` positions.

    A fraction and a position beyond the table get the row ``rows``, which it does not have:
    torch's indexing refuses that in all modes, and nothing waits for a device.
    """
    whole = position_ids.long().clamp(-rows, rows).abs()  # the least integer has no magnitude
    if position_ids.is_floating_point():
        whole = torch.where(position_ids == position_ids.trunc(), whole, rows)
    return whole if signed else torch.where(position_ids < 0, rows, whole)


def _fetcher(client: Client, encoding: Rotary) -> Callable[[int, int, int], torch.Tensor]:
    """Rows of the table for a length, from a position on to an end."""

    @functools.lru_cache(_LENGTHS_KEPT)
    def rows(length: int, first: int, end: int) -> torch.Tensor:
        of_length = replace(encoding, sequence_length=length)
        tables = client.get(of_length, positions=(first, end))
        return bits_of(tables.cos, tables.sin)

    return rows


def _rows(
    module: Any, position_ids: torch.Tensor, layer_type: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of positions ``[batch, length]``, each ``[batch, length, pairs]``.

    A row has those of p and -p: the sine of -p is that of p with the other sign.
    """
    cos, sin = _rows_of_magnitudes(module, position_ids, layer_type)
    return cos, torch.where(position_ids[..., None] < 0, -sin, sin)


def _rows_of_magnitudes(module: Any, position_ids: torch.Tensor, layer_type: str) -> torch.Tensor:
    device = position_ids.device
    table = numbers_of(getattr(module, _name(layer_type)), device)
    at = getattr(module, _name(layer_type, "at"), None)
    if at is not None:
        return _rows_of_length(module, position_ids, layer_type, table, at)
    long_bits = getattr(module, _name(layer_type, "long"), None)
    if long_bits is None:
        count = table.shape[1]
        check_positions(position_ids, count, least=1 - count)
        return table[:, rows_of(position_ids, count)]
    long_table = numbers_of(long_bits, device)
    count, trained = long_table.shape[1], table.shape[1]
    check_positions(position_ids, count, least=1 - count)
    # As transformers does: one long sequence makes the whole batch one. No device has to wait.
    is_long = position_ids.max() >= trained
    rows = rows_of(position_ids, count)
    # Of a long sequence any row will do; in a short one -p has no row from the trained length on.
    short_rows = torch.where(is_long, 0, rows)
    return torch.where(is_long, long_table[:, rows], table[:, short_rows])


# It looks at the positions, and may ask the server.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _rows_of_length(
    module: Any,
    position_ids: torch.Tensor,
    layer_type: str,
    table: torch.Tensor,
    at: Callable[[int, int, int], torch.Tensor],
) -> torch.Tensor:
    """As transformers has it: the length grows, until a sequence is as short as those trained."""
    on_cpu = position_ids.cpu()
    longest = getattr(module, _name(layer_type, "max_length"))
    check_positions(on_cpu, longest, least=1 - longest)
    rows = rows_of(on_cpu, longest)
    last = int(position_ids.max())
    trained, name = table.shape[1], _name(layer_type, "length")
    length = max(getattr(module, name), last + 1)
    if last + 1 < trained:
        length = trained
    setattr(module, name, length)
    first, end = int(rows.min()), int(rows.max()) + 1
    if length <= trained and end <= trained:
        return table[:, rows.to(table.device)]
    numbers = numbers_of(at(length, first, max(length, end)), table.device)
    return numbers[:, (rows - first).to(table.device)]


def _forward(
    module: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = (rows.to(x.dtype) for rows in _rows(module, position_ids, layer_type or ""))
    return torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)


def _complex_forward(module: Any, x: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
    del x  # whose type transformers does not ask for either
    return torch.complex(*_rows(module, position_ids, ""))


_FORWARDS: Final = {"DeepseekV2RotaryEmbedding": _complex_forward}

FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=sites, takes_any=True)
