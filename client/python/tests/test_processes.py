# SPDX-License-Identifier: Apache-2.0
"""Clients and errors in several processes: pickled, forked, and in a DataLoader's workers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2

import attnbias
from attnbias import aio
from attnbias._transport import forks
from attnbias._transport.calls import GET_SERVER_INFO, STREAM_TENSOR, run
from attnbias._transport.retry import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fake_server import FakeServer

ALIBI = attnbias.ALiBi(num_heads=8)
WAYS = multiprocessing.get_all_start_methods()


@pytest.fixture(scope="module")
def local() -> Iterator[attnbias.LocalServer]:
    if "ATTNBIAS_SERVER_BINARY" not in os.environ:
        pytest.skip("ATTNBIAS_SERVER_BINARY is not set")
    server = attnbias.LocalServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def client(local: attnbias.LocalServer) -> Iterator[attnbias.Client]:
    with attnbias.Client(local.target, timeout=60) as connected:
        yield connected


def total(client: attnbias.Client, length: int) -> float:
    return float(client.get(ALIBI, query_length=length, key_length=length).diagonals.sum())


def test_pickled_client_reopens_its_connection(client: attnbias.Client) -> None:
    options: dict[str, Any] = {
        "timeout": 5,
        "connect_timeout": 3,
        "tls": False,
        "token": "",
        "metadata": (("a", "b"),),
        "channel_options": {"grpc.lb_policy_name": "pick_first"},
        "max_attempts": 3,
        "max_tensor_bytes": 1 << 20,
        "streams": 3,
        "cache": Path("/nowhere/cache"),
        "cache_bytes": 1 << 30,
        "offline": True,
    }
    for kind in (attnbias.Client, aio.Client):
        original = kind("host", **options)
        again = pickle.loads(pickle.dumps(original))
        assert type(again) is kind
        assert again.__getstate__() == {"target": "host:50051", **options}
    assert total(pickle.loads(pickle.dumps(client)), 9) == total(client, 9)


def test_credentials_are_not_pickled() -> None:
    client = attnbias.Client("host", credentials=grpc.ssl_channel_credentials())
    with pytest.raises(TypeError, match="cannot pickle a Client with credentials"):
        pickle.dumps(client)


def test_pickled_error_is_equal() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(
        field="alibi.num_heads", description="d"
    )
    details = [error_details_pb2.BadRequest(field_violations=[violation])]
    error = attnbias.InvalidArgumentError("says", details=details, pushback=1.5)
    unknown = attnbias.Error("says", code=grpc.StatusCode.ALREADY_EXISTS)
    for original in (error, unknown, attnbias.DataLossError("chunk")):
        original.add_note("a note")
        again = pickle.loads(pickle.dumps(original))
        assert type(again) is type(original)
        assert str(again) == str(original)
        assert again.args == original.args
        assert (again.code, again.message) == (original.code, original.message)
        assert again.details == original.details
        assert again.field_violations == original.field_violations
        assert again.retry_delay == original.retry_delay
        assert again.__notes__ == ["a note"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("used", [False, True])
def test_workers_use_the_client(client: attnbias.Client, way: str, used: bool) -> None:
    if used:
        assert client.health()
    want = [total(client, n) for n in (5, 6, 7)] if used else None
    with multiprocessing.get_context(way).Pool(2) as pool:
        got = pool.starmap(total, [(client, n) for n in (5, 6, 7)])
    assert got == (want or [total(client, n) for n in (5, 6, 7)])


def in_fork(work: Callable[[], object]) -> int:
    """Returns the exit code of a forked process that does some work and exits like a script."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a process that hangs is killed
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


