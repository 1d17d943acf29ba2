# SPDX-License-Identifier: Apache-2.0
"""A server that this process starts and that ends with this process."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import re
import selectors
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from attnbias._checks import require_instance, require_known
from attnbias._client import Client
from attnbias._errors import DeadlineExceededError, UnavailableError
from attnbias._transport import forks
from attnbias._transport.calls import run
from attnbias._transport.retry import Deadline

_PROGRAM: Final = "attnbias-server"
_VARIABLE: Final = "ATTNBIAS_SERVER_BINARY"
_FLAGS: Final = ("--metrics-listen=127.0.0.1:0", "--log-level=warning", "--access-log=errors")
_LONGEST_PATH: Final = 107  # maximum length of a socket path on Linux
_LINES: Final = 10  # maximum number of log lines that an error quotes
_PAGE: Final = 4096
_TURN: Final = 60.0  # seconds; epoll accepts at most 24 days
_PATIENCE: Final = 5.0  # seconds for a process to end after it closes its pipes and sockets

# The shell becomes the server. First it starts a process that waits for EOF on a pipe whose write
# end only this process holds, so that the server dies whenever this process does. A parent-death
# signal would not work: it is sent when the thread that started the server ends. $$ never refers to
# an unrelated process: with process_group=0 it is also the waiting process's group ID, and the
# kernel does not reuse the ID of a live group.
_SCRIPT: Final = """
exec 3<&0 </dev/null
{ read -r _ <&3 || { kill -KILL $$; rm -rf -- "$0"; }; } >/dev/null 2>&1 &
exec "$@" 3<&-
"""


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    lifeline: int
    """This process's end of the pipe."""
    folder: Path
    client: Client


class LocalServer(forks.Forkable):
    """An ``attnbias-server`` on a Unix socket, for this process and its children.

    with attnbias.LocalServer("--threads=2") as client:
        bias = client.get(attnbias.ALiBi(num_heads=32), query_length=4096, key_length=4096)

    The server ends when the block ends, when ``close()`` is called, or when the process ends, even
    if it is killed. Until then, other processes may use the client too, whether inherited or
    pickled. The server's log is kept in a file; ``--access-log=all`` adds a line for each call.

    The environment variable ``ATTNBIAS_SERVER_BINARY`` names the program. If it is unset, the
    program comes from the attnbias_server package (``attnbias[server]``, from wheels), or else from
    the PATH, as ``attnbias-server``.

    Args:
        *flags: the server's flags, such as ``"--threads=2"`` or ``"--tables=FOLDER"``.
        **options: keyword arguments of ``Client``.
    """

    def __init__(self, *flags: str, **options: Any) -> None:
        for flag in flags:
            require_instance(flag, str, "flags", "str, such as '--threads=2'")
        want = ", want keyword arguments of Client, and flags as str, such as '--threads=2'"
        require_known(LocalServer.__init__, options, Client.__init__.__kwdefaults__ or (), want)
        for name in ("credentials", "tls", "token"):
            if options.get(name):
                raise TypeError(f"{name}: got a value, want none: the socket is in plaintext")
        options |= {"tls": False, "token": ""}  # regardless of the environment
        if options.get("offline"):
            raise ValueError(
                "offline: got True, want False: startup waits for the server to be ready"
            )
        Client("localhost", **options)  # rejects unknown arguments
        self._flags = flags
        self._options = options
        self._running: _Running | None = None
        forks.watch(self)

    def __repr__(self) -> str:
        state = "not running" if self._running is None else f"target={self.target!r}"
        return f"LocalServer({', '.join([*map(repr, self._flags), state])})"

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def target(self) -> str:
        """Target for other clients, such as ``attnbias.aio.Client(server.target, tls=False)``.

        ``tls`` is needed only if the environment enables TLS.
        """
        if self._running is None:
            raise RuntimeError("the server is not running: start() it")
        return _target(self._running.folder)

    def start(self) -> Client:
        """Starts the server and returns a client once the server is ready.

        Raises:
            FileNotFoundError: the program is not installed.
            RuntimeError: the server ended before it was ready; the end of its log is included.
            Error: the server was not ready within the client's timeout; the end of its log is
                included.
        """
        if self._running is not None:
            raise RuntimeError("the server is already running")
        program = _program()
        with forks.lock:  # a child forked before the assignment would keep the server alive
            self._running = running = self._launch(program)
        atexit.register(self.close)
        try:
            _wait_until_ready(running)
        except BaseException:
            self.close()
            raise
        return running.client

    def close(self) -> None:
        """Ends the server and closes its client. Does nothing if the server is not running."""
        atexit.unregister(self.close)
        running, self._running = self._running, None
        if running is None:
            return
        running.client.close()
        running.process.kill()  # the server keeps no state
        _close_output(running.process)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel still holds it
            running.process.wait(_PATIENCE)
        with contextlib.suppress(BrokenPipeError):
            os.write(running.lifeline, b"\n")  # the waiting process then has nothing to kill
        os.close(running.lifeline)
        shutil.rmtree(running.folder, ignore_errors=True)

    def _launch(self, program: str) -> _Running:
        folder = _private_folder()
        read_end, lifeline = os.pipe()
        try:
            client = Client(_target(folder), **self._options)
            listen = f"--listen={_target(folder)}"
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT, folder, program, listen, *_FLAGS, *self._flags],
                    stdin=read_end,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={name: os.environ[name] for name in os.environ if name != _VARIABLE},
                    process_group=0,  # Ctrl-C is meant for this process only
                )
        except BaseException:
            os.close(lifeline)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(read_end)
        return _Running(process, lifeline, folder, client)

    def leave(self) -> bool:
        """Implements Forkable. Forgets the server, which the parent owns."""
        running, self._running = self._running, None
        if running is not None:
            atexit.unregister(self.close)
            os.close(running.lifeline)
            _close_output(running.process)
            running.process.returncode = 0  # a process can wait only for its own children
        return False


