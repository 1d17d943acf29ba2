# SPDX-License-Identifier: Apache-2.0
"""BERT, GPT-2, BART, CLIP, ViT and similar models: learned position tables.

The model's own parameter is set to the server's values. The model still reads and processes the
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NoReturn

import numpy.typing as npt
import torch
from torch import nn

from attnbias._arrays.convert import to_numpy, to_torch
from attnbias._cache.cache import Cache
from attnbias._errors import NotFoundError, UnavailableError
from attnbias._models.changes import Changes
from attnbias._models.compare import Pair, unreadable
from attnbias._models.family import AttachContext, Family, Site
from attnbias._spec.encodings import LearnedAbsolute
from attnbias._spec.fields import digest_of
from attnbias._spec.info import TensorInfo, part_of
from attnbias._spec.request import Request

_NAMES: Final = (
    "embed_positions",
    "position_embedding",
    "position_embeddings",
    "positions_embed",
    "wpe",
)


def _sites(context: AttachContext) -> Iterator[Site]:
    for path, name, module in _tables_of(context.model):
        yield site(context, path, module, name, required=True)


def _tables_of(model: nn.Module) -> Iterator[tuple[str, str, nn.Module]]:
    """Yields the path, parameter name and module of each position table."""
    for path, module in model.named_modules():
        if path.rpartition(".")[2] in _NAMES and isinstance(module, nn.Embedding):
            yield path, "weight", module
        for name, parameter in module.named_parameters(recurse=False):
            if name in _NAMES and parameter.dim() == 3:  # noqa: PLR2004  # [1, patches, columns]
                yield path, name, module


def _table(module: nn.Module, name: str) -> torch.Tensor:
    return getattr(module, name).detach().flatten(0, -2)


def site(
    context: AttachContext, path: str, module: nn.Module, name: str = "weight", *, required: bool
) -> Site:
    """Returns the site for a parameter that is a position table, perhaps with a batch axis.

    Raises ValueError if the table is required and the server does not have it.
    """
    parameter: Any = getattr(module, name)
    # BART and OPT specify the row of position 0; in RoBERTa it follows the padding row.
    padding: Any = getattr(module, "padding_idx", None)
    stated: Any = getattr(module, "offset", 0 if padding is None else padding + 1)
    offset = int(stated)
    reason = unreadable(parameter)
    if reason:  # there are no values to hash
        rows = torch.empty(parameter.shape[-2:], dtype=parameter.dtype, device="meta")
        encoding = LearnedAbsolute(table=rows, offset=offset)
        request = Request(encoding, positions=len(rows))
        return Site(path, name, module, request, None, 0, reason=reason)
    table = to_numpy(_table(module, name).cpu())
    encoding = LearnedAbsolute(table=f"sha256:{digest_of(table)}", offset=offset)
    extent: Any = {"positions": (-offset, len(table) - offset), "data_type": table.dtype}
    try:
        info = context.client.describe(encoding, **extent)
    except NotFoundError as missing:
        if required:
            where = ".".join(filter(None, (path, name)))
            got = f"{where}, {table.dtype} {list(table.shape)} of {encoding.table}"
            _refuse(context, got, table.shape, missing)
        reason = f"neither the server nor the cache has {encoding}"
        return Site(path, name, module, Request(encoding, **extent), None, 0, reason=reason)
    put = partial(_put, name=name, cache=context.client._cache, info=info)
    compare = partial(_pairs, module, name)
    return Site(path, name, module, Request(encoding, **extent), put, 0, compare)


def _pairs(module: nn.Module, name: str, answer: npt.NDArray[Any]) -> Iterator[Pair]:
    own, served = _table(module, name), to_torch(answer)
    axes = {"row": range(len(own)), "column": range(own.shape[1])}
    yield Pair(name, own, served, axes)


def _refuse(
    context: AttachContext, got: str, shape: tuple[int, ...], missing: NotFoundError
) -> NoReturn:
    try:
        mounted = context.client.list_tables()
    except UnavailableError:  # the client is offline, or the server is gone
        raise missing from None
    alike = [
        f"{each.name} ({each.dtype}, sha256:{each.sha256})"
        for each in mounted
        if each.shape == shape
    ]
    raise ValueError(
        f"model: got {got}, want a table that the server has mounted; "
        f"it has {', '.join(alike) or 'none'} of this shape. Start it with --checkpoint "
        "NAME=FOLDER or --table NAME=FILE.safetensors:TENSOR; if only the dtype differs, load "
        "the model in the table's dtype; or leave the model unattached"
    ) from None


def _put(
    changes: Changes,
    module: Any,
    answer: npt.NDArray[Any],
    *,
    name: str,
    cache: Cache | None,
    info: TensorInfo,
) -> None:
    # The model may be trained, and a cached payload is read-only.
    memory = None if cache is None else cache.writable(info)
    numbers = answer if memory is None else part_of(memory, info, 0)
    parameter = getattr(module, name)
    own = to_torch(numbers, parameter.device)
    changes.set_numbers(parameter, own.reshape(parameter.shape))


FAMILY: Final = Family(_sites, takes_any=True)
