# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: modules that compute cosines and sines for all layers.

Modules differ in how they arrange these values: Llama stores each frequency in both halves of a
row, Cohere in two adjacent columns, GPT-OSS once; Llama 4 uses complex numbers; OLMo keeps float32;
Qwen2-VL takes its columns from three axes of positions. A probe of the module's own code finds its
``_Form``.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel

from attnbias._arrays.convert import to_torch
from attnbias._arrays.tables import RotaryTables
from attnbias._client import Client
from attnbias._models.changes import Changes
from attnbias._models.compare import (
    ULP,
    Pair,
    angle_bound,
    probes,
    probing,
    require_readable,
    unreadable,
)
from attnbias._models.config import from_config
from attnbias._models.families.bias import require_length
from attnbias._models.family import AttachContext, Family, Site
from attnbias._models.rotary_places import with_length
from attnbias._spec.encodings import Rotary
from attnbias._spec.request import Request

_LENGTHS_KEPT: Final = 4  # for a "dynamic" rope_type, which has a table for each length


def sites(context: AttachContext) -> Iterator[Site]:
    """Yields the sites for each module's tables."""
    for path, module in context.modules(_classes_of(context.model)):
        for layer_type, encoding, scale in _encodings_of(module):
            tables = _Tables(context, path, module, layer_type, encoding, scale)
            yield from tables.sites()


def _classes_of(model: PreTrainedModel) -> tuple[type, ...]:
    """Returns the rotary classes in the transformers files that define a model."""
    names = {kind.__module__ for module in model.modules() for kind in type(module).__mro__}
    files = sorted(name for name in names if name.startswith("transformers.models."))
    return tuple(
        kind
        for file in files
        for name, kind in vars(sys.modules[file]).items()
        if name.endswith("RotaryEmbedding") and kind.__module__ == file
    )


class _Form(NamedTuple):
    """How a module arranges its values for a position, or for one position on each axis.

    Attributes:
        axes: number of position axes.
        axis: the dimension of position_ids for these axes; None if the module supports only one.
        is_complex: whether the module returns complex numbers instead of cosines and sines.
        keeps_float32: whether the output is not cast to the type of the module's input.
    """

    axes: int
    axis: int | None
    is_complex: bool
    keeps_float32: bool


def _form_of(module: Any, layer_type: str) -> tuple[_Form, torch.Tensor]:
    """Returns the form, and a number for each column: a * n + m for pair m of n on axis a.

    Probes the module's own code with test frequencies, which give each pair of each axis a distinct
    angle. The module's own frequencies are not used, whatever their device.
    """
    pairs = getattr(module, _own(layer_type, "inv_freq")).shape[-1]
    octave = 0.125 * (1 + torch.arange(pairs, device="cpu") / pairs)
    if module.rope_type == "axial":
        ids = torch.tensor([[1, 2]], device="cpu")
    else:
        ids = torch.tensor([1, 2, 4], device="cpu").reshape(3, 1, 1)
    options = {"layer_type": layer_type} if layer_type else {}
    plain = {_own(layer_type, "inv_freq"): octave, _own(layer_type, "attention_scaling"): 1.0}
    forward = inspect.unwrap(type(module).forward)
    with probing(module, **plain):
        made, narrow = (
            forward(module, torch.zeros(1, dtype=dtype, device="cpu"), ids, **options)
            for dtype in (torch.float32, torch.bfloat16)
        )
    is_complex = isinstance(made, torch.Tensor)
    cos, sin = (made.real, made.imag) if isinstance(made, torch.Tensor) else made
    angles = torch.atan2(sin, cos).flatten(0, -2)[0]
    is_one = cos.dim() > ids.dim()
    axes = 1 if is_one else ids.numel()
    known = torch.cat([octave * 2**axis for axis in range(axes)])
    columns = (angles[:, None] - known).abs().argmin(-1)
    axis = None if is_one else -1 if module.rope_type == "axial" else 0
    keeps_float32 = is_complex or narrow[0].dtype == torch.float32
    return _Form(axes, axis, is_complex, keeps_float32), columns


