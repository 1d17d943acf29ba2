# SPDX-License-Identifier: Apache-2.0
"""Small requests that used to be expensive, and input that used to be echoed at length."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.support.contract import LIST_SERVICES, REFLECTION, SERVICE, alibi, spec
from tests.support.server import Details, Server, eventually, refused, settled

MIB = 1 << 20


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_requests_are_rejected_uninflated(algorithm: grpc.Compression) -> None:
    with Server() as server, grpc.insecure_channel(server.address) as channel:
        before = server.resident_bytes()
        call = channel.unary_unary(f"/{SERVICE}/GetTensor")
        error = refused(lambda: call(bytes(256 * MIB), compression=algorithm))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert server.resident_bytes() - before < 32 * MIB
        with server.connect() as stub:
            assert stub.tensor(alibi(1, 4)).data


def test_long_name_is_truncated_in_error() -> None:
    with Server("--log-format=json") as server:
        with server.connect() as stub:
            name = "é" * 3000
            error = refused(lambda: stub.tensor(spec(t5={"table": {"name": name}})))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details().startswith("spec.t5.table.name: got 'éé")
        assert "(6000 bytes)" in error.details()
        assert len(error.details()) < 300
        assert Details(error).fields == ["spec.t5.table.name"]
        assert server.stop() == 0
        (call,) = [line for line in server.json_log() if line["message"] == "call"]
        assert len(call["error"]) < 300


@pytest.mark.parametrize("method", ["tables", "info", "describe", "get"])
def test_invalid_message_is_answered_and_counted(method: str) -> None:
    with Server() as server:
        with server.connect() as stub:
            error = refused(lambda: getattr(stub, method)(b"\xff\xff\xff"))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details().startswith("request: not a serialized ")
        settled(server)
        (name,) = [
            name
            for name, count in server.metrics().items()
            if name.startswith("grpc_server_handled_total") and count > 0
        ]
        assert 'grpc_code="InvalidArgument"' in name
        assert server.stop() == 0
        assert "code=INVALID_ARGUMENT" in server.log()


def test_reflection_threads_are_bounded(start_server: Callable[..., Server]) -> None:
    """Each reflection stream uses one thread while it is open."""
    server = start_server()
    before = threads(server)
    ended = threading.Event()

    def silent() -> Iterator[bytes]:
        ended.wait()
        yield from ()

    with grpc.insecure_channel(server.address) as channel, server.connect() as stub:
        reflect = channel.stream_stream(REFLECTION)
        streams = [reflect(silent()) for _ in range(100)]
        assert stub.tensor(alibi(1, 4)).data
        assert {stream.code() for stream in streams if stream.done()} <= {
            grpc.StatusCode.RESOURCE_EXHAUSTED
        }
        assert threads(server) - before <= 20
        ended.set()

        def answers() -> bool:
            with contextlib.suppress(grpc.RpcError):
                return SERVICE.encode() in next(reflect(iter([LIST_SERVICES])))
            return False

        eventually(answers, "reflection answers again")


def threads(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/task"))


def test_library_log_lines_are_json() -> None:
    with Server("--log-format=json", prefix=("env", "GRPC_VERBOSITY=DEBUG")) as server:
        with server.connect() as stub:
            stub.tensor(alibi(1, 4))
        assert server.stop() == 0
        assert server.json_log()
