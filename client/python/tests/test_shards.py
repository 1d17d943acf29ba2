# SPDX-License-Identifier: Apache-2.0
"""The shards of each rank: by rank and layout, on torch meshes, and with JAX shardings.

The oracles are numpy's indexing of the dense array, the owner of each token, torch's own
``distribute_tensor``, and JAX's own map of shards to devices.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
import pickle
import re
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from either_client import CONNECTS
from hypothesis import given
from hypothesis import strategies as st

import attnbias
from attnbias._transport.download import Download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attnbias._arrays.axes import Layout

Array = npt.NDArray[Any]

LAYOUTS: tuple[Layout, ...] = ("contiguous", "zigzag", "striped")
KINDS = ("toeplitz", "vectors", "key_row", "block", "block with border", "bordered")


# ---- a rank's tokens


def owner(token: int, length: int, world_size: int, layout: Layout) -> int:
    """Returns the rank that holds a token, as the papers define it."""
    if layout == "striped":
        return token % world_size
    if layout == "contiguous":
        return token // max(-(-length // world_size), 1)
    chunk = token * 2 * world_size // length
    return min(chunk, 2 * world_size - 1 - chunk)


@given(st.sampled_from(LAYOUTS), st.integers(1, 9), st.integers(0, 40))
def test_rank_holds_its_own_tokens(layout: Layout, world_size: int, size: int) -> None:
    per_rank = {"contiguous": 1, "zigzag": 2, "striped": 1}[layout]
    length = size if layout == "contiguous" else size * per_rank * world_size
    for rank in range(world_size):
        wanted = [t for t in range(length) if owner(t, length, world_size, layout) == rank]
        got = attnbias.shard_indices(length, rank, world_size, layout)
        assert got.dtype == np.int64
        assert got.tolist() == wanted


@given(st.integers(1, 9), st.integers(0, 40))
def test_contiguous_layout_matches_torch_chunk(world_size: int, length: int) -> None:
    torch = pytest.importorskip("torch")
    chunks = [chunk.tolist() for chunk in torch.arange(length).chunk(world_size)]
    chunks += [[]] * (world_size - len(chunks))  # in DTensor, these go to the last ranks
    got = [attnbias.shard_indices(length, r, world_size).tolist() for r in range(world_size)]
    assert got == (chunks if length else [[]] * world_size)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (
            (12, 0, 4, "zigzag"),
            ValueError,
            "length: got 12, want a multiple of 8 for 'zigzag' over 4",
        ),
        ((10, 0, 4, "striped"), ValueError, "length: got 10, want a multiple of 4 for 'striped'"),
        ((8, 0, 4, "zig"), ValueError, "layout: got 'zig', want one of 'contiguous', 'zigzag'"),
        ((8, 4, 4), ValueError, r"rank: got 4, want an integer in \[0, 4\)"),
        ((8, -1, 4), ValueError, r"rank: got -1, want an integer in \[0, 4\)"),
        ((8, 0, 0), ValueError, "world_size: got 0, want at least 1"),
        ((8, 0.0, 4), TypeError, "rank: got 0.0, want an integer"),
        ((8, 0, None), TypeError, "world_size: got None, want an integer"),
        ((-1, 0, 4), ValueError, "length: got -1, want at least 0"),
        (("8", 0, 4), TypeError, "length: got '8', want an integer"),
    ],
)
def test_invalid_shard_arguments_are_rejected(
    arguments: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        attnbias.shard_indices(*arguments)


# ---- structures


def make(kind: str, heads: int | None, queries: int, dtype: Any) -> attnbias.Structure:
    """Returns a square structure whose values all differ, as far as the type allows."""
    outer = () if heads is None else (heads,)

    def numbers(*shape: int) -> Array:
        return (np.arange(np.prod((*outer, *shape))).reshape(*outer, *shape) - 9).astype(dtype)

    if kind == "key_row":
        return attnbias.KeyRow(numbers(queries), query_length=queries)
    if kind == "block":
        return attnbias.BlockToeplitz(numbers(3, queries - 1))  # two rows of queries / 2
    if kind == "block with border":
        return attnbias.BlockToeplitz(numbers(1, 2 * queries - 3), border=numbers(3))
    columns = (2,) if kind == "vectors" else ()
    toeplitz = attnbias.Toeplitz(
        numbers(2 * queries - 1, *columns),
        query_length=queries,
        key_length=queries,
        first_relative_position=1 - queries,
        vectors=kind == "vectors",
    )
    if kind != "bordered":
        return toeplitz
    return attnbias.BorderedToeplitz(toeplitz, numbers(3), class_query=1, class_key=0)


def same(got: Any, wanted: Any) -> None:
    """Compares bit for bit."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes()