def _encodings_of(module: Any) -> Iterator[tuple[str, Rotary, float | None]]:
    """Yields the layer type, encoding and scale of each table.

    The encodings come from the configuration. If ``from_config`` rejects it, for example because of
    a field with an unknown effect, the encodings have the module's frequencies and scale.
    """
    # A model whose layers differ has a table for each layer type.
    layer_types = getattr(module, "layer_types", [""])
    try:
        # Warnings about ineffective fields are useless here: the values are compared.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            places = from_config(module.config)
    except ValueError:
        frequencies = {each: getattr(module, _own(each, "inv_freq")) for each in layer_types}
        types = module.rope_type
        types = types.values() if isinstance(types, dict) else [types]
        has_lengths = any("dynamic" in each or each == "longrope" for each in types)
        if has_lengths or unreadable(*frequencies.values()):
            raise
        for layer_type, numbers in frequencies.items():
            given = Rotary(
                head_dim=2 * len(numbers),
                inverse_frequencies=numbers.float().tolist(),
                layout="compact",
            )
            # Rounded like torch's product with float32.
            scale = float(np.float32(getattr(module, _own(layer_type, "attention_scaling"))))
            yield layer_type, given, scale
        return
    for place, encoding in places.items():
        _, _, layer_type = place.partition(".")
        if layer_type in layer_types:
            assert isinstance(encoding, Rotary)
            yield layer_type, _of_one_axis(encoding), None


def _of_one_axis(encoding: Rotary) -> Rotary:
    """Returns the encoding with each pair once, at the same position on all axes."""
    axes = encoding.axes or ()
    if axes and axes[0].ladder:  # each axis has an equal share of the pairs, with all frequencies
        columns, theta = encoding.head_dim // len(axes), axes[0].ladder.base
        encoding = replace(encoding, head_dim=columns, rope_theta=theta)
    return replace(encoding, layout="compact", axes=None, pair_axis=None)


def _own(layer_type: str, what: str) -> str:
    """Returns transformers' attribute name for a layer type."""
    return "_".join(filter(None, (layer_type, what)))


def _name(layer_type: str, what: str = "table") -> str:
    return "_".join(filter(None, ("attnbias", layer_type, what)))