def _program() -> str:
    if named := os.environ.get(_VARIABLE):
        if shutil.which(named) is None:
            raise FileNotFoundError(f"{_VARIABLE}: got {named!r}, want an executable")
        return named
    with contextlib.suppress(ModuleNotFoundError):
        return str(importlib.import_module("attnbias_server").PROGRAMS / _PROGRAM)
    if found := shutil.which(_PROGRAM):
        return found
    raise FileNotFoundError(
        f"{_PROGRAM} is not installed: install attnbias[server] as README.md describes, or set "
        f"{_VARIABLE} to its path"
    )


def _private_folder() -> Path:
    """Creates a folder in which a socket's path is short enough and contains no comma."""
    folder = Path(tempfile.mkdtemp(prefix="attnbias-"))
    path = str(folder / "socket")
    if len(os.fsencode(path)) <= _LONGEST_PATH and "," not in path:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="attnbias-", dir="/tmp"))


def _target(folder: Path) -> str:
    return f"unix:{folder / 'socket'}"


def _close_output(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.close()


def _wait_until_ready(running: _Running) -> None:
    timeout = running.client._timeout
    deadline = Deadline(timeout)
    try:
        _wait_until_listening(running.process, deadline)
        run(running.client._until_serving(deadline))
    except DeadlineExceededError:
        what = f"{_PROGRAM} was not ready within {timeout} s"
        raise DeadlineExceededError(_with_log(what, running)) from None
    except UnavailableError as gone:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = running.process.wait(_PATIENCE)
            what = f"{_PROGRAM} exited with {code} before it was ready"
            raise RuntimeError(_with_log(what, running)) from None
        what = f"{_PROGRAM} is not ready: {gone.message}"
        raise UnavailableError(_with_log(what, running)) from None


def _wait_until_listening(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    assert process.stdout is not None
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while re.search(b"^listening on ", said, re.MULTILINE) is None:
            if not selector.select(min(deadline.remaining() or _TURN, _TURN)):
                continue
            more = os.read(process.stdout.fileno(), _PAGE)
            if not more:
                raise UnavailableError("it closed its standard output")
            said += more


def _with_log(what: str, running: _Running) -> str:
    lines = (running.folder / "log").read_text(errors="replace").splitlines()[-_LINES:]
    return "\n".join([f"{what}:", *lines]) if lines else f"{what}, and its log is empty"
