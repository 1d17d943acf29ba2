# SPDX-License-Identifier: Apache-2.0
"""Every invalid request returns the documented code and a status that names the field."""

import math
import struct
from typing import Any, NamedTuple

import grpc
import pytest

from tests.support.contract import alibi, message, sinusoid, spec
from tests.support.server import Details, Server, Stub, refused

HUGE = 2**62


def of_rows(dim: int = 2, **table: Any) -> dict[str, Any]:
    return {"sinusoidal": {"dim": dim}, "table": table}


def of_pairs(*, output: dict[str, Any] | None = None, **pair: Any) -> dict[str, Any]:
    """Returns ALiBi for 4 queries and keys, modified by `pair`."""
    extent = {"query_length": 4, "key_length": 4} | pair
    return {"alibi": {"num_heads": 1}, "pair": extent} | ({"output": output} if output else {})


def of_table(**inline: Any) -> dict[str, Any]:
    """Returns T5 with an all-zero table, modified by `inline`."""
    table = {"data_type": "DATA_TYPE_F32", "shape": [32, 2], "data": bytes(256)} | inline
    return of_t5(num_heads=2, bidirectional=True, table={"inline_table": table})


def of_t5(**fields: Any) -> dict[str, Any]:
    return {"t5": fields, "pair": {"query_length": 4, "key_length": 4}}


class Bad(NamedTuple):
    spec: dict[str, Any]
    field: str
    code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT


NAN = struct.pack("<f", math.nan)
BAD_SPECS = {
    "nothing": Bad({}, "spec.encoding"),
    "no extent": Bad({"alibi": {"num_heads": 1}}, "spec.extent"),
    "wrong extent": Bad(
        {"alibi": {"num_heads": 1}, "table": {"positions": {"end": 4}}}, "spec.extent"
    ),
    "no positions": Bad(of_rows(positions={}), "spec.table.positions"),
    "positions reversed": Bad(of_rows(positions={"begin": 4, "end": 2}), "spec.table.positions"),
    "positions too far": Bad(
        of_rows(positions={"begin": -HUGE, "end": HUGE}), "spec.table.positions"
    ),
    "position list too long": Bad(
        of_rows(position_ids=[{"positions": [1] * 262145}]), "spec.table.position_ids[0]"
    ),
    "two axes": Bad(of_rows(position_ids=[{"positions": [1]}] * 2), "spec.table.position_ids"),
    "bytes overflow": Bad(
        of_rows(65536, positions={"begin": -(2**40), "end": 2**40}), "spec.extent"
    ),
    "wrong number of slopes": Bad(
        of_pairs() | {"alibi": {"num_heads": 2, "slopes": [1.0]}}, "spec.alibi.slopes"
    ),
    "zero queries": Bad(of_pairs(query_length=0), "spec.pair.query_length"),
    "negative keys": Bad(of_pairs(key_length=-4), "spec.pair.key_length"),
    "huge keys": Bad(of_pairs(key_length=HUGE), "spec.pair.key_length"),
    "alignment missing": Bad(of_pairs(key_length=5), "spec.pair.alignment"),
    "product overflows": Bad(
        of_pairs(output={"form": "FORM_DENSE"}, query_length=2**40, key_length=2**40)
        | {"alibi": {"num_heads": 65536}},
        "spec.extent",
    ),
    "window outside": Bad(of_pairs(queries={"begin": 2, "end": 5}), "spec.pair.queries"),
    "heads outside": Bad(of_pairs(heads={"begin": 0, "end": 2}), "spec.pair.heads"),
    "form that the encoding lacks": Bad(
        of_pairs(output={"form": "FORM_TABLE"}), "spec.output.form"
    ),
    "bias as integers": Bad(
        of_pairs(output={"data_type": "DATA_TYPE_I32"}), "spec.output.data_type"
    ),
    "scale is NaN": Bad(of_pairs(output={"scale": math.nan}), "spec.output.scale"),
    "scale is zero": Bad(of_pairs(output={"scale": 0}), "spec.output.scale"),
    "fill is NaN": Bad(
        of_pairs(output={"mask": {"causal": True, "fill_value": math.nan}}),
        "spec.output.mask.fill_value",
    ),
    "fill overflows": Bad(
        of_pairs(
            output={"data_type": "DATA_TYPE_F16", "mask": {"causal": True, "fill_value": -1e9}}
        ),
        "spec.output.mask.fill_value",
    ),
    "window is negative": Bad(
        of_pairs(output={"mask": {"window_left": -1}}), "spec.output.mask.window_left"
    ),
    "lowest is false": Bad(
        of_pairs(output={"mask": {"fill_lowest": False}}), "spec.output.mask.fill_lowest"
    ),
    "direction missing": Bad(
        of_t5(num_heads=1) | {"output": {"values": "VALUES_BUCKETS"}}, "spec.t5.bidirectional"
    ),
    "no table": Bad(of_t5(num_heads=1, bidirectional=True), "spec.t5.table"),
    "table transposed": Bad(of_table(shape=[2, 32]), "spec.t5.table"),
    "table too short": Bad(of_table(data=bytes(252)), "spec.t5.table.inline_table"),
    "table is NaN": Bad(of_table(data=NAN * 64), "spec.t5.table.inline_table"),
    "table of 3 MiB": Bad(
        of_table(shape=[32, 24576], data=bytes(3 << 20)), "spec.t5.table.inline_table.data"
    ),
    "unknown table digest": Bad(
        of_t5(num_heads=2, bidirectional=True, table={"sha256": "a" * 64}),
        "spec.t5.table.sha256",
        grpc.StatusCode.NOT_FOUND,
    ),
    "unknown enum value": Bad(
        of_pairs() | {"alibi": {"num_heads": 1, "variant": 99}},
        "spec.alibi.variant",
        grpc.StatusCode.UNIMPLEMENTED,
    ),
}


