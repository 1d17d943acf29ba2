# SPDX-License-Identifier: Apache-2.0
"""Fetching tensors over the wire compared with building them in process, with transformers and
torch."""

import math
import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

import grpc
import numpy as np
import numpy.typing as npt
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

import attnbias
from attnbias.v1 import service_pb2
from tests.load.bench.measure import Round, Row, by_turns, compare, timed
from tests.load.bench.programs import GET_TENSOR
from tests.support.server import Server

Array = npt.NDArray[Any]

HEADS, LENGTH = 32, 4096
DIM, POSITIONS = 512, 131072


class T5Contest:
    """The same bias by every route: with transformers, with torch, and over the wire."""

    extent: ClassVar = {"query_length": LENGTH, "key_length": LENGTH}

    def __init__(self, client: attnbias.Client, channel: grpc.Channel) -> None:
        config = T5Config(num_heads=HEADS, d_kv=2, d_model=64)
        self._attention = T5Attention(config, has_relative_attention_bias=True)
        self._weight = self._attention.relative_attention_bias.weight.detach()
        torch.nn.init.normal_(self._weight)
        self._encoding = self._encoding_of(self._weight)
        self._client = client
        spec = attnbias.Request(self._encoding, **self.extent).to_spec()
        self._bare_request = service_pb2.GetTensorRequest(spec=spec).SerializeToString()
        self._bare_stub = channel.unary_unary(GET_TENSOR)

    def compute_bias(self) -> torch.Tensor:
        with torch.no_grad():
            return self._attention.compute_bias(LENGTH, LENGTH)

    def contiguous(self) -> torch.Tensor:
        return self.compute_bias().contiguous()

    def diagonals(self) -> torch.Tensor:
        relative = torch.arange(1 - LENGTH, LENGTH)
        buckets = T5Attention._relative_position_bucket(relative)
        return self._weight[buckets].T.contiguous()

    def unfolded(self) -> torch.Tensor:
        return self.diagonals().unfold(-1, LENGTH, 1).flip(-2)

    def view(self) -> Array:
        return self._client.get(self._encoding, **self.extent).view()

    def bare(self) -> bytes:
        """Returns the same values as view(), fetched by one GetTensor call with a plain stub and
        not parsed."""
        answer: bytes = self._bare_stub(self._bare_request)
        return answer

    def view_of_new_table(self) -> Array:
        encoding = self._encoding_of(torch.randn_like(self._weight))
        return self._client.get(encoding, **self.extent).view()

    def streamed(self) -> Array:
        return self._client.get(self._encoding, **self.extent, form="dense")

    def expanded(self) -> Array:
        return self._client.get(self._encoding, **self.extent).dense()

    def check(self) -> None:
        """Speed counts only if the result is correct."""
        for want, *others in zip(
            self.compute_bias()[0],
            self.unfolded(),
            self.view(),
            self.streamed(),
            self.expanded(),
            strict=True,
        ):
            assert all(np.array_equal(want, other) for other in others)

    @staticmethod
    def _encoding_of(weight: torch.Tensor) -> attnbias.T5:
        return attnbias.T5(num_heads=HEADS, bidirectional=True, table=weight)


AS_ONE = "T5 bias 32x4096x4096 F32 as one array, its diagonals expanded by the client"
BARE = "the same bytes by a plain stub of grpcio, neither checked nor unpacked"
STREAMED = "the same, streamed dense"
AGAINST = {
    "compute_bias": "transformers' compute_bias",
    "contiguous": "compute_bias(...).contiguous()",
    "diagonals": "torch: buckets of 8191 positions, one gather",
    "unfolded": "torch: those diagonals, unfold().flip()",
}
T5_ROWS: list[tuple[str, str, str, float | None]] = [
    ("T5 bias 32x4096x4096 F32 as a numpy view", "view", "compute_bias", 500),
    (
        "the same, of a table that the server has not seen",
        "view_of_new_table",
        "compute_bias",
        None,
    ),
    (AS_ONE, "expanded", "contiguous", 5),
    (STREAMED, "streamed", "contiguous", None),
    ("T5 diagonals 32x8191 F32", "view", "diagonals", 0.5),
    (BARE, "bare", "diagonals", None),
    (AS_ONE, "expanded", "unfolded", 0.8),
    (STREAMED, "streamed", "unfolded", None),
]


def t5_rows(running: Server, repetitions: int) -> Iterator[Row]:
    with (
        attnbias.Client(running.address) as client,
        grpc.insecure_channel(running.address) as channel,
    ):
        contest = T5Contest(client, channel)
        contest.check()
        small = rounds_of_methods(contest, "view", "bare", "diagonals")
        small_times = by_turns(small, 20 * repetitions)
        large = rounds_of_methods(
            contest,
            *("view", "view_of_new_table", "compute_bias"),
            *("streamed", "expanded", "contiguous", "unfolded"),
        )
        times = by_turns(large, repetitions)
    for what, ours, theirs, goal in T5_ROWS:
        chosen = small_times if theirs == "diagonals" else times
        yield compare(
            what=what, against=AGAINST[theirs], ours=chosen[ours], theirs=chosen[theirs], goal=goal
        )


def rounds_of_methods(contest: T5Contest, *names: str) -> dict[str, Round]:
    return {name: timed(getattr(contest, name)) for name in names}


def torch_sinusoid(length: int) -> torch.Tensor:
    """Follows torch's tutorial."""
    position = torch.arange(length).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, DIM, 2) * (-math.log(10000.0) / DIM))
    table = torch.zeros(length, DIM)
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)
    return table


def sinusoidal_row(running: Server, repetitions: int) -> Row:
    encoding = attnbias.Sinusoidal(dim=DIM)
    with attnbias.Client(running.address) as client:
        got = client.get(encoding, positions=100)
        assert np.allclose(got, torch_sinusoid(100).numpy(), atol=1e-5)
        rounds = {
            "ours": timed(lambda: client.get(encoding, positions=POSITIONS)),
            "theirs": timed(lambda: torch_sinusoid(POSITIONS)),
        }
        times = by_turns(rounds, repetitions)
    return compare(
        what=f"Sinusoidal {POSITIONS}x{DIM} F32 as one array",
        against=f"building it in torch with {torch.get_num_threads()} threads",
        **times,
        goal=2,
    )


def crossover(running: Server, repetitions: int) -> dict[str, list[float]]:
    """Returns the seconds that each way takes, by length; the wire wins if it takes fewer."""
    encoding = attnbias.Sinusoidal(dim=DIM)
    lengths = [1 << n for n in range(4, 18)]
    curves: dict[str, list[float]] = {"length": [float(n) for n in lengths]}
    with attnbias.Client(running.address) as client:
        for length in lengths:
            rounds = {
                "attnbias, over the wire": timed(partial(client.get, encoding, positions=length)),
                "built in torch": timed(partial(torch_sinusoid, length)),
            }
            samples = by_turns(rounds, repetitions)
            for name, seconds in samples.items():
                curves.setdefault(name, []).append(statistics.median(seconds))
    return curves
