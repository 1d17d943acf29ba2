# SPDX-License-Identifier: Apache-2.0
"""Addresses on which the server listens: several at once, and socket files."""

import pathlib
import socket
from typing import Any

import pytest

import attnbias
from tests.support.server import run_server
from tests.support.ways import run_tool, tool


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "attnbias.sock"


def failed(*flags: str) -> str:
    """Returns the output of a server that cannot start."""
    done = run_server("--metrics-listen=127.0.0.1:0", *flags)
    assert done.returncode == 1
    return done.stderr


def test_every_client_reaches_unix_socket(start_server: Any, path: pathlib.Path) -> None:
    server = start_server(f"--listen=unix:{path}")
    assert server.address == f"unix:{path}"
    for target in (server.address, f"unix://{path}"):
        assert run_tool(target, "health").startswith("SERVING")
        with attnbias.Client(target) as client:
            bias = client.get(attnbias.ALiBi(num_heads=8), query_length=2, key_length=2)
            assert bias.view()[0, 1, 0] == -0.5


def test_tool_reports_missing_tls_in_one_line(shared_server: Any) -> None:
    done = tool(shared_server.address, "health", "--tls")
    assert done.returncode == 1
    assert " answers, but not over TLS: leave out tls (" in done.stderr
    assert done.stderr.count("\n") == 1


def test_all_addresses_are_logged_and_served(start_server: Any, path: pathlib.Path) -> None:
    server = start_server(f"--listen=127.0.0.1:0,unix:{path}", "--listen=127.0.0.1:0")
    addresses = server.address.split(", ")
    assert addresses[1] == f"unix:{path}"
    assert len(set(addresses)) == 3
    for server.address in addresses:
        with server.connect() as stub:
            assert stub.check("liveness") == "SERVING"


def test_graceful_shutdown_removes_socket_file(start_server: Any, path: pathlib.Path) -> None:
    server = start_server(f"--listen=unix:{path}")
    assert path.is_socket()
    assert server.stop() == 0
    assert not path.exists()


def test_stale_socket_file_is_replaced(start_server: Any, path: pathlib.Path) -> None:
    first = start_server(f"--listen=unix:{path}")
    first.process.kill()
    first.process.wait()
    assert path.is_socket()
    with start_server(f"--listen=unix:{path}").connect() as stub:
        assert stub.check("liveness") == "SERVING"


def test_socket_file_in_use_is_rejected(start_server: Any, path: pathlib.Path) -> None:
    server = start_server(f"--listen=unix:{path}")
    said = failed(f"--listen=unix:{path}")
    assert f"cannot listen on unix:{path}: another server is listening there" in said
    with server.connect() as stub:
        assert stub.check("liveness") == "SERVING"


def test_socket_file_with_full_queue_is_rejected(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(str(path))
        busy.listen(0)
        client.connect(str(path))
        assert "another server is listening there" in failed(f"--listen=unix:{path}")


def test_regular_file_and_missing_folder_are_rejected(path: pathlib.Path) -> None:
    path.write_text("mine")
    said = failed(f"--listen=unix:{path}")
    assert f"cannot listen on unix:{path}: the path exists and is not a socket" in said
    assert path.read_text() == "mine"
    said = failed(f"--listen=unix:{path.parent}/none/a.sock")
    assert f"no such folder: '{path.parent}/none'" in said


def test_failed_start_leaves_no_socket_file(path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}" in failed(f"--listen=unix:{path},{address}")
        assert not path.exists()
        said = failed(f"--listen=unix:{path}", f"--metrics-listen={address}")
        assert f"cannot serve metrics on {address}" in said
        assert not path.exists()
