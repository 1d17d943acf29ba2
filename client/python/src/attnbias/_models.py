# SPDX-License-Identifier: Apache-2.0
"""Encodings of models that take more than constants and names: see _presets.py for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnbias._encodings import Axis, Ladder, Rotary

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mrope"]


def Mrope(  # noqa: N802
    head_dim: int,
    mrope_section: Sequence[int] | None = None,
    *,
    mrope_interleaved: bool = False,
    rope_type: str | None = None,
    rope_theta: float | None = None,
    **fields: Any,
) -> Rotary:
    """Rotary positions of several axes, by the words of transformers' rope_parameters.

    A Rotary with ``axes`` and ``pair_axis``. Ask with a list of ``position_ids`` for each axis.

    Args:
        head_dim: Dimension of a head.
        mrope_section: Pairs of each axis, n in all. Default: one axis; with ``rope_type`` "axial",
            two axes, each with half of the pairs.
        mrope_interleaved: Deals pairs out to each axis in turn while it has pairs left, the rest to
            axis 0 (Qwen3-VL). False: one axis after the other (Qwen2-VL).
        rope_type: As in Rotary; or "axial": every axis has the whole progression, over its own
            pairs (vision transformers).
        rope_theta: Base of the progression. Default: 10000.
        fields: Others of Rotary.

    Raises:
        ValueError: pairs cannot be dealt out in turn to these sections.
    """
    if rope_type is not None and rope_type.lower() == "axial":
        axis, rope_type, count = Axis(ladder=Ladder(base=rope_theta)), None, 2
        rope_theta, renamed = None, {"axes[0].ladder.base": "rope_theta"}
    else:
        axis, count, renamed = Axis(), 0, {}
    dealt: dict[str, Any] = {}
    if mrope_section is not None:
        count = len(mrope_section)
        dealt["pair_axis"] = _dealt_out(mrope_section, in_turn=mrope_interleaved)
        renamed["pair_axis"] = "mrope_section"
    axes = (axis,) * count or None
    rotary = Rotary(
        head_dim, rope_type=rope_type, rope_theta=rope_theta, axes=axes, **dealt, **fields
    )
    return rotary._with_names("Mrope", renamed)


def _dealt_out(section: Sequence[int], *, in_turn: bool) -> list[int]:
    """The axis of each pair."""
    count, pairs = len(section), sum(section)
    if in_turn:
        axes = [m % count if m // count < section[m % count] else 0 for m in range(pairs)]
    else:
        axes = [axis for axis, own in enumerate(section) for _ in range(own)]
    if [axes.count(axis) for axis in range(count)] != list(section):
        want = "the pairs of each axis" + ", fewer of each but the first" * in_turn
        raise ValueError(f"Mrope.mrope_section: got {list(section)}, want {want}")
    return axes
