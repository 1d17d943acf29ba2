# SPDX-License-Identifier: Apache-2.0
# Generated from proto/ by ./dev generate. Do not edit.
"""Arguments that describe a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Required, SupportsIndex, TypedDict

from attnbias._checks import Ids, Reals, Span
from attnbias._spec.choices import Alignment, Form, Values
from attnbias._spec.enums import DType
from attnbias._spec.fields import Encoding, ReprMixin


class CompactOptions(TypedDict, total=False):
    """The keyword arguments of ``Client.get`` that leave an encoding its compact form."""

    positions: Span | None
    position_ids: Reals | Sequence[Reals] | None
    query_length: SupportsIndex | None
    key_length: SupportsIndex | None
    alignment: Alignment | None
    query_offset: SupportsIndex | None
    queries: Span | None
    keys: Span | None
    heads: Span | None
    query_stride: Sequence[SupportsIndex] | None
    data_type: DType | None
    values: Values | None
    scale: float | None
    causal: bool
    window_left: SupportsIndex | None
    window_right: SupportsIndex | None
    fill_value: float | None
    fill_lowest: bool


class ListOptions(CompactOptions, total=False):
    """``CompactOptions`` and lists of positions, most of which have no compact form."""

    query_positions: Ids | None
    key_positions: Ids | None


class GridOptions(CompactOptions, total=False):
    """``CompactOptions`` and a grid of tokens: form and encoding determine the result."""

    grid: Required[Sequence[SupportsIndex]]
    grid_offset: Sequence[SupportsIndex] | None
    form: Form | None


class RequestOptions(ListOptions, total=False):
    """All keyword arguments of ``Client.get`` that describe the tensor; see ``Request``."""

    form: Form | None
    grid: Sequence[SupportsIndex] | None
    grid_offset: Sequence[SupportsIndex] | None


@dataclass(frozen=True, eq=False, repr=False)
class RequestFields(ReprMixin):
    """The fields of a request."""

    encoding: Encoding[Any]
    _: KW_ONLY
    positions: Span | None = None
    position_ids: Reals | Sequence[Reals] | None = None
    grid: Sequence[SupportsIndex] | None = None
    grid_offset: Sequence[SupportsIndex] | None = None
    query_length: SupportsIndex | None = None
    key_length: SupportsIndex | None = None
    alignment: Alignment | None = None
    query_offset: SupportsIndex | None = None
    queries: Span | None = None
    keys: Span | None = None
    heads: Span | None = None
    query_positions: Ids | None = None
    key_positions: Ids | None = None
    query_stride: Sequence[SupportsIndex] | None = None
    data_type: DType | None = None
    form: Form | None = None
    values: Values | None = None
    scale: float | None = None
    causal: bool = False
    window_left: SupportsIndex | None = None
    window_right: SupportsIndex | None = None
    fill_value: float | None = None
    fill_lowest: bool = False
