# SPDX-License-Identifier: Apache-2.0
"""Payloads in the caller's memory, and errors that name the mismatch."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from fake_server import FakeServer, Payload, sequence, table

import attnbias
from attnbias.v1 import encodings_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

VALUES = sequence(24).reshape(4, 6)


def get(server: FakeServer, client: attnbias.Client, out: Any) -> Any:
    server.script = [table(VALUES).serve]
    return client.get(attnbias.Sinusoidal(dim=6), positions=4, out=out)


def test_array_is_filled_and_returned(server: FakeServer, client: attnbias.Client) -> None:
    out = np.zeros((4, 6), np.float32)
    assert get(server, client, out) is out
    np.testing.assert_array_equal(out, VALUES)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros(24, np.float32),
        lambda: np.zeros(96, np.uint8),
        lambda: np.zeros((8, 12), np.uint8),
        lambda: np.zeros((2, 4, 6), np.float32)[1],
        lambda: bytearray(96),
        lambda: memoryview(bytearray(96)),
        lambda: mmap.mmap(-1, 96),
    ],
    ids=["flat", "raw", "raw rows", "slice", "bytearray", "memoryview", "mmap"],
)
def test_buffer_is_filled_and_returned(
    server: FakeServer, client: attnbias.Client, make: Callable[[], Any]
) -> None:
    out = make()
    assert get(server, client, out) is out
    filled = np.frombuffer(out, np.float32).reshape(4, 6)
    np.testing.assert_array_equal(filled, VALUES, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torch_tensor_is_filled(server: FakeServer, client: attnbias.Client, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    out = torch.zeros(4, 6, dtype=getattr(torch, dtype))
    values = VALUES if dtype == "float32" else VALUES.astype(ml_dtypes.bfloat16)
    server.script = [table(values).serve]
    assert client.get(attnbias.Sinusoidal(dim=6), positions=4, data_type=dtype, out=out) is out
    np.testing.assert_array_equal(out.float().numpy(), VALUES)


def read_only() -> Any:
    array = np.zeros((4, 6), np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: np.zeros((4, 6), np.float16), "dtype float16, want float32"),
        (lambda: np.zeros((4, 5), np.float32), r"80 bytes of shape \(4, 5\), want 96 bytes"),
        (lambda: np.zeros((6, 4), np.float32), r"shape \(6, 4\), want \(4, 6\), or one axis"),
        (lambda: np.zeros((4, 6, 1), np.float32), r"shape \(4, 6, 1\), want \(4, 6\)"),
        (lambda: np.zeros((6, 4), np.float32).T, "want C-contiguous"),
        (read_only, "got read-only memory"),
        (lambda: bytes(96), "got read-only memory"),
        (lambda: bytearray(95), "95 bytes"),
    ],
    ids=["dtype", "size", "shape", "axes", "order", "read-only", "bytes", "raw size"],
)
def test_unsuitable_buffer_is_rejected(
    server: FakeServer, client: attnbias.Client, make: Callable[[], Any], says: str
) -> None:
    with pytest.raises(ValueError, match=f"out: .*{says}"):
        get(server, client, make())


def test_non_buffer_is_a_type_error(server: FakeServer, client: attnbias.Client) -> None:
    with pytest.raises(TypeError, match="out: got list"):
        get(server, client, [0] * 24)


def test_toeplitz_is_written_to_out(server: FakeServer, client: attnbias.Client) -> None:
    diagonals = sequence(2 * 9).reshape(2, 9)
    payload = Payload(
        ("diagonals", tensor_pb2.FORM_TOEPLITZ, diagonals), first_relative_position=-5
    )
    server.script = [payload.serve]
    out = np.zeros((2, 9), np.float32)
    assert (
        client.get(
            attnbias.ALiBi(num_heads=2), query_length=4, key_length=6, alignment="end", out=out
        )
        is out
    )
    np.testing.assert_array_equal(out, diagonals)


def test_tables_of_one_shape_are_stacked(server: FakeServer, client: attnbias.Client) -> None:
    cos, sin = sequence(24).reshape(2, 3, 4)
    payload = Payload(("cos", tensor_pb2.FORM_TABLE, cos), ("sin", tensor_pb2.FORM_TABLE, sin))
    server.script = [payload.serve] * 2
    out = np.zeros((2, 3, 4), np.float32)
    assert client.get(attnbias.Rotary(head_dim=4), positions=3, out=out) is out
    np.testing.assert_array_equal(out, [cos, sin])
    with pytest.raises(ValueError, match=r"shape \(3, 8\), want \(3, 4\) and \(3, 4\), or one"):
        client.get(attnbias.Rotary(head_dim=4), positions=3, out=out.reshape(3, 8))


def test_tables_of_mixed_shapes_are_concatenated(
    server: FakeServer, client: attnbias.Client
) -> None:
    payload = Payload(
        ("block", tensor_pb2.FORM_BLOCK_TOEPLITZ, sequence(9).reshape(1, 3, 3)),
        ("border", tensor_pb2.FORM_TABLE, sequence(3).reshape(1, 3)),
        resolved_spec=encodings_pb2.TensorSpec(grid={"heads": {"end": 1}}),
    )
    beit = attnbias.Beit((2, 2), num_heads=1, table="w")
    server.script = [payload.serve] * 2
    out = np.zeros(12, np.float32)
    assert client.get(beit, out=out) is out
    np.testing.assert_array_equal(out, [*range(9), *range(3)])
    with pytest.raises(ValueError, match=r"want \(1, 3, 3\) and \(1, 3\), or one axis"):
        client.get(beit, out=np.zeros((3, 4), np.float32))
