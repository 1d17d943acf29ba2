# SPDX-License-Identifier: Apache-2.0
"""The cache on disk: hits, misses, limits, and its handling of faults."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib
import logging
import math
import os
import pickle
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from fake_server import FINGERPRINT, FakeServer, Payload, sequence, table

import attnbias
from attnbias import aio
from attnbias.__main__ import main
from attnbias._spec.request import key_of
from attnbias.v1 import encodings_pb2, service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt
    from either_client import Connect

ENCODING = attnbias.Sinusoidal(dim=5)
POSITIONS: dict[str, Any] = {"positions": 1000}
VALUES = sequence().reshape(1000, 5)
OTHER = "fedcba9876543210" * 4


def serve(server: FakeServer, *payloads: Payload) -> None:
    """Serves the n-th payload for the n-th tensor requested, and repeats the last payload."""
    server.script = [payload.serve for payload in payloads]
    server.describe = [
        lambda _request, _context, payload=payload: service_pb2.DescribeTensorResponse(
            header=payload.header
        )
        for payload in payloads
    ]


def get(client: attnbias.Client, **options: Any) -> npt.NDArray[Any]:
    array = client.get(ENCODING, **POSITIONS, **options)
    assert isinstance(array, np.ndarray)
    return array


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cached(server: FakeServer, connect: Connect, folder: Path) -> Iterator[attnbias.Client]:
    """A client with a cache, connected to a server that has VALUES."""
    serve(server, table(VALUES))
    with connect(server.target, timeout=60, cache=folder) as client:
        yield client


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def tensor(folder: Path, fingerprint: str = FINGERPRINT) -> Path:
    return folder / "tensors" / f"{fingerprint}.safetensors"


def request(folder: Path) -> Path:
    (path,) = (folder / "requests").iterdir()
    return path


# Answers


def test_cache_hit_needs_no_server(
    server: FakeServer, cached: attnbias.Client, folder: Path, connect: Connect
) -> None:
    first = get(cached)
    server.__exit__()
    for client in (cached, connect("127.0.0.1:1", cache=folder)):
        again = get(client, timeout=5)
        np.testing.assert_array_equal(again, VALUES, strict=True)
        assert not again.flags.writeable
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            again.flags.writeable = True
    np.testing.assert_array_equal(first, VALUES, strict=True)
    assert not first.flags.writeable
    assert len(server.requests) == 1


def test_returned_array_maps_the_cached_file(cached: attnbias.Client, folder: Path) -> None:
    array = get(cached)
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(bound, 16) for bound in line.split()[0].split("-"))
        if begin <= address < end:
            assert line.endswith(str(tensor(folder)))
            assert line.split()[1] == "r--s"
            return
    pytest.fail("nothing is mapped there")


T5 = attnbias.T5(
    num_heads=2,
    num_buckets=8,
    max_distance=16,
    bidirectional=True,
    table=np.arange(16, dtype=np.float32).reshape(8, 2) / 3,
)
SHAW = attnbias.Shaw(left=3, right=3, table=np.arange(28, dtype=np.float32).reshape(7, 4) / 3)
SWIN = attnbias.Swin((2, 3), table=np.arange(30, dtype=np.float32).reshape(15, 2) / 3)
BEIT = attnbias.Beit((2, 3), table=np.arange(36, dtype=np.float32).reshape(18, 2) / 3)
ALIBI = attnbias.ALiBi(num_heads=4)
ANSWERS: dict[str, tuple[attnbias.Encoding[Any], dict[str, Any]]] = {
    "table": (attnbias.Sinusoidal(dim=8), {"positions": (5, 40)}),
    "bf16": (attnbias.Sinusoidal(dim=8), {"positions": 40, "data_type": "bf16"}),
    "listed": (attnbias.Sinusoidal(dim=8), {"position_ids": [7, 3, -2], "data_type": "f64"}),
    "rotary": (attnbias.Rotary(head_dim=8), {"positions": 40, "data_type": "f16"}),
    "xpos": (attnbias.Xpos(8, center=20), {"positions": 40}),
    "toeplitz": (
        ALIBI,
        {
            "query_length": 6,
            "key_length": 9,
            "alignment": "end",
            "causal": True,
            "fill_lowest": True,
        },
    ),
    "window": (
        ALIBI,
        {
            "query_length": 6,
            "queries": (2, 6),
            "key_length": 6,
            "keys": (1, 6),
            "heads": (1, 3),
            "alignment": "start",
        },
    ),
    "dense": (
        T5,
        {"query_length": 6, "key_length": 6, "form": "dense", "window_left": 2, "scale": 0.3},
    ),
    "pairs": (T5, {"query_positions": [9, 1], "key_positions": [0, 4, 2]}),
    "buckets": (T5, {"query_length": 6, "key_length": 6, "values": "buckets"}),
    "vectors": (SHAW, {"query_length": 6, "key_length": 6}),
    "key_row": (
        attnbias.ALiBi(num_heads=4, variant="key_from_end"),
        {"query_length": 6, "key_length": 6},
    ),
    "grid": (SWIN, {}),
    "border": (BEIT, {}),
}


def facts(answer: Any) -> Any:
    """Returns everything observable about a result."""
    if isinstance(answer, tuple):
        return type(answer), [facts(array) for array in answer]
    if isinstance(answer, np.ndarray):
        return answer.dtype, answer.shape, answer.tobytes()
    told = {
        name: getattr(answer, name)
        for name in ("first_relative_position", "vectors", "queries", "keys")
        if hasattr(answer, name)
    }
    parts = {name: facts(array) for name, array in answer.parts().items()}
    names = answer.shape, answer.fingerprint, answer.resolved_spec
    return type(answer), parts, told, names, answer.dense().tobytes()


@pytest.mark.parametrize("name", ANSWERS)
def test_cached_answer_equals_server_answer(
    real_target: str, connect: Connect, folder: Path, name: str
) -> None:
    encoding, options = ANSWERS[name]
    with attnbias.Client(real_target, timeout=60, cache="") as client:
        want = client.get(encoding, **options)
        info = client.describe(encoding, **options)
    with connect(real_target, timeout=60, cache=folder) as client:
        assert facts(client.get(encoding, **options)) == facts(want)
    with connect("127.0.0.1:1", cache=folder, offline=True) as client:
        assert facts(client.get(encoding, **options)) == facts(want)
        assert facts(client.get_many([attnbias.Request(encoding, **options)])[0]) == facts(want)
        assert client.describe(encoding, **options) == info
        saved = folder / "saved.safetensors"
        assert client.save(saved, encoding, **options) == info
    (entry,) = attnbias.Cache(folder).entries()
    assert entry.info == info
    for path in (entry.path, saved):
        assert facts(attnbias.load(path)) == facts(want)


def test_out_is_filled_from_cache(cached: attnbias.Client, server: FakeServer) -> None:
    for _ in range(2):
        out = np.zeros_like(VALUES)
        assert get(cached, out=out) is out
        np.testing.assert_array_equal(out, VALUES)
        out[:] = 0  # it is not the mapped file
    assert len(server.requests) == 1
    with pytest.raises(ValueError, match="out: got 8 bytes"):
        get(cached, out=bytearray(8))


def test_max_tensor_bytes_applies_to_cached_payloads(
    cached: attnbias.Client, connect: Connect, folder: Path
) -> None:
    get(cached)
    with (
        connect("127.0.0.1:1", cache=folder, max_tensor_bytes=100) as client,
        pytest.raises(attnbias.ResourceExhaustedError, match="this client accepts at most 100"),
    ):
        get(client)


def test_concurrent_requests_are_fetched_once(server: FakeServer, cached: attnbias.Client) -> None:
    wanted = attnbias.Request(ENCODING, **POSITIONS)
    for array in cached.get_many([wanted] * 8):
        np.testing.assert_array_equal(array, VALUES)
    assert len(server.requests) == 1


def test_async_tasks_fetch_once_in_each_event_loop(server: FakeServer, folder: Path) -> None:
    client = aio.Client(server.target, timeout=60, cache=folder)

    async def get_many() -> None:
        wanted = attnbias.Request(ENCODING, **POSITIONS)
        for array in await client.get_many([wanted] * 3):
            np.testing.assert_array_equal(array, VALUES)

    for _ in range(2):
        serve(server, table(VALUES))
        asyncio.run(get_many())
        attnbias.Cache(folder).clear()
    assert len(server.requests) == 2


def test_equivalent_request_describes_but_does_not_fetch(
    server: FakeServer, cached: attnbias.Client
) -> None:
    get(cached)
    np.testing.assert_array_equal(get(cached, data_type="f32"), VALUES)
    assert (server.describe_calls, len(server.requests)) == (2, 1)
    get(cached, data_type="f32")
    assert server.describe_calls == 2


# Table names, which a server may reassign


def learned(table_: Any) -> attnbias.LearnedAbsolute:
    return attnbias.LearnedAbsolute(table=table_)


def test_named_table_is_described_on_every_call(
    server: FakeServer, cached: attnbias.Client, folder: Path, connect: Connect
) -> None:
    serve(server, table(VALUES), table(VALUES))
    for calls in (1, 2):
        np.testing.assert_array_equal(cached.get(learned("wpe"), positions=1000), VALUES)
        assert (server.describe_calls, len(server.requests)) == (calls, 1)
    serve(server, table(-VALUES, fingerprint=OTHER))
    np.testing.assert_array_equal(cached.get(learned("wpe"), positions=1000), -VALUES)
    with connect("127.0.0.1:1", cache=folder, offline=True) as client:  # the last known value
        np.testing.assert_array_equal(client.get(learned("wpe"), positions=1000), -VALUES)


def test_digest_table_is_described_once(server: FakeServer, cached: attnbias.Client) -> None:
    for _ in range(2):
        cached.get(learned("sha256:" + "a" * 64), positions=1000)
    assert (server.describe_calls, len(server.requests)) == (1, 1)


# Without a network


@pytest.mark.parametrize("method", ["get", "describe", "save"])
def test_offline_error_names_missing_request(connect: Connect, folder: Path, method: str) -> None:
    first = [folder / "x.npy"] if method == "save" else []
    with (
        connect("127.0.0.1:1", cache=folder, offline=True) as client,
        pytest.raises(attnbias.NotFoundError) as caught,
    ):
        getattr(client, method)(*first, ENCODING, **POSITIONS, data_type="f16")
    assert caught.value.message == (
        f"offline=True, and {folder} does not have Sinusoidal(dim=5), positions=1000, "
        "data_type='f16': get it once with an online client that uses this cache"
    )
    assert not folder.exists()


@pytest.mark.parametrize("method", ["info", "health", "list_tables"])
def test_offline_client_makes_no_calls(
    server: FakeServer, connect: Connect, folder: Path, method: str
) -> None:
    with (
        connect(server.target, cache=folder, offline=True) as client,
        pytest.raises(attnbias.UnavailableError, match="the client is offline"),
    ):
        getattr(client, method)()


# Pieces of a tensor


class Halves:
    """A sharding in which a process holds the two halves of a table separately."""

    def boxes(self, shape: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
        middle = shape[0] // 2
        return [((begin, begin + middle), (0, shape[1])) for begin in (0, middle)]

    def assemble(self, shape: tuple[int, ...], dtype: Any, boxes: dict[Any, Any]) -> Any:
        assert (shape, dtype) == (VALUES.shape, VALUES.dtype)
        return np.concatenate([boxes[box] for box in self.boxes(shape)])


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_client", "_async_get"):
        monkeypatch.setattr(f"attnbias.{module}.to_sharding", lambda *_: Halves())


def serve_halves(server: FakeServer) -> None:
    """Serves the description of the whole tensor first, in the order of a client's calls."""
    first, second = (
        table(half, fingerprint=f"{number:064x}")
        for number, half in enumerate(np.split(VALUES, 2), start=1)
    )
    serve(server, table(VALUES), first, second)
    server.script = server.script[1:]


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("offline", [False, True])
def test_cached_pieces_need_no_server(
    server: FakeServer, cached: attnbias.Client, folder: Path, connect: Connect, offline: bool
) -> None:
    serve_halves(server)
    np.testing.assert_array_equal(get(cached), VALUES)
    assert len(attnbias.Cache(folder).entries()) == 2
    with connect("127.0.0.1:1", cache=folder, offline=offline) as client:
        np.testing.assert_array_equal(get(client, timeout=5), VALUES)
        tensor(folder, f"{2:064x}").unlink()
        if offline:
            with pytest.raises(attnbias.NotFoundError, match=r"\[500, 1000\) of its positions"):
                get(client)


