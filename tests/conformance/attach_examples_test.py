# SPDX-License-Identifier: Apache-2.0
"""The examples of attach run, with a server of their own and with one that is there."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "client/python/examples"
# What each says of its model, and of the bytes fetched.
SAID = {
    "alibi.py": "transformer.build_alibi_tensor: ALiBi(",
    "rotary.py": "cosine of position 131071: ",
    "swin.py": "blocks.0.attention.relative_position_bias.forward: 2028 bytes fetched, 28812 no",
    "t5.py": "16380 bytes fetched, 167772160 no longer made",
}


def test_each_is_here() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SAID)


@pytest.mark.parametrize("name", SAID)
def test_runs(server: str, name: str) -> None:
    for target in ([], [server]):
        command = [sys.executable, str(EXAMPLES / name), *target]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        assert SAID[name] in done.stdout
