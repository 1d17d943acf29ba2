# SPDX-License-Identifier: Apache-2.0
"""Shaw's positional logits over the wire compared with gathering a vector for every pair in
torch."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

import attnbias
from tests.load.bench.measure import Row, by_turns, compare, timed
from tests.load.bench.programs import server
from tests.load.bench.streams import MIB, forget_peak
from tests.support.server import Server

HEADS, LENGTH, DIM, CLIP = 8, 4096, 64, 20
GATHERED_BYTES = 4 * LENGTH * LENGTH * DIM


class Contest:
    """The same logits by every route."""

    extent: ClassVar[dict[str, Any]] = {"key_length": LENGTH, "direction": "bidirectional"}

    def __init__(self, client: attnbias.Client) -> None:
        self._client = client
        self._queries = torch.randn(HEADS, LENGTH, DIM)
        self._table = torch.randn(2 * CLIP + 1, DIM)
        self._term = attnbias.ShawKeys(table=self._table, left=CLIP, right=CLIP)

    def gathered(self) -> torch.Tensor:
        """Follows the paper's own code."""
        position = torch.arange(LENGTH)
        relative = position[None, :] - position[:, None]
        vectors = self._table[relative.clamp(-CLIP, CLIP) + CLIP]  # [queries, keys, dim]
        by_query = torch.matmul(self._queries.transpose(0, 1), vectors.transpose(1, 2))
        return by_query.transpose(0, 1).contiguous()

    def spread(self) -> torch.Tensor:
        """The best in-process route known: products with distinct vectors, selected by index."""
        return self.on("cpu")()

    def streamed(self) -> npt.NDArray[Any]:
        return self._client.logits(self._term, self._queries, **self.extent)

    def on(self, device: str) -> Callable[[], torch.Tensor]:
        """Returns spread()'s route on another device, including both copies."""
        table = self._table.to(device)

        def run() -> torch.Tensor:
            position = torch.arange(LENGTH, device=device)
            relative = position[None, :] - position[:, None]
            index = relative.clamp(-CLIP, CLIP) + CLIP
            products = self._queries.to(device) @ table.T
            return products.gather(2, index.expand(HEADS, LENGTH, LENGTH)).cpu()

        return run

    def check(self) -> None:
        """Speed counts only if the result is correct."""
        want = self.gathered().numpy()
        assert np.allclose(self.streamed(), want, atol=1e-4)
        assert np.allclose(self.spread(), want, atol=1e-4)


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    with attnbias.Client(running.address) as client:
        contest = Contest(client)
        contest.check()
        names = ["streamed", "gathered", "spread"]
        times = by_turns({name: timed(getattr(contest, name)) for name in names}, repetitions)
    what = f"Shaw's logits {HEADS}x{LENGTH}x{LENGTH} F32, head_dim {DIM}, into one array"
    yield compare(
        what=what,
        against="torch: a vector gathered for every pair, one product",
        ours=times["streamed"],
        theirs=times["gathered"],
        goal=1.0,
    )
    yield compare(
        what=what,
        against=f"torch: products with {2 * CLIP + 1} vectors, selected by index",
        ours=times["streamed"],
        theirs=times["spread"],
        goal=None,
    )
    yield memory_row(3)


def memory_row(repetitions: int) -> Row:
    """Measures the memory of a new server, from its first small answer to its peak."""
    growths = []
    for _ in range(repetitions):
        with server() as running, attnbias.Client(running.address) as client:
            contest = Contest(client)
            client.get(attnbias.ALiBi(num_heads=8), query_length=64, key_length=64)
            forget_peak(running.process.pid)
            before = running.resident_bytes()
            contest.streamed()
            growths.append(running.peak_resident_bytes() - before)
    return Row(
        what="Growth of the server's memory while it computes those logits",
        against="the gathered vectors alone",
        unit="MiB",
        ours=max(growths) / MIB,
        theirs=GATHERED_BYTES / MIB,
        goal=20,
        statistic=f"worst of {repetitions}",
        samples={"ours": [growth / MIB for growth in growths]},
    )
