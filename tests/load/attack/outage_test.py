# SPDX-License-Identifier: Apache-2.0
"""Each client suffers an outage during a call, and the call succeeds without the caller's help.

All outages run concurrently, since a client mostly waits.
"""

import contextlib
import functools
import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.figures import Figures
from tests.support.server import Server, eventually
from tests.support.toxiproxy import Link, Toxiproxy, toxiproxy

SECONDS = (0.1, 1, 5, 30)
RECOVERY_SECONDS = 20
"""Maximum time from the end of the outage to the end of the call; clients wait for at most 2 s."""
GIVEN_UP_SECONDS = 15
"""Time after which the connection to a silent peer is closed."""
TIMEOUT = 90
SLACK_SECONDS = 30  # for a process to start and exit, in addition to its call

UNDISTURBED_SECONDS = 45
"""Duration of a stream over the link, so that no stream ends before its outage."""
SECONDS_BEFORE = 2  # from the start of the streams to the outage

HEADS, LENGTH = 8, 1024
BIAS_BYTES = HEADS * LENGTH * LENGTH * 4  # 32 chunks
ROOT = pathlib.Path(__file__).parents[3]


Command = Callable[[str, pathlib.Path], list[str]]
"""Returns the command that fetches from an address and may write a file to the path."""


def python(address: str, out: pathlib.Path) -> list[str]:
    program = f"""
import attnbias
with attnbias.Client({address!r}, timeout={TIMEOUT}) as client:
    alibi = attnbias.ALiBi(num_heads={HEADS})
    client.save({str(out)!r}, alibi, query_length={LENGTH}, key_length={LENGTH}, form="dense")
"""
    return [sys.executable, "-c", program]


def tool(address: str, out: pathlib.Path) -> list[str]:
    command = [os.environ["ATTNBIAS_CLI_BINARY"], f"--server={address}", f"--timeout={TIMEOUT}"]
    extent = [f"--query-length={LENGTH}", f"--key-length={LENGTH}", "--form=dense"]
    return [*command, "get", "alibi", f"num_heads={HEADS}", *extent, f"--out={out}"]


def cpp_example(address: str, _out: pathlib.Path) -> list[str]:
    programs = pathlib.Path(os.environ["ATTNBIAS_CLI_BINARY"]).parent
    return [str(programs / "attnbias-example-fetch"), address]


def go_example(address: str, _out: pathlib.Path) -> list[str]:
    return ["env", f"ATTNBIAS_SERVER={address}", go_program()]


@functools.cache
def go_program() -> str:
    program = str(ROOT / "build" / "go-fetch")
    build = ["go", "build", "-o", program, "./examples/fetch"]
    subprocess.run(build, cwd=ROOT / "client/go", check=True)
    return program


@dataclass(frozen=True)
class Client:
    command: Command
    stream_bytes: int


CLIENTS = {
    "Python": Client(python, BIAS_BYTES),
    "C++ example": Client(cpp_example, 64 << 10),
    "attnbias get": Client(tool, BIAS_BYTES),
    "Go example": Client(go_example, 64 << 10),
}


def is_right(client: Client, said: str, out: pathlib.Path) -> bool:
    """The examples check the bytes themselves, and print a fingerprint and some numbers."""
    if out.exists():
        got = np.load(out)
        out.unlink()  # the files are many and large
        return np.array_equal(got, bias())
    return said == undisturbed(client.command)


@functools.cache
def bias() -> Any:
    """Returns ALiBi's values, which are exact since its slopes are powers of two."""
    slopes = np.float32(2) ** -np.arange(1, HEADS + 1, dtype="f4")
    at = np.arange(LENGTH, dtype="f4")
    return slopes[:, None, None] * -np.abs(at - at[:, None])


@functools.cache
def undisturbed(command: Command) -> str:
    with Server() as server:
        words = command(server.address, pathlib.Path())
        return subprocess.run(words, capture_output=True, check=True, text=True).stdout


class Cell:
    """A server, and a link to it for each client."""

    def __init__(self, stack: contextlib.ExitStack, proxy: Toxiproxy) -> None:
        self._stack = stack
        self._listen = f"--listen=127.0.0.1:{stack.enter_context(reserved_port())}"
        self.start_server()
        self.links = {name: Link(proxy, self.server.address) for name in CLIENTS}

    def start_server(self) -> None:
        self.server = self._stack.enter_context(Server(self._listen))


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Yields a port that servers can bind again and again, but only if they are configured with
    it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextlib.contextmanager
def killed(cell: Cell) -> Iterator[None]:
    cell.server.process.kill()
    cell.server.process.wait()
    yield
    cell.start_server()


@contextlib.contextmanager
def stopped(cell: Cell) -> Iterator[None]:
    cell.server.process.send_signal(signal.SIGSTOP)
    yield
    cell.server.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def silent(cell: Cell) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for link in cell.links.values():
            stack.enter_context(link.silent())
        yield


