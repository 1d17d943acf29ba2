# SPDX-License-Identifier: Apache-2.0
"""Types command lines into an interactive bash, and compares flags with the Python package's."""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.server_process import PATIENCE

TOOL = pathlib.Path(os.environ["ATTNBIAS_CLI_BINARY"])
ALL = "\x1b*"  # inserts all completions
BACK = "\x02"
XPOS = ("center", "gamma", "head_dim", "layout", "rope_theta", "scale_base")
# Stores the arguments of a typed line instead of running the tool.
SETTINGS = """
source <(attnbias completion bash)
attnbias() {
  if [[ $1 == __complete ]]; then command attnbias "$@"; else printf '%s\\0' "$@" >arguments; fi
}
"""


def typed(line: str, folder: pathlib.Path) -> list[str]:
    """Returns the arguments of `attnbias` after a user has typed the line."""
    settings = folder / "bashrc"
    settings.write_text(SETTINGS)
    environment = {"PATH": f"{TOOL.parent}:{os.environ['PATH']}", "INPUTRC": os.devnull}
    keyboard, terminal = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", settings, "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=folder,
        env=environment,
    )
    os.write(keyboard, f"attnbias {line}\nexit\n".encode())
    bash.wait(PATIENCE)
    os.close(keyboard)
    os.close(terminal)
    return (folder / "arguments").read_text().split("\0")[:-1]


def words(*arguments: str) -> set[str]:
    return set(subprocess.check_output([TOOL, "__complete", *arguments], text=True).split())


def help_of(*command: str) -> str:
    return subprocess.check_output(
        [sys.executable, "-m", "attnbias", *command, "--help"], text=True
    )


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("comp\tz\t", ["completion", "zsh"]),
        ("get alib\tvar\tkey_from_s\t", ["get", "alibi", "variant=key_from_start"]),
        (f"get alibi variant=k{ALL}", ["get", "alibi", "variant=key_from_end", "key_from_start"]),
        (f"get sw{ALL}", ["get", "swin", "swin_3d", "swin_v2"]),
        (f"get xpos {ALL}", ["get", "xpos", *(f"{name}=" for name in XPOS)]),
        ("get t5 bidirectional=t\t", ["get", "t5", "bidirectional=true"]),
        ("get t5 table=@ro\tx", ["get", "t5", "table=@rotary.safetensors", "x"]),
        ("get t5 table=@tab\tta\tx", ["get", "t5", "table=@tables/tall.npy", "x"]),
        ("get t5 table=@tw\tx", ["get", "t5", "table=@two words.npy", "x"]),
        ("get t5 table=n\tb/s\tx", ["get", "t5", "table=name:b/sx"]),
        ("get rotary --out ro\tx", ["get", "rotary", "--out", "rotary.safetensors", "x"]),
        ("get rotary --out=ro\tx", ["get", "rotary", "--out=rotary.safetensors", "x"]),
        (f"get t5 --alignment {ALL}", ["get", "t5", "--alignment", "end", "start"]),
        (f"get t5 --alignment={ALL}", ["get", "t5", "--alignment=end", "start"]),
        ("get t5 --key-length \tx", ["get", "t5", "--key-length", "x"]),
        (f"get t5 --he{ALL}", ["get", "t5", "--heads", "--help"]),
        (f"get alibi va --causal{BACK * 9}\tx", ["get", "alibi", "variant=x", "--causal"]),
    ],
)
def test_bash_completes_typed_line(line: str, arguments: list[str], tmp_path: pathlib.Path) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("rotary.safetensors", "two words.npy", "tables/tall.npy"):
        (tmp_path / name).touch()
    assert typed(line, tmp_path) == arguments


def test_flags_are_those_of_the_python_package() -> None:
    assert words("export", "--") == set(re.findall(r"--[a-z-]+", help_of("export")))
    assert words("cache", "ls", "--") == set(re.findall(r"--[a-z-]+", help_of("cache", "ls")))
    assert words("cache", "") == set(re.findall(r"^    (\w+) ", help_of("cache"), re.MULTILINE))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_has_no_syntax_error(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = subprocess.check_output([TOOL, "completion", shell])
    subprocess.run([shell, "-n"], input=script, check=True)