@st.composite
def groups(draw: st.DrawFn) -> tuple[attnbias.Structure, int]:
    """A structure, and a number of ranks that every layout supports for it."""
    world_size = draw(st.integers(1, 4))
    queries = 2 * world_size * draw(st.integers(1, 3))
    kind = draw(st.sampled_from(KINDS))
    heads = draw(st.sampled_from([None, 1, 3]))
    dtype: Any = draw(st.sampled_from([np.float32, ml_dtypes.bfloat16, np.float64]))
    return make(kind, heads, queries, dtype), world_size


def rows_of(bias: attnbias.Structure, rank: int, world_size: int, layout: Layout) -> list[int]:
    length = bias.shape[bias.ndim - 2 - bias.vectors]
    return [t for t in range(length) if owner(t, length, world_size, layout) == rank]


every_layout = st.sampled_from(LAYOUTS)


@given(groups(), every_layout, every_layout)
def test_shards_reassemble_the_whole(
    group: tuple[attnbias.Structure, int], queries: Layout, keys: Layout
) -> None:
    """Each ring rank's steps equal numpy's indexing; together, they cover the whole."""
    bias, n = group
    dense = bias.dense()
    before: Any = (slice(None),) * (bias.ndim - 2 - bias.vectors)
    whole = np.zeros_like(dense)
    for rank in range(n):
        mine = bias.shard(rank, n, queries=queries)
        rows = rows_of(bias, rank, n, queries)
        same(mine.dense(), dense[(*before, rows)])
        for source in range(n):
            columns = rows_of(bias, source, n, keys)
            step = mine.shard(source, n, keys=keys)
            block: Any = (*before, *np.ix_(rows, columns))
            same(step.dense(), dense[block])
            same(
                bias.shard(source, n, keys=keys).shard(rank, n, queries=queries).view(), step.view()
            )
            assert step.shape == dense[block].shape
            whole[block] = step
    same(whole, dense)


@given(groups(), st.sampled_from(["zigzag", "striped"]), st.data())
def test_shard_is_a_structure(
    group: tuple[attnbias.Structure, int], layout: Layout, data: st.DataObject
) -> None:
    bias, n = group
    rank = data.draw(st.integers(0, n - 1))
    shard = bias.shard(rank, n, queries=layout)
    assert isinstance(shard, attnbias.RingShard)
    assert shard.whole is bias
    assert shard.nbytes == bias.nbytes
    dense = shard.dense()
    same(np.asarray(2 * shard), (2 * dense).astype(shard.dtype))
    assert isinstance(2 * shard, attnbias.RingShard)
    same(pickle.loads(pickle.dumps(shard)).view(), dense)
    same(np.asarray(shard[..., 1:]), dense[..., 1:])
    first = shard.window(queries=1, keys=(1, 2))
    cut: Any = (..., slice(0, 1), slice(1, 2), *[slice(None)] * bias.vectors)
    same(first.dense(), dense[cut])
    if bias.ndim - bias.vectors > 2:
        same(shard.shard(0, 3 if len(bias) == 3 else 1, heads=True).dense(), dense[:1])


@given(groups(), every_layout, every_layout)
def test_torch_shards_equal_dense(
    group: tuple[attnbias.Structure, int], queries: Layout, keys: Layout
) -> None:
    torch = pytest.importorskip("torch")
    bias, n = group
    step = bias.shard(n - 1, n, queries=queries).shard(0, n, keys=keys)
    dense = step.dense()
    got = step.to_torch()
    assert got.contiguous().view(torch.uint8).numpy().tobytes() == dense.tobytes()
    if bias.vectors or bias.ndim == 2:
        with pytest.raises(ValueError, match=r"want (numbers|one with)"):
            step.score_mod()
        return
    heads, rows, columns = (torch.arange(length) for length in step.shape)
    scores = torch.zeros(step.shape, dtype=got.dtype)
    added = step.score_mod()(scores, 0, heads[:, None, None], rows[:, None], columns)
    assert added.view(torch.uint8).numpy().tobytes() == (dense + dense.dtype.type(0)).tobytes()


def test_shard_can_be_sharded_again() -> None:
    bias = make("toeplitz", 3, 16, np.float32)
    shard = bias.shard(1, 2, keys="striped").shard(1, 2, keys="zigzag")
    same(shard.dense(), bias.dense()[:, :, [5, 7, 9, 11]])
    shard = bias.shard(1, 2, queries="zigzag").shard(1, 4, queries="contiguous")
    same(shard.dense(), bias.dense()[:, [6, 7]])


