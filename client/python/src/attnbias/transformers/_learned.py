# SPDX-License-Identifier: Apache-2.0
"""BERT, GPT-2, OPT, BART and their kin: learned positions, rows of a table that a server may have.

The server's numbers become those of the model's own parameter. So the rows that are read, and all
that is done to them, stay the model's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from torch import nn

from attnbias._encodings import LearnedAbsolute
from attnbias._errors import NotFoundError, UnavailableError
from attnbias._memory import part_of
from attnbias._request import Request
from attnbias._tables import digest_of
from attnbias._torch import to_numpy, to_torch
from attnbias.transformers._compare import Pair, unreadable
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from attnbias._cache import Cache
    from attnbias._info import TensorInfo
    from attnbias.transformers._changes import Changes

_NAMES: Final = ("embed_positions", "position_embeddings", "wpe")


def _sites(wanted: Wanted) -> Iterator[Site]:
    for path, module in wanted.model.named_modules():
        if path.rpartition(".")[2] in _NAMES and isinstance(module, nn.Embedding):
            yield site(wanted, path, module, required=True)


def _offset(module: nn.Embedding) -> int:
    """The row of position 0: BART and OPT have a number, RoBERTa what follows its padding."""
    after_padding = 0 if module.padding_idx is None else module.padding_idx + 1
    return int(getattr(module, "offset", after_padding))


def site(wanted: Wanted, path: str, module: nn.Embedding, *, required: bool) -> Site:
    """A module whose weight is a table of positions.

    Raises:
        ValueError: it is required, and the server does not have it.
    """
    offset = _offset(module)
    reason = unreadable(module.weight)
    if reason:  # there are no numbers to digest
        encoding = LearnedAbsolute(table=module.weight, offset=offset)
        request = Request(encoding, positions=len(module.weight))
        return Site(path, "weight", module, request, None, 0, reason=reason)
    table = to_numpy(module.weight.cpu())
    encoding = LearnedAbsolute(table=f"sha256:{digest_of(table)}", offset=offset)
    extent: Any = {"positions": (-offset, len(table) - offset), "dtype": table.dtype}
    try:
        info = wanted.client.describe(encoding, **extent)
    except NotFoundError as missing:
        if required:
            got = f"{path}.weight, {table.dtype} {list(table.shape)} of {encoding.table}"
            _refuse(wanted, got, table.shape, missing)
        reason = f"neither server nor cache has {encoding}"
        return Site(path, "weight", module, Request(encoding, **extent), None, 0, reason=reason)
    put = partial(_put, cache=wanted.client._cache, info=info)
    compare = partial(_pairs, module)
    return Site(path, "weight", module, Request(encoding, **extent), put, 0, compare)


def _pairs(module: nn.Embedding, answer: npt.NDArray[Any]) -> Iterator[Pair]:
    own, served = module.weight.detach(), to_torch(answer)
    axes = {"row": range(len(own)), "column": range(own.shape[1])}
    yield Pair("weight", own, served, axes)


def _refuse(wanted: Wanted, got: str, shape: tuple[int, ...], missing: NotFoundError) -> NoReturn:
    try:
        mounted = wanted.client.list_tables()
    except UnavailableError:  # the client is offline, or the server went away
        raise missing from None
    alike = [
        f"{each.name} ({each.dtype}, sha256:{each.sha256})"
        for each in mounted
        if each.shape == shape
    ]
    raise ValueError(
        f"model: got {got}, want a table that the server has mounted; "
        f"of this shape it has {', '.join(alike) or 'none'}. Start it with --checkpoint "
        "NAME=FOLDER or --table NAME=FILE.safetensors:TENSOR, or leave the model as it is"
    ) from None


def _put(
    changes: Changes,
    module: Any,
    answer: npt.NDArray[Any],
    *,
    cache: Cache | None,
    info: TensorInfo,
) -> None:
    # The model may learn, and what is fetched by way of a cache is read-only.
    memory = None if cache is None else cache.writable(info)
    numbers = answer if memory is None else part_of(memory, info, 0)
    changes.set_numbers(module.weight, to_torch(numbers, module.weight.device))


FAMILY: Final = Family(attentions=("eager", "sdpa"), sites=_sites, takes_any=True)
