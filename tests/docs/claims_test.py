# SPDX-License-Identifier: Apache-2.0
"""Pages state which families match a framework bit for bit.

The tests in tests/conformance/peers verify the claims; documented_rows_test.py lists them.
"""

from pathlib import Path

import pytest

import attnbias

ROOT = Path(__file__).resolve().parents[2]
ROUNDED = "correctly rounded, so they are not bit-identical to the framework's"
CLAIM = (
    "T5 matches frameworks such as transformers bit for bit, as does ALiBi with the framework's "
    "slopes. Rotary tables and sinusoids are correctly rounded. Frameworks usually compute them in "
    "float32, so some bits differ."
)
PAGES = [
    "README.md",
    "client/python/README.md",
    "docs/encodings.md",
    "docs/models.md",
    "docs/numerics.md",
    "docs/tutorial.md",
]
SINES = [attnbias.Sinusoidal, attnbias.RelativeSinusoidal, attnbias.Rotary]


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_readme_states_the_claim() -> None:
    assert CLAIM in words_of((ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", ["rotary", "sinusoidal"])
def test_sine_pages_state_correct_rounding(page: str) -> None:
    assert f"{ROUNDED}." in words_of((ROOT / f"docs/encodings/{page}.md").read_text())


@pytest.mark.parametrize("encoding", SINES)
def test_sine_docstrings_state_correct_rounding(encoding: type[attnbias.Encoding]) -> None:
    assert f"{ROUNDED}." in words_of(str(encoding.__doc__))


def test_bias_docstrings_claim_bit_identity() -> None:
    assert " Bit-identical to the framework. " in words_of(str(attnbias.T5.__doc__))
    assert "With the framework's slopes, bit-identical to the framework." in words_of(
        str(attnbias.ALiBi.__doc__)
    )


def test_no_page_promises_bit_identity_for_every_model() -> None:
    for page in PAGES:
        text = words_of((ROOT / page).read_text())
        assert "exact numbers that their checkpoint was trained with" not in text
        assert "Its outputs stay the same, bit for bit" not in text