@pytest.mark.parametrize("layout", ["zigzag", "striped"])
def test_shard_keeps_mask_of_whole(layout: Layout) -> None:
    flex_attention = pytest.importorskip("torch.nn.attention.flex_attention")
    torch = pytest.importorskip("torch")
    length, world_size, mask = 16, 2, attnbias.Mask(causal=True, window_left=5)
    relative = np.arange(length) - np.arange(length)[:, None]
    hidden = (relative > 0) | (relative < -5)
    whole = attnbias.Toeplitz(
        np.zeros((2, 2 * length - 1), np.float32),
        query_length=length,
        key_length=length,
        first_relative_position=1 - length,
        mask=mask,
    )
    for rank, source in itertools.product(range(world_size), repeat=2):
        rows, columns = (
            attnbias.shard_indices(length, holder, world_size, layout) for holder in (rank, source)
        )
        step = whole.shard(rank, world_size, queries=layout)
        step = step.shard(source, world_size, keys=layout)
        assert step.mask == mask
        index = torch.arange(length // world_size)
        want = hidden[np.ix_(rows, columns)]
        np.testing.assert_array_equal(step.mask_mod()(0, 0, index[:, None], index), ~want)
        np.testing.assert_array_equal(step.as_attn_mask()[0, 0].isinf(), want)
        blocks = step.block_mask(block_size=1).to_dense()[0, 0]
        np.testing.assert_array_equal(blocks, ~want)
    assert flex_attention.BlockMask is type(step.block_mask())


def test_ring_steps_copy_bias_to_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    sent: list[int] = []

    def counted(array: Any, device: Any = None) -> Any:
        sent.append(array.nbytes)
        return attnbias.to_torch(array, device)

    for module in ("axes", "structure"):
        monkeypatch.setattr(f"attnbias._arrays.{module}.to_torch", counted)
    bias = make("toeplitz", 4, 64, np.float32)
    mine = bias.shard(1, 4, queries="zigzag")
    for source in range(4):
        mine.shard(source, 4, keys="zigzag").score_mod()
    assert sent.count(bias.nbytes) == 1
    assert sum(sent) - bias.nbytes < bias.nbytes


def test_head_and_contiguous_shards_are_windows() -> None:
    bias = make("toeplitz", 5, 10, np.float32)
    for heads in ([0, 2], [2, 4], [4, 5]):
        part = bias.shard(heads[0] // 2, 3, heads=True)
        assert isinstance(part, attnbias.Toeplitz)
        assert np.shares_memory(part.diagonals, bias.parts()["diagonals"])
        same(part.dense(), bias.dense()[slice(*heads)])
    part = bias.shard(3, 4, queries="contiguous")
    assert isinstance(part, attnbias.Toeplitz)
    same(part.dense(), bias.dense()[:, 9:])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ((0, 2), {}, ValueError, "shard: got none of heads, queries and keys, want one per call"),
        (
            (0, 2),
            {"heads": True, "queries": "zigzag"},
            ValueError,
            "shard: got heads and queries of heads, queries and keys, want one per call",
        ),
        ((0, 2), {"heads": 8}, TypeError, "heads: got 8, want True or False"),
        ((0, 2), {"queries": "ring"}, ValueError, "queries: got 'ring', want one of 'contiguous'"),
        ((0, 2), {"queries": ["zigzag"]}, ValueError, r"queries: got \['zigzag'\], want one of"),
        ((0, 4), {"keys": "zigzag"}, ValueError, "keys: got 10, want a multiple of 8 for 'zigzag'"),
        ((0, 3), {"queries": "striped"}, ValueError, "queries: got 10, want a multiple of 3"),
        (
            (2, 2),
            {"queries": "contiguous"},
            ValueError,
            r"rank: got 2, want an integer in \[0, 2\)",
        ),
        (
            (3, 4),
            {"heads": True},
            IndexError,
            "rank: got 3 of 4, which holds none of the 3 heads split into chunks of 1; want fewer "
            "ranks",
        ),
    ],
)
def test_invalid_shard_request_is_rejected(
    arguments: Any, options: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        make("toeplitz", 3, 10, np.float32).shard(*arguments, **options)


def test_ring_shard_selects_arbitrary_indices() -> None:
    bias = make("toeplitz", 3, 16, np.float32)
    dense = bias.dense()
    same(attnbias.RingShard(bias, query_indices=[5, 2]).dense(), dense[:, [5, 2]])
    shard = bias.shard(0, 2, queries="zigzag")  # of queries 0 to 3 and 12 to 15
    again = attnbias.RingShard(shard, query_indices=np.array([5, 2]), key_indices=[7])
    same(again.dense(), dense[:, [13, 2], 7:8])
    assert again.whole is bias
    same(attnbias.RingShard(shard).dense(), shard.dense())


def test_nested_shard_score_mod_adds_same_bias() -> None:
    torch = pytest.importorskip("torch")
    bias = make("toeplitz", 3, 16, np.float32)
    shard = attnbias.RingShard(bias.shard(0, 2, queries="zigzag"), query_indices=[5, 2])
    zero = torch.tensor(0)
    added = shard.score_mod()(torch.tensor(0.0), zero, zero, zero, zero)
    assert float(added) == bias.dense()[0, 13, 0]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"query_indices": np.ones(4, bool)}, TypeError, "query_indices: got an array of bool"),
        ({"key_indices": [0.5]}, TypeError, "key_indices: got an array of float64, want integers"),
        ({"key_indices": []}, IndexError, r"key_indices: got an array of shape \(0,\), want one"),
        ({"key_indices": [4]}, IndexError, r"want one axis of at least one index in \[0, 4\)"),
        ({"whole": np.zeros((3, 4, 4))}, TypeError, "whole: got an object of type ndarray; want"),
    ],
)
def test_invalid_ring_shard_arguments_are_rejected(
    options: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        attnbias.RingShard(**{"whole": make("toeplitz", 3, 4, np.float32), **options})


def test_headless_tensor_rejects_head_sharding() -> None:
    with pytest.raises(ValueError, match=r"heads: got a tensor of shape \(10, 10\)"):
        make("toeplitz", None, 10, np.float32).shard(0, 2, heads=True)


def test_ring_shard_cannot_be_saved(tmp_path: Path) -> None:
    shard = make("toeplitz", 3, 8, np.float32).shard(0, 2, queries="zigzag")
    with pytest.raises(TypeError, match=r"bias: got a RingShard; want .* bias\.whole"):
        attnbias.save(shard, tmp_path / "bias.safetensors")


@pytest.mark.parametrize("indices", [[], [8], [-1], [[0]]])
def test_ring_shard_indices_out_of_range_are_rejected(indices: Any) -> None:
    bias = make("toeplitz", 3, 8, np.float32)
    with pytest.raises(IndexError, match=r"query_indices: got .* index in \[0, 8\)"):
        attnbias.RingShard(bias, query_indices=np.array(indices, int))


# ---- requests on torch meshes and with JAX shardings

TABLE = np.random.default_rng(1).standard_normal((32, 6)).astype(np.float32)
T5 = attnbias.T5(bidirectional=True, num_heads=6, table=TABLE)
SWIN = attnbias.Swin((2, 4), num_heads=6, table=TABLE[:21])
# Encodings, each with its request. In the last one, neither 2 nor 4 divides any length.
PAIRS: list[tuple[attnbias.Encoding[Any], dict[str, Any]]] = [
    (T5, {"query_length": 8, "key_length": 12, "alignment": "end"}),
    (
        T5,
        {
            "query_length": 10,
            "queries": (2, 10),
            "key_length": 16,
            "keys": (4, 16),
            "heads": (2, 6),
            "query_offset": 5,
            "causal": True,
        },
    ),
    (
        T5,
        {
            "query_length": 8,
            "key_length": 12,
            "alignment": "end",
            "form": "dense",
            "data_type": "bf16",
        },
    ),
    (T5, {"query_positions": [7, 1, 9, 9, 0, 3, 4, 5], "key_positions": list(range(8))}),
    (T5, {"query_length": 8, "key_length": 8, "values": "buckets"}),
    (attnbias.ALiBi(num_heads=8, variant="key_from_end"), {"query_length": 8, "key_length": 8}),
    (
        attnbias.ALiBi(num_heads=8, variant="key_from_end"),
        {"query_length": 8, "key_length": 12, "alignment": "end", "causal": True, "form": "dense"},
    ),
    (
        attnbias.Tupe(
            num_heads=6, num_buckets=30, relative_table=TABLE[:31], reset_class_token=True
        ),
        {"query_length": 8, "key_length": 8},
    ),
    (attnbias.Shaw(left=2, right=2, table=TABLE[:5]), {"query_length": 8, "key_length": 8}),
    (SWIN, {}),
    (SWIN, {"queries": (1, 5), "heads": (2, 6)}),
    (attnbias.ALiBi(num_heads=3), {"query_length": 7, "key_length": 9, "alignment": "start"}),
]
TABLES: list[tuple[attnbias.Encoding[Any], dict[str, Any]]] = [
    (attnbias.Sinusoidal(dim=8), {"positions": (4, 12)}),
    (attnbias.Sinusoidal(dim=8), {"position_ids": [3, 1, 4, 1, 5, 9, 2, 6], "data_type": "bf16"}),
    (attnbias.Rotary(head_dim=8), {"positions": 8}),
    (attnbias.Xpos(8, center=4), {"positions": 8}),
]


def dense_of(answer: Any) -> list[Array]:
    if isinstance(answer, tuple):
        return list(answer)
    return [answer.dense() if isinstance(answer, attnbias.Structure) else answer]


@contextlib.contextmanager
def payloads() -> Iterator[list[int]]:
    """Records the size of each payload fetched inside the context."""
    fetched: list[int] = []

    def counted(download: Download, info: attnbias.TensorInfo, data: memoryview) -> Any:
        fetched.append(info.nbytes)
        return memory_for(download, info, data)

    memory_for = Download._memory_for
    with mock.patch.object(Download, "_memory_for", counted):
        yield fetched


# ---- torch, in four processes

RANKS = 4


def join(rank: int, meeting: str) -> None:
    import torch.distributed as dist  # noqa: PLC0415

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=30),
    )


