# SPDX-License-Identifier: Apache-2.0
"""The real server, stubs for calling it, and conditions that tests wait for."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from tests.support.contract import SERVICE, message, spec
from tests.support.server_process import PATIENCE, ServerProcess


class Server(ServerProcess):
    """A server for tests to call and measure, with access to its metrics."""

    def resident_bytes(self) -> int:
        return memory_of(self.process.pid, "VmRSS")

    def peak_resident_bytes(self) -> int:
        """Returns its peak memory; 0 once it has ended."""
        return memory_of(self.process.pid, "VmHWM")

    def connections(self) -> int:
        """Counts connections to its port. The current gRPC accepts IPv4 on IPv6 sockets."""
        port = int(self.address.rpartition(":")[2])
        folder = pathlib.Path(f"/proc/{self.process.pid}/net")
        rows = [row for name in ("tcp", "tcp6") for row in (folder / name).read_text().splitlines()]
        fields = [row.split() for row in rows]
        return sum(field[1].endswith(f":{port:04X}") and field[3] == "01" for field in fields)

    def grpc_gets_fixes(self) -> bool:
        """Returns whether the server is built with the current gRPC."""
        [minor] = re.findall(r" grpc=1\.(\d+)", self.log())
        return int(minor) > 51

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def exposition(self) -> str:
        """Returns the metrics as Prometheus reads them."""
        return exposition_of(self.metrics_address)

    def metrics(self) -> dict[str, float]:
        return samples_of(self.exposition())

    def calls(self, kind: str, method: str) -> float:
        return calls_in(self.metrics(), kind, method)

    def connect(self, credentials: grpc.ChannelCredentials | None = None) -> "Stub":
        return Stub(self.address, credentials)


class Stub:
    """The service's methods on a separate channel, which allows messages of any size.

    Plaintext unless credentials are given.
    """

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        if credentials is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, credentials, options)
        self.describe = self._unary("DescribeTensor")
        self.get = self._unary("GetTensor")
        self.tables = self._unary("ListTables")
        self.info = self._unary("GetServerInfo")
        self._stream = self.channel.unary_stream(
            f"/{SERVICE}/StreamTensor",
            request_serializer=_serialize,
            response_deserializer=message("StreamTensorResponse").FromString,
        )
        self._logits = self.channel.stream_stream(
            f"/{SERVICE}/ComputeLogits",
            request_serializer=_serialize,
            response_deserializer=message("ComputeLogitsResponse").FromString,
        )
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def _unary(self, method: str) -> Any:
        return self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=_serialize,
            response_deserializer=message(f"{method}Response").FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.close()

    def stream(self, spec: Any, timeout: float | None = None, **fields: Any) -> Any:
        return self._stream(message("StreamTensorRequest")(spec=spec, **fields), timeout=timeout)

    def logits(self, requests: Iterable[Any], timeout: float | None = None) -> Any:
        return self._logits(iter(requests), timeout=timeout)

    def header(self, spec: Any) -> Any:
        return self.describe(message("DescribeTensorRequest")(spec=spec)).header

    def tensor(self, spec: Any) -> Any:
        return self.get(message("GetTensorRequest")(spec=spec))

    def payload(self, spec: Any, **fields: Any) -> bytes:
        return b"".join(reply.data for reply in self.stream(spec, **fields))

    def check(self, service: str = "") -> str:
        response = self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)


def _serialize(request: Any) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


class Details:
    """A status's details, in addition to its code and message."""

    def __init__(self, error: grpc.RpcError) -> None:
        status = rpc_status.from_call(error)
        self.reason = ""
        self.domain = ""
        self.fields: list[str] = []
        self.retry_seconds: float | None = None
        for detail in status.details if status else ():
            self._read(detail)

    def _read(self, detail: Any) -> None:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            self.reason, self.domain = info.reason, info.domain
        elif detail.Unpack(bad):
            self.fields += [violation.field for violation in bad.field_violations]
        elif detail.Unpack(retry):
            self.retry_seconds = retry.retry_delay.ToNanoseconds() / 1e9


def refused(call: Callable[[], Any]) -> grpc.RpcError:
    """Returns the error from a call that must fail; streams are read to their end."""
    try:
        result = call()
        if isinstance(result, Iterator):
            for _ in result:
                pass
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"the call succeeded with {result!r:.200}")


def run_server(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a server that exits by itself, because it cannot start or only checks its
    configuration."""
    return subprocess.run(
        [os.environ["ATTNBIAS_SERVER_BINARY"], *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environment,
        check=False,
    )


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Polls for a condition that has no event."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)


def memory_of(pid: int, name: str) -> int:
    """Returns one of a process's memory figures, such as VmRSS, in bytes; 0 once it has ended."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def cpu_seconds(pid: int) -> float:
    """Returns the processor time that all threads of a process have used since it started."""
    # Equals clock_getcpuclockid(3) for another process, a function that Python lacks.
    return time.clock_gettime((~pid << 3) | 2)


def exposition_of(address: str, timeout: float | None = None) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout) as response:
        return str(response.read().decode())


def samples_of(exposition: str) -> dict[str, float]:
    """Returns every sample, keyed by name with labels."""
    lines = exposition.splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def calls_in(metrics: dict[str, float], kind: str, method: str = "") -> float:
    """Returns the number of calls "started" or "handled", for one method or for all."""
    prefix, label = f"grpc_server_{kind}_total", f'"{method}"' if method else ""
    return sum(n for name, n in metrics.items() if name.startswith(prefix) and label in name)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def listens(port: int) -> bool:
    """Reports whether a process accepts connections on loopback."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def hold_memory(server: Server, stub: Stub) -> Any:
    """Returns a stream that is no longer being read and holds at least 4 MiB."""
    # Rows selected by a list are separate chunks of memory: one is being sent, one waits.
    ids = {"position_ids": [{"positions": [i * 7 % 10007 for i in range(20000)]}]}
    holder = stub.stream(spec(sinusoidal={"dim": 1024}, table=ids), max_chunk_bytes=2**21)
    next(holder)

    def is_held() -> bool:
        sent = "attnbias_stream_bytes_total"
        before = server.metrics()
        time.sleep(0.3)
        after = server.metrics()
        held = after["attnbias_memory_used_bytes"] - after["attnbias_cache_bytes"]
        return before[sent] == after[sent] and held >= 2 * 2**21

    eventually(is_held, "the stream held back")
    return holder


def no_call_is_open(metrics: dict[str, float]) -> bool:
    return calls_in(metrics, "started") == calls_in(metrics, "handled")


def settled(server: Server) -> None:
    """Waits until all memory held by calls is released, and all calls have ended."""

    def is_settled() -> bool:
        metrics = server.metrics()
        return (
            no_call_is_open(metrics)
            and metrics["attnbias_memory_used_bytes"] == metrics["attnbias_cache_bytes"]
        )

    eventually(is_settled, "every call ended, and all uncached memory released")