OUTAGES = {
    "SIGKILL, then another server": killed,
    "SIGSTOP, then SIGCONT": stopped,
    "black hole, connections lost": silent,
}


@dataclass(frozen=True)
class End:
    """A client's outcome, and the time at which it ended."""

    at: float
    error: str

    def since(self, moment: float) -> tuple[float, str]:
        return self.at - moment, self.error


def run(client: Client, address: str, out: pathlib.Path) -> End:
    try:
        done = subprocess.run(
            client.command(address, out),
            capture_output=True,
            check=False,
            text=True,
            timeout=TIMEOUT + SLACK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return End(time.monotonic(), "hangs")
    at = time.monotonic()
    if done.returncode:
        return End(at, done.stderr.strip() or f"exit code {done.returncode}")
    return End(at, "" if is_right(client, done.stdout, out) else "other bytes")


def ends(
    kind: str, seconds: float, proxy: Toxiproxy, folder: pathlib.Path
) -> dict[str, tuple[float, str]]:
    """Returns, for each client, the seconds from the end of the outage to the client's exit, and
    the client's error or ""."""
    with contextlib.ExitStack() as stack:
        cell = Cell(stack, proxy)
        pool = stack.enter_context(ThreadPoolExecutor(len(CLIENTS)))
        with contextlib.ExitStack() as slow:
            runs = {}
            for name, client in CLIENTS.items():
                link = cell.links[name]
                slow.enter_context(link.slow(client.stream_bytes / UNDISTURBED_SECONDS))
                runs[name] = pool.submit(run, client, link.address, folder / f"{name}.npy")
            eventually(lambda: streams_begun(cell.server) == len(CLIENTS), "all streams begun")
            time.sleep(SECONDS_BEFORE)
            early = [name for name, call in runs.items() if call.done()]
            assert not early, f"ended before the outage: {early}, {runs[early[0]].result()}"
            with OUTAGES[kind](cell):
                time.sleep(seconds)
            healed = time.monotonic()
        return {name: call.result().since(healed) for name, call in runs.items()}


def streams_begun(server: Server) -> float:
    time.sleep(0.1)  # polling costs the server time, too
    return server.calls("started", "StreamTensor")


Matrix = dict[tuple[str, float], Future[dict[str, tuple[float, str]]]]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    for example in (cpp_example, go_example):
        undisturbed(example)  # before other processes run
    cells = list(itertools.product(OUTAGES, SECONDS))
    with toxiproxy() as proxy, ThreadPoolExecutor(len(cells)) as pool:
        yield {
            cell: pool.submit(ends, *cell, proxy, tmp_path_factory.mktemp("outage"))
            for cell in cells
        }


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("name", CLIENTS)
def test_call_survives_outage(name: str, kind: str, matrix: Matrix, figures: Figures) -> None:
    ended = {seconds: matrix[kind, seconds].result()[name] for seconds in SECONDS}
    figures.add(
        "outage",
        f"{name}; {kind}",
        ", ".join(
            f"{seconds} s: {after:+.1f} s {last_line(error)}".rstrip()
            for seconds, (after, error) in ended.items()
        ),
        f"right, {RECOVERY_SECONDS} s",
    )
    assert not [error for _, error in ended.values() if error]
    assert max(after for after, _ in ended.values()) <= RECOVERY_SECONDS


def test_permanently_silent_peer_is_abandoned(tmp_path: pathlib.Path, figures: Figures) -> None:
    with contextlib.ExitStack() as stack:
        cell = Cell(stack, stack.enter_context(toxiproxy()))
        other = f"127.0.0.1:{stack.enter_context(reserved_port())}"
        pool = stack.enter_context(ThreadPoolExecutor(len(CLIENTS)))
        runs = {}
        for name, client in CLIENTS.items():
            link = cell.links[name]
            stack.enter_context(link.slow(client.stream_bytes / UNDISTURBED_SECONDS))
            target = f"ipv4:{link.address},{other}"
            runs[name] = pool.submit(run, client, target, tmp_path / f"{name}.npy")
        eventually(lambda: streams_begun(cell.server) == len(CLIENTS), "all streams begun")
        time.sleep(SECONDS_BEFORE)
        stack.enter_context(silent(cell))
        began = time.monotonic()
        stack.enter_context(Server(f"--listen={other}"))
        ended = {name: call.result().since(began) for name, call in runs.items()}
    for name, (after, error) in ended.items():
        figures.add(
            "silence",
            f"{name}; endless black hole, another server at its second address",
            f"{after:.1f} s {last_line(error)}".rstrip(),
            f"right, {GIVEN_UP_SECONDS + RECOVERY_SECONDS} s",
        )
    assert not [error for _, error in ended.values() if error]
    assert max(after for after, _ in ended.values()) <= GIVEN_UP_SECONDS + RECOVERY_SECONDS


def last_line(error: str) -> str:
    return error.rpartition("\n")[2]
