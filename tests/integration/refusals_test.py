# SPDX-License-Identifier: Apache-2.0
"""Every bad request gets the documented code, and a status that names the field."""

import math
import struct
from typing import Any, NamedTuple

import grpc
import pytest

from tests.support.contract import alibi, message, sinusoid, spec
from tests.support.server import Details, Server, Stub, refused

HUGE = 2**62


def t5(**fields: Any) -> dict[str, Any]:
    table = {
        "inline_table": {"data_type": "DATA_TYPE_F32", "shape": [32, 2], "data": bytes(32 * 2 * 4)}
    }
    return {"num_heads": 2, "bidirectional": True, "table": table} | fields


def inline(**fields: Any) -> dict[str, Any]:
    table = {"data_type": "DATA_TYPE_F32", "shape": [32, 2], "data": bytes(256)} | fields
    return {"inline_table": table}


def pair(**fields: Any) -> dict[str, Any]:
    return {"query_length": 4, "key_length": 4} | fields


class Bad(NamedTuple):
    spec: dict[str, Any]
    field: str
    code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT


SOME_TABLE = {"positions": {"end": 4}}
NAN = struct.pack("<f", math.nan)
BAD_SPECS = {
    "nothing": Bad({}, "spec.encoding"),
    "no extent": Bad({"alibi": {"num_heads": 1}}, "spec.extent"),
    "wrong extent": Bad({"alibi": {"num_heads": 1}, "table": SOME_TABLE}, "spec.extent"),
    "no positions": Bad(
        {"sinusoidal": {"dim": 2}, "table": {"positions": {}}}, "spec.table.positions"
    ),
    "positions backwards": Bad(
        {"sinusoidal": {"dim": 2}, "table": {"positions": {"begin": 4, "end": 2}}},
        "spec.table.positions",
    ),
    "positions too far": Bad(
        {"sinusoidal": {"dim": 2}, "table": {"positions": {"begin": -HUGE, "end": HUGE}}},
        "spec.table.positions",
    ),
    "position list too long": Bad(
        {"sinusoidal": {"dim": 2}, "table": {"position_ids": [{"positions": [1] * 262145}]}},
        "spec.table.position_ids[0]",
    ),
    "two axes": Bad(
        {"sinusoidal": {"dim": 2}, "table": {"position_ids": [{"positions": [1]}] * 2}},
        "spec.table.position_ids",
    ),
    "bytes overflow": Bad(
        {"sinusoidal": {"dim": 65536}, "table": {"positions": {"begin": -(2**40), "end": 2**40}}},
        "spec.extent",
    ),
    "slopes miscounted": Bad(
        {"alibi": {"num_heads": 2, "slopes": [1.0]}, "pair": pair()}, "spec.alibi.slopes"
    ),
    "zero queries": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(query_length=0)}, "spec.pair.query_length"
    ),
    "negative keys": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(key_length=-4)}, "spec.pair.key_length"
    ),
    "huge keys": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(key_length=HUGE)}, "spec.pair.key_length"
    ),
    "alignment left open": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(key_length=5)}, "spec.pair.alignment"
    ),
    "product overflows": Bad(
        {
            "alibi": {"num_heads": 65536},
            "pair": pair(query_length=2**40, key_length=2**40),
            "output": {"form": "FORM_DENSE"},
        },
        "spec.extent",
    ),
    "window outside": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(queries={"begin": 2, "end": 5})},
        "spec.pair.queries",
    ),
    "heads outside": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(heads={"begin": 0, "end": 2})}, "spec.pair.heads"
    ),
    "form it has not": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"form": "FORM_TABLE"}},
        "spec.output.form",
    ),
    "bias as integers": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"data_type": "DATA_TYPE_I32"}},
        "spec.output.data_type",
    ),
    "scale is NaN": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"scale": math.nan}},
        "spec.output.scale",
    ),
    "scale is zero": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"scale": 0}}, "spec.output.scale"
    ),
    "fill is NaN": Bad(
        {
            "alibi": {"num_heads": 1},
            "pair": pair(),
            "output": {"mask": {"causal": True, "fill_value": math.nan}},
        },
        "spec.output.mask.fill_value",
    ),
    "fill overflows": Bad(
        {
            "alibi": {"num_heads": 1},
            "pair": pair(),
            "output": {
                "data_type": "DATA_TYPE_F16",
                "mask": {"causal": True, "fill_value": -1e9},
            },
        },
        "spec.output.mask.fill_value",
    ),
    "window is negative": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"mask": {"window_left": -1}}},
        "spec.output.mask.window_left",
    ),
    "lowest is false": Bad(
        {"alibi": {"num_heads": 1}, "pair": pair(), "output": {"mask": {"fill_lowest": False}}},
        "spec.output.mask.fill_lowest",
    ),
    "direction left open": Bad(
        {"t5": {"num_heads": 1}, "pair": pair(), "output": {"values": "VALUES_BUCKETS"}},
        "spec.t5.bidirectional",
    ),
    "no table": Bad(
        {"t5": {"num_heads": 1, "bidirectional": True}, "pair": pair()}, "spec.t5.table"
    ),
    "table transposed": Bad(
        {"t5": t5(table=inline(shape=[2, 32])), "pair": pair()}, "spec.t5.table"
    ),
    "table too short": Bad(
        {"t5": t5(table=inline(data=bytes(252))), "pair": pair()}, "spec.t5.table.inline_table"
    ),
    "table is NaN": Bad(
        {"t5": t5(table=inline(data=NAN * 64)), "pair": pair()}, "spec.t5.table.inline_table"
    ),
    "table of 3 MiB": Bad(
        {"t5": t5(table=inline(shape=[32, 24576], data=bytes(3 << 20))), "pair": pair()},
        "spec.t5.table.inline_table.data",
    ),
    "table not held": Bad(
        {"t5": t5(table={"sha256": "a" * 64}), "pair": pair()},
        "spec.t5.table.sha256",
        grpc.StatusCode.NOT_FOUND,
    ),
    "unknown enum value": Bad(
        {"alibi": {"num_heads": 1, "variant": 99}, "pair": pair()},
        "spec.alibi.variant",
        grpc.StatusCode.UNIMPLEMENTED,
    ),
}


