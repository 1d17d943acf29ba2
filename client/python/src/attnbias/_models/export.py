# SPDX-License-Identifier: Apache-2.0
"""Requests that a model will make, for filling a cache in advance."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from attnbias._client import Client
from attnbias._models.config import from_config
from attnbias._models.rotary_places import with_length
from attnbias._spec.encodings import (
    T5,
    Deberta,
    GridRelative,
    LearnedAbsolute,
    LearnedRelative,
    MlpBias,
    Rotary,
    Sinusoidal,
)
from attnbias._spec.enums import DType
from attnbias._spec.fields import Encoding
from attnbias._spec.request import Request, key_of

_ATTACH_NEEDS: Final = ("torch", "transformers")


class ExportItem(NamedTuple):
    """A request at a place in the model, or the reason why it cannot be made."""

    place: str
    request: Request | None
    why: str = ""


def of_encodings(config: Path, max_length: int, data_type: DType | None) -> Iterator[ExportItem]:
    """Yields the encodings from ``from_config``, each at its maximum length."""
    for place, encoding in from_config(config).items():
        yield _item(place, encoding, max_length, data_type)


def of_attach(config: Path, max_length: int, client: Client) -> Iterator[ExportItem]:
    """Yields what ``attach`` requests, for a model without weights. Does not use the client."""
    import torch  # noqa: PLC0415

    from attnbias._models.family import AttachContext, family_of  # noqa: PLC0415

    transformers: Any = importlib.import_module("transformers")

    try:
        read = transformers.AutoConfig.from_pretrained(config)
        with torch.device("meta"):
            # Positions do not depend on the attention implementation.
            model = transformers.AutoModel.from_config(read, attn_implementation="eager")
    except Exception as error:  # transformers and its validators raise many types of error
        raise ValueError(f"{config}: transformers does not accept it: {error}") from error
    try:
        family = family_of(model)
        sites = list(family.sites(AttachContext(model, max_length, "eager", client)))
    except (ImportError, ValueError) as refusal:
        yield ExportItem("attach", None, str(refusal))
        return
    for site in sites:
        if site.request is not None:
            place = f"attach {site.place}"
            if _has_weights(site.request.encoding):
                yield ExportItem(place, None, "it takes numbers from the weights")
            else:
                yield ExportItem(place, site.request)


def can_attach() -> bool:
    """Reports whether the packages that ``attach`` needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in _ATTACH_NEEDS)


def merged(items: Iterable[ExportItem]) -> list[ExportItem]:
    """Merges items for the same request and combines their places."""
    groups: dict[str, list[ExportItem]] = {}
    for item in items:
        key = item.why if item.request is None else key_of(item.request.to_spec())
        groups.setdefault(key, []).append(item)
    return [
        first._replace(place=f"{first.place} and {len(more)} more") if more else first
        for first, *more in groups.values()
    ]


def _has_weights(encoding: Encoding[Any]) -> bool:
    parts = (encoding, *getattr(encoding, "layers", ()))
    return any(getattr(value, "is_meta", False) for part in parts for value in vars(part).values())


def _item(place: str, encoding: Encoding[Any], length: int, data_type: DType | None) -> ExportItem:
    if isinstance(encoding, (LearnedAbsolute, LearnedRelative, GridRelative, MlpBias)):
        return ExportItem(place, None, "its learned table is in the checkpoint")
    if isinstance(encoding, Sinusoidal) and encoding.axes:
        return ExportItem(place, None, "the size of the feature map is not in the configuration")
    if isinstance(encoding, Rotary):
        encoding = with_length(encoding, length)
    if encoding.extent == "table":
        return ExportItem(place, Request(encoding, positions=length, data_type=data_type))
    # T5's values are in the checkpoint, so buckets are requested.
    values: Any = "buckets" if isinstance(encoding, T5) else None
    number = None if isinstance(encoding, (T5, Deberta)) else data_type
    lengths: Any = {"query_length": length, "key_length": length}
    return ExportItem(place, Request(encoding, **lengths, values=values, data_type=number))
