# SPDX-License-Identifier: Apache-2.0
"""BLOOM, MPT and Falcon: slopes times positions, with one row of keys for all queries.

BLOOM and Falcon count positions from the first token that is not padding, and MPT from the last
key. Falcon's values are always bfloat16; without ``alibi``, Falcon uses rotary positions.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from transformers.masking_utils import create_causal_mask
from transformers.models.bloom.modeling_bloom import BloomAttention, BloomModel
from transformers.models.falcon.modeling_falcon import FalconAttention, FalconModel
from transformers.models.mpt.modeling_mpt import MptAttention, MptModel

from attnbias._arrays.convert import to_torch
from attnbias._arrays.toeplitz import KeyRow
from attnbias._models.changes import Changes
from attnbias._models.compare import ULP, Pair, require_class_method
from attnbias._models.config import from_config
from attnbias._models.families import rotary
from attnbias._models.families.bias import KeyRows, require_length
from attnbias._models.families.flex import attend, refuse_weights
from attnbias._models.family import AttachContext, Family, Site, class_of
from attnbias._spec.encodings import ALiBi
from attnbias._spec.request import Request

_ROW: Final = "attnbias_row"
_MAX_LENGTH: Final = "attnbias_max_length"
_METHODS: Final = {
    BloomModel: "build_alibi_tensor",
    MptModel: "build_mpt_alibi_tensor",
    FalconModel: "build_alibi_tensor",  # a module-level function
}
# Arguments of a model's forward since transformers 5.24.
_ARGUMENTS: Final = ("input_ids", "cache", "attention_mask", "inputs_embeds")
_CACHE_BEFORE: Final = "past_key_values"
_BITS: Final = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
_NUMBERS: Final = {bits: numbers for numbers, bits in _BITS.items()}


def _sites(context: AttachContext) -> Iterator[Site]:
    is_flex = context.attention == "flex"
    for path, model in context.modules(tuple(_METHODS)):
        is_falcon = isinstance(model, FalconModel)
        if is_falcon and not model.use_alibi:
            if is_flex:
                raise ValueError(
                    'attention: got "flex" for a Falcon without alibi, want "eager" or "sdpa"'
                )
            yield from rotary.sites(context)
            continue
        if is_falcon or (is_flex and isinstance(model, MptModel)):
            require_class_method(path, model, "forward")
        places = torch.arange(context.max_length, device="cpu")
        # Rounding may push Falcon's last position beyond max_length.
        places = _rounded(places) if is_falcon else places
        length = int(places[-1]) + 1
        request = Request(
            _encoding_of(model),
            query_length=length,
            key_length=length,
            data_type="bf16" if is_falcon else "f32",
        )
        replace = functools.partial(_with_row, context)
        compare = functools.partial(_pairs, _own_row(model, context.max_length), places)
        yield Site(path, _METHODS[class_of(model)], model, request, replace, 0, compare)
    if is_flex:
        yield from _flex_sites(context)


def _encoding_of(model: Any) -> Any:
    """Returns the encoding with the slopes that transformers' code uses.

    If ``from_config`` rejects the configuration, the slopes are taken from the model's own values.
    """
    try:
        # Warnings about ineffective fields are useless here: the values are compared.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return from_config(model.config)["decoder"]
    except (KeyError, ValueError):
        slopes = _own_row(model, 2).double().abs().amax(-1).tolist()
        variant: Any = "key_from_end" if isinstance(model, MptModel) else "key_from_start"
        return ALiBi(num_heads=len(slopes), slopes=slopes, variant=variant)


def _own_row(model: Any, length: int) -> torch.Tensor:
    """Returns the row that a model computes, ``[heads, keys]``."""
    cpu = torch.device("cpu")
    mask = torch.ones(1, length, dtype=torch.int64, device=cpu)
    if isinstance(model, MptModel):
        row = model.build_mpt_alibi_tensor(model.num_heads, length, device=cpu)
    elif isinstance(model, BloomModel):
        row = model.build_alibi_tensor(mask, model.num_heads, torch.float32)
    else:
        build = inspect.unwrap(type(model).forward).__globals__[_METHODS[FalconModel]]
        row = build(mask, model.num_heads, torch.bfloat16)
    return row[:, 0]


def _pairs(own: torch.Tensor, places: torch.Tensor, answer: KeyRow) -> Iterator[Pair]:
    """Compares the row that a model computes with the fetched row, at ``places``.

    A slope is a power; its last bit depends on the processor, as does the last bit of its float32
    product with a position.
    """
    served = to_torch(answer.row)[:, places]
    bound = 2 * ULP * served.double().abs() if served.dtype == torch.float32 else 0.0
    axes = {"head": range(served.shape[0]), "key": range(served.shape[1])}
    yield Pair("slope times position", own, served, axes, bound)


def _with_row(context: AttachContext, changes: Changes, model: Any, answer: KeyRow) -> None:
    """Adds the values on the model's device, as bits, which casting the model does not change."""
    row = to_torch(answer.row)
    changes.add_buffer(model, _ROW, row.view(_BITS[row.dtype]), next(model.parameters()))
    changes.set(model, _MAX_LENGTH, context.max_length)
    names = {"create_causal_mask": _opaque_causal_mask} if context.attention == "flex" else {}
    if isinstance(model, BloomModel):
        changes.set_method(model, _METHODS[BloomModel], _from_first_token)
        # Without a mask, BLOOM's forward computes the values itself.
        changes.add_pre_hook(model, _show_all)
    elif isinstance(model, FalconModel):
        build = functools.partial(_from_first_token, model)
        changes.set_names(model, **{_METHODS[FalconModel]: build}, **names)
    else:
        changes.set_method(model, _METHODS[MptModel], _from_last_key)
        changes.add_pre_hook(model, _check_length)
        if names:
            changes.add_pre_hook(model, _check_weights)
            changes.set_names(model, **names)


