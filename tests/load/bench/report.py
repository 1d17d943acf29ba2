# SPDX-License-Identifier: Apache-2.0
"""Rows as a table on the terminal, as JSON and as pictures."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from tests.load.bench.measure import Row

mpl.use("Agg")
MET, MISSED, INFORMS = "#2a7f62", "#c1443c", "#8a8f98"

Curves = dict[str, list[float]]


def print_table(rows: Sequence[Row]) -> None:
    table = Table("what", "against", show_lines=True)
    for heading in ("ours", "theirs", "ratio", "of the best", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.met]
        table.add_row(
            row.what,
            f"{row.against} ({row.statistic})",
            quantity(row.ours, row.unit),
            quantity(row.theirs, row.unit),
            f"[{style}]{row.ratio:.3g}[/]" if style else f"{row.ratio:.3g}",
            "" if row.best_ratio is None else f"{row.best_ratio:.3g}",
            "" if row.goal is None else f"≥ {row.goal:g}, {'ok' if row.met else 'MISSED'}",
        )
    Console(width=None if os.isatty(1) else 140).print(table)


def quantity(value: float, unit: str) -> str:
    if unit == "s" and value < 1:
        return f"{1e3 * value:.3g} ms" if value >= 1e-3 else f"{1e6 * value:.3g} us"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def write_json(path: Path, rows: Sequence[Row], curves: dict[str, Curves]) -> None:
    document = {
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "rows": [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows],
        "curves": curves,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def draw_ratios(path: Path, rows: Sequence[Row]) -> None:
    """Plots each ratio divided by its goal; at 1, the goal is just met."""
    judged = [row for row in rows if row.goal is not None]
    figure = Figure(figsize=(10, 0.55 * len(judged) + 1.2), layout="constrained")
    axes = figure.subplots()
    for y, row in enumerate(judged):
        axes.barh(y, row.ratio / row.goal, color=MET if row.met else MISSED)
        axes.annotate(
            f" {row.ratio:.3g} of {row.goal:g}", (row.ratio / row.goal, y), va="center", fontsize=8
        )
    labels = [f"{row.what}\nagainst {row.against}" for row in judged]
    axes.set_yticks(range(len(judged)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.axvline(1, color=INFORMS, linewidth=1)
    axes.set_xlabel("ratio, in multiples of its goal")
    figure.savefig(path, dpi=150)


def draw_curves(path: Path, curves: Curves, unit: str) -> None:
    """Draws every curve as seconds against size. The first entry in `curves` holds the sizes."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    sizes, *others = curves
    for name in others:
        axes.loglog(curves[sizes][: len(curves[name])], curves[name], "o-", label=name)
    axes.set_xlabel(unit)
    axes.set_ylabel("seconds")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


def wins_from(curves: Curves) -> int | None:
    """Returns the smallest size from which the first curve stays below the second."""
    size, ours, theirs = (list(reversed(values)) for values in curves.values())
    best = None
    for at, (mine, other) in zip(size, zip(ours, theirs, strict=True), strict=True):
        if mine >= other:
            break
        best = int(at)
    return best