def leave() -> None:
    import torch.distributed as dist  # noqa: PLC0415

    dist.destroy_process_group()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Any]]]:
    """Calls a function in each of four processes that form a torch process group."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    meeting = str(tmp_path_factory.mktemp("group") / "meeting")
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                ProcessPoolExecutor(
                    1, get_context("spawn"), initializer=join, initargs=(rank, meeting)
                )
            )
            for rank in range(RANKS)
        ]

        def in_each(function: Any, *arguments: Any) -> list[Any]:
            calls = [rank.submit(function, *arguments) for rank in ranks]
            for call in as_completed(calls, timeout=120):
                call.result()  # the first failure: the other processes then wait forever
            return [call.result() for call in calls]

        yield in_each
        in_each(leave)
        for rank in ranks:  # all at once, before the stack waits for each
            rank.shutdown(wait=False)


def bits(tensor: Any) -> bytes:
    import torch  # noqa: PLC0415

    raw: bytes = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    return raw


def check_on_meshes(target: str, kind: str, cases: Any, shards: Any) -> int:
    """Checks all cases with all placements against the shards that torch makes from the whole."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import (  # noqa: PLC0415
        DTensor,
        Replicate,
        Shard,
        distribute_tensor,
    )

    meshes = {1: init_device_mesh("cpu", (4,)), 2: init_device_mesh("cpu", (2, 2))}
    checked = 0
    with CONNECTS[kind](target, timeout=60) as client:
        for encoding, options in cases:
            wholes = [attnbias.to_torch(each) for each in dense_of(client.get(encoding, **options))]
            for dims in shards:
                if any(dim is not None and dim >= wholes[0].ndim for dim in dims):
                    continue
                placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
                mesh = meshes[len(dims)]
                answer = client.get(encoding, device_mesh=mesh, placements=placements, **options)
                got = list(answer) if isinstance(answer, tuple) else [answer]
                for tensor, whole in zip(got, wholes, strict=True):
                    wanted = distribute_tensor(whole, mesh, placements)
                    assert isinstance(tensor, DTensor)
                    assert tensor.dtype == whole.dtype
                    assert tensor.placements == wanted.placements
                    assert tensor.shape == wanted.shape
                    assert tensor.stride() == wanted.stride()
                    assert tensor.to_local().shape == wanted.to_local().shape
                    assert bits(tensor.to_local()) == bits(wanted.to_local())
                    assert bits(tensor.full_tensor()) == bits(whole)
                    checked += 1
    return checked


