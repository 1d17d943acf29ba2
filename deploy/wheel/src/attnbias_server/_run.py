# SPDX-License-Identifier: Apache-2.0
"""The console scripts: each becomes the program of its name."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
from typing import NoReturn

from attnbias_server import PROGRAMS


def _made_for() -> str:
    """The platform that this package was installed for, as its wheel names it."""
    wheel = importlib.metadata.distribution("attnbias-server").read_text("WHEEL") or ""
    tags = [line.split("-")[-1] for line in wheel.splitlines() if line.startswith("Tag: ")]
    return ", ".join(tags)


def _become(name: str) -> NoReturn:
    program = PROGRAMS / name
    # Python ignores these two, and what is ignored stays so in the program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execv(program, sys.argv)
    except OSError as error:
        machine = os.uname().machine
        sys.exit(
            f"{name}: {program} cannot run here: {error.strerror};"
            f" this package is made for {_made_for()}, this machine is {machine}"
        )


def attnbias_server() -> NoReturn:
    """The server."""
    _become("attnbias-server")


def attnbias() -> NoReturn:
    """The command-line tool."""
    _become("attnbias")