def _row_of(model: Any, device: torch.device | None) -> torch.Tensor:
    """Returns the values, ``[heads, keys]``, on a device; None means the model's device."""
    bits: torch.Tensor = getattr(model, _ROW)
    return bits.view(_NUMBERS[bits.dtype]).to(device)


def _from_first_token(
    model: Any, attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype
) -> torch.Tensor:
    batch, length = attention_mask.shape
    require_length(length, getattr(model, _MAX_LENGTH))
    positions = ((attention_mask.cumsum(dim=-1) - 1) * attention_mask).long()
    positions = _rounded(positions) if isinstance(model, FalconModel) else positions
    row = _row_of(model, positions.device)[:, positions].transpose(0, 1)
    return row.reshape(batch * num_heads, 1, length).to(dtype)


def _from_last_key(
    model: Any, *_: Any, device: torch.device | None = None, **__: Any
) -> torch.Tensor:
    # MPT's attention uses the last keys. The row has max_length keys, which may be more than the
    # configuration's max_seq_len.
    return _row_of(model, device)[:, None]


def _rounded(positions: torch.Tensor) -> torch.Tensor:
    """Rounds positions to bfloat16, as Falcon does before it multiplies them."""
    return positions.bfloat16().long()


def _check_length(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Rejects more keys than there are values; runs before a model's forward."""
    (_, length), _ = _call(_named(args, kwargs))
    require_length(length, getattr(model, _MAX_LENGTH))


def _check_weights(_: nn.Module, __: tuple[Any, ...], options: dict[str, Any]) -> None:
    refuse_weights(options)  # MPT does not pass output_attentions to its attention


def _show_all(
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
    """Returns (sequences, keys) for a call, cached keys included, and the device of its tokens."""
    tokens = given.get("input_ids")
    tokens = given["inputs_embeds"] if tokens is None else tokens
    cache = given.get("cache", given.get(_CACHE_BEFORE))
    batch, length = tokens.shape[:2]
    keys = length if cache is None else cache.get_mask_sizes(length, 0)[0]
    return (batch, keys), tokens.device


def _named(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(_ARGUMENTS, args, strict=False)) | kwargs


class _OpaqueMask:
    """A mask that reaches the model's attention unchanged."""

    ndim = 0

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def to(self, _: torch.dtype) -> _OpaqueMask:
        """Returns itself, since a BlockMask has no dtype."""
        return self


def _opaque_causal_mask(**options: Any) -> _OpaqueMask:
    """Replaces ``create_causal_mask`` in a model's module."""
    return _OpaqueMask(create_causal_mask(**options))


def _flex_sites(context: AttachContext) -> Iterator[Site]:
    """Yields each attention module's forward, which will read compact biases."""
    pairs = context.model.config.num_attention_heads * context.max_length**2
    for path, module in context.modules(tuple(_FORWARDS)):
        require_class_method(path, module, "forward")
        is_bloom = isinstance(module, BloomAttention)
        if is_bloom and module.pretraining_tp > 1 and module.slow_but_exact:
            raise ValueError('attention: got "flex" for a BLOOM with slow_but_exact, want "eager"')
        scores = next(module.parameters()).dtype.itemsize * pairs
        yield Site(path, "forward", module, None, _with_forward, scores)


def _with_forward(changes: Changes, attention: Any, _: None) -> None:
    changes.set_method(attention, "forward", _FORWARDS[class_of(attention)])


def _attended(
    attention: Any,
    states: Sequence[torch.Tensor],
    mask: Any,
    numbers: torch.Tensor,
    cache: Any,
    *,
    dropout: float,
    scaling: float,
    **options: Any,
) -> torch.Tensor:
    query, key, value = states
    if cache is not None:
        key, value = cache.update(key, value, attention.layer_idx)
    numbers = numbers[..., -key.shape[2] :].expand(key.shape[0], -1, -1)
    context, _ = attend(
        attention,
        query,
        key,
        value,
        mask,
        position_bias=KeyRows(numbers),
        dropout=dropout if attention.training else 0.0,
        scaling=scaling,
        **options,
    )
    return context.flatten(2)


def _bloom_forward(
    attention: Any,
    hidden_states: torch.Tensor,
    residual: torch.Tensor,
    *,
    alibi: torch.Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    context = _attended(
        attention,
        attention._reshape(attention.query_key_value(hidden_states)),
        attention_mask,
        alibi.view(hidden_states.shape[0], attention.num_heads, -1),
        layer_past,
        dropout=attention.attention_dropout.p,
        scaling=attention.inv_norm_factor,
        output_attentions=output_attentions,
    )
    output = attention.dense(context)
    dropped = functional.dropout(output, attention.hidden_dropout, attention.training)
    return residual + dropped, None


def _mpt_forward(
    attention: Any,
    hidden_states: torch.Tensor,
    position_bias: torch.Tensor,
    *,
    attention_mask: Any = None,
    cache: Any = None,
    past_key_values: Any = None,  # the cache's name before transformers 5.24
) -> tuple[torch.Tensor, None]:
    mixed = attention.Wqkv(hidden_states)
    if attention.clip_qkv:
        mixed = mixed.clamp(min=-attention.clip_qkv, max=attention.clip_qkv)
    by_heads = mixed.unflatten(-1, (3, attention.n_heads, attention.head_dim))
    context = _attended(
        attention,
        by_heads.permute(2, 0, 3, 1, 4),
        attention_mask.mask,
        position_bias[:, 0],
        past_key_values if cache is None else cache,
        dropout=attention.attn_dropout_p,
        scaling=attention.softmax_scale,
    )
    return attention.out_proj(context), None


def _falcon_forward(
    attention: Any,
    hidden_states: torch.Tensor,
    *,
    alibi: torch.Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    output_attentions: bool = False,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    split = attention._split_heads(attention.query_key_value(hidden_states))
    numbers = alibi.view(hidden_states.shape[0], attention.num_heads, -1)
    context = _attended(
        attention,
        [states.transpose(1, 2) for states in split],
        attention_mask.mask,
        numbers / math.sqrt(attention.head_dim),
        layer_past,
        dropout=attention.attention_dropout.p,
        scaling=attention.inv_norm_factor,
        output_attentions=output_attentions,
    )
    return attention.dense(context), None


_FORWARDS: Final[dict[type, Callable[..., tuple[torch.Tensor, None]]]] = {
    BloomAttention: _bloom_forward,
    MptAttention: _mpt_forward,
    FalconAttention: _falcon_forward,
}

FAMILY: Final = Family(_sites, flex=("bloom", "mpt", "falcon"))
