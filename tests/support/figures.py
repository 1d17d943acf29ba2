# SPDX-License-Identifier: Apache-2.0
"""The tests' figures, printed as tables for docs/reliability.md."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    test: str
    load: str
    figure: str
    bound: str


@dataclass
class Figures:
    rows: list[Figure] = field(default_factory=list)

    def add(self, test: str, load: str, figure: str, bound: str = "") -> None:
        self.rows.append(Figure(test, load, figure, bound))

    def table(self) -> str:
        lines = ["| test | load | figure | bound |", "|---|---|---|---|"]
        for row in self.rows:
            lines.append(f"| {row.test} | {row.load} | {row.figure} | {row.bound} |")
        return "\n".join(lines)


def mib(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
