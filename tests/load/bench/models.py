# SPDX-License-Identifier: Apache-2.0
"""Whole models as transformers provides them, compared with the same models attached to a server.
Each runs in a separate process whose peak memory is measured.

python -m tests.load.bench.models CASE LENGTH (own | attached) TARGET
"""

import json
import resource
import statistics
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
    T5Model,
)

import attnbias
from tests.load.bench.measure import Row
from tests.support.server import Server

GIB = 1 << 30
# A model that would exhaust the machine's memory is stopped.
MOST_BYTES = 17 * GIB
LENGTHS = [2048, 4096, 8192, 16384, 32768]

Inputs = dict[str, Any]


class Case(NamedTuple):
    """A model with random weights, and its workload.

    Attributes:
        inputs: inputs for the first call, given a length.
        attention: attention implementation when attached.
        lengths: lengths to measure.
        new_tokens: number of tokens that a decoder then receives, one per call; 0 repeats the
            first call.
    """

    make: Callable[[], PreTrainedModel]
    inputs: Callable[[int], Inputs]
    attention: Any
    lengths: list[int]
    new_tokens: int = 0


def tokens(length: int) -> Inputs:
    return {"input_ids": torch.arange(length)[None] % 100}


def image(length: int) -> Inputs:
    side = 4 * round(length**0.5)  # patches have 4 x 4 pixels
    return {"pixel_values": torch.randn(1, 3, side, side)}


def sequences(length: int) -> Inputs:
    """Returns inputs for a decoder, and a short input for its encoder."""
    return tokens(16) | {"decoder_input_ids": tokens(length)["input_ids"]}


def next_token(inputs: Inputs, answer: Any) -> Inputs:
    """Returns the next inputs for a decoder with a cache; the cache grows in place."""
    decoded = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    following = {decoded: inputs[decoded][:, -1:], "past_key_values": answer.past_key_values}
    if decoded != "input_ids":
        following["encoder_outputs"] = (answer.encoder_last_hidden_state,)
    return following


def t5_config() -> T5Config:
    return T5Config(vocab_size=100, d_model=512, num_layers=2, num_heads=8)


def bloom() -> BloomModel:
    return BloomModel(BloomConfig(vocab_size=100, hidden_size=512, n_layer=2, n_head=8))


T5_ENCODER = "T5 encoder (2 layers, 8 heads)"
CASES = {
    T5_ENCODER: Case(lambda: T5EncoderModel(t5_config()), tokens, "flex", LENGTHS),
    "BLOOM (2 layers, 8 heads)": Case(bloom, tokens, "flex", LENGTHS[:3]),
    "Swin (tiny)": Case(lambda: SwinModel(SwinConfig(image_size=224)), image, "sdpa", [3136]),
    "T5 (2 + 2 layers, 8 heads), decoding": Case(
        lambda: T5Model(t5_config()), sequences, "flex", LENGTHS[:2], new_tokens=64
    ),
    "BLOOM (2 layers, 8 heads), decoding": Case(bloom, tokens, "flex", LENGTHS[:2], new_tokens=64),
}
# The case and length that have goals: the attached model needs at most LARGEST bytes, and
# transformers' own more than OWN_IS_ABOVE.
JUDGED, LARGEST, OWN_IS_ABOVE = (T5_ENCODER, 16384), 4 * GIB, 16 * GIB


class Run(NamedTuple):
    """One process's time and memory; the first call's seconds include compilation."""

    peak_bytes: float
    first_seconds: float
    next_seconds: float


def measured(case: str, length: int, way: str, target: str) -> Run | None:
    """Runs one process; returns None if it needed more than MOST_BYTES of memory."""
    command = [sys.executable, "-m", "tests.load.bench.models", case, str(length), way, target]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode and "can't allocate memory" in process.stderr:
        return None
    assert process.returncode == 0, process.stderr
    return Run(*json.loads(process.stdout))


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    del repetitions  # each run is a new process, and peaks hardly vary

    def row(what: str, against: str, unit: str, ours: float, theirs: float, **more: Any) -> Row:
        return Row(
            what=what,
            against=against,
            unit=unit,
            ours=ours,
            theirs=theirs,
            statistic="one run",
            **{"goal": None, **more},
        )

    for name, case in CASES.items():
        for length in case.lengths:
            what = f"{name} at {length}"
            ours = measured(name, length, "attached", running.address)
            theirs = measured(name, length, "own", running.address)
            assert ours is not None, f"{what} took more than {MOST_BYTES} bytes"
            memory = f"{what}: peak memory"
            own_bytes = MOST_BYTES if theirs is None else theirs.peak_bytes
            if (name, length) == JUDGED:
                largest, least = f"{LARGEST / GIB:g} GiB", f"{OWN_IS_ABOVE / GIB:g} GiB"
                yield row(memory, largest, "GiB", ours.peak_bytes / GIB, LARGEST / GIB, goal=1.0)
                yield row(
                    f"{memory} of transformers' own",
                    f"{least}, which it must exceed",
                    "GiB",
                    own_bytes / GIB,
                    OWN_IS_ABOVE / GIB,
                    goal=1.0,
                    more_is_better=True,
                )
            own = "transformers' own"
            following = "each token after" if case.new_tokens else "next call"
            wanted = own if theirs else f"{own}, which wanted more"
            yield row(memory, wanted, "GiB", ours.peak_bytes / GIB, own_bytes / GIB)
            if theirs is not None:
                yield row(f"{what}: first call", own, "s", ours.first_seconds, theirs.first_seconds)
                yield row(f"{what}: {following}", own, "s", ours.next_seconds, theirs.next_seconds)


def main() -> None:
    name, length, way, target = sys.argv[1:]
    case = CASES[name]
    torch.manual_seed(0)
    model, inputs = case.make().eval(), case.inputs(int(length))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    if way == "attached":
        longest = int(length) + case.new_tokens
        with attnbias.Client(target) as client:
            attnbias.attach(model, client, max_length=longest, attention=case.attention)
    seconds = []
    with torch.no_grad():
        for _ in range(1 + max(case.new_tokens, 1)):
            start = time.perf_counter()
            answer = model(**inputs)
            seconds.append(time.perf_counter() - start)
            if case.new_tokens:
                inputs = next_token(inputs, answer)
            del answer  # not counted in the next call's memory
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([peak, seconds[0], statistics.median(seconds[1:])]))


if __name__ == "__main__":
    main()
