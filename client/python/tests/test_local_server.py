# SPDX-License-Identifier: Apache-2.0
"""A local server: readiness, output and shutdown."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import attnbias

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    "ATTNBIAS_SERVER_BINARY" not in os.environ, reason="ATTNBIAS_SERVER_BINARY is not set"
)

ALIBI = attnbias.ALiBi(num_heads=2)


def becomes_true(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def folder_of(server: attnbias.LocalServer) -> Path:
    return Path(server.target.removeprefix("unix:")).parent


def test_serves_within_with_block() -> None:
    server = attnbias.LocalServer("--threads=1", timeout=30, max_attempts=1)
    with server as client:
        assert client.get(ALIBI, query_length=4, key_length=4).shape == (2, 4, 4)
        folder = folder_of(server)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    with pytest.raises(attnbias.CancelledError):
        client.health()


def test_starts_and_closes_without_with_block() -> None:
    server = attnbias.LocalServer()
    for _ in range(2):
        assert server.start().health()
        with pytest.raises(RuntimeError, match="already running"):
            server.start()
        server.close()
        server.close()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.target


def test_repr_shows_flags_and_target() -> None:
    server = attnbias.LocalServer("--threads=1")
    assert repr(server) == "LocalServer('--threads=1', not running)"
    with server:
        assert repr(server) == f"LocalServer('--threads=1', target='{server.target}')"


def test_is_ready_after_precompute(tmp_path: Path) -> None:
    specs = tmp_path / "specs.json"
    specs.write_text('[{"alibi": {"num_heads": 64}, "pair": {"query_length": 9, "key_length": 9}}]')
    with attnbias.LocalServer(f"--precompute={specs}") as client:
        assert client.health("readiness")


def test_outlives_thread_that_started_it() -> None:
    server = attnbias.LocalServer()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with attnbias.Client(server.target) as client:
        assert client.health()
    server.close()


SCRIPT = """
import attnbias, signal

server = attnbias.LocalServer()
server.start()
print(server.target, server._running.process.pid, flush=True)
{end}
"""


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status


@pytest.mark.parametrize(
    "end", ["signal.pause()", "", "raise SystemExit(3)", "import os; os._exit(0)"]
)
def test_ends_with_parent_process(end: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(end=end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        target, pid = process.stdout.readline().split()
        if "pause" in end:
            with attnbias.Client(target) as client:
                assert client.health()
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert becomes_true(lambda: not Path(target.removeprefix("unix:")).parent.exists())
    assert becomes_true(lambda: not is_running(int(pid)))


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--threads=many", "exited with 2 .*\n.*--threads: got 'many'"),
        ("--tables=/nowhere", "nowhere"),
    ],
)
def test_failed_start_reports_reason(flag: str, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        attnbias.LocalServer(flag).start()


def test_exit_during_start_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "attnbias-server"
    program.write_text("#!/bin/sh\necho listening on unix:nothing\necho gone >&2\nexit 7\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNBIAS_SERVER_BINARY", str(program))
        with pytest.raises(RuntimeError, match="exited with 7 before it was ready:\ngone"):
            attnbias.LocalServer().start()


@pytest.mark.parametrize(
    ("program", "error", "says"),
    [
        (
            "echo mounting >&2; exec sleep 1000",
            attnbias.DeadlineExceededError,
            r"attnbias-server was not ready within 3 s:\nmounting$",
        ),
        (
            "echo mute >&2; exec >&-; exec sleep 1000",
            attnbias.UnavailableError,
            r"attnbias-server is not ready: it closed its standard output:\nmute$",
        ),
        (
            "echo not listening on it; exec sleep 1000",
            attnbias.DeadlineExceededError,
            "attnbias-server was not ready within 3 s, and its log is empty$",
        ),
    ],
)
def test_start_times_out_if_never_ready(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    error: type[attnbias.Error],
    says: str,
) -> None:
    stuck = tmp_path / "attnbias-server"
    stuck.write_text(f"#!/bin/sh\n{program}\n")
    stuck.chmod(0o755)
    monkeypatch.setenv("ATTNBIAS_SERVER_BINARY", str(stuck))
    monkeypatch.setattr("attnbias._local_server._PATIENCE", 0.5)
    server = attnbias.LocalServer(timeout=3)
    with pytest.raises(error, match=says):
        server.start()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.target


FORKED_WHILE_IT_STARTS = """
import os, signal, subprocess, threading, time
import attnbias

launch, forked = subprocess.Popen, threading.Event()

def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        while True:
            signal.pause()
    print(child, flush=True)
    forked.set()

def launch_and_fork(*arguments, **options):
    process = launch(*arguments, **options)
    threading.Thread(target=fork, daemon=True).start()
    forked.wait(1)  # it occurs now, or when start() permits it
    return process

subprocess.Popen = launch_and_fork
server = attnbias.LocalServer()
server.start()
forked.wait()
print(server._running.process.pid, flush=True)
signal.pause()
"""


def test_child_forked_during_start_does_not_keep_it_alive() -> None:
    command = [sys.executable, "-c", FORKED_WHILE_IT_STARTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child, pid = int(process.stdout.readline()), int(process.stdout.readline())
        process.kill()
        process.wait(timeout=30)
        try:
            assert becomes_true(lambda: not is_running(pid))
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_program_is_found_in_documented_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.environ["ATTNBIAS_SERVER_BINARY"]
    monkeypatch.setenv("ATTNBIAS_SERVER_BINARY", "/nowhere/at-all")
    with pytest.raises(FileNotFoundError, match="ATTNBIAS_SERVER_BINARY: got '/nowhere/at-all'"):
        attnbias.LocalServer().start()
    monkeypatch.delenv("ATTNBIAS_SERVER_BINARY")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"install attnbias\[server\] as .*, or set ATTNBIAS"
    ):
        attnbias.LocalServer().start()
    (tmp_path / "attnbias-server").symlink_to(real)
    with attnbias.LocalServer() as client:
        assert client.health()
    (tmp_path / "attnbias-server").unlink()
    package = tmp_path / "attnbias_server"
    (package / "bin").mkdir(parents=True)
    (package / "bin" / "attnbias-server").symlink_to(real)
    (package / "__init__.py").write_text(
        "import pathlib\nPROGRAMS = pathlib.Path(__file__).parent / 'bin'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with attnbias.LocalServer() as client:
        assert client.health()


@pytest.mark.parametrize("name", ["a" * 120, "a,b"])
def test_starts_if_temporary_folder_is_unsuitable_for_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    with attnbias.LocalServer() as client:
        assert client.health()
    assert not list((tmp_path / name).iterdir())


def test_environment_does_not_enable_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBIAS_CLIENT_TLS", "1")
    monkeypatch.setenv("ATTNBIAS_CLIENT_TOKEN_FILE", "/nowhere")
    with attnbias.LocalServer("--threads=1") as client:
        assert pickle.loads(pickle.dumps(client)).health()


@pytest.mark.parametrize(
    ("flags", "options", "says"),
    [
        ((1,), {}, "flags: got an object of type int"),
        ((), {"credentials": object()}, "credentials: got a value, want none"),
        ((), {"tls": True}, "tls: got a value, want none: the socket is in plaintext"),
        ((), {"token": "abc"}, "token: got a value, want none"),
        ((), {"target": "x"}, "LocalServer.* unexpected keyword argument 'target'"),
        (
            (),
            {"threads": 2},
            "LocalServer.* unexpected keyword argument 'threads', .* '--threads=2'",
        ),
    ],
)
def test_unsupported_arguments_are_rejected(flags: Any, options: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        attnbias.LocalServer(*flags, **options)
