# SPDX-License-Identifier: Apache-2.0
"""Pictures of tensors. matplotlib is imported only when something is drawn.

A picture has a few hundred pixels per side, and only the values at these pixels are read: the dense
tensor of a structure is never created. A structure determines how it is drawn; see
``Structure._heat_maps`` and ``Structure._curve``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from attnbias._checks import Span, bounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Kind = Literal["heads", "curves"]
Array: TypeAlias = npt.NDArray[Any]
_Picture: TypeAlias = "np.ma.MaskedArray[Any, np.dtype[np.float64]]"
# Reads a head's values at some rows and columns.
_Read: TypeAlias = Callable[[int, Array, Array], Array]

Curve: TypeAlias = tuple[Array, int, str]
"""Values ``[heads, n]`` or ``[n]``, the position of the first value, and what positions mean."""

_MOST_PIXELS = 400  # maximum pixels per side
_MOST_POINTS = 4000  # maximum points per curve
_MOST_HEADS = 16  # heads drawn by default
_LONG = 8  # aspect ratio beyond which pixels are not square
_LONG_NUMBERS = 10_000  # labels of positions this large take up much of an axis
_HATCHED: dict[str, Any] = {
    "hatch": "////",
    "facecolor": "0.95",
    "edgecolor": "0.75",
    "linewidth": 0,
}
POSITIONS = ("query position", "key position")
TOKENS = ("query token", "key token")
OF_SHARD = ("query of the shard", "key of the shard")


def plot(
    tensor: Any,
    *,
    kind: Kind = "heads",
    heads: Span | None = None,
    fill_value: float | None = None,
    ax: Axes | Iterable[Axes] | None = None,
) -> list[Axes]:
    """Draws a tensor with matplotlib; the caller shows or saves it.

    Heat maps share one color scale. Elements that are infinite, or that equal fill_value or the
    lowest value of their type, are considered masked: they are hatched and do not affect the scale.
    On a long axis, only every n-th position is drawn. Key positions and a table's positions are
    relative to the first one; query positions are chosen so that key position minus query position
    is the relative position. In a window, a grid's tokens keep their indices.

    Args:
        tensor: a structure, a dense array ``[heads, queries, keys]``, a table
            ``[positions, columns]``, or a named tuple of these.
        kind: ``"heads"`` draws a heat map for each head. ``"curves"`` draws a curve for each head
            over the relative position (for a ``KeyRow``, over the key position), and leaves out the
            class token.
        heads: the first n, or (begin, end); None means at most the first 16.
        fill_value: an additional value to treat as masked.
        ax: axes to draw on: one for each heat map, or one for curves. None creates a figure.

    Returns:
        The axes; ``axes[0].figure`` is their figure.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: the tensor has no such picture, its values are not real, or the number of axes
            differs from the number of pictures.
        IndexError: heads are outside the tensor.
    """
    if kind == "heads":
        return _plot_heat_maps(_heat_maps(tensor), heads, fill_value, ax)
    if kind == "curves":
        return _plot_curves(tensor, heads, fill_value, ax)
    raise ValueError(f"kind: got {kind!r}, want 'heads' or 'curves'")


@dataclass(frozen=True)
class HeatMap:
    """A matrix for each head, read only at the positions that are drawn."""

    read: _Read
    num_heads: int | None  # None: no head axis
    shape: tuple[int, int]
    labels: tuple[str, str]  # meaning of rows and columns
    first: tuple[int, int] = (0, 0)  # positions of row 0 and of column 0
    name: str = ""

    @property
    def proportion(self) -> float | None:
        """Height over width of a picture with square pixels; None if pixels need not be square."""
        rows, columns = self.shape
        long = max(rows, columns) > _LONG * min(rows, columns)
        # Diagonals are meaningful if rows and columns have the same units.
        return None if long or self.labels not in (POSITIONS, TOKENS) else rows / columns

    def picture(self, head: int, most: int, fill_value: float | None = None) -> _Picture:
        """Returns the values at evenly spaced indices, at most ``most`` along a side."""
        rows, columns = (np.arange(0, length, _step(length, most)) for length in self.shape)
        return _visible(self.read(head, rows, columns), fill_value)

    def heads(self, wanted: Span | None) -> list[int]:
        """Returns the heads to draw; [0] for a tensor without heads."""
        if self.num_heads is None:
            if wanted is not None:
                raise ValueError("heads: got a value, want none: the tensor has no head axis")
            return [0]
        begin, end = 0, min(self.num_heads, _MOST_HEADS)
        if wanted is not None:
            begin, end = bounds(wanted, "heads")
        if not 0 <= begin < end <= self.num_heads:
            raise IndexError(
                f"heads: got [{begin}, {end}), want a nonempty range in [0, {self.num_heads})"
            )
        return list(range(begin, end))

    def title(self, head: int) -> str:
        of_head = "" if self.num_heads is None else f"head {head}"
        return ", ".join(filter(None, (self.name, of_head)))


def _step(length: int, most: int) -> int:
    return math.ceil(length / most)


def _are_real(dtype: np.dtype[Any]) -> bool:
    return np.can_cast(dtype, np.float64, "same_kind")


def _visible(numbers: Array, fill_value: float | None) -> _Picture:
    """Returns values as float64 with masked elements masked."""
    if not _are_real(numbers.dtype):
        raise ValueError(f"tensor: got elements of type {numbers.dtype}, want real numbers")
    hidden = ~np.isfinite(numbers)
    if numbers.dtype.kind not in "biu":
        lowest: Any = ml_dtypes.finfo(numbers.dtype).min  # type: ignore[no-untyped-call]
        hidden |= numbers == lowest
    if fill_value is not None:
        hidden |= numbers == np.asarray(fill_value).astype(numbers.dtype)
    return np.ma.masked_array(numbers.astype(np.float64), hidden)


def _heat_maps(tensor: Any, name: str = "") -> list[HeatMap]:
    if hasattr(tensor, "_fields"):  # the parts of one answer, by name
        parts = zip(tensor, tensor._fields, strict=True)
        return [each for part, field in parts for each in _heat_maps(part, field)]
    if hasattr(tensor, "_heat_maps"):
        of_structure: list[HeatMap] = tensor._heat_maps(name)
        return of_structure
    array = np.asarray(tensor)
    if array.ndim not in (2, 3) or array.size == 0:
        raise ValueError(
            f"tensor: got {type(tensor).__name__} of shape {array.shape}, want a structure, "
            "an array [heads, queries, keys] or a table [positions, columns]"
        )
    # An integer matrix holds bucket indices of pairs, without a head axis.
    is_table = array.ndim == 2 and not np.issubdtype(array.dtype, np.integer)  # noqa: PLR2004
    labels = ("position", "column") if is_table else POSITIONS
    return [heat_map_of(array, labels, (0, 0), name)]


def heat_map_of(
    array: Array, labels: tuple[str, str], first: tuple[int, int], name: str
) -> HeatMap:
    *outer, rows, columns = array.shape

    def read(head: int, i: Array, j: Array) -> Array:
        chosen: Array = of_head(array, head, 2)[np.ix_(i, j)]
        return chosen

    return HeatMap(read, outer[0] if outer else None, (rows, columns), labels, first, name)


def of_head(array: Array, head: int, axes: int) -> Array:
    """Returns a head's part of an array that has ``axes`` axes in addition to the head axis."""
    chosen: Array = array[head] if array.ndim > axes else array
    return chosen


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("matplotlib is not installed: pip install 'attnbias[plot]'") from error
    return plt


