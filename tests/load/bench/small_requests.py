# SPDX-License-Identifier: Apache-2.0
"""Small requests: calls per second, and the cost of many identical concurrent calls."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import grpc

import attnbias
from attnbias.v1 import service_pb2
from tests.load.bench.measure import Row, by_turns, compare_rates
from tests.load.bench.programs import GET_TENSOR, empty_server, rounds_of, server
from tests.support.server import Server

CLIENTS = 256


def unary_rows(running: Server, repetitions: int, seconds: float) -> Iterator[Row]:
    """Measures a cached 4 KiB ALiBi bias (8 heads, 64 x 64); the empty call has the same size."""
    encoding = attnbias.ALiBi(num_heads=8)
    spec = attnbias.Request(encoding, query_length=64, key_length=64).to_spec()
    request = service_pb2.GetTensorRequest(spec=spec).SerializeToString()
    with grpc.insecure_channel(running.address) as channel:
        response = channel.unary_unary(GET_TENSOR)(request)
    with (
        tempfile.NamedTemporaryFile() as file,
        empty_server(len(response)) as empty,
        server("--access-log=off") as silent,
    ):
        file.write(request)
        file.flush()
        arguments = [GET_TENSOR, file.name, seconds]
        with (
            rounds_of("unary_load", running.address, *arguments) as logged,
            rounds_of("unary_load", silent.address, *arguments) as unlogged,
            rounds_of("unary_load", empty, *arguments) as bare,
        ):
            rounds = {"logged": logged, "unlogged": unlogged, "bare": bare}
            samples = by_turns(rounds, repetitions)
    for way, how, goal in [("logged", "", 0.85), ("unlogged", ", without a log", None)]:
        yield compare_rates(
            what=f"GetTensor of {len(request)} bytes in, {len(response)} out{how}, calls/s",
            against="an empty unary call of the same sizes",
            ours=samples[way],
            theirs=samples["bare"],
            goal=goal,
            unit="1/s",
            notes="The empty call is answered by a bare server of the same gRPC, without a log.",
        )


def one_computation_row() -> Row:
    """Makes 256 simultaneous calls for the same tensor, which takes a while to compute."""
    encoding = attnbias.ALiBi(num_heads=64, variant="KEY_FROM_START")
    start = Barrier(CLIENTS)

    def ask(client: attnbias.Client) -> bytes:
        client.info()  # connects
        start.wait()
        return client.get(
            encoding, query_length=1, key_length=1 << 18, alignment="end", heads=1
        ).row.tobytes()

    with server() as running, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [attnbias.Client(running.address) for _ in range(CLIENTS)]
        answers = set(pool.map(ask, clients))
        for client in clients:
            client.close()
        computations = running.metrics()["attnbias_computations_total"]
    assert len(answers) == 1
    return Row(
        what=f"Computations for {CLIENTS} clients that request one uncached tensor",
        against="one",
        unit="",
        ours=computations,
        theirs=1,
        goal=1.0,
        statistic="one run",
    )
