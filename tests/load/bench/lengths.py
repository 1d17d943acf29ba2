# SPDX-License-Identifier: Apache-2.0
"""Cost of an uncached tensor by length, for one encoding per structure."""

import itertools
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import attnbias
from tests.load.bench.measure import timed
from tests.support.server import Server

LENGTHS = [1 << n for n in range(6, 13)]


class Case(NamedTuple):
    """An encoding that varies with a parameter, and its extent for a length."""

    encoding: Callable[[float], attnbias.Encoding]
    extent: Callable[[int], dict[str, Any]]
    longest: int = LENGTHS[-1]


def pair(length: int) -> dict[str, Any]:
    return {"query_length": length, "key_length": length}


def fire(c: float) -> attnbias.Fire:
    random = np.random.default_rng(0)
    weights = {
        "hidden_weight": random.standard_normal((32, 1), np.float32),
        "hidden_bias": random.standard_normal(32, np.float32),
        "output_weight": random.standard_normal((8, 32), np.float32),
        "output_bias": random.standard_normal(8, np.float32),
    }
    return attnbias.Fire(num_heads=8, c=c, **weights)


CASES = {
    "TABLE (sinusoidal, dim 512)": Case(
        lambda x: attnbias.Sinusoidal(512, ladder=attnbias.Ladder(base=10000 + x)),
        lambda n: {"positions": n},
    ),
    "KEY_ROW (ALiBi, 32 heads)": Case(
        lambda x: attnbias.ALiBi(num_heads=32, alibi_bias_max=8 + x, variant="KEY_FROM_START"), pair
    ),
    "TOEPLITZ (ALiBi, 32 heads)": Case(
        lambda x: attnbias.ALiBi(num_heads=32, alibi_bias_max=8 + x), pair
    ),
    "TOEPLITZ of vectors (Transformer-XL, dim 64)": Case(
        lambda x: attnbias.TransformerXL(dim=64, base=10000 + x), pair
    ),
    "DENSE (FIRE, 8 heads)": Case(lambda x: fire(0.1 + x), pair, longest=512),
}


def curves(running: Server, repetitions: int) -> dict[str, list[float]]:
    """Returns the seconds from request to answer, by length, for answers in the structure's own
    form."""
    fresh = itertools.count(1)
    result: dict[str, list[float]] = {"length": [float(n) for n in LENGTHS]}
    with attnbias.Client(running.address) as client:
        for name, case in CASES.items():
            for length in LENGTHS:
                if length > case.longest:
                    break

                def ask(case: Case = case, length: int = length) -> None:
                    client.get(case.encoding(next(fresh) * 2.0**-20), **case.extent(length))

                seconds = [timed(ask)() for _ in range(repetitions)]
                result.setdefault(name, []).append(statistics.median(seconds))
    return result