# For each axis of the mesh, the dim sharded along it; None means replicated.
DIMS = [(0,), (-1,), (0, 1), (None, 1), (1, 2), (1, 1)]


@pytest.mark.parametrize("kind", CONNECTS)
def test_dtensors_equal_distributed_whole(
    group: Callable[..., list[Any]], real_target: str, kind: str
) -> None:
    # The second client shares everything except the calls, so a few cases suffice for it.
    cases = [*PAIRS, *TABLES] if kind == "sync" else [PAIRS[0], TABLES[-1]]
    checked = group(check_on_meshes, real_target, kind, cases, DIMS)
    assert min(checked) == max(checked) > 5 * len(cases)


def fetch_bytes(target: str, dims: Any, options: Any) -> tuple[list[int], int]:
    """Returns the sizes of the payloads that this rank fetches, and the bytes it then holds."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (2, 2) if len(dims) == 2 else (4,))
    placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
    with attnbias.Client(target, timeout=60) as client, payloads() as fetched:
        tensor = client.get(
            attnbias.ALiBi(num_heads=6), device_mesh=mesh, placements=placements, **options
        )
    return fetched, tensor.to_local().nbytes


def test_each_process_fetches_only_its_shard(
    group: Callable[..., list[Any]], real_target: str
) -> None:
    square = {"query_length": 64, "key_length": 64}
    whole = 6 * 64 * 64 * 4
    for dims in [(0, 1), (0,), (1, 2), (1, 1)]:
        got = group(fetch_bytes, real_target, dims, {**square, "form": "dense"})
        assert [fetched for fetched, _ in got] == [[held] if held else [] for _, held in got]
        assert sum(held for _, held in got) == whole
        assert max(held for _, held in got) == whole // (3 if dims == (0,) else 4)
    compact = group(fetch_bytes, real_target, (0, 1), square)
    assert [fetched for fetched, _ in compact] == [[3 * (32 + 64 - 1) * 4]] * 4
    assert [held for _, held in compact] == [whole // 4] * 4


def gather_shards(target: str) -> int:
    """Compares each rank's shards in every layout, gathered by torch, with the whole."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    rank, ranks = dist.get_rank(), dist.get_world_size()
    tupe = attnbias.Tupe(
        num_heads=8,
        num_buckets=16,
        relative_table=TABLE.reshape(-1, 8)[:17],
        reset_class_token=True,
    )
    alibi = attnbias.ALiBi(num_heads=8, variant="key_from_end")
    t5 = attnbias.T5(
        bidirectional=True, num_heads=8, num_buckets=16, table=TABLE.reshape(-1, 8)[:16]
    )
    checked = 0

    def gathered(mine: Any) -> list[Any]:
        parts = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(parts, mine.contiguous())
        return parts

    with attnbias.Client(target, timeout=60) as client:
        for encoding, options in (
            (t5, {"causal": True}),
            (alibi, {}),
            (tupe, {"data_type": "bf16"}),
        ):
            bias: Any = client.get(encoding, query_length=32, key_length=32, **options)
            whole = attnbias.to_torch(bias.dense())
            heads = bias.shard(rank, ranks, heads=True)
            assert bits(torch.cat(gathered(heads.to_torch()))) == bits(whole)
            for layout in LAYOUTS:
                tokens = [rows_of(bias, each, ranks, layout) for each in range(ranks)]
                mine = bias.shard(rank, ranks, queries=layout)
                rows = torch.empty_like(whole)
                for source, part in enumerate(gathered(mine.to_torch())):
                    rows[:, tokens[source]] = part
                assert bits(rows) == bits(whole)
                # Ring steps, in which a rank sees the keys of all ranks in turn.
                steps = torch.empty_like(whole[:, tokens[rank]])
                for source in range(ranks):
                    step = mine.shard(source, ranks, keys=layout)
                    steps[:, :, tokens[source]] = step.to_torch()
                assert bits(steps) == bits(whole[:, tokens[rank]])
                checked += 1
    return checked


