# SPDX-License-Identifier: Apache-2.0
"""The programs in examples/ run as their docstrings say, against one server."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server_process import running_server

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DEFAULT_ADDRESS = "localhost:50051"
# Part of each program's output.
PRINTED = {
    "diffusers_pipeline.py": "video of [1, 9, 3, 32, 48]; cosines of (18, 32) in ",
    "flax_attention.py": "of 128 tokens ",
    "keras_attention.py": "jax: loss ",
    "t5_sharded.py": "rank 1: buckets of [32, 64]",
    "trainer.py": "encoder.block.0.layer.0.SelfAttention.compute_bias: T5(",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as target:
        yield target


def command_of(name: str) -> str:
    """Returns the last line of the program's docstring."""
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text()))
    assert docstring
    command = docstring.splitlines()[-1].strip()
    assert command.endswith(f"examples/{name} --address {DEFAULT_ADDRESS}")
    return command


def printed_by(command: str, server: str, python: str) -> str:
    """Runs a command at the root of the tree, with the interpreter's folder first in PATH."""
    environment = os.environ | {"PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command.replace(DEFAULT_ADDRESS, server),
        shell=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_examples_and_expected_outputs_correspond() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_example_prints_expected_output(server: str, name: str) -> None:
    assert PRINTED[name] in printed_by(command_of(name), server, sys.executable)


def test_keras_runs_on_tensorflow(server: str) -> None:
    command = command_of("keras_attention.py").replace("=jax", "=tensorflow")
    printed = printed_by(command, server, os.environ["TENSORFLOW_PYTHON"])
    assert "tensorflow: loss " in printed
