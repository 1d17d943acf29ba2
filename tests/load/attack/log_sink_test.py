# SPDX-License-Identifier: Apache-2.0
"""A slow, blocked or full log affects neither calls nor shutdown."""

import contextlib
import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.load.attack.attack import small
from tests.load.attack.load import GET
from tests.support import http2
from tests.support.figures import Figures
from tests.support.server import Server

CALLS = 300  # each logs one line
CALLS_SECONDS = 10
END_SECONDS = 10


@contextlib.contextmanager
def full_device() -> Iterator[int]:
    with open("/dev/full", "wb") as sink:
        yield sink.fileno()


@contextlib.contextmanager
def stuck_pipe() -> Iterator[int]:
    """Yields a pipe that is full after a few lines and is never read."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def slow_pipe() -> Iterator[int]:
    """Yields a pipe from which about one line is read every tenth of a second."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.1) and os.read(reader, 256):
            pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield writer
    finally:
        stop.set()
        os.close(writer)
        thread.join()
        os.close(reader)


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    """Yields a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("sink", [full_device, stuck_pipe, slow_pipe, closed_pipe])
def test_blocked_log_sink_stops_no_calls_or_sigterm(
    sink: Callable[[], contextlib.AbstractContextManager[int]], figures: Figures
) -> None:
    with sink() as stderr, Server("--drain-grace=5s", stderr=stderr) as server:
        connection = http2.Connection(server.address)
        began = time.monotonic()
        answered = 0
        for n in range(CALLS):
            left = began + CALLS_SECONDS - time.monotonic()
            if not connection.call(GET, small(n), left).received:
                break
            answered += 1
        calls_took = time.monotonic() - began
        connection.close()
        server.terminate()
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(END_SECONDS)
        ended_after = time.monotonic() - began
        exit_code = server.process.poll()
    ended = "not ended" if exit_code is None else f"exit code {exit_code}"
    figures.add(
        "log",
        sink.__name__.replace("_", " "),
        f"{answered} calls in {calls_took:.1f} s; {ended} after {ended_after:.1f} s",
        f"{CALLS} calls in {CALLS_SECONDS} s; exit code 0 after {END_SECONDS} s",
    )
    assert answered == CALLS
    assert exit_code == 0