def test_gathered_shards_equal_the_whole(group: Callable[..., list[Any]], real_target: str) -> None:
    assert group(gather_shards, real_target) == [3 * len(LAYOUTS)] * RANKS


def use_half_a_group(target: str) -> tuple[tuple[int, ...], int, list[int]]:
    """Fetches a tensor on a mesh of two of the four ranks."""
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415
    from torch.distributed.tensor import Shard  # noqa: PLC0415

    mesh = DeviceMesh("cpu", [0, 2])
    with attnbias.Client(target, timeout=60) as client, payloads() as fetched:
        tensor = client.get(
            attnbias.ALiBi(num_heads=6),
            query_length=4,
            key_length=4,
            form="dense",
            device_mesh=mesh,
            placements=[Shard(0)],
        )
    dist.barrier()
    return tuple(tensor.shape), tensor.to_local().numel(), fetched


def test_process_outside_mesh_fetches_nothing(
    group: Callable[..., list[Any]], real_target: str
) -> None:
    inside: Any = ((6, 4, 4), 48, [192])
    outside: Any = ((6, 4, 4), 0, [])
    assert group(use_half_a_group, real_target) == [inside, outside, inside, outside]


HUGE_MESH = (64, 128)
HUGE: dict[str, Any] = {"query_length": 65536, "key_length": 65536}


