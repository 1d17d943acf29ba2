# SPDX-License-Identifier: Apache-2.0
"""A server of this process's own, which ends when the process does."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from attnbias._calls import run
from attnbias._checks import require_instance
from attnbias._client import Client
from attnbias._errors import UnavailableError

if TYPE_CHECKING:
    from types import TracebackType

_PROGRAM: Final = "attnbias-server"
_VARIABLE: Final = "ATTNBIAS_SERVER_BINARY"
_LONGEST_PATH: Final = 107  # of a socket, by Linux
_LINES: Final = 10  # of the log, in an error
_PATIENCE: Final = 5.0  # seconds in which a process that closes its pipes and sockets has ended

# The shell becomes the server. Before, it leaves a process behind that waits for the end of a pipe,
# of which this process alone has the other end: so the server dies with it, whatever kills it. A
# signal at the parent's death would not do: it comes when the thread ends that started the server.
_SCRIPT: Final = """
exec 3<&0 </dev/null
{ read -r _ <&3 || { kill -KILL $$; rm -rf -- "$0"; }; } >/dev/null 2>&1 &
exec "$@" 3<&-
"""


class _Running(NamedTuple):
    process: subprocess.Popen[bytes]
    lifeline: int
    """The end of the pipe that this process holds."""
    folder: Path
    client: Client


class LocalServer:
    """An ``attnbias-server`` on a Unix socket, for this process and those it starts.

    with attnbias.LocalServer("--threads=2") as client:
        bias = client.get(attnbias.ALiBi(num_heads=32), queries=4096, keys=4096)

    It ends with the block, with ``close()``, or with the process, even one that is killed. Other
    processes may use the client too, inherited or pickled, as long as this one lives. Its log is
    kept in a file until then; ``--log-level=info`` logs each call.

    The program is the one that ``ATTNBIAS_SERVER_BINARY`` names, else that of the package
    attnbias_server (``pip install 'attnbias[server]'``), else ``attnbias-server`` on the PATH.

    Args:
        *flags: the server's own, as ``"--threads=2"`` or ``"--tables=FOLDER"``.
        **options: keyword arguments of ``Client``.
    """

    def __init__(self, *flags: str, **options: Any) -> None:
        for flag in flags:
            require_instance(flag, str, "flags", "str, as '--threads=2'")
        if options.get("credentials") is not None:
            raise TypeError("credentials: got some, want none: the socket is in plaintext")
        Client("localhost", **options)  # refuses what it does not take
        self._flags = flags
        self._options = options
        self._running: _Running | None = None
        _servers.add(self)

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def target(self) -> str:
        """What other clients connect to, as ``attnbias.aio.Client(server.target)``."""
        if self._running is None:
            raise RuntimeError("the server is not running: start() it")
        return _target(self._running.folder)

    def start(self) -> Client:
        """Starts the server and returns a client of it once it is ready.

        Raises:
            FileNotFoundError: the program is not installed.
            RuntimeError: it ended before it was ready; the end of its log says why.
            Error: it was not ready within the client's timeout.
        """
        if self._running is not None:
            raise RuntimeError("the server is running already")
        program = _program()
        folder = _private_folder()
        read_end, lifeline = os.pipe()
        try:
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    ["/bin/sh", "-c", _SCRIPT, folder, program, *_flags(folder), *self._flags],
                    stdin=read_end,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={name: os.environ[name] for name in os.environ if name != _VARIABLE},
                    process_group=0,  # a Ctrl-C is meant for this process alone
                )
        except BaseException:
            os.close(lifeline)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(read_end)
        client = Client(_target(folder), **self._options)
        self._running = _Running(process, lifeline, folder, client)
        atexit.register(self.close)
        try:
            _wait_until_ready(self._running)
        except BaseException:
            self.close()
            raise
        return client

    def close(self) -> None:
        """Ends the server and closes its client. Does nothing where it is not running."""
        atexit.unregister(self.close)
        running, self._running = self._running, None
        if running is None:
            return
        running.client.close()
        running.process.kill()  # it keeps no state
        running.process.communicate()
        with contextlib.suppress(BrokenPipeError):
            os.write(running.lifeline, b"\n")  # nobody is to be killed any more
        os.close(running.lifeline)
        shutil.rmtree(running.folder, ignore_errors=True)

    def _leave(self) -> None:
        """In a forked child: lets go of the server, which is its parent's to end."""
        running, self._running = self._running, None
        if running is not None:
            atexit.unregister(self.close)
            os.close(running.lifeline)
            assert running.process.stdout is not None
            running.process.stdout.close()
            running.process.returncode = 0  # it is not this process's to wait for


_servers: Final[weakref.WeakSet[LocalServer]] = weakref.WeakSet()


def _leave_all() -> None:
    for server in _servers:
        server._leave()


os.register_at_fork(after_in_child=_leave_all)


def _program() -> str:
    if named := os.environ.get(_VARIABLE):
        if shutil.which(named) is None:
            raise FileNotFoundError(f"{_VARIABLE}: got {named!r}, want a program")
        return named
    with contextlib.suppress(ModuleNotFoundError):
        return str(importlib.import_module("attnbias_server").PROGRAMS / _PROGRAM)
    if found := shutil.which(_PROGRAM):
        return found
    raise FileNotFoundError(f"{_PROGRAM} is not installed: pip install 'attnbias[server]'")


def _private_folder() -> Path:
    """A new folder in which the path of a socket is short enough, and has no comma."""
    folder = Path(tempfile.mkdtemp(prefix="attnbias-"))
    path = str(folder / "socket")
    if len(os.fsencode(path)) <= _LONGEST_PATH and "," not in path:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="attnbias-", dir="/tmp"))


def _target(folder: Path) -> str:
    return f"unix:{folder / 'socket'}"


def _flags(folder: Path) -> tuple[str, ...]:
    listen = f"--listen={_target(folder)}"
    return listen, "--metrics-listen=127.0.0.1:0", "--log-level=warning"


def _wait_until_ready(running: _Running) -> None:
    assert running.process.stdout is not None
    try:
        if not any(line.startswith(b"listening on ") for line in running.process.stdout):
            raise _failure(running)
        run(running.client._until_serving())
    except UnavailableError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise _failure(running) from None
        raise


def _failure(running: _Running) -> RuntimeError:
    code = running.process.wait(_PATIENCE)
    lines = (running.folder / "log").read_text(errors="replace").splitlines()[-_LINES:]
    return RuntimeError("\n".join([f"{_PROGRAM} ended with {code} before it was ready:", *lines]))