@dataclass(eq=False)
class _Tables:
    """A module's tables for one layer type."""

    context: AttachContext
    path: str
    module: Any
    layer_type: str
    encoding: Rotary
    scale: float | None

    def __post_init__(self) -> None:
        self._form, self._columns = _form_of(self.module, self.layer_type)

    def sites(self) -> Iterator[Site]:
        """Yields a site for each table that ``max_length`` needs."""
        encoding, longest = self.encoding, self.context.max_length
        if encoding.longrope is not None:
            length = encoding.longrope.original_max_position_embeddings
            short = with_length(encoding, length)
            yield self._site(short, min(length, longest), self._with_table)
            if longest > length:
                add = functools.partial(self._add, "long")
                yield self._site(with_length(encoding, longest), longest, add)
        elif encoding.dynamic is not None:
            length = encoding.dynamic.max_position_embeddings
            trained = with_length(encoding, length)
            if longest > length:
                put = functools.partial(self._with_lengths, length)
                yield self._site(trained, length, put)
                # Only compared; tables for greater lengths are fetched when needed.
                last = with_length(encoding, longest)
                yield self._site(last, longest, lambda *_: None, first=longest - 1)
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
        request = Request(encoding, positions=(first, length), scale=self.scale)
        compare = functools.partial(self._pairs, encoding, first, length)
        return Site(self.path, "forward", self.module, request, put, 0, compare)

    def _with_table(self, changes: Changes, module: Any, answer: RotaryTables) -> None:
        self._add("table", changes, module, answer)
        changes.set(module, _name(self.layer_type, "form"), self._form)
        columns = _name(self.layer_type, "columns")
        changes.add_buffer(module, columns, self._columns, self._frequencies())
        changes.set_method(module, "forward", _forward)

    def _add(self, what: str, changes: Changes, module: Any, answer: RotaryTables) -> None:
        bits = bits_of(answer.cos, answer.sin)
        changes.add_buffer(module, _name(self.layer_type, what), bits, self._frequencies())

    def _frequencies(self) -> torch.Tensor:
        return getattr(self.module, _own(self.layer_type, "inv_freq"))

    def _with_lengths(
        self, trained: int, changes: Changes, module: Any, answer: RotaryTables
    ) -> None:
        self._with_table(changes, module, answer)
        # The longest sequence so far, under either of the names that transformers uses.
        own = _own(self.layer_type, "max_seq_len_cached")
        own = own if hasattr(module, own) else "max_seq_len_cached"
        seen = max(trained, int(getattr(module, own)))
        changes.set(module, _name(self.layer_type, "length"), seen)
        changes.set(module, _name(self.layer_type, "max_length"), self.context.max_length)
        fetcher = _fetcher(self.context.client, self.encoding)
        changes.set(module, _name(self.layer_type, "at"), fetcher)

    def _pairs(
        self, encoding: Rotary, first: int, length: int, answer: RotaryTables
    ) -> Iterator[Pair]:
        """Compares the module's result at some positions with the fetched rows."""
        module, layer_type = self.module, self.layer_type
        frequencies = self._frequencies()
        require_readable(frequencies)
        if encoding.dynamic is not None:
            yield Pair(
                "original_max_seq_len",
                torch.tensor([getattr(module, _own("", "original_max_seq_len"))]),
                torch.tensor([encoding.dynamic.max_position_embeddings]),
                {"index": [0]},
            )
        positions = [first] if first else probes(length)
        # Each axis has the same positions in a different order.
        order = torch.arange(len(positions), device="cpu")
        order = torch.stack([order.roll(axis) for axis in range(self._form.axes)])
        ids = torch.tensor(positions, device="cpu")[order]
        options = {"layer_type": layer_type} if layer_type else {}
        with probing(module):
            x = torch.zeros(1, dtype=torch.float32, device="cpu")
            if encoding.dynamic is not None:
                # A short sequence resets the changes made by longer ones.
                module.forward(x, torch.zeros_like(ids[:, None, :1]), **options)
            made = module.forward(x, ids.t() if self._form.axis == -1 else ids[:, None], **options)
        own = (made.real, made.imag) if isinstance(made, torch.Tensor) else made
        tables = [to_torch(part) for part in (answer.cos, answer.sin)]
        bound = _bound(encoding, positions, tables, from_row=first)
        cause = (
            ""
            if frequencies.dtype == torch.float32
            else f"Its frequencies were cast to {frequencies.dtype}".replace("torch.", "")
        )
        rows = [position - first for position in positions]
        for quantity, table, its in zip(("cos", "sin"), tables, own, strict=True):
            ours = table[rows]
            wanted, limit = (
                _arranged(each[order.t()], self._columns)
                for each in (ours, bound + 2 * ULP * ours.double().abs())
            )
            axes = {"position": positions, "column": range(wanted.shape[-1])}
            yield Pair(quantity, its.flatten(0, -2), wanted, axes, limit, cause)


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
        if len(cos) > 1 and not from_row:  # longrope's factors may increase them
            frequencies = torch.maximum(frequencies, torch.atan2(sin[1], cos[1]))
    return factor * angle_bound(positions, frequencies, theta)


def bits_of(*parts: Any) -> torch.Tensor:
    """Stacks float32 tables as raw bits, so that casting the model does not change them."""
    return torch.stack([to_torch(part) for part in parts]).view(torch.int32)