IN_FLIGHT = """
import os, signal, threading
import numpy as np
import attnbias

alibi, size, got = attnbias.ALiBi(num_heads=8), {"query_length": 3000, "key_length": 3000}, []
with attnbias.LocalServer() as client:
    compact = client.get(alibi, **size)
    thread = threading.Thread(target=lambda: got.append(client.get(alibi, **size, form="dense")))
    thread.start()
    for _ in range(3):
        if os.fork() == 0:
            signal.alarm(20)  # one that hangs is killed
            client.get(alibi, query_length=5, key_length=5)
            os._exit(0)
        assert os.wait()[1] == 0
    thread.join()
np.testing.assert_array_equal(got[0], compact.view(), strict=True)
"""


@pytest.mark.skipif("fork" not in WAYS, reason="no fork")
@pytest.mark.parametrize("support", ["1", None])
def test_in_flight_calls_survive_forks(local: attnbias.LocalServer, support: str | None) -> None:
    """With and without gRPC's own fork support."""
    environment = dict(os.environ)
    if support is not None:
        environment["GRPC_ENABLE_FORK_SUPPORT"] = support
    subprocess.run([sys.executable, "-c", IN_FLIGHT], env=environment, timeout=120, check=True)


@pytest.mark.skipif("fork" not in WAYS, reason="no fork")
def test_fork_without_grpc_fork_support_is_reported(
    local: attnbias.LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")

    def refused() -> None:
        with pytest.raises(RuntimeError, match="with GRPC_ENABLE_FORK_SUPPORT off: leave it unset"):
            user.health()

    with attnbias.Client(local.target) as user:
        assert user.health()
        assert in_fork(refused) == 0
        assert user.health()


@pytest.mark.skipif("fork" not in WAYS, reason="no fork")
def test_fork_with_open_aio_client_is_reported(local: attnbias.LocalServer) -> None:
    target = local.target

    def refused() -> None:
        with pytest.raises(RuntimeError, match=r"forked while an attnbias\.aio\.Client was conn"):
            attnbias.Client(target).health()

    async def forks() -> int:
        async with aio.Client(target) as client:
            assert await client.health()
            code = in_fork(refused)
            assert await client.health()
            return code

    assert asyncio.run(forks()) == 0


CLOSED = """
import asyncio, os, signal, sys
import attnbias
from attnbias import aio

async def use(target):
    async with aio.Client(target) as client:
        assert await client.health()
    return client

closed = asyncio.run(use(sys.argv[1]))
if os.fork() == 0:
    signal.alarm(20)
    assert attnbias.Client(sys.argv[1]).health()
    asyncio.run(use(sys.argv[1]))
    os._exit(0)
assert os.wait()[1] == 0
"""


@pytest.mark.skipif("fork" not in WAYS, reason="no fork")
def test_fork_after_closed_aio_client_works(local: attnbias.LocalServer) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, local.target], timeout=60, check=True)


