# SPDX-License-Identifier: Apache-2.0
"""Runs the real server on free ports for as long as a test needs it."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence

GRACE_SECONDS = 60


@contextlib.contextmanager
def running_server(command: Sequence[str] = ()) -> Iterator[str]:
    """Gives HOST:PORT of a server; on leaving, SIGTERM has to end it with exit code 0.

    `command` starts it by other means than from ATTNBIAS_SERVER_BINARY.
    """
    arguments = [
        *(command or [os.environ["ATTNBIAS_SERVER_BINARY"]]),
        "--listen=127.0.0.1:0",
        "--metrics-listen=127.0.0.1:0",
        "--drain-notice=0s",
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield listening_address(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(GRACE_SECONDS) == 0
        finally:
            process.kill()


def listening_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening on "):
            return line.removeprefix("listening on ").strip()
    raise AssertionError(f"the server ended with {process.wait()} before it was listening")
