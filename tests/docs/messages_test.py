# SPDX-License-Identifier: Apache-2.0
"""tests/tools/messages.txt lists the programs' messages; the `contract` step keeps it current."""

import re

import pytest

import attnbias
from tests.support.server import Server, run_server
from tests.tools.messages import MESSAGES

# One message for each kind of literal: joined parts, a choice, formats, f-strings, help.
KNOWN = {
    "Server": "extent: got shape [{}] of {}, want at most {} bytes in total",
    "Command-line tool": "--head: got {}, want an integer in [0, {})",
    "C++ client": "stream: ended after {} bytes, want {}",
    "Go client": "stream: ended after {} bytes, want {}",
    "Python client": "stream: ended after {} bytes, want {}",
}


def listed() -> dict[str, list[str]]:
    """Returns the messages of each component."""
    sections = re.split(r"^## (.*)\n", MESSAGES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = (section.split("\n") for section in sections[2::2])
    return dict(zip(sections[1::2], texts, strict=True))


def is_listed(printed: str, component: str) -> bool:
    patterns = (re.escape(text).replace(r"\{\}", ".*") for text in listed()[component] if text)
    return any(re.fullmatch(pattern, printed) for pattern in patterns)


@pytest.mark.parametrize("component", KNOWN)
def test_every_component_lists_its_messages(component: str) -> None:
    assert KNOWN[component] in listed()[component]


def test_every_metric_is_listed() -> None:
    with Server() as server:
        helps = re.findall(r"^# HELP \S+ (\S+ .*)$", server.exposition(), re.MULTILINE)
    assert len(helps) > 20
    assert [text for text in helps if not is_listed(text, "Server")] == []


def test_every_flag_of_the_server_is_listed() -> None:
    flags = run_server("--help").stdout.split("\n  -")
    helps = [" ".join(flag.split()).split(") ", 1)[1] for flag in flags if "(Env:" in flag]
    assert len(helps) > 20
    assert [text for text in helps if not is_listed(text, "Server")] == []


def test_python_errors_are_listed() -> None:
    with pytest.raises(ValueError, match="timeout") as caught:
        attnbias.Client("localhost", timeout=-1)
    assert is_listed(str(caught.value), "Python client")