def test_wait_for_server_survives_forks(server: FakeServer) -> None:
    statuses = iter([health_pb2.HealthCheckResponse.NOT_SERVING] * 2)
    watched = queue.Queue[None]()

    def watch(_request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        ended = threading.Event()
        context.add_callback(ended.set)
        serving = health_pb2.HealthCheckResponse.SERVING
        yield health_pb2.HealthCheckResponse(status=next(statuses, serving))
        watched.put(None)
        ended.wait(20)

    server.watch = watch
    with attnbias.Client(server.target) as client, ThreadPoolExecutor() as pool:
        waiting = pool.submit(run, client._until_serving(Deadline(30)))
        for _ in range(2):
            watched.get(timeout=20)
            with forks.lock:
                client._connection.rest()  # as before a fork
        waiting.result(timeout=20)


class Channel:
    """Replaces a gRPC channel and its calls; records calls during which a fork may begin."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.exposed: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def act(*_: object, **__: object) -> Channel:
            self.done.append(name)
            if threading.get_ident() not in forks._inside:
                self.exposed.append(name)
            return self

        return act

    def __call__(self, *_: object, **__: object) -> Channel:
        self.done.append("begin")
        if threading.get_ident() not in forks._inside:
            self.exposed.append("begin")
        return self


def test_fork_waits_for_grpc_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel()
    monkeypatch.setattr("attnbias._transport.channel.Endpoint.open", lambda _, *, spare: channel)
    client = attnbias.Client("host")
    group = client._connection.new_group()

    async def calls() -> None:
        await group.ask(GET_SERVER_INFO, None, None)
        async with group.stream(STREAM_TENSOR, iter([]), None):
            group.cancel("test")
        await client._connection.new_group().wait(0)

    run(calls())
    client.close()
    assert set(channel.done) >= {"begin", "future", "cancel", "close"}
    # A method's callable is made under the lock.
    assert set(channel.exposed) <= {"unary_unary", "unary_stream"}
    assert not forks._inside


def test_nested_grpc_section_keeps_outer_one() -> None:
    """Simulates a signal handler that closes the client whose call it interrupts."""
    thread = threading.get_ident()
    with forks.in_grpc():
        with forks.in_grpc():
            pass
        assert thread in forks._inside
    assert thread not in forks._inside


def test_imports_on_platform_without_fork() -> None:
    """As on Windows."""
    script = "import os; del os.fork, os.register_at_fork; import attnbias, attnbias.aio"
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


IMPORT = """
import atexit, os, sys, threading

stdlib, callers = sys.stdlib_module_names, set()


def recorded(function):
    def record(*arguments, **options):
        module = sys._getframe(1).f_globals["__name__"].partition(".")[0]
        if module not in stdlib:
            callers.add(f"{function.__name__} by {module}")
        return function(*arguments, **options)

    return record


atexit.register = recorded(atexit.register)
os.register_at_fork = recorded(os.register_at_fork)
before = dict(os.environ)
import attnbias, attnbias.aio, attnbias.transformers

threads = os.listdir("/proc/self/task") if os.path.exists("/proc/self/task") else [0]
assert not callers, callers
assert threading.active_count() == len(threads) == 1, (threading.enumerate(), threads)
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
"""


def test_import_registers_no_hook_and_starts_no_thread() -> None:
    """Only numpy would start threads, which the environment prevents here."""
    # Without the variables that the import set in this process.
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    subprocess.run([sys.executable, "-c", IMPORT], env=environment, timeout=60, check=True)


SCRIPT = """
import os, sys
import attnbias

client = attnbias.LocalServer().start()
assert client.health()
if os.fork() == 0:
    assert client.health()
    sys.exit()  # unlike a worker of multiprocessing, this shuts the interpreter down
print(os.waitstatus_to_exitcode(os.wait()[1]), client.health())
"""


@pytest.mark.skipif("fork" not in WAYS, reason="no fork")
def test_forked_child_exits_cleanly(local: attnbias.LocalServer) -> None:
    """The call does not hang, and the server still belongs to the parent."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 True\n", "", 0)


class Biases:
    """A dataset whose items are fetched in the worker."""

    def __init__(self, client: attnbias.Client) -> None:
        self.client = client

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> float:
        return total(self.client, index + 1)


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_data_loader_workers_use_the_client(client: attnbias.Client, way: str) -> None:
    data = pytest.importorskip("torch.utils.data")
    want = [total(client, n) for n in range(1, 7)]
    loader = data.DataLoader(Biases(client), num_workers=2, multiprocessing_context=way)
    assert [float(batch) for batch in loader] == want
    assert [float(batch) for batch in loader] == want


def test_unreachable_server_is_reported_immediately() -> None:
    """The report goes to standard error if a script does not configure logging."""
    script = "import attnbias; attnbias.Client('127.0.0.1:1', timeout=600).info()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert process.poll() is None  # the line was written before the process ended
        process.kill()
        rest = process.stderr.read()
    assert first.startswith(
        "UNAVAILABLE: nothing is answering at 127.0.0.1:1: is the server running? Start one with "
        "attnbias.LocalServer(), or connect to another with Client(target) ("
    )
    assert "trying 127.0.0.1:1 again, for up to 10 s" in first
    assert rest == ""