def _columns(count: int) -> int:
    return math.ceil(math.sqrt(count))


def _axes_for(
    count: int, ax: Axes | Iterable[Axes] | None, proportion: float | None = None
) -> list[Axes]:
    """Returns the caller's axes or, row by row, the axes of a new figure."""
    plt = _pyplot()
    if ax is not None:
        given = np.array(list(ax) if isinstance(ax, Iterable) else [ax], dtype=object).ravel()
        if len(given) != count:
            raise ValueError(f"ax: got {len(given)} axes, want {count}, one for each plot")
        return list(given)
    columns = _columns(count)
    rows = math.ceil(count / columns)
    width = 4.4 if count == 1 else 2.2
    size = (width * columns + 1, (width * (proportion or 1) + 0.3) * rows)
    _, grid = plt.subplots(rows, columns, squeeze=False, layout="constrained", figsize=size)
    for unused in grid.flat[count:]:
        unused.remove()
    return list(grid.flat[:count])


def _plot_heat_maps(
    maps: list[HeatMap],
    heads: Span | None,
    fill_value: float | None,
    ax: Axes | Iterable[Axes] | None,
) -> list[Axes]:
    panels = [(each, head) for each in maps for head in each.heads(heads)]
    pictures = [each.picture(head, _MOST_PIXELS, fill_value) for each, head in panels]
    axes = _axes_for(len(panels), ax, panels[0][0].proportion)
    norm = _pyplot().Normalize(*_range_of(pictures))
    columns = _columns(len(panels))
    for index, (axis, (each, head), picture) in enumerate(zip(axes, panels, pictures, strict=True)):
        _draw_heat_map(axis, each, picture, norm)
        axis.set_title(each.title(head), fontsize="medium")
        if ax is not None or index % columns == 0:
            axis.set_ylabel(each.labels[0])
        if ax is not None or index + columns >= len(panels):
            axis.set_xlabel(each.labels[1])
    hatched = any(np.ma.is_masked(picture) for picture in pictures)
    image = axes[0].images[-1]  # all share its scale
    axes[0].figure.colorbar(image, ax=axes, label="hatched: masked" if hatched else "")
    return axes


