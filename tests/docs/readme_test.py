# SPDX-License-Identifier: Apache-2.0
"""The code blocks in the READMEs and docs/ are run verbatim.

Every block marked sh or python is run; those on one page run in order, in one folder and against
their own server. Python blocks share their variables; shell blocks stop at the first command that
fails. The folder is a clone in which `./dev serve` has run. Shells are fresh: README.md uses only
programs that it sets up itself; for the other pages, the project's programs and grpcurl are in
PATH. A block marked text right after one of these is its expected output, in which `…` matches
anything. A block right after a line

    <!-- not run: reason -->

is skipped. Blocks that import torch or transformers run only where these are installed.
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.support.server_process import running_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "client"
README = ROOT / "README.md"
PROGRAMS = pathlib.Path(os.environ["ATTNBIAS_CLI_BINARY"]).parent
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Environment variables that name the caches.
KEPT = ("HOME", "ATTNBIAS_CACHE", "ATTNBIAS_CLI_BINARY", "GOPROXY", "GOSUMDB")
PAGES = [README, *sorted(CLIENTS.glob("*/README.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<left_out><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
DEFAULT_ADDRESS = "localhost:50051"
SECONDS = 120


# Imports of packages that not every machine provides.
HEAVY = re.compile(r"^\s*(?:import|from) (torch|transformers)\b", re.MULTILINE)


class Block(NamedTuple):
    language: str
    code: str
    output: str | None = None

    @property
    def heavy(self) -> bool:
        return self.language == "python" and HEAVY.search(self.code) is not None


def blocks(text: str) -> list[Block]:
    return [
        Block(found["language"], found["code"], found["output"])
        for found in BLOCK.finditer(text)
        if not found["left_out"] and found["language"] in ("sh", "python")
    ]


def make_clone(folder: pathlib.Path) -> None:
    """Creates the files that `git clone` and `./dev serve` create, using the programs under
    test."""
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    programs = folder / "build" / "release"
    programs.mkdir(parents=True)
    (programs / "bin").symlink_to(PROGRAMS)


def shell_environment(page: pathlib.Path, server: str) -> dict[str, str]:
    """Returns the environment of a new shell, except for the server, which has its own port."""
    path = SYSTEM_PATH
    if page != README:
        grpcurl = pathlib.Path(shutil.which("grpcurl") or "grpcurl").parent
        path = f"{PROGRAMS}:{grpcurl}:{path}"
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return kept | {"PATH": path, "ATTNBIAS_SERVER": server}


def run_shell(code: str, folder: pathlib.Path, environment: dict[str, str]) -> str:
    return run(["bash", "-euo", "pipefail", "-c", code], folder, environment)


# Reads blocks from standard input, each followed by an END line, and runs each of them; prints
# END after each block's output.
END = "\0\n"
RUN_BLOCKS = """
def run_blocks():
    import sys
    block = ""
    for line in sys.stdin:
        block += line
        if line == "\\0\\n":
            exec(block.removesuffix(line), globals())
            block = ""
            print(line, end="", flush=True)
run_blocks()
"""


@contextlib.contextmanager
def python_in(folder: pathlib.Path, *, strict: bool) -> Iterator[Callable[[str], str]]:
    """Yields a function that runs a block and returns its output. Blocks share their variables.

    Args:
        strict: whether a warning is an error; torch and transformers cause some.
    """
    command = [sys.executable, *(["-W", "error"] if strict else []), "-c", RUN_BLOCKS]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def run_block(code: str) -> str:
            to.write(code + END)
            to.flush()
            printed = ""
            for line in back:
                if line == END:
                    return printed
                printed += line
            raise AssertionError(f"{code}\n--- printed:\n{printed}")

        yield run_block


def run(command: list[str], folder: pathlib.Path, environment: dict[str, str]) -> str:
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert result.returncode == 0, f"{command[-1]}\n--- said:\n{result.stdout}"
    return result.stdout


def assert_printed(said: str, shown: str) -> None:
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    assert re.fullmatch(pattern, said.strip(), re.DOTALL), f"shown:\n{shown}\n--- said:\n{said}"


def run_blocks(found: list[Block], page: pathlib.Path, folder: pathlib.Path) -> None:
    make_clone(folder)
    strict = not any(block.heavy for block in found)
    with running_server() as server, python_in(folder, strict=strict) as run_python:
        for language, code, output in found:
            here = code.replace(DEFAULT_ADDRESS, server)
            if language == "sh":
                said = run_shell(here, folder, shell_environment(page, server))
            else:
                said = run_python(here)
            if output is not None or language == "python":
                assert_printed(said, output or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_unmodified(page: pathlib.Path, tmp_path: pathlib.Path) -> None:
    found = [block for block in blocks(page.read_text()) if not block.heavy]
    if found:
        run_blocks(found, page, tmp_path)


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="needs torch and transformers; ./dev test --peers runs it",
)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.heavy for block in blocks(page.read_text()))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_torch_blocks_run_unmodified(page: pathlib.Path, tmp_path: pathlib.Path) -> None:
    found = [block for block in blocks(page.read_text()) if block.language == "python"]
    run_blocks(found, page, tmp_path)


@pytest.mark.parametrize(
    ("language", "example"), [("cpp", "cpp/examples/fetch.cc"), ("go", "go/examples/fetch/main.go")]
)
def test_guide_shows_the_built_example(language: str, example: str) -> None:
    built = CLIENTS / example
    guide = CLIENTS / language / "README.md"
    pattern = rf"^```{language}\n(.*?)^```$"
    shown = re.findall(pattern, guide.read_text(), re.MULTILINE | re.DOTALL)
    licence, program = built.read_text().split("\n", 1)
    assert licence.startswith("// SPDX")
    assert program.lstrip("\n") in shown


def test_readme_has_shell_and_python_blocks() -> None:
    languages = {block.language for block in blocks(README.read_text())}
    assert languages == {"sh", "python"}


def test_shown_output_equals_printed_output() -> None:
    [block] = blocks("```python\nprint(1, 2)\n```\n\n```text\n1 …\n```\n")
    assert block.output is not None
    assert_printed("1 2\n", block.output)
    with pytest.raises(AssertionError):
        assert_printed("2 2\n", block.output)


def test_shell_finds_only_documented_programs(tmp_path: pathlib.Path) -> None:
    environment = shell_environment(README, DEFAULT_ADDRESS)
    for program in ("attnbias", "grpcurl"):
        with pytest.raises(AssertionError, match="command not found"):
            run_shell(f"{program} --version", tmp_path, environment)


def test_failing_block_is_reported(tmp_path: pathlib.Path) -> None:
    [shell, python] = blocks("```sh\nfalse\ntrue\n```\n\n```python\nassert False\n```\n")
    with pytest.raises(AssertionError):
        run_shell(shell.code, tmp_path, dict(os.environ))
    with python_in(tmp_path, strict=True) as run_python, pytest.raises(AssertionError):
        run_python(python.code)


def test_only_marked_blocks_are_skipped() -> None:
    left_out = "<!-- not run: needs root -->\n```sh\n./dev test\n```\n"
    text = f"{left_out}\n```sh\nls\n```\n\n{left_out}"
    assert blocks(text) == [Block("sh", "ls\n")]