def own_memory(name: str) -> int:
    """Returns one of the kernel's memory figures for this process, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def fetch_shard_of_huge_tensor(target: str, rank: int) -> list[tuple[int, list[int], int]]:
    """Runs as one of many ranks, in a group that torch simulates.

    Returns:
        For the dense and for the compact form: bytes that this rank holds, bytes that it fetched,
        and the maximum growth of its memory.
    """
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import Shard  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    ranks = math.prod(HUGE_MESH)
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", HUGE_MESH)
    alibi = attnbias.ALiBi(num_heads=HUGE_MESH[0])
    head, chunk = divmod(rank, HUGE_MESH[1])
    rows = HUGE["query_length"] // HUGE_MESH[1]
    found = []
    # The 16 MiB in flight on the connection count too.
    with attnbias.Client(target, timeout=60) as client:
        whole = client.get(alibi, **HUGE)
        want = whole.window(heads=(head, head + 1), queries=(chunk * rows, (chunk + 1) * rows))
        options: Any = {"device_mesh": mesh, "placements": [Shard(0), Shard(1)]}
        client.get(
            alibi, query_length=256, key_length=256, form="dense", **options
        )  # makes one-time allocations
        for form in ("dense", None):
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the current usage
            before = own_memory("VmRSS")
            with payloads() as fetched:
                tensor = client.get(alibi, **HUGE, form=form, **options)
            grown = own_memory("VmHWM") - before
            assert tensor.shape == (HUGE_MESH[0], HUGE["query_length"], HUGE["key_length"])
            local = tensor.to_local().numpy()
            same(local, want.view())
            found.append((local.nbytes, fetched, grown))
            del local, tensor
    return found


def test_tensor_larger_than_memory_can_be_sharded(real_target: str) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = pool.submit(fetch_shard_of_huge_tensor, real_target, 4999).result(120)
    whole = HUGE_MESH[0] * HUGE["query_length"] * HUGE["key_length"] * 4
    share = whole // math.prod(HUGE_MESH)
    diagonals = 4 * (HUGE["query_length"] // HUGE_MESH[1] + HUGE["key_length"] - 1)
    assert (whole, share) == (1 << 40, 128 << 20)
    assert [(held, fetched) for held, fetched, _ in found] == [
        (share, [share]),
        (share, [diagonals]),
    ]
    for _, _, grown in found:  # a second copy would amount to two shares
        assert 0.5 * share < grown < 1.9 * share


def see_errors(target: str) -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.tensor import Partial, Replicate, Shard  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (2, 2))
    two = [Shard(0), Replicate()]
    seen = []
    with attnbias.Client(target, timeout=60) as client, payloads() as fetched:
        for arguments in (
            {"device_mesh": mesh, "placements": [Shard(0), Partial()]},
            {"device_mesh": mesh, "placements": [Replicate(), Shard(3)]},
            {"device_mesh": mesh, "placements": [Shard(0)]},
            {"device_mesh": mesh},
            {"device_mesh": mesh, "placements": Shard(0)},
            {"placements": two},
            {"device_mesh": "cpu", "placements": two},
            {"device_mesh": mesh, "placements": two, "out": bytearray(4)},
            {"device_mesh": mesh, "placements": two, "sharding": 0},
        ):
            try:
                client.get(T5, query_length=4, key_length=4, **arguments)
            except (TypeError, ValueError) as error:
                seen.append(f"{type(error).__name__}: {error}")
    assert fetched == []
    return seen


def test_invalid_placements_are_rejected(group: Callable[..., list[Any]], real_target: str) -> None:
    for seen in group(see_errors, real_target):
        wanted = [
            "ValueError: placements[1]: got Partial(sum), want Shard(dim) or Replicate(): "
            "the server returns complete values, never partial sums",
            "ValueError: placements[1]: got Shard(dim=3) for a tensor of shape (6, 4, 4), want a "
            "dim in [-3, 3)",
            "ValueError: placements: got [Shard(dim=0)], want one for each of the mesh's 2 axes: "
            "Shard(dim) or Replicate()",
            "ValueError: placements: got None, want one for each of the mesh's 2 axes: "
            "Shard(dim) or Replicate()",
            "ValueError: placements: got Shard(dim=0), want one for each of the mesh's 2 axes: "
            "Shard(dim) or Replicate()",
            "ValueError: placements: got a value without device_mesh, want both",
            "TypeError: device_mesh: got str, want a torch DeviceMesh",
            "ValueError: out: given together with device_mesh, want one of the two",
            "ValueError: sharding: given together with device_mesh, want one of the two",
        ]
        assert seen == wanted


# ---- JAX, in a process with eight devices


def have_devices() -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"


@pytest.fixture(scope="module")
def devices() -> Iterator[Callable[..., Any]]:
    """Calls a function in a process where JAX has eight devices."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    with ProcessPoolExecutor(1, get_context("spawn"), initializer=have_devices) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result(120)


def check_on_devices(target: str, kind: str, cases: Any, specs: Any) -> int:
    """Checks all cases with all specs: each device's shard as JAX reports it, and the whole."""
    import jax  # noqa: PLC0415
    from jax.sharding import NamedSharding, PartitionSpec  # noqa: PLC0415

    mesh = jax.make_mesh((4, 2), ("tp", "cp"))
    checked = 0
    with CONNECTS[kind](target, timeout=60) as client:
        for encoding, options in cases:
            wholes = dense_of(client.get(encoding, **options))
            for spec in specs:
                sharding = NamedSharding(mesh, PartitionSpec(*spec))
                sizes = {None: 1, "tp": 4, "cp": 2}
                divisors = [np.prod([sizes[a] for a in np.atleast_1d(axes)]) for axes in spec]
                fits = len(spec) <= wholes[0].ndim and not any(
                    n % by for n, by in zip(wholes[0].shape, divisors, strict=False)
                )
                if not fits:
                    with pytest.raises(ValueError, match="sharding: "):
                        client.get(encoding, sharding=sharding, **options)
                    continue
                answer = client.get(encoding, sharding=sharding, **options)
                got = list(answer) if isinstance(answer, tuple) else [answer]
                for array, whole in zip(got, wholes, strict=True):
                    assert array.sharding == sharding
                    assert len(array.addressable_shards) == 8
                    for shard in array.addressable_shards:
                        same(np.asarray(shard.data), whole[shard.index])
                    same(np.asarray(array), whole)
                    checked += 1
    return checked


