# SPDX-License-Identifier: Apache-2.0
"""Servers that restart, replicas that share calls, and peers that fall silent."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from cutting_proxy import CuttingProxy
from fake_server import PAYLOAD, FakeServer, abort, retry_info, sequence
from tests.support.server_process import ServerProcess

import attnbias
from attnbias._transport.calls import run
from attnbias._transport.retry import Deadline, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from either_client import Connect


SINUSOIDAL = attnbias.Sinusoidal(dim=1)
ALIBI = attnbias.ALiBi(num_heads=2)


def free_port() -> int:
    """Returns a port below 32768, which no client uses as its source port."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as reserved:
            port = random.randrange(20000, 32768)
            reserved.bind(("127.0.0.1", port))
            return port


CALLS: dict[str, Callable[[attnbias.Client], object]] = {
    "get": lambda client: client.get(SINUSOIDAL, positions=5000),
    "describe": lambda client: client.describe(ALIBI, query_length=5, key_length=5),
    "info": lambda client: client.info(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("outage", [0.3, 1.5])
def test_waits_for_server_to_start(
    call: Callable[[attnbias.Client], object], outage: float, connect: Connect
) -> None:
    port = free_port()
    with connect(f"127.0.0.1:{port}", timeout=60) as client, ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, client)
        time.sleep(outage)
        assert not waiting.done()
        with FakeServer(port):
            assert waiting.result(timeout=30) is not None


def test_timeout_bounds_wait_for_server(connect: Connect) -> None:
    with (
        connect(f"127.0.0.1:{free_port()}", timeout=1) as client,
        pytest.raises(
            attnbias.UnavailableError, match=r"nothing is answering at .*Connection refused"
        ),
    ):
        client.info()


# The first connection


def test_connect_timeout_bounds_first_connection(connect: Connect) -> None:
    with connect(f"127.0.0.1:{free_port()}", connect_timeout=1, timeout=600) as client:
        for call in CALLS.values():
            with pytest.raises(
                attnbias.UnavailableError, match=r"nothing is answering .* refused\)$"
            ):
                call(client)


@pytest.mark.parametrize("tls", [False, True])
def test_silent_server_fails_after_connect_timeout(connect: Connect, tls: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            connect(f"127.0.0.1:{port}", tls=tls, connect_timeout=1, timeout=600) as client,
            pytest.raises(attnbias.UnavailableError, match="accepts connections, but does not ans"),
        ):
            client.info()


def test_connect_timeout_none_uses_call_timeout(connect: Connect) -> None:
    port = free_port()
    with (
        connect(f"127.0.0.1:{port}", connect_timeout=None, timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(client.info)
        time.sleep(0.5)
        with FakeServer(port):
            assert waiting.result(timeout=30) is not None


def test_answer_may_exceed_connect_timeout(server: FakeServer, connect: Connect) -> None:
    def late(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        time.sleep(1)
        yield from PAYLOAD.serve(request, context)

    server.script = [late]
    with connect(server.target, connect_timeout=0.3, timeout=60) as client:
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())


@pytest.mark.parametrize("first", ["an answer", "an error", "a stream"])
def test_connect_timeout_applies_only_before_first_contact(connect: Connect, first: str) -> None:
    port = free_port()
    options: dict[str, Any] = {"connect_timeout": 0.5, "timeout": 60}
    with connect(f"127.0.0.1:{port}", **options) as client, ThreadPoolExecutor() as pool:
        with FakeServer(port):
            if first == "an answer":
                client.info()
            elif first == "a stream":
                client.get(SINUSOIDAL, positions=5000)
            else:
                with pytest.raises(attnbias.InvalidArgumentError):
                    client.logits(
                        attnbias.ShawKeys(table=np.ones((3, 2)), left=1, right=1),
                        np.ones((1, 4, 2)),
                        key_length=4,
                        direction="bidirectional",
                    )
        waiting = pool.submit(client.info)
        time.sleep(1.5)
        assert not waiting.done()
        with FakeServer(port):
            assert waiting.result(timeout=30) is not None


@pytest.mark.parametrize("health", [False, True])
def test_error_gives_reason_per_address(connect: Connect, health: bool) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with says(b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        for first, second in [(nowhere, web), (web, nowhere)]:
            target = f"ipv4:{first},{second}"
            with (
                connect(target, connect_timeout=1, timeout=600) as client,
                pytest.raises(attnbias.UnavailableError) as caught,
            ):
                client.health() if health else client.info()
            advice, _, reasons = caught.value.message.partition(" (")
            assert advice == f"{target} answers, but does not speak gRPC: is this the right port?"
            of_first, of_second = reasons.split("; ")
            assert of_first.startswith(f"{first}: ")
            assert of_second.startswith(f"{second}: ")
            assert "Connection refused" in (of_first if first == nowhere else of_second)
            assert "HTTP/2" in (of_first if first == web else of_second)


def test_proxied_target_is_not_resolved(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr("attnbias._transport.retry.addresses_of", None)
    with (
        connect("192.0.2.1", connect_timeout=1) as client,
        pytest.raises(attnbias.UnavailableError),
    ):
        client.info()


@contextlib.contextmanager
def says(greeting: bytes) -> Iterator[str]:
    """Runs a server that sends a greeting to each client and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(greeting)
                        connection.recv(1 << 16)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_error_reports_non_grpc_server(connect: Connect) -> None:
    with says(b"") as mute:
        for target, what in [
            (mute, f"{mute} answers, but does not speak gRPC in plaintext: does it need TLS?"),
            ("unix:/nowhere", "nothing is answering at unix:/nowhere: is the server running?"),
        ]:
            with (
                connect(target, max_attempts=1, timeout=20) as client,
                pytest.raises(attnbias.UnavailableError) as caught,
            ):
                client.info()
            assert caught.value.message.startswith(what)
            assert "\n" not in str(caught.value)


def test_wait_is_logged_once(caplog: pytest.LogCaptureFixture, connect: Connect) -> None:
    target = f"127.0.0.1:{free_port()}"
    with (
        connect(target, timeout=1) as client,
        caplog.at_level(logging.WARNING),
        contextlib.suppress(attnbias.UnavailableError),
    ):
        client.info()
    (record,) = caplog.records
    assert target in record.message
    assert f"trying {target} again, for up to 1 s" in record.message


def test_close_ends_waiting_calls(connect: Connect) -> None:
    port = free_port()
    client = connect(f"127.0.0.1:{port}", timeout=60)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(call, client) for call in CALLS.values()]
        time.sleep(0.3)
        client.close()
        for call in waiting:
            assert isinstance(call.exception(timeout=30), attnbias.CancelledError)
    for late in CALLS.values():
        with pytest.raises(attnbias.CancelledError, match="the client is closed"):
            late(client)


def test_close_interrupts_long_retry_delay(server: FakeServer, connect: Connect) -> None:
    def later(_request: object, context: grpc.ServicerContext) -> None:
        abort(context, grpc.StatusCode.UNAVAILABLE, "later", retry_info(50))

    server.describe = [later]
    client = connect(server.target, timeout=100)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.describe, ALIBI, query_length=5, key_length=5)
        while server.describe_calls == 0:
            time.sleep(0.01)
        client.close()
        assert isinstance(waiting.exception(timeout=20), attnbias.CancelledError)


def test_last_attempt_is_near_the_timeout(
    monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    """The last attempt falls within the last tenth of a second, whatever the jitter."""
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    begun = time.monotonic()
    with (
        connect(f"127.0.0.1:{free_port()}", timeout=3) as client,
        pytest.raises(attnbias.UnavailableError),
    ):
        client.info()
    assert time.monotonic() - begun > 3 - 0.2


def test_error_after_deadline_keeps_its_reason() -> None:
    options: Any = SimpleNamespace(max_attempts=None, calls=None)
    retry = Retry(options, Deadline(0))
    with pytest.raises(attnbias.UnavailableError, match="gone"):
        run(retry.wait_after(attnbias.UnavailableError("gone")))


def test_error_before_overlong_wait_keeps_its_reason() -> None:
    class Late:
        endpoint = SimpleNamespace(target="localhost:1")

        async def pause(self, _seconds: float) -> None:
            pass

        async def wait(self, _seconds: float) -> None:
            time.sleep(1)

    options: Any = SimpleNamespace(max_attempts=None, calls=Late())
    with pytest.raises(attnbias.UnavailableError, match="gone"):
        run(Retry(options, Deadline(0.9)).wait_after(attnbias.UnavailableError("gone")))


def test_cancelled_call_logs_no_wait(caplog: pytest.LogCaptureFixture) -> None:
    class Cancelled:
        async def pause(self, _seconds: float) -> None:
            raise attnbias.CancelledError("another part failed")

    options: Any = SimpleNamespace(max_attempts=None, calls=Cancelled())
    with pytest.raises(attnbias.CancelledError):
        run(Retry(options, Deadline(60)).wait_after(attnbias.UnavailableError("gone")))
    assert not caplog.records


def test_health_is_not_retried(connect: Connect) -> None:
    with (
        connect(f"127.0.0.1:{free_port()}", timeout=60) as client,
        pytest.raises(attnbias.UnavailableError),
    ):
        client.health()


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_invalid_timeouts_are_rejected(
    server: FakeServer, timeout: float, connect: Connect
) -> None:
    for name in ("timeout", "connect_timeout"):
        with pytest.raises(ValueError, match=rf"^{name}: got .*, want a positive number of sec"):
            connect(server.target, **{name: timeout})
    with (
        connect(server.target) as client,
        pytest.raises(ValueError, match=r"timeout: got .*, want a positive number"),
    ):
        client.info(timeout=timeout)


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400, 7.6e9])
def test_unlimited_timeouts_are_accepted(timeout: float | None, connect: Connect) -> None:
    times: dict[str, Any] = {"timeout": timeout, "connect_timeout": timeout}
    with FakeServer() as server, connect(server.target, **times) as client:
        assert client.info().version == "1.2.3"
        assert len(client.get(SINUSOIDAL, positions=5000)) == 5000
        assert client.health()


def test_calls_are_balanced_across_replicas(connect: Connect) -> None:
    """This must also hold after a replica restarts."""
    port = free_port()
    with FakeServer() as stays, contextlib.ExitStack() as other:
        first = other.enter_context(FakeServer(port))
        target = f"ipv4:{stays.target},127.0.0.1:{port}"
        with connect(target, timeout=60) as client:
            gets_calls(client, stays, first)
            other.close()
            for _ in range(20):
                client.describe(ALIBI, query_length=5, key_length=5)
            with FakeServer(port) as again:
                gets_calls(client, stays, again)


def gets_calls(client: attnbias.Client, *servers: FakeServer) -> None:
    """Calls until each replica has answered; fails if one never does."""
    end = time.monotonic() + 20
    before = [server.describe_calls for server in servers]
    while time.monotonic() < end:
        client.describe(ALIBI, query_length=5, key_length=5)
        calls = [s.describe_calls - b for s, b in zip(servers, before, strict=True)]
        if min(calls) >= 10:
            return
    raise AssertionError(calls)


@pytest.mark.parametrize(
    "options",
    [
        {"grpc.lb_policy_name": "pick_first"},
        {"grpc.service_config": '{"loadBalancingConfig": [{"pick_first": {}}]}'},
    ],
    ids=lambda options: next(iter(options)),
)
def test_load_balancing_policy_can_be_set(options: dict[str, str], connect: Connect) -> None:
    with FakeServer() as a, FakeServer() as b:
        target = f"ipv4:{a.target},{b.target}"
        with connect(target, channel_options=options) as client:
            for _ in range(20):
                client.describe(ALIBI, query_length=5, key_length=5)
        assert sorted([a.describe_calls, b.describe_calls]) == [0, 20]


def test_defaults_match_other_clients() -> None:
    """The C++ client has the same defaults, and its own tests check them too."""
    parameters = inspect.signature(attnbias.Client).parameters
    assert parameters["timeout"].default == 300
    assert parameters["connect_timeout"].default == 10
    assert parameters["max_tensor_bytes"].default == 16 << 30
    assert parameters["max_attempts"].default is None


def test_metadata_is_sent_with_each_call(connect: Connect) -> None:
    metadata = [("authorization", "Bearer abc")]
    with FakeServer() as server, connect(server.target, metadata=metadata) as client:
        client.describe(ALIBI, query_length=5, key_length=5)
        assert server.metadata["authorization"] == "Bearer abc"


def test_loopback_bypasses_proxy(monkeypatch: pytest.MonkeyPatch, connect: Connect) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with FakeServer() as server, connect(server.target, timeout=5) as client:
        assert client.health()
        assert client.info().version == "1.2.3"


def test_unresponsive_peer_is_abandoned(connect: Connect) -> None:
    """The first connection stays open but delivers nothing after some bytes."""
    times = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    keepalive = dict.fromkeys(times, 2000)  # pauses on a busy machine are shorter
    with (
        FakeServer() as server,
        CuttingProxy(server.target, swallow_after=[9000]) as proxy,
        connect(proxy.target, timeout=60, channel_options=keepalive) as client,
    ):
        np.testing.assert_array_equal(client.get(SINUSOIDAL, positions=5000), sequence())
        assert server.requests[-1].read_offset > 0
        assert proxy.connections == 2


@pytest.mark.usefixtures("real_target")  # skips without a server
@pytest.mark.parametrize("outage", [0.2, 2.0])
def test_no_call_fails_when_the_server_is_killed(outage: float) -> None:
    port = free_port()
    running = threading.Event()
    stop = threading.Event()

    def call_on(client: attnbias.Client) -> int:
        for count in itertools.count(1):
            got = client.get(attnbias.Sinusoidal(64, columns="interleaved"), positions=65536)
            assert got.shape == (65536, 64)
            running.set()
            if stop.is_set():
                return count
        raise AssertionError

    with attnbias.Client(f"127.0.0.1:{port}", timeout=60) as client, ThreadPoolExecutor() as pool:
        calls = [pool.submit(call_on, client) for _ in range(4)]
        with ServerProcess(f"--listen=127.0.0.1:{port}"):
            assert running.wait(30)
        time.sleep(outage)
        running.clear()
        with ServerProcess(f"--listen=127.0.0.1:{port}"):
            assert running.wait(30)
            stop.set()
            assert min(call.result(timeout=60) for call in calls) > 0
