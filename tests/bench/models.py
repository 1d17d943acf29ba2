# SPDX-License-Identifier: Apache-2.0
"""Whole models: transformers' own against the same attached to a server, each in a process of its
own, whose peak memory is measured.

python -m tests.bench.models CASE LENGTH (own | attached) TARGET
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from transformers import (
    BloomConfig,
    BloomModel,
    PreTrainedModel,
    SwinConfig,
    SwinModel,
    T5Config,
    T5EncoderModel,
)

import attnbias
from tests.bench.measure import Row
from tests.bench.programs import Server

GIB = 1 << 30
# Where a model alone would take the machine's memory, it is stopped.
MOST_BYTES = 17 * GIB
LENGTHS = [2048, 4096, 8192, 16384, 32768]


class Case(NamedTuple):
    """A model with random weights, and what it is asked.

    Attributes:
        attention: what it runs with where it is attached.
        lengths: those that it is measured at.
    """

    make: Callable[[], PreTrainedModel]
    inputs: Callable[[int], dict[str, torch.Tensor]]
    attention: Any
    lengths: list[int]


def tokens(length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(length)[None] % 100}


def image(length: int) -> dict[str, torch.Tensor]:
    side = 4 * round(length**0.5)  # patches are of 4 x 4 pixels
    return {"pixel_values": torch.randn(1, 3, side, side)}


CASES = {
    "T5 encoder (2 layers, 8 heads)": Case(
        lambda: T5EncoderModel(T5Config(vocab_size=100, d_model=512, num_layers=2, num_heads=8)),
        tokens,
        "flex",
        LENGTHS,
    ),
    "BLOOM (2 layers, 8 heads)": Case(
        lambda: BloomModel(BloomConfig(vocab_size=100, hidden_size=512, n_layer=2, n_head=8)),
        tokens,
        "flex",
        LENGTHS[:3],
    ),
    "Swin (tiny)": Case(lambda: SwinModel(SwinConfig(image_size=224)), image, "sdpa", [3136]),
}


class Run(NamedTuple):
    """What one process took; seconds of the first call have what is compiled for it."""

    peak_bytes: float
    first_seconds: float
    next_seconds: float


def measured(case: str, length: int, way: str, target: str) -> Run | None:
    """None where it wanted more memory than MOST_BYTES."""
    command = [sys.executable, "-m", "tests.bench.models", case, str(length), way, target]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode and "can't allocate memory" in process.stderr:
        return None
    assert process.returncode == 0, process.stderr
    return Run(*json.loads(process.stdout))


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    del repetitions  # a process each: its peak hardly varies

    def row(what: str, against: str, unit: str, ours: float, theirs: float) -> Row:
        return Row(
            what=what,
            against=against,
            unit=unit,
            ours=ours,
            theirs=theirs,
            goal=None,
            statistic="one run",
        )

    for name, case in CASES.items():
        for length in case.lengths:
            what = f"{name} at {length}"
            ours = measured(name, length, "attached", running.target)
            theirs = measured(name, length, "own", running.target)
            assert ours is not None, f"{what} took more than {MOST_BYTES} bytes"
            memory = f"{what}: peak memory"
            if theirs is None:
                against = "transformers' own, which wanted more"
                yield row(memory, against, "GiB", ours.peak_bytes / GIB, MOST_BYTES / GIB)
                continue
            own = "transformers' own"
            yield row(memory, own, "GiB", ours.peak_bytes / GIB, theirs.peak_bytes / GIB)
            yield row(f"{what}: first call", own, "s", ours.first_seconds, theirs.first_seconds)
            yield row(f"{what}: next call", own, "s", ours.next_seconds, theirs.next_seconds)


def main() -> None:
    name, length, way, target = sys.argv[1:]
    case = CASES[name]
    torch.manual_seed(0)
    model, inputs = case.make().eval(), case.inputs(int(length))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    if way == "attached":
        with attnbias.Client(target) as client:
            attnbias.attach(model, client, max_length=int(length), attention=case.attention)
    seconds = []
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            model(**inputs)
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([peak, *seconds]))


if __name__ == "__main__":
    main()
