# SPDX-License-Identifier: Apache-2.0
"""score_mod under torch.compile: one program for a prompt, and one for all steps after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import attnbias

HEADS, LENGTH, PROMPT, DIM = 2, 128, 64, 16


def random(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def toeplitz() -> attnbias.Toeplitz:
    return attnbias.Toeplitz(
        random(HEADS, 2 * LENGTH - 1),
        query_length=LENGTH,
        key_length=LENGTH,
        first_relative_position=1 - LENGTH,
    )


def key_row() -> attnbias.KeyRow:
    return attnbias.KeyRow(random(HEADS, LENGTH), query_length=LENGTH)


def bordered() -> attnbias.BorderedToeplitz:
    return attnbias.BorderedToeplitz(toeplitz(), random(HEADS, 3))


def block() -> attnbias.BlockToeplitz:
    return attnbias.BlockToeplitz(random(HEADS, 15, 31))


def block_with_border() -> attnbias.BlockToeplitz:
    return attnbias.BlockToeplitz(random(HEADS, 1, 253), border=random(HEADS, 3))


@pytest.mark.parametrize(
    ("make", "keys_grow"),
    [
        (toeplitz, False),
        (toeplitz, True),
        (key_row, True),
        (bordered, True),
        (block, False),
        (block_with_border, True),
    ],
)
def test_decoding_compiles_once(make: Any, keys_grow: bool) -> None:
    torch = pytest.importorskip("torch")
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend("inductor")
    torch.compiler.reset()
    attend = torch.compile(flex_attention, backend=counter)
    whole = make()
    query, key, value = (torch.from_numpy(random(1, HEADS, LENGTH, DIM, seed=n)) for n in range(3))

    def check(begin: int, end: int) -> None:
        part = whole.window(queries=(begin, end), keys=end if keys_grow else LENGTH)
        seen = [x[:, :, : part.shape[-1]].contiguous() for x in (key, value)]
        rows = query[:, :, begin:end].contiguous()
        got = attend(rows, *seen, score_mod=part.score_mod())
        mask = part.to_torch()[None]
        want = torch.nn.functional.scaled_dot_product_attention(rows, *seen, attn_mask=mask)
        torch.testing.assert_close(got, want)

    check(0, PROMPT)
    assert counter.frame_count == 1
    for step in range(PROMPT, LENGTH):
        check(step, step + 1)
    assert counter.frame_count == 2
