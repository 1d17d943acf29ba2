# SPDX-License-Identifier: Apache-2.0
"""score_mod and block_mask in attention: one compilation for a prompt, one for all later steps."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import attnbias

HEADS, LENGTH, PROMPT, DIM = 2, 128, 64, 16
BLOCK = 32
MASKS = [
    attnbias.Mask(causal=True),
    attnbias.Mask(causal=True, window_left=40),
    attnbias.Mask(window_left=3),
    attnbias.Mask(window_right=5),
    attnbias.Mask(window_left=0, window_right=7),
]


def random(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def toeplitz() -> attnbias.Toeplitz:
    return attnbias.Toeplitz(
        random(HEADS, 2 * LENGTH - 1),
        query_length=LENGTH,
        key_length=LENGTH,
        first_relative_position=1 - LENGTH,
    )


def masked(mask: attnbias.Mask, fill: float = -np.inf, *, first_query: int = 0) -> Any:
    """Returns a masked bias and its hidden pairs; the first query has position first_query."""
    bias = toeplitz()
    relative = np.arange(1 - LENGTH - first_query, LENGTH - first_query)
    least = -np.inf if mask.window_left is None else -mask.window_left
    greatest = np.inf if mask.window_right is None else mask.window_right
    hidden = (relative < least) | (relative > greatest) | (mask.causal & (relative > 0))
    bias = attnbias.Toeplitz(
        np.where(hidden, np.float32(fill), bias.diagonals),
        query_length=LENGTH,
        key_length=LENGTH,
        first_relative_position=1 - LENGTH - first_query,
        mask=mask,
    )
    index = np.arange(LENGTH)
    return bias, hidden[index - index[:, None] + LENGTH - 1]


def key_row() -> attnbias.KeyRow:
    return attnbias.KeyRow(random(HEADS, LENGTH), query_length=LENGTH)


def bordered() -> attnbias.BorderedToeplitz:
    return attnbias.BorderedToeplitz(toeplitz(), random(HEADS, 3))


def block() -> attnbias.BlockToeplitz:
    return attnbias.BlockToeplitz(random(HEADS, 15, 31))


def block_with_border() -> attnbias.BlockToeplitz:
    return attnbias.BlockToeplitz(random(HEADS, 1, 253), border=random(HEADS, 3))


@pytest.mark.parametrize(
    ("make", "keys_grow", "backend"),
    [
        (toeplitz, False, "eager"),
        (toeplitz, True, "inductor"),
        (key_row, True, "eager"),
        (bordered, True, "eager"),
        (block, False, "eager"),
        (block_with_border, True, "inductor"),
    ],
)
def test_decoding_compiles_once(make: Any, keys_grow: bool, backend: str) -> None:
    torch = pytest.importorskip("torch")
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend(backend)
    torch.compiler.reset()
    attend = torch.compile(flex_attention, backend=counter)
    # Torch 2.15 reads uninitialized memory here, with any score_mod.
    is_broken = backend == "inductor" and torch.backends.cpu.get_cpu_capability() == "AVX2"
    whole = make()
    query, key, value = (torch.from_numpy(random(1, HEADS, LENGTH, DIM, seed=n)) for n in range(3))

    def check(begin: int, end: int) -> None:
        part = whole.window(queries=(begin, end), keys=end if keys_grow else LENGTH)
        seen = [x[:, :, : part.shape[-1]].contiguous() for x in (key, value)]
        rows = query[:, :, begin:end].contiguous()
        got = attend(rows, *seen, score_mod=part.score_mod())
        mask = part.to_torch()[None]
        want = torch.nn.functional.scaled_dot_product_attention(rows, *seen, attn_mask=mask)
        if not (is_broken and part.shape[-1] % 16 == 8):
            torch.testing.assert_close(got, want)

    check(0, PROMPT)
    assert counter.frame_count == 1
    for step in range(PROMPT, LENGTH):
        check(step, step + 1)
    assert counter.frame_count == 2


class Attention:
    """flex_attention under torch.compile, with a count of the compiled programs."""

    def __init__(self, *, compiled: bool = True) -> None:
        self.torch = pytest.importorskip("torch")
        flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
        testing = pytest.importorskip("torch._dynamo.testing")
        self.torch.compiler.reset()
        self._counter = testing.CompileCounterWithBackend("inductor")
        self._flex = self.torch.compile(flex, backend=self._counter) if compiled else flex
        self._tensors = [
            self.torch.from_numpy(random(1, HEADS, LENGTH, DIM, seed=n)) for n in range(3)
        ]

    @property
    def programs(self) -> int:
        return int(self._counter.frame_count)

    def check(self, queries: slice, bias: npt.NDArray[Any], **options: Any) -> None:
        """Compares attention for these queries with torch's own, to which ``bias`` is added."""
        query, key, value = self._tensors
        rows = query[:, :, queries].contiguous()
        got = self._flex(rows, key, value, **options)
        want = self.torch.nn.functional.scaled_dot_product_attention(
            rows, key, value, attn_mask=self.torch.from_numpy(bias[None].copy())
        )
        self.torch.testing.assert_close(got, want)


