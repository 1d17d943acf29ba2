# SPDX-License-Identifier: Apache-2.0
"""The attach examples run, each with its own server."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples/attach"
# Lines that each example prints about its models and the bytes fetched.
SAID = {
    "alibi.py": [
        "transformer.build_alibi_tensor: ALiBi(",
        "transformer.build_mpt_alibi_tensor: ALiBi(",
        "; 1536 bytes fetched, 0 bytes not computed",  # Falcon's values, in bfloat16
    ],
    "learned.py": [
        "transformer.wpe.weight: LearnedAbsolute(table='sha256:",
        "; 49152 bytes fetched, 0 bytes not computed",
        "changed: model: got transformer.wpe.weight, float32 [128, 96] of sha256:",
    ],
    "rotary.py": ["cosine of position 131071: "],
    "sinusoids.py": [
        "128 tokens, by itself: index out of range in self",
        "model.encoder.embed_positions.forward: Sinusoidal(",
        "128 tokens, attached: logits of [1, 1, 1000]",
    ],
    "swin.py": ["attention.relative_position_bias.forward: 2028 bytes fetched, 28812 bytes not"],
    "t5.py": ["16380 bytes fetched, 167772160 bytes not computed"],
}


def test_every_example_has_expected_output() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(SAID)


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = EXAMPLES / name
    assert "\n# %% " in path.read_text()  # notebook cells
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    for said in SAID[name]:
        assert said in printed