@pytest.mark.usefixtures("halves")
def test_pieces_share_one_timeout(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    serve_halves(server)
    key = key_of(attnbias.Request(ENCODING, positions=(500, 1000)).to_spec())
    draft = attnbias.Cache(folder).try_lock(key)
    assert draft is not None
    with draft, pytest.raises(attnbias.DeadlineExceededError, match=r"timed out after 0\.5 s"):
        get(cached, timeout=0.5)


@pytest.mark.usefixtures("halves")
def test_pieces_accept_infinite_timeout(server: FakeServer, connect: Connect) -> None:
    serve_halves(server)
    serve_half = server.script[0]

    def late(request: Any, context: Any) -> Any:
        time.sleep(0.5)
        return serve_half(request, context)

    server.script[0] = late
    with connect(server.target, timeout=0.3) as client:
        np.testing.assert_array_equal(get(client, timeout=math.inf), VALUES)


def test_descriptions_are_cached(
    cached: attnbias.Client, folder: Path, connect: Connect, server: FakeServer
) -> None:
    info = cached.describe(ENCODING, **POSITIONS)
    with connect("127.0.0.1:1", cache=folder, offline=True) as client:
        assert client.describe(ENCODING, **POSITIONS) == info
    (path,) = (folder / "descriptions").iterdir()
    os.truncate(path, 7)
    assert cached.describe(ENCODING, **POSITIONS) == info
    assert server.describe_calls == 2
    attnbias.Cache(folder).clear()
    assert not path.exists()


# Options


def test_environment_variable_selects_the_folder(
    server: FakeServer, connect: Connect, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, table(VALUES))
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", str(folder))
    with connect(server.target, cache="") as client:
        assert get(client).flags.writeable
        assert not folder.exists()
    with connect(server.target) as client:
        get(client)
        assert tensor(folder).exists()
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", "")
    with connect(server.target) as client:
        assert get(client).flags.writeable


def test_folder_expands_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    assert attnbias.Cache("~/cache").folder == Path("/nowhere/cache")


def test_pickled_client_keeps_its_cache(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, table(VALUES))
    with attnbias.Client(server.target, cache=folder, cache_bytes=1 << 20) as client:
        get(client)
    monkeypatch.chdir("/")
    with attnbias.Client("127.0.0.1:1", cache=folder, offline=True) as client:
        np.testing.assert_array_equal(get(pickle.loads(pickle.dumps(client))), VALUES)
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", str(folder))
    with attnbias.Client("127.0.0.1:1", cache="") as client:
        again = pickle.loads(pickle.dumps(client))
        with pytest.raises(attnbias.UnavailableError):
            get(again, timeout=0.1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"cache": 3}, TypeError, "cache: got an object of type int; want a folder"),
        ({"cache": __file__}, ValueError, f"cache: got '{__file__}', which is a file"),
        (
            {"cache": "~who-is-this/a"},
            ValueError,
            "cache: got '~who-is-this/a', where ~ names no user",
        ),
        ({"cache": "x", "cache_bytes": 0}, ValueError, "cache_bytes: got 0, want at least 1"),
        ({"cache": "x", "cache_bytes": 1.5}, TypeError, "cache_bytes: got an object of type float"),
        ({"cache": "x", "cache_bytes": True}, TypeError, "cache_bytes: got True; want a number"),
        ({"cache_bytes": 5}, ValueError, "cache_bytes: got 5 without a cache; want cache=FOLDER"),
        ({"offline": True}, ValueError, "offline: got True without a cache"),
    ],
)
def test_invalid_options_are_rejected(
    connect: Connect, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        connect("localhost", **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("max_bytes", "error"), [("x", TypeError), (True, TypeError), (0, ValueError)]
)
def test_invalid_max_bytes_is_rejected(
    folder: Path, max_bytes: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="max_bytes: got"):
        attnbias.Cache(folder, max_bytes=max_bytes)


def test_environment_variable_naming_a_file_is_rejected(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", __file__)
    with pytest.raises(ValueError, match=r"^ATTNBIAS_CACHE_DIR: got '.*, which is a file"):
        connect("localhost")


def test_local_server_rejects_offline() -> None:
    with pytest.raises(ValueError, match="offline: got True, want False"):
        attnbias.LocalServer(cache="x", offline=True)


# Damage


def flip(path: Path, at: int) -> None:
    """Changes a byte in place, and also the modification time, whatever the clock's resolution."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))


def header_at(path: Path) -> int:
    return path.read_bytes().index(b'"attnbias.header":"') + 30


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "payload": lambda path: flip(path, -1),
    "header": lambda path: flip(path, header_at(path)),
    "length": lambda path: flip(path, 0),
    "json": lambda path: flip(path, 8),
    "truncated": lambda path: os.truncate(path, 3000),
    "short": lambda path: os.truncate(path, 7),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "garbage": lambda path: path.write_bytes(np.random.default_rng(0).bytes(30000)),
    "of another": lambda path: path.write_bytes(
        path.read_bytes().replace(b"attnbias.crc32c", b"attnbias.CRC32C")
    ),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_file_is_fetched_again(
    server: FakeServer, cached: attnbias.Client, folder: Path, connect: Connect, name: str
) -> None:
    get(cached)
    DAMAGES[name](tensor(folder))
    with connect(server.target, timeout=60, cache=folder) as client:
        np.testing.assert_array_equal(get(client), VALUES)
    np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["truncated", "longer", "header"])
def test_visibly_damaged_files_are_not_listed(
    cached: attnbias.Client, folder: Path, name: str
) -> None:
    get(cached)
    assert len(attnbias.Cache(folder).entries()) == 1
    DAMAGES[name](tensor(folder))
    assert attnbias.Cache(folder).entries() == []


def test_damaged_file_is_not_found_offline(
    cached: attnbias.Client, folder: Path, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    get(cached)
    flip(tensor(folder), -1)
    with (
        connect("127.0.0.1:1", cache=folder, offline=True) as client,
        pytest.raises(attnbias.NotFoundError),
    ):
        get(client)
    (record,) = caplog.records
    assert record.message.startswith(f"{tensor(folder).name} is damaged: checksum is ")


@pytest.mark.parametrize("line", [b"", b"\xff" * 100, b"../../../etc/passwd 1 2 3\n", b"garbage"])
def test_damaged_index_is_repaired_by_one_describe(
    server: FakeServer, cached: attnbias.Client, folder: Path, line: bytes
) -> None:
    get(cached)
    good = request(folder).read_bytes()
    request(folder).write_bytes(line)
    np.testing.assert_array_equal(get(cached), VALUES)
    assert (server.describe_calls, len(server.requests)) == (2, 1)
    assert request(folder).read_bytes() == good


def test_verify_finds_damage_with_unchanged_mtime(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    cache = attnbias.Cache(folder)
    get(cached)
    assert cache.verify() == []
    before = tensor(folder).stat().st_mtime_ns
    flip(tensor(folder), -1)
    os.utime(tensor(folder), ns=(before, before))
    assert get(cached)[-1, -1] != VALUES[-1, -1]  # documented in docs/cache.md
    assert cache.verify() == [tensor(folder)]
    np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 2
    assert cache.verify() == []


def test_copied_folder_is_verified_once(
    cached: attnbias.Client, folder: Path, connect: Connect
) -> None:
    get(cached)
    path = tensor(folder)
    os.utime(path, ns=(0, 0))
    for _ in range(2):
        with connect("127.0.0.1:1", cache=folder, offline=True) as client:
            np.testing.assert_array_equal(get(client), VALUES)
    *fields, key = request(folder).read_text().split()
    assert fields == [FINGERPRINT, str(path.stat().st_size), "0", str(path.stat().st_ino)]
    assert key == request(folder).name


def test_fingerprint_cannot_be_a_path(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    serve(server, table(VALUES, fingerprint="../../outside"))
    with pytest.raises(attnbias.DataLossError, match=r"fingerprint: got '../../outside', want 64"):
        get(cached)
    assert files(folder.parent) == []
    assert server.requests == []


@pytest.mark.parametrize("method", ["get", "describe"])
def test_index_entry_of_another_tensor_is_refreshed(
    server: FakeServer, cached: attnbias.Client, folder: Path, method: str
) -> None:
    get(cached)
    named = request(folder)
    other = table(VALUES[:500], fingerprint=OTHER)
    serve(server, other)
    cached.get(ENCODING, positions=500)
    (line,) = (path for path in (folder / "requests").iterdir() if path != named)
    named.write_bytes(line.read_bytes())
    serve(server, table(VALUES))
    if method == "get":
        np.testing.assert_array_equal(get(cached), VALUES)
    else:
        assert cached.describe(ENCODING, **POSITIONS).parts[0].shape == VALUES.shape
    assert tensor(folder, OTHER).exists()


def test_description_of_another_tensor_is_refreshed(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    info = cached.describe(ENCODING, **POSITIONS)
    (path,) = (folder / "descriptions").iterdir()
    answer = service_pb2.DescribeTensorResponse.FromString(path.read_bytes())
    answer.request_crc32c ^= 1
    path.write_bytes(answer.SerializeToString())
    assert cached.describe(ENCODING, **POSITIONS) == info
    assert server.describe_calls == 2


# Room


def numbered(number: int) -> attnbias.Request:
    return attnbias.Request(
        attnbias.Sinusoidal(5, ladder=attnbias.Ladder(base=10.0**number)), positions=1000
    )


def fill(server: FakeServer, client: attnbias.Client, numbers: range) -> None:
    for number in numbers:
        serve(server, table(VALUES, fingerprint=f"{number:064x}"))
        server.requests.clear()
        client.get_many([numbered(number)])


def test_evicts_least_recently_used(server: FakeServer, connect: Connect, folder: Path) -> None:
    cache = attnbias.Cache(folder)
    with connect(server.target, cache=folder, cache_bytes=80_000) as client:
        fill(server, client, range(1, 4))
        spec = numbered(2).to_spec()
        for path in (folder / "requests").iterdir():
            os.utime(path, (10, 10) if path.name == key_of(spec) else (20, 20))
        (held,) = client.get_many([numbered(2)])  # used just now
        first = numbered(1).to_spec()
        os.utime(folder / "requests" / key_of(first), (5, 5))
        fill(server, client, range(4, 5))
        assert {int(entry.info.fingerprint, 16) for entry in cache.entries()} == {2, 3, 4}
        assert not (folder / "requests" / key_of(first)).exists()
        assert cache.entries()[-1].info.fingerprint == f"{3:064x}"
        fill(server, client, range(5, 8))
        assert {int(entry.info.fingerprint, 16) for entry in cache.entries()} == {5, 6, 7}
    np.testing.assert_array_equal(held, VALUES)  # mapped although its file is gone
    assert sum(entry.nbytes for entry in cache.entries()) <= 80_000


def test_payload_larger_than_cache_is_not_stored(
    server: FakeServer, connect: Connect, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serve(server, table(VALUES))
    with connect(server.target, cache=folder, cache_bytes=1000) as client:
        for _ in range(2):
            array = get(client)
            np.testing.assert_array_equal(array, VALUES)
            assert not array.flags.writeable
    assert files(folder) == []
    (record,) = caplog.records
    assert "cache_bytes is 1000" in record.message


def test_clear_removes_only_cache_files(cached: attnbias.Client, folder: Path) -> None:
    array = get(cached)
    foreign = folder / "tensors" / "notes.txt"
    foreign.touch()
    (folder / "drafts" / key_of(encodings_pb2.TensorSpec())).touch()
    attnbias.Cache(folder).clear()
    assert files(folder) == [foreign]
    assert attnbias.Cache(folder).entries() == []
    np.testing.assert_array_equal(array, VALUES)
    np.testing.assert_array_equal(get(cached), VALUES)


# Faults


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Switches from root, which may write anywhere, to an unprivileged user."""
    if os.geteuid() != 0:
        yield
        return
    importlib.import_module("grpc._channel")  # which the user may not be able to read later
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("filled", [False, True])
def test_unwritable_folder_still_serves(
    server: FakeServer, connect: Connect, filled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    serve(server, table(VALUES))
    with tempfile.TemporaryDirectory(dir="/tmp") as outer:
        folder = Path(outer) / "cache"
        folder.mkdir()
        with connect(server.target, cache=folder) as client:
            if filled:
                get(client)
            for path in (Path(outer), folder, *folder.glob("*")):
                path.chmod(0o555)
            with unprivileged():
                for _ in range(2):
                    np.testing.assert_array_equal(get(client), VALUES)
                    np.testing.assert_array_equal(get(client, data_type="f32"), VALUES)
        for path in (Path(outer), folder, *folder.glob("*")):
            path.chmod(0o755)
    assert len(server.requests) == (1 if filled else 4)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith(f"the cache {folder} cannot be written: ")


def test_full_disk_stores_nothing_and_warns_once(
    server: FakeServer, cached: attnbias.Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        for _ in range(2):
            np.testing.assert_array_equal(get(cached), VALUES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(folder) == []
    (record,) = caplog.records
    assert "cannot store what was fetched" in record.message
    get(cached)
    get(cached)
    assert len(server.requests) == 3


def test_failed_call_leaves_no_files(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    server.script = [lambda _, context: context.abort(grpc.StatusCode.INTERNAL, "broken")]
    with pytest.raises(attnbias.InternalError, match="broken"):
        get(cached)
    assert files(folder) == []


def test_files_follow_the_umask(cached: attnbias.Client, folder: Path) -> None:
    before = os.umask(0o027)
    try:
        get(cached)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in files(folder)} == {0o640}
    assert folder.stat().st_mode & 0o777 == 0o750


def test_timeout_includes_waiting_for_lock(
    cached: attnbias.Client, folder: Path, server: FakeServer
) -> None:
    key = key_of(attnbias.Request(ENCODING, **POSITIONS).to_spec())
    draft = attnbias.Cache(folder).try_lock(key)
    assert draft is not None
    with draft, pytest.raises(attnbias.DeadlineExceededError):
        get(cached, timeout=0.1)
    np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 1


def test_damaged_file_evicts_no_other(
    server: FakeServer, connect: Connect, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(server.target, cache=folder, cache_bytes=50_000) as client:
        fill(server, client, range(1, 3))
        flip(tensor(folder, f"{2:064x}"), -1)
        caplog.clear()
        fill(server, client, range(2, 3))
    assert len(server.requests) == 1
    assert len(attnbias.Cache(folder).entries()) == 2
    assert len(caplog.records) == 1  # the damaged file is read only once


def test_system_without_flock_does_not_cache(
    server: FakeServer,
    cached: attnbias.Client,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for _ in range(2):
        np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 2
    (record,) = caplog.records
    assert "cannot be written: this system has no flock" in record.message


def test_cancelled_task_releases_lock(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, table(VALUES))
    locked, go_on, drafts = threading.Event(), threading.Event(), []
    try_lock = attnbias.Cache.try_lock

    def slow(cache: attnbias.Cache, key: str) -> Any:
        drafts.append(try_lock(cache, key))  # keep a reference, so that it is not garbage-collected
        locked.set()
        go_on.wait(60)
        return drafts[-1]

    async def cancel() -> None:
        monkeypatch.setattr(attnbias.Cache, "try_lock", slow)
        async with aio.Client(server.target, timeout=60, cache=folder) as client:
            task = asyncio.create_task(client.get(ENCODING, **POSITIONS))
            await asyncio.to_thread(locked.wait, 60)
            task.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        monkeypatch.undo()

    asyncio.run(cancel())
    assert len(drafts) == 1
    assert files(folder) == []


OUTLIVE = """
import os, sys, attnbias
cache = attnbias.Cache(sys.argv[1])
draft = cache.try_lock("key")
reading, writing = os.pipe()
forked, says_so = os.pipe()
if os.fork() == 0:
    draft.close()  # is ignored
    os.close(writing)
    os.write(says_so, b"x")
    os.read(reading, 1)
    os._exit(0)
os.close(says_so)
assert os.read(forked, 1) == b"x"
assert (cache.folder / "drafts" / "key").exists()
assert cache.try_lock("key") is None
os.close(draft._lock)  # as the kernel does for one that dies
assert cache.try_lock("key") is not None
"""


def test_lock_ends_with_owner_while_child_lives(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", OUTLIVE, folder], timeout=60, check=True)


# Files and folders that belong to other users

KEY = key_of(attnbias.Request(ENCODING, **POSITIONS).to_spec())
PLACES = {
    "request": f"requests/{KEY}",
    "description": f"descriptions/{KEY}",
    "tensor": f"tensors/{FINGERPRINT}.safetensors",
    "lock": f"drafts/{KEY}",
    "draft": f"drafts/{KEY}.safetensors",
}
SHADOWED = {"description": ["request"], "lock": ["tensor"], "draft": ["tensor"]}
"""For some places, the files that must be missing for the client to read them."""
HUGE = 64 << 30
USE_AND_KEEP_HOUSE = """
import resource, sys, attnbias
from attnbias.__main__ import main
resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
target, *folders = sys.argv[1:]
for folder in folders:
    print(folder, file=sys.stderr)
    with attnbias.Client(target, timeout=60, cache=folder) as client:
        info = client.describe(attnbias.Sinusoidal(dim=5), positions=1000)
        for _ in range(2):
            table = client.get(attnbias.Sinusoidal(dim=5), positions=1000)
            assert (info.nbytes, float(table.sum())) == (20000, 12497500.0)
    for command in ("ls", "verify", "clear"):
        main(["cache", command, "--cache", folder])
"""


def sparse(path: Path, *, head: int) -> None:
    """Creates a huge sparse file that begins like a tensor's file with a header of `head` bytes."""
    path.write_bytes(head.to_bytes(8, "little"))
    os.truncate(path, HUGE)


def socket_at(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        try:
            os.chdir(path.parent)  # a socket's path must be short
            listening.bind(path.name)
        finally:
            os.chdir("/")


def open_to_all(path: Path) -> None:
    path.write_bytes(b"x" * 3000)
    path.chmod(0o666)


TRAPS: dict[str, Callable[[Path, Path], Any]] = {
    "a link to a file": lambda path, victim: path.symlink_to(victim),
    "another name of a file": lambda path, victim: path.hardlink_to(victim),
    "a link to nothing": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "a link to an endless file": lambda path, _: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "a fifo": lambda path, _: os.mkfifo(path),
    "a socket": lambda path, _: socket_at(path),
    "a folder": lambda path, _: path.mkdir(),
    "a sparse file": lambda path, _: sparse(path, head=0),
    "a sparse file with a long head": lambda path, _: sparse(path, head=HUGE - 8),
    "a file that all can write": lambda path, _: open_to_all(path),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_planted_files_are_not_followed(server: FakeServer, tmp_path: Path, trap: str) -> None:
    serve(server, table(VALUES))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.utime(victim, ns=(0, 0))
    folders = [tmp_path / place for place in PLACES]
    for folder, place in zip(folders, PLACES, strict=True):
        with attnbias.Client(server.target, timeout=60, cache=folder) as client:
            get(client)  # so that the other files exist
        path = folder / PLACES[place]
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        for shadowed in SHADOWED.get(place, ()):
            (folder / PLACES[shadowed]).unlink()
        TRAPS[trap](path, victim)
    command = [sys.executable, "-c", USE_AND_KEEP_HOUSE, server.target, *map(str, folders)]
    subprocess.run(command, timeout=30, check=True)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mtime_ns == 0
    assert not victim.with_name("new").exists()


def test_device_file_is_not_read(server: FakeServer, folder: Path) -> None:
    serve(server, table(VALUES))
    (folder / "requests").mkdir(parents=True)
    try:
        os.mknod(folder / PLACES["request"], 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root makes devices")
    with start(USE, server.target, str(folder)) as process:
        assert float(process.communicate(timeout=30)[0].split()[1]) == float(VALUES.sum())


@pytest.mark.parametrize("kind", ["tensors", "requests", "descriptions", "drafts"])
@pytest.mark.parametrize("how", ["link", "file", "open to all"])
def test_planted_subfolders_are_not_followed(
    *,
    server: FakeServer,
    connect: Connect,
    folder: Path,
    tmp_path: Path,
    kind: str,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve(server, table(VALUES))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.mkdir()
    if how == "link":
        (folder / kind).symlink_to(elsewhere)
    elif how == "file":
        (folder / kind).touch()
    else:
        (folder / kind).mkdir()
        (folder / kind).chmod(0o777)
    with connect(server.target, timeout=60, cache=folder) as client:
        client.describe(ENCODING, **POSITIONS)
        for _ in range(2):
            np.testing.assert_array_equal(get(client), VALUES)
    assert list(elsewhere.iterdir()) == []
    assert len(caplog.records) == (kind != "descriptions")
    if kind != "descriptions":
        assert str(folder / kind) in caplog.text
    if how == "open to all" and kind != "descriptions":
        assert f"want 0700: chmod 700 {folder / kind}" in caplog.text


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757, 0o702])
def test_folder_writable_by_others_is_rejected(
    connect: Connect,
    folder: Path,
    mode: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    want = (
        f": {folder}: got mode {mode:04o}, which lets other users write to it; "
        f"want 0700: chmod 700 {folder}"
    )
    with pytest.raises(ValueError, match=r"^cache: ") as refused:
        connect("localhost", cache=folder)
    assert str(refused.value) == f"cache{want}"
    with pytest.raises(ValueError, match=r"^folder: ") as refused:
        attnbias.Cache(folder)
    assert str(refused.value) == f"folder{want}"
    monkeypatch.setenv("ATTNBIAS_CACHE_DIR", str(folder))
    with pytest.raises(ValueError, match=r"^ATTNBIAS_CACHE_DIR: "):
        connect("localhost")
    assert main(["cache", "ls"]) == 1
    assert want in capsys.readouterr().err
    folder.chmod(0o700)
    connect("localhost", cache=folder).close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_folder_of_another_user_is_rejected(connect: Connect, folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 12345, -1)
    want = f"cache: {folder}: got user 12345 as the owner, want user 0"
    with pytest.raises(ValueError, match=re.escape(want)):
        connect("localhost", cache=folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_of_another_user_is_fetched_again(
    server: FakeServer, cached: attnbias.Client, folder: Path
) -> None:
    get(cached)
    os.chown(tensor(folder), 12345, -1)
    np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 2


def test_symlink_to_own_folder_is_followed(
    server: FakeServer, connect: Connect, tmp_path: Path
) -> None:
    serve(server, table(VALUES))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "scratch")
    with connect(server.target, timeout=60, cache=tmp_path / "link") as client:
        get(client)
    assert tensor(tmp_path / "scratch").exists()


def test_folder_made_world_writable_later_is_not_used(
    server: FakeServer, cached: attnbias.Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    get(cached)
    before = files(folder)
    folder.chmod(0o777)
    for _ in range(2):
        np.testing.assert_array_equal(get(cached), VALUES)
    assert len(server.requests) == 3
    assert files(folder) == before
    (record,) = caplog.records
    assert f"chmod 700 {folder}" in record.message


def test_created_files_are_not_group_writable(cached: attnbias.Client, folder: Path) -> None:
    before = os.umask(0o002)
    try:
        for _ in range(2):
            get(cached)
    finally:
        os.umask(before)
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("calls", [1, 2])
def test_wait_for_held_lock_is_bounded(
    *,
    server: FakeServer,
    connect: Connect,
    folder: Path,
    calls: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve(server, table(VALUES))
    monkeypatch.setattr("attnbias._cache.fetch._MOST_WAIT", 0.2, raising=False)
    (folder / "drafts").mkdir(parents=True)
    with (
        (folder / PLACES["lock"]).open("w") as lock,
        connect(server.target, timeout=10, cache=folder) as client,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(calls):
            np.testing.assert_array_equal(get(client), VALUES)
        assert len(server.requests) == calls
        (record,) = caplog.records
        assert record.message == (
            f"the cache {folder} has been locked for 0.2 s: drafts/{KEY}; calls continue without it"
        )
        lock.close()
        get(client)
        get(client)
        assert len(server.requests) == calls + 1


# Several processes


USE = """
import sys, attnbias
print("begun", flush=True)
with attnbias.Client(sys.argv[1], timeout=60, cache=sys.argv[2]) as client:
    print(client.get(attnbias.Sinusoidal(dim=5), positions=1000).sum(), flush=True)
"""
DIE = """
import os, signal
from attnbias._cache.cache import Draft
def write(self, head, memory):
    with self._drafts.create(self._name) as file:
        file.write(head + memory[:len(memory) // 2].tobytes())
    os.kill(os.getpid(), signal.SIGKILL)
Draft.write = write
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True
    )


def test_concurrent_processes_fetch_once(server: FakeServer, folder: Path) -> None:
    all_begun = threading.Event()
    payload = table(VALUES)
    serve(server, payload)

    def slowly(request: Any, context: Any) -> Iterator[bytes]:
        all_begun.wait(60)
        yield from payload.serve(request, context)

    server.script = [slowly]
    processes = [start(USE, server.target, str(folder)) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
    all_begun.set()
    for process in processes:
        assert float(process.communicate(timeout=60)[0]) == float(VALUES.sum())
    assert len(server.requests) == 1
    assert len(files(folder)) == 2


WORK = """
import sys, attnbias
target, folder, own, others = sys.argv[1:]
with attnbias.Client(target, max_attempts=1, cache=folder) as client:
    def say(dim):
        table = client.get(attnbias.Sinusoidal(dim=int(dim)), positions=1000)
        print(table.tobytes().hex(), flush=True)
    say(own)
    sys.stdin.readline()
    say(own)
    say(others)
    try:
        say(8)
    except attnbias.UnavailableError:
        print("nobody answers", flush=True)
"""


@pytest.mark.usefixtures("real_target")  # skips without a server
def test_workers_use_cache_after_server_is_killed(folder: Path) -> None:
    dims = (4, 6)
    server = attnbias.LocalServer(cache="")
    want = {}
    with server as client:
        for dim in dims:
            want[dim] = client.get(attnbias.Sinusoidal(dim=dim), positions=1000)
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORK, server.target, folder, *map(str, order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for order in (dims, dims[::-1])
        ]
        for worker, dim in zip(workers, dims, strict=True):
            assert worker.stdout is not None
            assert worker.stdout.readline() == want[dim].tobytes().hex() + "\n"
        assert server._running is not None
        server._running.process.kill()
        server._running.process.wait()
        for worker, order in zip(workers, (dims, dims[::-1]), strict=True):
            said = worker.communicate("\n", timeout=60)[0].split("\n")
            assert said == [*(want[dim].tobytes().hex() for dim in order), "nobody answers", ""]


def test_killed_writer_leaves_no_trusted_file(server: FakeServer, folder: Path) -> None:
    serve(server, table(VALUES))
    with start(DIE + USE, server.target, str(folder)) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    lock, draft = files(folder)
    assert lock.parent.name == draft.parent.name == "drafts"
    assert lock.stat().st_size == 0
    assert draft.stat().st_size > VALUES.nbytes // 2
    with start(USE, server.target, str(folder)) as process:
        assert float(process.communicate(timeout=60)[0].split()[1]) == float(VALUES.sum())
    assert len(server.requests) == 2
    assert files(folder) == [request(folder), tensor(folder)]


def test_draft_of_dead_writer_is_replaced(cached: attnbias.Client, folder: Path) -> None:
    key = key_of(attnbias.Request(ENCODING, **POSITIONS).to_spec())
    draft = folder / "drafts" / f"{key}.safetensors"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(bytes(3 * VALUES.nbytes))
    get(cached)
    assert tensor(folder).stat().st_size < 2 * VALUES.nbytes
    assert attnbias.Cache(folder).verify() == []


def test_tensor_is_renamed_into_place_when_complete(cached: attnbias.Client, folder: Path) -> None:
    get(cached)
    status = tensor(folder).stat()  # the draft's: it was renamed, not written again
    fields = [FINGERPRINT, status.st_size, status.st_mtime_ns, status.st_ino]
    fields.append(request(folder).name)
    assert request(folder).read_text() == " ".join(map(str, fields)) + "\n"


def test_stale_drafts_are_removed(cached: attnbias.Client, folder: Path) -> None:
    drafts = folder / "drafts"
    drafts.mkdir(parents=True)
    dead, young, held = ("d" * 64, "e" * 64, "f" * 64)
    for name in (dead, f"{dead}.{'0' * 16}", young, held, "somebody's own"):
        (drafts / name).touch()
        if name != young:
            os.utime(drafts / name, (0, 0))
    draft = attnbias.Cache(folder).try_lock(held)
    assert draft is not None
    with draft:
        get(cached)
        left = sorted(path.name for path in drafts.iterdir())
        assert left == [young, held, "somebody's own"]
    attnbias.Cache(folder).clear()
    assert [path.name for path in drafts.iterdir()] == ["somebody's own"]


HOLD = """
import re, sys, attnbias
def pss():
    return int(re.search(r"^Pss:\\s+(\\d+) kB", open("/proc/self/smaps_rollup").read(), re.M)[1])
def say(value):
    print(value, flush=True)
    sys.stdin.readline()
with attnbias.Client("127.0.0.1:1", cache=sys.argv[1], offline=True) as client:
    client.get(attnbias.Sinusoidal(dim=8), positions=8)
    say("ready")
    say(pss())
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
    say(float(table.sum()))
    say(pss())
"""


def test_processes_share_one_mapping(real_target: str, folder: Path) -> None:
    with attnbias.Client(real_target, timeout=60, cache=folder) as client:
        client.get(attnbias.Sinusoidal(dim=8), positions=8)
        size = client.get(attnbias.Sinusoidal(dim=512), positions=131072).nbytes
    assert size == 256 << 20
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]

    def ask_all() -> list[str]:
        """Returns the next word from each process, once all have sent one."""
        said = []
        for holder in holders:
            assert holder.stdout is not None
            said.append(holder.stdout.readline())
        return said

    def let_go() -> None:
        for holder in holders:
            assert holder.stdin is not None
            print(file=holder.stdin, flush=True)

    try:
        assert ask_all() == ["ready\n"] * 8
        let_go()
        before = sum(map(int, ask_all()))
        let_go()
        assert len(set(ask_all())) == 1
        let_go()
        after = sum(map(int, ask_all()))
        let_go()
    finally:
        for holder in holders:
            holder.communicate(timeout=60)
    # Must hold even while other processes that share these libraries start and exit.
    assert 0.9 * size < (after - before) * 1024 < 1.2 * size


def test_bf16_tensor_is_memory_mapped(real_target: str, connect: Connect, folder: Path) -> None:
    with connect(real_target, cache=folder) as client:
        array = client.get(attnbias.Sinusoidal(dim=8), positions=8, data_type="bf16")
    assert array.dtype == ml_dtypes.bfloat16
    assert not array.flags.owndata
