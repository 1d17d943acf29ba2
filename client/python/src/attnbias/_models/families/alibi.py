# SPDX-License-Identifier: Apache-2.0
"""Common code of BLOOM, MPT and Falcon: slopes times positions, one row of keys for all queries."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.masking_utils import create_causal_mask

from attnbias._arrays.convert import to_torch
from attnbias._models.compare import ULP, Pair, require_class_method
from attnbias._models.config import from_config
from attnbias._models.families.bias import require_length
from attnbias._models.family import Site
from attnbias._spec.encodings import ALiBi
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from attnbias._arrays.toeplitz import KeyRow
    from attnbias._models.changes import Changes
    from attnbias._models.family import AttachContext
    from attnbias._spec.choices import AlibiVariant
    from attnbias._spec.enums import DType

_ROW: Final = "attnbias_row"
# Arguments of a model's forward since transformers 5.24.
_ARGUMENTS: Final = ("input_ids", "cache", "attention_mask", "inputs_embeds")
_CACHE_BEFORE: Final = "past_key_values"
_BITS: Final = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
_NUMBERS: Final = {bits: numbers for numbers, bits in _BITS.items()}


def row_request(
    model: Any, length: int, variant: AlibiVariant, pair: torch.Tensor, data_type: DType = "f32"
) -> Request:
    """Returns the request for a row of ``length`` keys with the slopes of transformers' code.

    If ``from_config`` refuses the configuration, slopes are those of ``pair``, the model's own
    numbers of two keys, ``[heads, 2]``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about fields without effect, as the comparison proves
            encoding: Any = from_config(model.config)["decoder"]
    except (KeyError, ValueError):
        slopes = pair.double().abs().amax(-1)
        encoding = ALiBi(num_heads=len(slopes), slopes=slopes.tolist(), variant=variant)
    return Request(encoding, query_length=length, key_length=length, data_type=data_type)


def compare_row(
    own: torch.Tensor, answer: KeyRow, *, places: torch.Tensor | None = None
) -> Iterator[Pair]:
    """Compares the row that a model makes, ``[heads, keys]``, with the row fetched.

    Slopes are powers whose last bit depends on the processor, and so does a float32's product.
    ``places`` are those of the keys in the row; None is all.
    """
    served = to_torch(answer.row)
    if places is not None:
        served = served[:, places]
    bound = 2 * ULP * served.double().abs() if served.dtype == torch.float32 else 0.0
    axes = {"head": range(served.shape[0]), "key": range(served.shape[1])}
    yield Pair("slope times position", own, served, axes, bound)


def add_row(changes: Changes, model: Any, answer: KeyRow) -> None:
    """Adds the numbers on the model's device, as bits, which a cast of the model leaves alone."""
    row = to_torch(answer.row)
    changes.add_buffer(model, _ROW, row.view(_BITS[row.dtype]), next(model.parameters()))


def row_of(model: Any, device: torch.device | None = None) -> torch.Tensor:
    """Returns the numbers, ``[heads, keys]``, on a device; None is the model's."""
    bits: torch.Tensor = getattr(model, _ROW)
    return bits.view(_NUMBERS[bits.dtype]).to(device)


def row_at(model: Any, positions: torch.Tensor) -> torch.Tensor:
    """Returns the numbers at positions ``[batch, keys]``, as ``[batch, heads, keys]``."""
    return row_of(model, positions.device)[:, positions].transpose(0, 1)


def positions_of(attention_mask: torch.Tensor) -> torch.Tensor:
    """Returns the positions of tokens that a mask ``[batch, keys]`` shows; 0 for others."""
    return ((attention_mask.cumsum(dim=-1) - 1) * attention_mask).long()


def check_length(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses more keys than there are numbers; runs before a model's forward."""
    (_, length), _ = _call(_named(args, kwargs))
    require_length(length, row_of(model).shape[-1])


def show_all(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Adds a mask that hides nothing to a call without one; runs before a model's forward."""
    given = _named(args, kwargs)
    if given.get("attention_mask") is not None:
        return args, kwargs
    shape, device = _call(given)
    mask = torch.ones(shape, dtype=torch.int64, device=device)
    place = _ARGUMENTS.index("attention_mask")
    if len(args) > place:
        return (*args[:place], mask, *args[place + 1 :]), kwargs
    return args, kwargs | {"attention_mask": mask}


def _call(given: dict[str, Any]) -> tuple[tuple[int, int], torch.device]:
    """Returns (sequences, keys) of a call, cached keys included, and the device of its tokens."""
    tokens = given.get("input_ids")
    tokens = given["inputs_embeds"] if tokens is None else tokens
    cache = given.get("cache", given.get(_CACHE_BEFORE))
    batch, length = tokens.shape[:2]
    keys = length if cache is None else cache.get_mask_sizes(length, 0)[0]
    return (batch, keys), tokens.device


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(_ARGUMENTS, args, strict=False)) | kwargs


class OpaqueMask:
    """A mask that a model's forward passes unchanged to its attention."""

    ndim = 0

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def to(self, _: torch.dtype) -> OpaqueMask:
        """Returns itself: a BlockMask has no dtype."""
        return self


def opaque_causal_mask(**options: Any) -> OpaqueMask:
    """Replaces ``create_causal_mask`` in the file of a model."""
    return OpaqueMask(create_causal_mask(**options))


def flex_sites(
    context: AttachContext, kind: type, forward: Callable[..., tuple[torch.Tensor, None]]
) -> Iterator[Site]:
    """Yields the forward of each attention of a class, if it is to read compact biases."""
    if context.attention != "flex":
        return
    pairs = context.model.config.num_attention_heads * context.max_length**2

    def replace(changes: Changes, attention: Any, _: None) -> None:
        changes.set_method(attention, "forward", forward)

    for path, module in context.modules(kind):
        require_class_method(path, module, "forward")
        scores = next(module.parameters()).dtype.itemsize * pairs
        yield Site(path, "forward", module, None, replace, scores)
