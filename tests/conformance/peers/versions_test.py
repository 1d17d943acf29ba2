# SPDX-License-Identifier: Apache-2.0
"""The version bounds in the client's extra are the versions with which the model tests run."""

import os
import re
import tomllib
from pathlib import Path

import torch
import transformers
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[3]


def bounds_of(package: str) -> tuple[Version, Version]:
    """Returns the smallest version that the extra accepts, and the smallest above its range."""
    project = tomllib.loads((ROOT / "client/python/pyproject.toml").read_text())["project"]
    extra = map(Requirement, project["optional-dependencies"]["transformers"])
    (wanted,) = (requirement for requirement in extra if requirement.name == package)
    bounds = {each.operator: Version(each.version) for each in wanted.specifier}
    assert bounds.keys() == {">=", "<"}
    return bounds[">="], bounds["<"]


def pinned(package: str, file: str) -> Version:
    text = (ROOT / f"tests/tools/requirements-{file}.txt").read_text()
    found = re.search(rf"^{package}==(\S+)$", text, re.M)
    assert found is not None
    return Version(found[1])


def test_bounds_match_tested_versions() -> None:
    for package, oldest, newest in (
        ("transformers", "peers", "transformers-newest"),
        ("torch", "peers", "peers"),
    ):
        least, above = bounds_of(package)
        assert least.release[:2] == pinned(package, oldest).release[:2]
        major, minor = pinned(package, newest).release[:2]
        assert above.release[:2] == (major, minor + 1)


def test_pages_state_the_bounds() -> None:
    least, above = bounds_of("transformers")
    torch_release = ".".join(map(str, bounds_of("torch")[0].release[:2]))
    minors = [f"{least.major}.{minor}" for minor in range(least.minor, above.minor)]
    want = f"transformers {' and '.join(minors)}"
    models = " ".join((ROOT / "docs/models.md").read_text().split())
    assert f"{want}, with torch {torch_release}." in models
    pages = {ROOT / "README.md", ROOT / "client/python/README.md", *(ROOT / "docs").rglob("*.md")}
    for page in pages - {ROOT / "docs/encodings.md"}:  # whose rows run only with the oldest version
        text = " ".join(page.read_text().split())
        for stated in re.finditer(rf"(?<!before )(?<!from )transformers {least.major}\.\d+", text):
            assert text.startswith(want, stated.start()), page


def test_installed_versions_match_pins() -> None:
    at_newest = os.environ.get("PEERS_TRANSFORMERS") == "newest"
    want = pinned("transformers", "transformers-newest" if at_newest else "peers")
    assert Version(transformers.__version__) == want
    assert Version(torch.__version__).release == pinned("torch", "peers").release
