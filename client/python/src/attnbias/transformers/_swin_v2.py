# SPDX-License-Identifier: Apache-2.0
"""Swin-V2: a bias of a network, in place of which its layers take what the sigmoid undoes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

from attnbias._encodings import SwinV2
from attnbias._request import Request
from attnbias._torch import to_torch
from attnbias.transformers import _frozen
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnbias._grid import BlockToeplitz
    from attnbias.transformers._changes import Changes

_NETWORK: Final = "continuous_position_bias_mlp"


def _sites(wanted: Wanted) -> Iterator[Site]:
    for path, attention in wanted.modules(Swinv2SelfAttention):
        encoding = _encoding_of(attention)
        hidden, _, output = network = getattr(attention, _NETWORK)
        displacements = attention.relative_coords_table[..., 0].numel()
        spared = (
            output.weight.dtype.itemsize
            * displacements
            * (hidden.out_features + output.out_features)
        )
        request = Request(encoding, dtype="f64")  # to be rounded once
        yield Site(f"{path}.{_NETWORK}", "forward", network, request, _with_outputs, spared)


def _encoding_of(attention: Any) -> SwinV2:
    hidden, _, output = getattr(attention, _NETWORK)
    height, width = attention.window_size
    pretrained_height, pretrained_width = attention.pretrained_window_size
    return SwinV2(
        window_height=height,
        window_width=width,
        num_heads=attention.num_attention_heads,
        pretrained_window_height=pretrained_height or None,
        pretrained_window_width=pretrained_width or None,
        hidden_weight=hidden.weight,
        hidden_bias=hidden.bias,
        output_weight=output.weight,
    )


def _with_outputs(changes: Changes, network: Any, answer: BlockToeplitz) -> None:
    """Its attention goes on with 16 sigmoid of them, which makes them the answer again."""
    weight = network[-1].weight
    block = to_torch(answer.block, weight.device)
    # The block counts key - query, the network's input query - key.
    outputs = torch.logit(block.flip(-2, -1) / 16).movedim(0, -1)[None]
    _frozen.hold(changes, network, outputs.to(weight.dtype).contiguous())
    changes.set_method(network, "forward", _forward)


def _forward(network: Any, coordinates: torch.Tensor) -> torch.Tensor:
    outputs = _frozen.held(network)
    if outputs is None:
        outputs = type(network).forward(network, coordinates)
    return outputs


FAMILY: Final = Family(attentions=("eager",), sites=_sites)
