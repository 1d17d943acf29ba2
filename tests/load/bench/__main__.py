# SPDX-License-Identifier: Apache-2.0
"""The benchmark: each measure is a ratio to a real alternative; the two take turns in one run.

python -m tests.load.bench [--out DIR] [--quick] [--cuda] [GROUP ...]

Reads ATTNBIAS_SERVER_BINARY; expects the programs built from this folder next to that binary.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.load.bench import (
    cache,
    cuda,
    in_process,
    kernels,
    lengths,
    logits,
    models,
    oip,
    ranges,
    report,
    sizing,
    small_requests,
    streams,
)
from tests.load.bench.measure import Row
from tests.load.bench.programs import server
from tests.support.server import Server

Group = Callable[[Server, int], Iterator[Row]]


def streamed(running: Server, repetitions: int) -> Iterator[Row]:
    yield streams.socket_row(running, repetitions)
    yield streams.flight_row(running, repetitions)
    yield streams.memory_row(3)


def small(running: Server, repetitions: int) -> Iterator[Row]:
    yield from small_requests.unary_rows(running, repetitions, seconds=2)
    yield small_requests.one_computation_row()


def sinusoidal(running: Server, repetitions: int) -> Iterator[Row]:
    yield in_process.sinusoidal_row(running, repetitions)


GROUPS: dict[str, Group] = {
    "kernels": kernels.rows,
    "streams": streamed,
    "ranges": ranges.rows,
    "t5": in_process.t5_rows,
    "sinusoidal": sinusoidal,
    "logits": logits.rows,
    "small": small,
    "cache": cache.rows,
    "sizing": sizing.rows,
    "oip": oip.rows,
    "model": models.rows,
}


def no_rows(running: Server, repetitions: int) -> Iterator[Row]:
    del running, repetitions
    yield from ()


CURVES: dict[str, Callable[[Server, int], report.Curves]] = {
    "sinusoidal": in_process.crossover,
    "lengths": lengths.curves,
}
CUDA_GROUPS: dict[str, Group] = {"cuda": cuda.rows}
CUDA_CURVES = {"cuda": cuda.crossover}
UNITS = {
    "cuda": "bytes of the answer (dense F32, positions listed)",
    "sinusoidal": "positions (512 columns, F32)",
    "lengths": "positions, or queries and keys (F32, uncached)",
}


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    repetitions = 3 if arguments.quick else 9
    rows: list[Row] = []
    curves: dict[str, report.Curves] = {}
    all_groups, all_curves = GROUPS, CURVES
    if arguments.cuda:
        cuda.need_device()
        all_groups, all_curves = CUDA_GROUPS, CUDA_CURVES
    known = list(dict.fromkeys([*all_groups, *all_curves]))
    if unknown := set(arguments.groups) - set(known):
        raise SystemExit(f"unknown groups: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    with server() as running:
        for group in arguments.groups or known:
            for row in all_groups.get(group, no_rows)(running, repetitions):
                print(f"{row.ratio:10.3g}  {row.what}", flush=True)
                rows.append(row)
            if group in all_curves:
                curves[group] = all_curves[group](running, repetitions)
    report.print_table(rows)
    if "cuda" in curves:
        wins = report.wins_from(curves["cuda"])
        print("The device never wins." if wins is None else f"--cuda-min-bytes={wins}")
    if "sinusoidal" in curves:
        wins = report.wins_from(curves["sinusoidal"])
        print(f"Sinusoids: the wire wins from {wins} positions of 512 on.")
    for name, curve in curves.items():
        report.draw_curves(arguments.out / f"{name}.png", curve, UNITS[name])
    if rows:
        report.draw_ratios(arguments.out / "ratios.png", rows)
    report.write_json(arguments.out / "results.json", rows, curves)
    print(f"Written to {arguments.out}: results.json, pictures.")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measures attnbias.")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for results")
    parser.add_argument("--quick", action="store_true", help="3 repetitions instead of 9")
    parser.add_argument("--cuda", action="store_true", help="measure only a CUDA device")
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help="groups to measure; an unknown name lists them"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
