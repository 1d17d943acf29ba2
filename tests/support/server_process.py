# SPDX-License-Identifier: Apache-2.0
"""The real server as a process on free ports; needs no package but Python's own."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Self

PATIENCE = 60  # seconds, for events whose delay depends on the machine's speed


class ServerProcess:
    """Runs until the `with` block ends; call `stop` before that for its exit code.

    It listens on a free port unless `flags` name one. Its log goes to a file, or to the descriptor
    `stderr`.

    Args:
        prefix: a command that runs the command that follows it.
        program: program to run instead of ATTNBIAS_SERVER_BINARY.
    """

    def __init__(
        self,
        *flags: str,
        prefix: Sequence[str] = (),
        program: str = "",
        log_level: str = "info",
        stderr: int | None = None,
    ) -> None:
        self._logs = tempfile.TemporaryDirectory()
        self._log = pathlib.Path(self._logs.name, "log")
        if not any(flag.startswith("--listen=") for flag in flags):
            flags = ("--listen=127.0.0.1:0", *flags)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *prefix,
                    program or os.environ["ATTNBIAS_SERVER_BINARY"],
                    "--metrics-listen=127.0.0.1:0",
                    "--shutdown-delay=0s",
                    f"--log-level={log_level}",
                    *flags,
                ],
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                text=True,
            )
        try:
            self.address = announced(self.process, "listening on ")
            self.metrics_address = announced(self.process, "metrics on ")
            probes = any(flag.startswith("--probe-listen=") for flag in flags)
            self.probe_address = announced(self.process, "probes on ") if probes else ""
        except EOFError as error:
            raise AssertionError(f"{error}; its log: {self.log()}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with self.process:
            self.process.kill()
        self._logs.cleanup()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Sends SIGTERM, and returns the exit code."""
        self.terminate()
        return self.process.wait(PATIENCE)

    def log(self) -> str:
        return self._log.read_text()

    def json_log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().splitlines()]


@contextlib.contextmanager
def running_server(*flags: str, **options: Any) -> Iterator[str]:
    """Yields HOST:PORT of a ServerProcess; on exit, SIGTERM must end it with exit code 0."""
    with ServerProcess(*flags, **options) as server:
        yield server.address
        assert server.stop() == 0, server.log()


def announced(process: subprocess.Popen[str], start: str) -> str:
    """Returns the rest of the next output line that begins with `start`."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise EOFError(f"{process.args} ended before it printed {start!r}")