def _range_of(pictures: list[_Picture]) -> tuple[float, float]:
    """Returns the smallest and largest visible values; 0 and 1 if none is visible."""
    numbers = np.concatenate([picture.compressed() for picture in pictures])
    return (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)


def _draw_heat_map(axis: Axes, what: HeatMap, picture: _Picture, norm: Any) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    # A pixel is as wide as the positions it represents; the last one may extend beyond the end.
    top, left = (first - 0.5 for first in what.first)
    height, width = (
        count * _step(length, _MOST_PIXELS)
        for count, length in zip(picture.shape, what.shape, strict=True)
    )
    axis.imshow(
        picture,
        norm=norm,
        extent=(left, left + width, top + height, top),
        interpolation="nearest",
        aspect="equal" if what.proportion else "auto",
    )
    axis.set(xlim=(left, left + what.shape[1]), ylim=(top + what.shape[0], top))
    if np.ma.is_masked(picture):
        axis.patch.set(**_HATCHED)
    for side, length in ((axis.xaxis, what.shape[1]), (axis.yaxis, what.shape[0])):
        ticks = 4 if length < _LONG_NUMBERS else 2
        side.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))


def _plot_curves(
    tensor: Any, heads: Span | None, fill_value: float | None, ax: Axes | Iterable[Axes] | None
) -> list[Axes]:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    curve: Curve | None = tensor._curve() if hasattr(tensor, "_curve") else None
    if curve is None:
        raise ValueError(
            f"kind: got 'curves' for {type(tensor).__name__}, want 'heads': its numbers depend on "
            "more than the relative position or the key"
        )
    curves, first, label = curve
    length = curves.shape[-1]
    what = HeatMap(
        lambda head, _, j: of_head(curves, head, 1)[j][None],
        len(curves) if curves.ndim > 1 else None,
        (1, length),
        ("", label),
    )
    chosen = what.heads(heads)
    pictures = [what.picture(head, _MOST_POINTS, fill_value)[0] for head in chosen]
    (axis,) = _axes_for(1, ax)
    positions = first + np.arange(0, length, _step(length, _MOST_POINTS))
    colours = _pyplot().get_cmap()(np.linspace(0, 0.9, len(chosen)))
    for head, numbers, colour in zip(chosen, pictures, colours, strict=True):
        axis.plot(positions, numbers, color=colour, label=what.title(head))
    hidden = np.logical_and.reduce([np.ma.getmaskarray(each) for each in pictures])
    if hidden.any():
        from_top_to_bottom = axis.get_xaxis_transform()
        axis.fill_between(
            positions, 0, 1, where=hidden, transform=from_top_to_bottom, label="masked", **_HATCHED
        )
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set(xlabel=label, xlim=(positions[0] - 0.5, positions[-1] + 0.5))
    if what.num_heads is not None or hidden.any():
        axis.legend(fontsize="small")
    return [axis]