@pytest.mark.parametrize("bad", BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_invalid_spec_is_rejected_by_every_method(stub: Stub, bad: Bad) -> None:
    request = spec(**bad.spec)
    for call in (stub.header, stub.tensor, stub.stream):
        error = refused(lambda call=call: call(request))
        details = Details(error)
        assert (error.code(), details.fields) == (bad.code, [bad.field]), error.details()
        assert error.details().startswith(f"{bad.field}: ")
        assert details.reason
        assert details.domain == "attnbias"
        assert details.retry_seconds is None


def test_oversized_table_error_states_both_sizes(stub: Stub) -> None:
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
def test_malformed_request_bytes_are_rejected(stub: Stub, wrap: Any, field: str | None) -> None:
    known = message("GetTensorRequest")(spec=alibi(1, 4)).SerializeToString()
    error = refused(lambda: stub.get(wrap(known)))
    if field is None:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    else:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED
        assert Details(error).fields == [field]
        assert "99" in error.details()


def test_unknown_nested_field_is_named_with_version(stub: Stub) -> None:
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


def test_tensor_too_large_for_unary_has_its_own_reason(stub: Stub) -> None:
    limit = stub.info(message("GetServerInfoRequest")()).limits.max_unary_bytes
    rows = limit // 4096  # 1024 F32 columns
    assert len(stub.tensor(sinusoid(rows, 1024)).data) == limit
    error = refused(lambda: stub.tensor(sinusoid(rows + 1, 1024)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert Details(error).reason == "TENSOR_TOO_LARGE_FOR_UNARY"


def test_response_above_default_grpc_limit_is_rejected(shared_server: Server) -> None:
    # The header repeats the list: 262144 six-byte numbers.
    ids = {"position_ids": [{"positions": list(range(2**36, 2**36 + 2 * 262144, 2))}]}
    request = message("GetTensorRequest")(spec=spec(sinusoidal={"dim": 3}, table=ids))
    assert 262144 * 3 * 4 <= 4 * 2**20 - 64 * 2**10
    error = refused(lambda: shared_server.connect().get(request))
    assert Details(error).reason == "TENSOR_TOO_LARGE_FOR_UNARY"


def test_header_above_default_grpc_limit_is_rejected(stub: Stub) -> None:
    # Negative positions need ten bytes each in a message.
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
def test_invalid_stream_request_is_rejected(
    stub: Stub, fields: dict[str, Any], code: str, field: str
) -> None:
    error = refused(lambda: stub.stream(alibi(1, 4), **fields))
    assert error.code().name == code
    assert error.details().startswith(f"{field}: ")


def test_offset_past_the_end_is_out_of_range(stub: Stub) -> None:
    header = stub.header(alibi(1, 4))
    resume = {"expected_fingerprint": header.fingerprint}
    replies = list(stub.stream(alibi(1, 4), read_offset=header.total_bytes, **resume))
    assert [reply.HasField("header") for reply in replies] == [True]
    error = refused(lambda: stub.stream(alibi(1, 4), read_offset=header.total_bytes + 1, **resume))
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert Details(error).fields == ["read_offset"]


def test_request_above_receive_limit_is_rejected(stub: Stub) -> None:
    error = refused(lambda: stub.get(bytes(9 << 20)))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_server_still_serves_after_rejections(shared_server: Server, stub: Stub) -> None:
    assert shared_server.process.poll() is None
    assert stub.check("liveness") == "SERVING"
