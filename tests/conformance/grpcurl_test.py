# SPDX-License-Identifier: Apache-2.0
"""A stock client that knows the service only through reflection can use it."""

import base64
import json
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server_process import running_server

SERVICE = "attnbias.v1.AttentionBiasService"
SMALL_ALIBI = {"alibi": {"numHeads": 8}, "pair": {"queryLength": "4", "keyLength": "4"}}
INVALID_ARGUMENT_EXIT = 64 + 3


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as address:
        yield address


def grpcurl(
    server: str, *words: str, flags: tuple[str, ...] = (), **request: Any
) -> subprocess.CompletedProcess[str]:
    data = ["-d", json.dumps(request)] if request else []
    return subprocess.run(
        ["grpcurl", "-plaintext", *data, *flags, server, *words],
        capture_output=True,
        text=True,
        check=False,
    )


def answers(server: str, method: str, **request: Any) -> list[dict[str, Any]]:
    result = grpcurl(server, method, **request)
    assert result.returncode == 0, result.stderr
    decoder, text, found = json.JSONDecoder(), result.stdout.strip(), []
    while text:
        message, end = decoder.raw_decode(text)
        found.append(message)
        text = text[end:].strip()
    return found


def floats(answer: dict[str, Any]) -> list[float]:
    data = base64.b64decode(answer["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def test_list_names_the_services(server: str) -> None:
    names = grpcurl(server, "list").stdout.split()
    assert {SERVICE, "grpc.health.v1.Health"} <= set(names)


def test_describe_shows_every_method(server: str) -> None:
    text = grpcurl(server, "describe", SERVICE).stdout
    for method in ("DescribeTensor", "GetTensor", "StreamTensor", "ListTables", "GetServerInfo"):
        assert f"rpc {method} " in text


def test_health_is_serving(server: str) -> None:
    assert answers(server, "grpc.health.v1.Health/Check") == [{"status": "SERVING"}]


def test_get_returns_alibi(server: str) -> None:
    [answer] = answers(server, f"{SERVICE}/GetTensor", spec=SMALL_ALIBI)
    [part] = answer["header"]["parts"]
    assert part["shape"] == ["8", "7"]
    assert part["first_relative_position"] == "-3"
    expected = [-abs(relative) * 2.0**-head for head in range(1, 9) for relative in range(-3, 4)]
    assert floats(answer) == expected


def test_stream_returns_same_tensor(server: str) -> None:
    [whole] = answers(server, f"{SERVICE}/GetTensor", spec=SMALL_ALIBI)
    assert answers(server, f"{SERVICE}/StreamTensor", spec=SMALL_ALIBI) == [whole]


def test_describe_tensor_returns_header(server: str) -> None:
    [whole] = answers(server, f"{SERVICE}/GetTensor", spec=SMALL_ALIBI)
    assert answers(server, f"{SERVICE}/DescribeTensor", spec=SMALL_ALIBI) == [
        {key: whole[key] for key in ("header", "header_crc32c", "request_crc32c")}
    ]


def test_error_names_invalid_field(server: str) -> None:
    spec = SMALL_ALIBI | {"alibi": {"numHeads": -1}}
    result = grpcurl(server, f"{SERVICE}/GetTensor", spec=spec)
    assert result.returncode == INVALID_ARGUMENT_EXIT
    assert "alibi.num_heads: got -1, want" in result.stderr
    assert '"reason": "INVALID_FIELD"' in result.stderr
    assert '"field": "spec.alibi.num_heads"' in result.stderr


def test_longest_go_timeout_is_not_expired(server: str) -> None:
    """The longest timeout is 2100000H on the wire, 240 years."""
    flags = ("-max-time", str(2_100_000 * 3600))
    done = grpcurl(server, f"{SERVICE}/GetServerInfo", flags=flags)
    assert done.returncode == 0, done.stderr
