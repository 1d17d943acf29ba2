# SPDX-License-Identifier: Apache-2.0
"""attach without transformers installed; tests/conformance/peers/attach_test.py covers it with
transformers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import attnbias
from attnbias._models.attach import Attached, Replacement
from attnbias._models.changes import Changes


def test_import_does_not_load_frameworks() -> None:
    code = "import attnbias, sys; print({'jax', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_attach_without_transformers_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    nothing: Any = None
    with pytest.raises(ImportError, match=r"pip install 'attnbias\[transformers\]'$"):
        attnbias.attach(nothing, nothing, max_length=1)


def test_handle_repr_counts_replacements() -> None:
    done = Replacement("model.rotary_emb.inv_freq", attnbias.Rotary(head_dim=8), 96, 0)
    left = Replacement("model.wpe.weight", None, 0, 0, left=True, reason="it is trained")
    shown = repr(Attached(Changes(), (done, done, left)))
    assert shown == "Attached(2 replaced, 1 left unchanged)"