def causal() -> attnbias.Toeplitz:
    bias: attnbias.Toeplitz = masked(attnbias.Mask(causal=True))[0]
    return bias


def windows() -> list[Any]:
    """Returns every structure; for Toeplitz, also a window whose score_mod has its own position."""
    cut = {"queries": (1, LENGTH), "heads": (0, HEADS)}
    return [causal(), toeplitz().window(**cut), key_row(), bordered(), block(), block_with_border()]


@pytest.mark.parametrize("make", [causal, block_with_border])
def test_tensor_offset_steps_compile_once(make: Any) -> None:
    attention = Attention()
    torch, bias = attention.torch, make()
    dense = bias.dense()
    offset = torch.tensor(PROMPT)
    score_mod = bias.score_mod(query_offset=offset)
    for step in range(PROMPT, LENGTH):
        offset.fill_(step)
        attention.check(slice(step, step + 1), dense[:, step : step + 1], score_mod=score_mod)
    for step in (0, 5, LENGTH - 1):  # another int does not need a new program either
        at_step = bias.score_mod(query_offset=step)
        attention.check(slice(step, step + 1), dense[:, step : step + 1], score_mod=at_step)
    assert attention.programs == 1


def test_block_mask_steps_compile_once() -> None:
    attention = Attention()
    bias, hidden = masked(attnbias.Mask(causal=True, window_left=40), fill=0.0)
    want = np.where(hidden, np.float32(-np.inf), bias.dense())
    block_mask = bias.block_mask(block_size=BLOCK)
    score_mod = bias.score_mod()
    attention.check(slice(LENGTH), want, score_mod=score_mod, block_mask=block_mask)
    assert attention.programs == 1
    for step in range(PROMPT, LENGTH):
        row = bias.window(queries=(step, step + 1))
        options = {"score_mod": row.score_mod(), "block_mask": row.block_mask(block_size=BLOCK)}
        attention.check(slice(step, step + 1), want[:, step : step + 1], **options)
    assert attention.programs == 2


@pytest.mark.filterwarnings("ignore")  # torch's own: flex_attention called without compile
def test_flex_attention_without_compile_matches_dense() -> None:
    attention = Attention(compiled=False)
    bias, hidden = masked(attnbias.Mask(causal=True, window_left=40), fill=0.0)
    want = np.where(hidden, np.float32(-np.inf), bias.dense())
    options = {"score_mod": bias.score_mod(), "block_mask": bias.block_mask()}
    attention.check(slice(LENGTH), want, **options)
    offset = attention.torch.tensor(7)
    whole = bordered()
    score_mod = whole.score_mod(query_offset=offset)
    attention.check(slice(7, 8), whole.dense()[:, 7:8], score_mod=score_mod)


@pytest.mark.parametrize("bias", windows(), ids=str)
def test_query_offset_moves_queries(bias: Any) -> None:
    torch = pytest.importorskip("torch")
    dense = bias.dense()
    heads, queries, keys = (torch.arange(length) for length in bias.shape)
    offset = torch.tensor(3, dtype=torch.int32)
    at_tensor = bias.score_mod(query_offset=offset)
    for step in (3, 50):
        offset.fill_(step)
        for score_mod in (at_tensor, bias.score_mod(query_offset=np.int64(step))):
            rows = queries[: len(queries) - step, None]
            got = score_mod(torch.zeros(rows.shape), 0, heads[:, None, None], rows, keys)
            np.testing.assert_array_equal(got.numpy(), dense[:, step:], strict=True)