def numbers_of(bits: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the values of ``bits_of`` on a device."""
    return bits.view(torch.float32).to(device)


def check_positions(position_ids: torch.Tensor, max_length: int, *, least: int = 0) -> None:
    """Rejects positions without a row, unless reading them would synchronize a device."""
    if (
        position_ids.device.type != "cpu"
        or torch.compiler.is_compiling()
        or not position_ids.numel()
    ):
        return
    fractions = position_ids[(position_ids != position_ids.trunc()) | position_ids.isinf()]
    if fractions.numel():
        raise ValueError(
            f"position_ids: got {float(fractions[0])}, want integers: the model was attached to "
            "a table with a row per position; detach() it for fractional positions"
        )
    first, last = (int(position) for position in torch.aminmax(position_ids))
    if first < least:
        raise ValueError(f"position_ids: got {first}, want positions of at least {least}")
    require_length(last + 1, max_length)


def rows_of(position_ids: torch.Tensor, rows: int, *, signed: bool = True) -> torch.Tensor:
    """Returns the row for each position p, or of |p| if positions are ``signed``.

    A fraction or a position beyond the table gets the nonexistent row ``rows``, which torch's
    indexing rejects in all modes, without waiting for a device.
    """
    whole = position_ids.long().clamp(-rows, rows).abs()  # abs() of the minimum overflows
    if position_ids.is_floating_point():
        whole = torch.where(position_ids == position_ids.trunc(), whole, rows)
    return whole if signed else torch.where(position_ids < 0, rows, whole)


def _fetcher(client: Client, encoding: Rotary) -> Callable[[int, int, int], torch.Tensor]:
    """Returns a function that fetches rows [first, end) of the table for a given length."""

    @functools.lru_cache(_LENGTHS_KEPT)
    def rows(length: int, first: int, end: int) -> torch.Tensor:
        tables = client.get(with_length(encoding, length), positions=(first, end))
        return bits_of(tables.cos, tables.sin)

    return rows


def _rows(
    module: Any, position_ids: torch.Tensor, layer_type: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns cosines and sines for positions ``[batch, length]``, each ``[batch, length, pairs]``.

    A row serves both p and -p: the sine of -p is the negative of the sine of p.
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
    # As in transformers, a batch counts as long if one of its sequences is. Nothing waits for a
    # device.
    is_long = position_ids.max() >= trained
    rows = rows_of(position_ids, count)
    # A long sequence may use any row, a short one only rows below the trained length.
    short_rows = torch.where(is_long, 0, rows)
    return torch.where(is_long, long_table[:, rows], table[:, short_rows])


# Reads the positions, and may call the server.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _rows_of_length(
    module: Any,
    position_ids: torch.Tensor,
    layer_type: str,
    table: torch.Tensor,
    at: Callable[[int, int, int], torch.Tensor],
) -> torch.Tensor:
    """Returns rows of the table for the longest sequence so far.

    As in transformers, a sequence shorter than the trained length resets this length.
    """
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


def _arranged(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Arranges the rows for positions, ``[..., axes, pairs]``, into a module's columns."""
    return rows.flatten(-2)[..., columns]


def _forward(
    module: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None
) -> tuple[torch.Tensor, torch.Tensor] | torch.Tensor:
    layer_type = layer_type or ""
    form: _Form = getattr(module, _name(layer_type, "form"))
    columns = getattr(module, _name(layer_type, "columns")).to(position_ids.device)
    if form.axis is None:
        position_ids = position_ids[..., None]
    elif form.axis == 0:  # as the modules do: one row of positions applies to all axes
        position_ids = position_ids.expand(form.axes, -1, -1).movedim(0, -1).contiguous()
    cos, sin = (_arranged(rows, columns) for rows in _rows(module, position_ids, layer_type))
    if form.is_complex:
        return torch.complex(cos, sin)
    return (cos, sin) if form.keeps_float32 else (cos.to(x.dtype), sin.to(x.dtype))


FAMILY: Final = Family(sites, takes_any=True)