SPECS = [("tp", "cp"), (None, "cp", "tp"), (("cp", "tp"),)]


@pytest.mark.parametrize("kind", CONNECTS)
def test_jax_arrays_equal_the_whole(
    devices: Callable[..., Any], real_target: str, kind: str
) -> None:
    # Each form that a server sends; torch meshes cover the slicing.
    cases = [PAIRS[0], PAIRS[5], PAIRS[8], PAIRS[9]] if kind == "sync" else []
    cases.append(TABLES[-1])
    assert devices(check_on_devices, real_target, kind, cases, SPECS) > 2 * len(cases)


def fetch_for_devices(target: str, spec: Any) -> list[int]:
    import jax  # noqa: PLC0415
    from jax.sharding import NamedSharding, PartitionSpec  # noqa: PLC0415

    sharding = NamedSharding(jax.make_mesh((4, 2), ("tp", "cp")), PartitionSpec(*spec))
    with attnbias.Client(target, timeout=60) as client, payloads() as fetched:
        client.get(
            attnbias.ALiBi(num_heads=8),
            query_length=16,
            key_length=16,
            form="dense",
            sharding=sharding,
        )
    return fetched


def test_shared_device_shards_are_fetched_once(
    devices: Callable[..., Any], real_target: str
) -> None:
    whole = 8 * 16 * 16 * 4
    assert devices(fetch_for_devices, real_target, ()) == [whole]
    assert devices(fetch_for_devices, real_target, ("tp",)) == [whole // 4] * 4
    assert devices(fetch_for_devices, real_target, ("tp", "cp")) == [whole // 8] * 8


def shard_on_devices() -> None:
    bias = make("bordered", 3, 16, np.float32)
    dense = bias.dense()
    for layout in LAYOUTS:
        for source in range(4):
            step = bias.shard(1, 4, queries=layout).shard(source, 4, keys=layout)
            block = np.ix_(range(3), *(rows_of(bias, r, 4, layout) for r in (1, source)))
            same(np.asarray(step.to_jax()), dense[block])


def join_on_devices(target: str) -> int:
    """Each device holds the shard for its rank in a grid of query and key ranks; JAX joins them."""
    import jax  # noqa: PLC0415
    from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: PLC0415

    grid = (4, 2)
    mesh = Mesh(np.reshape(jax.devices(), grid), ("queries", "keys"))
    sharding = NamedSharding(mesh, PartitionSpec(None, "queries", "keys"))
    checked = 0
    with attnbias.Client(target, timeout=60) as client:
        for encoding in (T5, attnbias.ALiBi(num_heads=6, variant="key_from_end")):
            bias: Any = client.get(encoding, query_length=16, key_length=16)
            dense = bias.dense()
            for layout in LAYOUTS:
                shards = []
                for ranks, device in np.ndenumerate(mesh.devices):
                    part = bias.shard(ranks[0], grid[0], queries=layout)
                    part = part.shard(ranks[1], grid[1], keys=layout)
                    shards.append(part.to_jax(device))
                joined = jax.make_array_from_single_device_arrays(bias.shape, sharding, shards)
                rows, columns = (
                    [token for rank in range(n) for token in rows_of(bias, rank, n, layout)]
                    for n in grid
                )
                assert len(joined.addressable_shards) == len(jax.devices())
                same(np.asarray(joined), dense[:, rows][:, :, columns])
                whole = joined[:, np.argsort(rows)][:, :, np.argsort(columns)]
                same(np.asarray(whole), dense)
                checked += 1
    return checked


def test_shards_joined_on_devices_equal_the_whole(
    devices: Callable[..., Any], real_target: str
) -> None:
    assert devices(join_on_devices, real_target) == 2 * len(LAYOUTS)


def test_jax_shards_equal_dense(devices: Callable[..., Any]) -> None:
    devices(shard_on_devices)


def see_a_wrong_sharding(target: str) -> str:
    import jax  # noqa: F401, PLC0415

    with attnbias.Client(target, timeout=60) as client:
        try:
            client.get(T5, query_length=4, key_length=4, sharding="tp")
        except TypeError as error:
            return str(error)
    return ""


def test_invalid_sharding_is_rejected(devices: Callable[..., Any], real_target: str) -> None:
    wanted = "sharding: got str, want a jax.sharding.Sharding, such as NamedSharding"
    assert devices(see_a_wrong_sharding, real_target) == wanted


def test_invalid_sharding_is_rejected_without_jax(client: attnbias.Client) -> None:
    sharding: Any = "tp"
    with pytest.raises(TypeError, match="sharding: got str, want a jax"):
        client.get(T5, query_length=4, key_length=4, sharding=sharding)
