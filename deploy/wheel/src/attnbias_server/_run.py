# SPDX-License-Identifier: Apache-2.0
"""The console scripts: each becomes the program of the same name.

If the Python client is installed, the commands that it adds to the tool are available too.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import sys
from typing import NoReturn

from attnbias_server import PROGRAMS

_OF_THE_CLIENT = ("export", "cache")


def _made_for() -> str:
    """Returns the platform for which this package was installed, as its wheel names it."""
    wheel = importlib.metadata.distribution("attnbias-server").read_text("WHEEL") or ""
    tags = [line.split("-")[-1] for line in wheel.splitlines() if line.startswith("Tag: ")]
    return ", ".join(tags)


def _become(name: str) -> NoReturn:
    program = PROGRAMS / name
    # Python ignores these two signals, and the program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(program, sys.argv)
    except OSError as error:
        machine = os.uname().machine
        sys.exit(
            f"{name}: {program} cannot run here: {error.strerror};"
            f" this package is built for {_made_for()}, but this machine is {machine}"
        )


def attnbias_server() -> NoReturn:
    """Runs the server."""
    _become("attnbias-server")


def attnbias() -> int:
    """Runs the command-line tool."""
    if sys.argv[1:2] and sys.argv[1] in _OF_THE_CLIENT and importlib.util.find_spec("attnbias"):
        code: int = importlib.import_module("attnbias.__main__").main(prog="attnbias")
        return code
    _become("attnbias")
