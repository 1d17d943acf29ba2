# SPDX-License-Identifier: Apache-2.0
"""MkDocs hooks, for mkdocs.yml.

Pages keep their paths in the repository, so that links between them also work on GitHub. Links to
other files in the repository point to GitHub. Generated pages are in build/pages.
"""

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ROOT / "build/pages"
REPOSITORY = "https://github.com/attnbias/attnbias/blob/main"
PAGES = ("*.md", "client/*/README.md", "deploy/[!w]*/**/*.md", "examples/*.md", "docs/**/*.md")
PICTURES = ("docs/images/*.png", "docs/images/*.svg")
ASSETS = {
    "site.css": ROOT / "tests/tools/site/site.css",
    "math.otf": Path("/usr/share/texmf/fonts/opentype/public/lm-math/latinmodern-math.otf"),
}

BLOCK = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
CODE_IN_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Replaces the files in docs_dir with files from the repository and with the generated ones."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    paths = [path for pattern in (*PAGES, *PICTURES) for path in sorted(ROOT.glob(pattern))]
    own = [as_file(config, path.relative_to(ROOT).as_posix(), path) for path in paths]
    own += [as_file(config, name, path) for name, path in ASSETS.items()]
    for path in sorted(GENERATED.rglob("*.*")):
        own.append(as_file(config, path.relative_to(GENERATED).as_posix(), path))
    return Files([*theme, *own])


def as_file(config: Any, name: str, path: Path) -> File:
    file = File.generated(config, name, abs_src_path=str(path))
    file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def on_page_markdown(markdown: str, *, page: Any, files: Files, **_: Any) -> str:
    """Converts a page from GitHub's Markdown to Python-Markdown."""
    folder = (ROOT / page.file.src_uri).parent

    def resolved(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return link[1]
        name = target.relative_to(ROOT).as_posix()
        return link[1] if name in files.src_uris else f"{REPOSITORY}/{name}"

    def outside_blocks(text: str) -> str:
        return CODE_IN_ROW.sub(with_bare_bars, LINK.sub(resolved, text))

    return map_outside_blocks(outside_blocks, markdown)


def map_outside_blocks(function: Any, markdown: str) -> str:
    """Applies a function to the text between code blocks."""
    end, made = 0, ""
    for block in BLOCK.finditer(markdown):
        made += function(markdown[end : block.start()]) + block[0]
        end = block.end()
    return made + function(markdown[end:])


def with_bare_bars(row: re.Match[str]) -> str:
    r"""Replaces ``\|``, which only GitHub needs, inside code in a table."""
    return re.sub(r"(`+).+?\1", lambda code: code[0].replace(r"\|", "|"), row[0])


def math_block(source: str, *_: Any, **__: Any) -> str:
    """Converts a formula from LaTeX to MathML."""
    return convert(source, display="block")


class ListsAfterParagraphs(Extension):
    """Starts a list right after a paragraph, as GitHub does."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(EmptyLineBeforeList(md), "empty_line_before_list", 20)


class EmptyLineBeforeList(Preprocessor):
    """Adds an empty line between a paragraph and a list; code blocks have already been removed."""

    def run(self, lines: list[str]) -> list[str]:
        made: list[str] = []
        for line in lines:
            if line.startswith("- ") and made and re.match(r"(?!- )\S", made[-1]):
                made.append("")
            made.append(line)
        return made
