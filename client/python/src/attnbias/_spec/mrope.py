# SPDX-License-Identifier: Apache-2.0
"""Encodings of models that take more than constants and names: see _presets.py for the others."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from attnbias._spec import encodings
from attnbias._spec.encodings import Axis, Ladder, Rotary
from attnbias.v1 import encodings_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mrope"]

_ROTARY: Final[Any] = encodings_pb2.Rotary.DESCRIPTOR
EXTENSIONS: Final[dict[str, Any]] = {
    field.name: getattr(encodings, field.message_type.name)
    for field in _ROTARY.oneofs_by_name["extension"].fields
}
"""Classes of the length extensions of Rotary, by their fields and rope_types."""


def Mrope(  # noqa: N802
    head_dim: int,
    mrope_section: Sequence[int] | None = None,
    *,
    mrope_interleaved: bool = False,
    rope_type: str | None = None,
    rope_theta: float | None = None,
    **words: Any,
) -> Rotary:
    """Rotary positions of one axis or several, by the words of transformers' rope_parameters.

    A Rotary with ``axes`` and ``pair_axis``. Ask with a list of ``position_ids`` for each axis.

    Args:
        head_dim: Dimension of a head.
        mrope_section: Pairs of each axis, n in all. Default: one axis; with ``rope_type`` "axial",
            two axes, each with half of the pairs.
        mrope_interleaved: Deals pairs out to each axis in turn while it has pairs left, the rest to
            axis 0 (Qwen3-VL). False: one axis after the other (Qwen2-VL).
        rope_type: Name of a length extension of Rotary, or "default" for none; or "axial": every
            axis has the whole progression, over its own pairs (vision transformers).
        rope_theta: Base of the progression. Default: 10000.
        words: Those of the length extension, and other fields of Rotary.

    Raises:
        ValueError: pairs cannot be dealt out in turn to these sections, or there is no such
            rope_type.
    """
    axis, count, renamed = Axis(), 0, {}
    if rope_type is not None and rope_type.lower() == "axial":
        axis, rope_type, count = Axis(ladder=Ladder(base=rope_theta)), None, 2
        rope_theta, renamed = None, {"axes[0].ladder.base": "rope_theta"}
    dealt: dict[str, Any] = {}
    if mrope_section is not None:
        count = len(mrope_section)
        dealt["pair_axis"] = _dealt_out(mrope_section, in_turn=mrope_interleaved)
        renamed["pair_axis"] = "mrope_section"
    words = extended(rope_type, words)
    for name in EXTENSIONS.keys() & words.keys():
        renamed |= {f"{name}.{own.name}": own.name for own in fields(EXTENSIONS[name])}
    axes = (axis,) * count or None
    return Rotary(head_dim, rope_theta=rope_theta, axes=axes, **dealt, **words)._with_names(
        "Mrope", renamed
    )


def extended(rope_type: str | None, words: dict[str, Any]) -> dict[str, Any]:
    """The words as arguments of Rotary: those of a length extension are in its message.

    Those that it lacks are None.

    Raises:
        ValueError: there is no such rope_type.
    """
    name = "default" if rope_type is None else rope_type.lower()
    if name == "default":
        return words
    if name not in EXTENSIONS:
        want = ", ".join(["default", *EXTENSIONS, "axial"])
        raise ValueError(f"Mrope.rope_type: got {rope_type!r}, want one of {want}")
    kind = EXTENSIONS[name]
    own = {field.name: words.get(field.name) for field in fields(kind)}
    return {word: value for word, value in words.items() if word not in own} | {name: kind(**own)}


def with_length(encoding: Rotary, length: int) -> Rotary:
    """The encoding for sequences of a length, which may decide its frequencies."""
    if encoding.dynamic is not None:
        return replace(encoding, dynamic=replace(encoding.dynamic, sequence_length=length))
    if encoding.longrope is not None:
        return replace(encoding, longrope=replace(encoding.longrope, sequence_length=length))
    return encoding


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