@pytest.mark.parametrize("bad", BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_bad_spec_is_refused_by_every_method(stub: Stub, bad: Bad) -> None:
    request = spec(**bad.spec)
    for call in (stub.header, stub.tensor, stub.stream):
        error = refused(lambda call=call: call(request))
        details = Details(error)
        assert (error.code(), details.fields) == (bad.code, [bad.field]), error.details()
        assert error.details().startswith(f"{bad.field}: ")
        assert details.reason
        assert details.domain == "attnbias"
        assert details.retry_seconds is None


def test_oversized_table_is_told_both_sizes(stub: Stub) -> None:
    error = refused(lambda: stub.header(spec(**BAD_SPECS["table of 3 MiB"].spec)))
    assert "3145728" in error.details()
    assert "2097152" in error.details()


UNKNOWN_FIELD = b"\x98\x06\x01"  # number 99, varint 1


@pytest.mark.parametrize(
    ("wrap", "field"),
    [
        (lambda known: known + UNKNOWN_FIELD, "request"),
        (lambda known: b"\x0a" + bytes([len(known) + 1]) + known[1:2] + known[2:], None),
    ],
    ids=["top", "malformed"],
)
def test_bytes_that_are_no_request(stub: Stub, wrap: Any, field: str | None) -> None:
    known = message("GetTensorRequest")(spec=alibi(1, 4)).SerializeToString()
    error = refused(lambda: stub.get(wrap(known)))
    if field is None:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    else:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
        assert Details(error).fields == [field]
        assert "99" in error.details()


def test_unknown_field_deep_inside_is_named_with_the_version(stub: Stub) -> None:
    inner = alibi(1, 4)
    encoding = inner.alibi.SerializeToString() + UNKNOWN_FIELD
    inner.ClearField("alibi")
    # Field 18 of TensorSpec, then field 1 of the request.
    body = inner.SerializeToString() + b"\x92\x01" + bytes([len(encoding)]) + encoding
    error = refused(lambda: stub.get(b"\x0a" + bytes([len(body)]) + body))
    version = stub.info(message("GetServerInfoRequest")()).version
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert Details(error).fields == ["spec.alibi"]
    assert "99" in error.details()
    assert version in error.details()


def test_too_large_for_one_message_has_its_own_reason(stub: Stub) -> None:
    limit = stub.info(message("GetServerInfoRequest")()).limits.max_unary_bytes
    rows = limit // 4096  # 1024 columns of F32
    assert len(stub.tensor(sinusoid(rows, 1024)).data) == limit
    error = refused(lambda: stub.tensor(sinusoid(rows + 1, 1024)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert Details(error).reason == "TENSOR_TOO_LARGE_FOR_UNARY"


def test_whole_response_stays_within_what_stock_clients_accept(shared_server: Server) -> None:
    # The list is echoed in the header: 262144 numbers of six bytes.
    ids = {"position_ids": [{"positions": list(range(2**36, 2**36 + 2 * 262144, 2))}]}
    request = message("GetTensorRequest")(spec=spec(sinusoidal={"dim": 3}, table=ids))
    assert 262144 * 3 * 4 <= 4 * 2**20 - 64 * 2**10
    error = refused(lambda: shared_server.connect().get(request))
    assert Details(error).reason == "TENSOR_TOO_LARGE_FOR_UNARY"


def test_a_header_beyond_what_stock_clients_accept_is_refused(stub: Stub) -> None:
    # Negative positions take ten bytes each in a message.
    ids = {"positions": list(range(-2 * 262144, 0, 2))}
    lists = {"query_positions": ids, "key_positions": ids}
    far = spec(alibi={"num_heads": 1}, pair=lists)
    for call in (stub.header, lambda spec: list(stub.stream(spec))):
        error = refused(lambda call=call: call(far))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "spec: got lists of positions" in error.details()


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"read_offset": -1}, "INVALID_ARGUMENT", "read_offset"),
        ({"read_offset": -(2**63)}, "INVALID_ARGUMENT", "read_offset"),
        ({"read_limit": -1}, "INVALID_ARGUMENT", "read_limit"),
        ({"read_offset": 1}, "INVALID_ARGUMENT", "expected_fingerprint"),
        ({"expected_fingerprint": "0" * 64}, "FAILED_PRECONDITION", "expected_fingerprint"),
        ({"max_chunk_bytes": 4095}, "INVALID_ARGUMENT", "max_chunk_bytes"),
        ({"max_chunk_bytes": 2**21 + 1}, "INVALID_ARGUMENT", "max_chunk_bytes"),
        ({"max_chunk_bytes": -1}, "INVALID_ARGUMENT", "max_chunk_bytes"),
    ],
)
def test_bad_stream_request(stub: Stub, fields: dict[str, Any], code: str, field: str) -> None:
    error = refused(lambda: stub.stream(alibi(1, 4), **fields))
    assert error.code().name == code
    assert error.details().startswith(f"{field}: ")


def test_offset_past_the_end(stub: Stub) -> None:
    header = stub.header(alibi(1, 4))
    resume = {"expected_fingerprint": header.fingerprint}
    replies = list(stub.stream(alibi(1, 4), read_offset=header.total_bytes, **resume))
    assert [reply.HasField("header") for reply in replies] == [True]
    error = refused(lambda: stub.stream(alibi(1, 4), read_offset=header.total_bytes + 1, **resume))
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert Details(error).fields == ["read_offset"]


def test_request_over_the_receive_limit(stub: Stub) -> None:
    error = refused(lambda: stub.get(bytes(9 << 20)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_after_all_that_the_server_is_well(shared_server: Server, stub: Stub) -> None:
    assert shared_server.process.poll() is None
    assert stub.check("liveness") == "SERVING"
