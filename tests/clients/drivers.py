# SPDX-License-Identifier: Apache-2.0
"""The clients under test: programs that get one tensor and report the outcome.

The programs for Python, Go and C++ accept and print the same JSON; the command-line tool is run
with its own options, and its output is read back.
"""

import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import safetensors
from google.protobuf import json_format

from tests.clients.trial import PATIENCE, Asked
from tests.support import ways

HERE = pathlib.Path(__file__).parent

Outcome = dict[str, Any]
"""The fingerprint and parts, or whichever of status, message, reason, fields and request_id the
client reports.
"""
Driver = Callable[[Asked | None, dict[str, Any], pathlib.Path], Outcome]
"""Gets a tensor (or lists tables if it is None) with settings such as the target and timeout. May
leave files in the folder.
"""
PRINTED: Outcome = {}
"""Stands in for the outcome when the tool lists tables, since it prints text for people."""


def sketch(part: ways.Part) -> dict[str, Any]:
    """Describes a part of a payload as all clients report it."""
    digest = hashlib.sha256(part.data).hexdigest()
    return {"dtype": part.data_type, "shape": list(part.shape), "sha256": digest}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program and checks that its log contains no control characters."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    expect_printable(done.stderr)
    return done


def expect_printable(text: str) -> None:
    assert all(map(str.isprintable, text.split("\n"))), repr(text)


@functools.cache
def _python(kind: str) -> subprocess.Popen[str]:
    """Starts the Python program once, since imports take most of a request's time."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "driver.py"), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _by_python(kind: str) -> Driver:
    def get(asked: Asked | None, settings: dict[str, Any], _folder: pathlib.Path) -> Outcome:
        program = _python(kind)
        request = json.dumps(settings | {"request": asked and asked.in_python()})
        print(request, file=program.stdin, flush=True)
        for line in program.stdout or ():
            expect_printable(line)
            if line.startswith("{"):  # not a log line
                outcome: Outcome = json.loads(line)
                return outcome
        raise AssertionError(f"driver.py ended with status {program.wait()}")

    return get


def _by_contract(variable: str) -> Driver:
    def get(asked: Asked | None, settings: dict[str, Any], _folder: pathlib.Path) -> Outcome:
        request = asked and json_format.MessageToDict(asked.spec())
        done = _run([os.environ[variable], json.dumps(settings | {"request": request})])
        assert done.returncode == 0, done.stderr
        outcome: Outcome = json.loads(done.stdout)
        return outcome

    return get


def _by_tool(asked: Asked | None, settings: dict[str, Any], folder: pathlib.Path) -> Outcome:
    out = folder / "tensor.safetensors"
    words = [f"--server={settings['target']}", f"--timeout={settings['timeout']}"]
    if "token" in settings:
        (folder / "token").write_text(settings["token"])
        words.append(f"--token-file={folder / 'token'}")
    if "connect_timeout" in settings:
        words.append(f"--connect-timeout={settings['connect_timeout']}")
    if "ca" in settings:
        words.append(f"--tls-ca={settings['ca']}")
    if asked is None:
        words.append("tables")
    else:
        words += ["get", *ways.command_line(asked.spec(), folder), f"--out={out}"]
    done = _run([os.environ["ATTNBIAS_CLI_BINARY"], *words])
    if done.returncode == 1:
        status, _, message = done.stderr.splitlines()[-1].removeprefix("attnbias: ").partition(": ")
        return {"status": status, "message": message}
    assert done.returncode == 0, done.stderr
    if asked is None:
        expect_printable(done.stdout)
        return PRINTED
    with safetensors.safe_open(out, "numpy") as file:
        metadata = file.metadata()
    return {
        "fingerprint": metadata["attnbias.fingerprint"],
        "parts": {
            name: sketch(ways.Part(part["dtype"], tuple(part["shape"]), bytes(part["data"])))
            for name, part in safetensors.deserialize(out.read_bytes())
        },
    }


LACKS = {
    "go": {"streams"},
    "c++": {"streams"},
    "tool": {"max_attempts", "max_tensor_bytes", "streams", "times"},
}
"""Settings that a client lacks. The client is left out of trials that use them."""
DRIVERS: dict[str, Driver] = {
    "python": _by_python("sync"),
    "aio": _by_python("aio"),
    "go": _by_contract("ATTNBIAS_GO_DRIVER"),
    "c++": _by_contract("ATTNBIAS_CPP_DRIVER"),
    "tool": _by_tool,
}