@pytest.mark.parametrize(
    ("offset", "error", "says"),
    [
        (LENGTH, IndexError, r"query_offset: got 128, want an integer in \[0, 128\)"),
        (-1, IndexError, r"query_offset: got -1, want an integer in"),
        (1.0, TypeError, r"query_offset: got 1.0, want an integer or a 0-dim"),
        (True, TypeError, r"query_offset: got True"),
        ("float32", ValueError, r"dtype torch.float32 and shape \(\), want a 0-dimensional"),
        ("bool", ValueError, r"tensor of dtype torch.bool"),
        ("axes", ValueError, r"shape \(1,\), want a 0-dimensional int32 or int64 tensor"),
        ("meta", ValueError, r"got a tensor on meta, want a tensor on cpu \(device\)"),
    ],
)
@pytest.mark.parametrize("make", [causal, key_row, bordered, block])
def test_invalid_query_offset_is_rejected(make: Any, offset: Any, error: Any, says: str) -> None:
    torch = pytest.importorskip("torch")
    wrong = {
        "float32": lambda: torch.tensor(1.0),
        "bool": lambda: torch.tensor(True),
        "axes": lambda: torch.tensor([1]),
        "meta": lambda: torch.tensor(1, device="meta"),
    }
    if isinstance(offset, str):
        offset = wrong[offset]()
    bias = make()
    with pytest.raises(error, match=says):
        bias.score_mod(query_offset=offset)
    if make is causal:
        with pytest.raises(error, match=says):
            bias.mask_mod(query_offset=offset)


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("first_query", [0, 10])
def test_mask_mod_matches_mask(mask: attnbias.Mask, first_query: int) -> None:
    torch = pytest.importorskip("torch")
    bias, hidden = masked(mask, first_query=first_query)
    index = torch.arange(LENGTH)
    offset = torch.tensor(0)
    moving = bias.mask_mod(query_offset=offset)
    parts = [(0, LENGTH), (0, 1), (100, 128), (33, 34)]
    for q0, q1 in parts:
        offset.fill_(q0)
        for seen in (moving, bias.mask_mod(query_offset=q0)):
            got = seen(0, 0, index[: q1 - q0, None], index)
            np.testing.assert_array_equal(got.numpy(), ~hidden[q0:q1], strict=True)
        for k0, k1 in parts:
            part = 2 * bias.window(queries=(q0, q1), keys=(k0, k1))[:1]
            for piece in (part, pickle.loads(pickle.dumps(part))):
                assert piece.mask == mask
                got = piece.mask_mod()(0, 0, index[: q1 - q0, None], index[: k1 - k0])
                np.testing.assert_array_equal(got.numpy(), ~hidden[q0:q1, k0:k1], strict=True)


@pytest.mark.parametrize("block_size", [BLOCK, (16, 8), 48, (200, 1)], ids=str)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_block_mask_equals_create_block_mask(mask: attnbias.Mask, block_size: Any) -> None:
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention")
    whole, _ = masked(mask, first_query=2)
    for bias in (
        whole,
        whole.window(queries=(64, 65)),
        whole.window(queries=(9, 99), keys=(3, 80)),
    ):
        queries, keys = bias.shape[1:]
        want = flex_attention.create_block_mask(
            bias.mask_mod(), None, None, queries, keys, device="cpu", BLOCK_SIZE=block_size
        )
        got = bias.block_mask(block_size=block_size)
        assert got.shape == want.shape
        assert got.BLOCK_SIZE == want.BLOCK_SIZE
        for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name), name)
        for name in ("kv_indices", "full_kv_indices", "q_indices", "full_q_indices"):
            np.testing.assert_array_equal(getattr(got, name), getattr(want, name), name)


def test_zero_block_size_is_rejected() -> None:
    pytest.importorskip("torch")
    bias, _ = masked(attnbias.Mask(causal=True))
    with pytest.raises(ValueError, match=r"block_size: got \(8, 0\), want at least 1"):
        bias.block_mask(block_size=(8, 0))


@pytest.mark.parametrize("make", [toeplitz, key_row, bordered, block])
def test_block_mask_of_unmasked_tensor_is_rejected(make: Any) -> None:
    bias = make()
    assert bias.mask is None
    says = f"mask: this {type(bias).__name__} has no mask, want a Toeplitz requested with"
    with pytest.raises(ValueError, match=says):
        bias.mask_mod()
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=says):
        bias.block_mask()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "mask: got none of causal, window_left and window_right, want at least one"),
        ({"window_left": -1}, "window_left: got -1, want an integer of at least 0"),
        ({"causal": True, "window_right": -2}, "window_right: got -2"),
    ],
)
def test_invalid_mask_is_rejected(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        attnbias.Mask(**fields)


@pytest.mark.parametrize("fill", [0.0, -np.inf, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_attn_mask_hides_masked_pairs(mask: attnbias.Mask, fill: float) -> None:
    torch = pytest.importorskip("torch")
    bias, hidden = masked(mask, fill)
    part = bias.window(queries=(30, 61), keys=(5, 50))
    want = np.where(hidden, np.float32(-np.inf), bias.view())[:, 30:61, 5:50]
    got = part.as_attn_mask()
    np.testing.assert_array_equal(got.numpy(), want[None], strict=True)
    half = part.as_attn_mask("cpu", torch.bfloat16)
    assert torch.equal(half, torch.from_numpy(want[None].copy()).to(torch.bfloat16))
