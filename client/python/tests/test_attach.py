# SPDX-License-Identifier: Apache-2.0
"""attach where transformers is not; with it, see tests/conformance/attach_test.py."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import attnbias


def test_imports_nothing_large() -> None:
    code = "import attnbias, sys; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    nothing: Any = None
    with pytest.raises(ImportError, match=r"pip install 'attnbias\[transformers\]'$"):
        attnbias.attach(nothing, nothing, max_length=1)
