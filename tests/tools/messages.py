# SPDX-License-Identifier: Apache-2.0
"""Collects in messages.txt the texts that users see at run time, so that they can be reviewed
together.

Usage: python -m tests.tools.messages [--check]

A message is a string literal of two words or more: an error, a log line, a warning, the help of a
flag or a metric. Values in it are written {}. Duplicates are listed once.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tools.renew import renew

ROOT = Path(__file__).parents[2]
MESSAGES = Path(__file__).with_name("messages.txt")

COMPONENTS = {
    "Server": ("core", "server", "proto"),
    "Command-line tool": ("client/cli",),
    "C++ client": ("client/cpp/include", "client/cpp/src"),
    "Go client": ("client/go/attnbias",),
    "Python client": ("client/python/src", "deploy/wheel"),
}

SUFFIXES = (".cc", ".go", ".h", ".py")
GENERATED_OR_TEST = ("_pb2", "_pb2_grpc", "_test")

# Functions that concatenate their arguments.
CONCATENATE = ("StrCat", "StrAppend", "Invalid", "NotSafetensors", "refuse")
TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#(?:include|error|pragma)[^\n]*)
    | (?:[LuU]|u8)?R"(?P<delimiter>[^(\s]*)\((?P<raw>.*?)\)(?P=delimiter)"
    | `(?P<backquoted>[^`]*)`
    | "(?P<text>(?:\\.|[^"\\\n])*)"
    | '(?:\\.|[^'\\])+'
    | \d[\w.']*
    | \w+
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | <<|::|.
    """,
    re.DOTALL | re.VERBOSE,
)
VERB = re.compile(r"%[-+#0]*[\d.*]*[a-zA-Z]")
TWO_WORDS = re.compile(r"[A-Za-z][\w')\]}/.-]*[,:;]? +[({\['\"]*[A-Za-z]|\bgot \{|, want \{")


class Group(list):
    """The contents of a pair of brackets: words, texts and nested groups."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function


class Text(str):
    """The contents of a string literal."""


def parse(source: str, *, lines_end: bool) -> Group:
    """Returns the tree of brackets in C++ source or, with `lines_end`, in Go source, where lines
    end statements."""
    stack = [Group("")]
    word = ""
    for token in TOKEN.finditer(source):
        inside = stack[-1]
        if token["skip"]:
            if lines_end and "\n" in token["skip"] and word[-1:] not in "+,([{":
                inside.append(";")
            continue
        text = next(
            (token[kind] for kind in ("raw", "backquoted", "text") if token[kind] is not None), None
        )
        if text is not None:
            if token["text"] is not None:
                text = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)
            if inside and isinstance(inside[-1], Text):
                inside[-1] = Text(inside[-1] + text)
            else:
                inside.append(Text(text))
        elif token["open"]:
            group = Group(word if token["open"] == "(" else "")
            inside.append(group)
            stack.append(group)
        elif token["close"]:
            if len(stack) > 1:
                stack.pop()
        else:
            inside.append(token[0])
        word = token[0]
    return stack[0]


def split(group: Group) -> Iterator[list]:
    """Yields the arguments or statements of a group."""
    part: list = []
    for item in group:
        if item in (",", ";") and not isinstance(item, Text):
            yield part
            part = []
        else:
            part.append(item)
    yield part


def is_text(item: object) -> bool:
    return isinstance(item, Text)


def joined(part: list) -> str:
    """Returns the texts of an argument with {} for values, and (A|B) for a choice of two."""
    words = []
    for item in part:
        if is_text(item):
            words.append(item)
        elif item not in ("+", "<<", "return") and words[-1:] != ["{}"]:
            words.append("{}")
    if "?" in part and any(map(is_text, part)):
        return f"({'|'.join(filter(is_text, part))})"
    return "".join(words)


def messages_of_group(group: Group) -> Iterator[str]:
    for item in group:
        if isinstance(item, Group):
            yield from messages_of_group(item)
    parts = list(split(group))
    texts = [part for part in parts if any(map(is_text, part))]
    if texts and group.function in CONCATENATE:
        yield "".join(map(joined, parts))
        return
    for part in texts:
        if "+" in part or "<<" in part:
            yield joined(part)
        else:
            yield from filter(is_text, part)


def messages_of_python(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(node.value)  # a docstring
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("cast", "TypeVar"):
            inner.add(node.args[0])
        elif isinstance(node, ast.JoinedStr):
            inner.update(node.values)
    for node in ast.walk(tree):
        if node in inner:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                value.value if isinstance(value, ast.Constant) else "{}" for value in node.values
            )


def messages_of(path: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from messages_of_python(source)
    elif path.suffix == ".go":
        for message in messages_of_group(parse(source, lines_end=True)):
            yield VERB.sub("{}", message)
    else:
        yield from messages_of_group(parse(source, lines_end=False))


def collect() -> str:
    """Returns the contents of messages.txt."""
    lines = ["# Texts that users see at run time. Update with ./dev generate; {} is a value."]
    for component, folders in COMPONENTS.items():
        found = {
            message.strip()
            for folder in folders
            for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in SUFFIXES and not path.stem.endswith(GENERATED_OR_TEST)
            for message in messages_of(path)
            if TWO_WORDS.search(message)
        }
        lines += ["", f"## {component}", "", *sorted(m.replace("\n", "\\n") for m in found)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    renew({MESSAGES: collect()}, "./dev generate")
