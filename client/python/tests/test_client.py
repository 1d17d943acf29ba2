# SPDX-License-Identifier: Apache-2.0
"""The client converts responses to results, descriptions, errors and files."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import os
import pty
import re
import termios
import traceback
from typing import TYPE_CHECKING, Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import safetensors
from fake_server import FINGERPRINT, FakeServer, Payload, abort, retry_info, sequence, table
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from safetensors.numpy import load_file

import attnbias
from attnbias.v1 import encodings_pb2, service_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from either_client import Connect

ALIBI = attnbias.ALiBi(num_heads=2)
SIZE: dict[str, Any] = {"query_length": 4, "key_length": 6, "alignment": "end"}
DIAGONALS = sequence(2 * 9).reshape(2, 9)
TOEPLITZ_OF = ("diagonals", tensor_pb2.FORM_TOEPLITZ, DIAGONALS)
TOEPLITZ = Payload(TOEPLITZ_OF, first_relative_position=-5)
ROTARY = attnbias.Rotary(head_dim=2)
COS, SIN = sequence(8).reshape(2, 2, 2)
TWO_PARTS_OF = (("cos", tensor_pb2.FORM_TABLE, COS), ("sin", tensor_pb2.FORM_TABLE, SIN))
TWO_PARTS = Payload(*TWO_PARTS_OF)


def test_toeplitz_has_lengths_of_its_window(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [TOEPLITZ.serve]
    got = client.get(
        ALIBI, query_length=6, queries=(2, 6), key_length=9, keys=(3, 9), alignment="end"
    )
    assert isinstance(got, attnbias.Toeplitz)
    assert (got.query_length, got.key_length) == (4, 6)
    assert got.first_relative_position == -5
    assert got.fingerprint == FINGERPRINT
    np.testing.assert_array_equal(got.diagonals, DIAGONALS, strict=True)


def test_position_lists_set_the_shape_of_a_toeplitz(
    server: FakeServer, client: attnbias.Client
) -> None:
    server.script = [TOEPLITZ.serve]
    got = client.get(ALIBI, query_positions=range(2, 6), key_positions=range(6))
    assert got.shape == (2, 4, 6)


def test_toeplitz_of_another_size_is_data_loss(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [TOEPLITZ.serve]
    says = r"header: diagonals: got shape \(2, 9\), want 10"
    with pytest.raises(attnbias.DataLossError, match=says):
        client.get(ALIBI, query_length=4, key_length=7, alignment="end")


def test_key_row_has_requested_query_count(server: FakeServer, client: attnbias.Client) -> None:
    row = sequence(10).reshape(2, 5)
    server.script = [Payload(("row", tensor_pb2.FORM_KEY_ROW, row)).serve]
    got = client.get(
        attnbias.ALiBi(num_heads=2, variant="key_from_end"),
        query_length=4,
        queries=(1, 4),
        key_length=5,
        alignment="end",
    )
    assert isinstance(got, attnbias.KeyRow)
    assert got.shape == (2, 3, 5)
    np.testing.assert_array_equal(got.row, row, strict=True)


def test_dense_is_an_array(server: FakeServer, client: attnbias.Client) -> None:
    dense = sequence(24).reshape(2, 3, 4).astype(ml_dtypes.bfloat16)
    server.script = [Payload(("dense", tensor_pb2.FORM_DENSE, dense)).serve]
    got = client.get(
        ALIBI, query_length=3, key_length=4, alignment="end", form="dense", data_type="bf16"
    )
    np.testing.assert_array_equal(got, dense, strict=True)


def test_several_parts_return_named_tuple(server: FakeServer, client: attnbias.Client) -> None:
    server.script = [TWO_PARTS.serve]
    cos, sin = got = client.get(ROTARY, positions=2)
    np.testing.assert_array_equal(got.cos, COS, strict=True)
    np.testing.assert_array_equal(got.sin, SIN, strict=True)
    assert cos is got.cos
    assert sin is got.sin


def test_unknown_data_type_is_unimplemented(server: FakeServer, client: attnbias.Client) -> None:
    payload = table(sequence(4))
    payload.header.parts[0].data_type = 99  # type: ignore[assignment]
    server.script = [payload.serve]
    with pytest.raises(attnbias.UnimplementedError, match="data_type 99"):
        client.get(ALIBI, **SIZE)


def test_unknown_keyword_is_rejected(client: attnbias.Client, tmp_path: Path) -> None:
    given: Any = {"query_length": 4, "key_length": 4, "casual": True}
    for name, leading in [("get", ()), ("describe", ()), ("save", (tmp_path / "t.npy",))]:
        says = rf"^Client\.{name}\(\) got an unexpected keyword argument 'casual'\. .* 'causal'\?$"
        with pytest.raises(TypeError, match=says):
            getattr(client, name)(*leading, ALIBI, **given)
    with pytest.raises(TypeError, match=r"^Client\.get\(\) .* 'seq_len'$"):
        client.get(ALIBI, seq_len=4)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^Client\.get\(\) .* Did you mean 'timeout'\?$"):
        client.get(ALIBI, time_out=4)  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", [attnbias.Client, attnbias.aio.Client, attnbias.LocalServer])
def test_type_error_names_the_method_called(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected"):
        kind(nonsense=1)
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in ("leave", "rest"):
            continue
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\.{name}\(\) "):
            method(*[None] * 9)


OF_CLIENT = inspect.signature(attnbias.Client).parameters
NEVER_NONE = ["max_tensor_bytes", "metadata", "streams"]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [*itertools.product(OF_CLIENT, [object(), b"5", [1]]), *itertools.product(NEVER_NONE, [None])],
)
def test_error_names_client_argument_of_wrong_type(connect: Connect, name: str, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got .*[,;] want "):
        connect(**{name: wrong})


OF_GET = [name for name in inspect.signature(attnbias.Client.get).parameters if name != "self"]
OF_REQUEST = [field.name for field in dataclasses.fields(attnbias.Request)]


@pytest.mark.parametrize("name", sorted({*OF_GET, *OF_REQUEST} - {"options", "out"}))
def test_error_names_get_argument_of_wrong_type(connect: Connect, name: str) -> None:
    given: dict[str, Any] = {"encoding": ALIBI, "query_length": 4, "key_length": 4, "causal": True}
    if name in tensor_pb2.TableExtent.DESCRIPTOR.fields_by_name:
        given = {"encoding": ROTARY}
    elif name == "query_stride":
        given = {"encoding": attnbias.Swin((2, 2), num_heads=1, table="w")}
    with (
        connect("localhost:1", max_attempts=1) as client,
        pytest.raises((TypeError, ValueError), match=f"^{name}: got "),
    ):
        client.get(**given | {name: object()})


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", lambda client: client.save(object(), ALIBI, **SIZE)),
        ("requests", lambda client: client.get_many(object())),
        ("service", lambda client: client.health(object())),
        ("timeout", lambda client: client.info(timeout=object())),
    ],
)
def test_error_names_method_argument_of_wrong_type(
    client: attnbias.Client, name: str, call: Callable[[attnbias.Client], object]
) -> None:
    with pytest.raises(TypeError, match=f"^{name}: got .*[,;] want "):
        call(client)


def test_get_many_rejects_encodings(client: attnbias.Client) -> None:
    with pytest.raises(TypeError, match="requests: got an object of type ALiBi; want attnbias"):
        client.get_many([ALIBI])  # type: ignore[list-item]


def test_traceback_has_server_message_but_no_grpc_frames(
    server: FakeServer, client: attnbias.Client
) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    server.script = [refuses(code)]
    server.describe = [refuses(code)]
    server.logits = refuses(code)
    term = attnbias.ShawKeys(table=np.ones((3, 2)), left=1, right=1)
    rows = np.ones((1, 4, 2))
    for call in (
        lambda: client.get(ALIBI, **SIZE),
        lambda: client.describe(ALIBI, **SIZE),
        lambda: client.logits(term, rows, key_length=4, direction="bidirectional"),
    ):
        with pytest.raises(attnbias.InvalidArgumentError) as caught:
            call()
        text = "".join(traceback.format_exception(caught.value))
        assert text.count("Traceback") == 1
        assert text.endswith("InvalidArgumentError: INVALID_ARGUMENT: as planned\n")


def test_status_survives_concurrent_failed_write(
    server: FakeServer, client: attnbias.Client, waits: list[float]
) -> None:
    del waits
    server.logits = refuses(grpc.StatusCode.INVALID_ARGUMENT)
    term = attnbias.ShawKeys(table=np.ones((3, 2)), left=1, right=1)
    for _ in range(60):
        with pytest.raises(attnbias.InvalidArgumentError):
            client.logits(term, np.ones((1, 4, 2)), key_length=4, direction="bidirectional")


@pytest.mark.parametrize("kind", [attnbias.Client, attnbias.aio.Client])
def test_client_repr_shows_target_only(kind: Any) -> None:
    assert repr(kind("host:1", tls=True, token="secret")) == "Client('host:1')"


def describes(payload: Payload) -> Any:
    return lambda _request, _context: service_pb2.DescribeTensorResponse(header=payload.header)


def refuses(code: grpc.StatusCode, *details: Any) -> Any:
    return lambda _request, context: abort(context, code, "as planned", *details)


def test_describe_converts_header(server: FakeServer, client: attnbias.Client) -> None:
    server.describe = [describes(TWO_PARTS)]
    info = client.describe(ROTARY, positions=2)
    assert info.fingerprint == FINGERPRINT
    assert info.nbytes == 32
    assert info.fully_masked_rows == ()
    assert info.parts[1] == attnbias.TensorPart(
        name="sin",
        dtype=np.dtype(np.float32),
        form="table",
        shape=(2, 2),
        offset=16,
        nbytes=16,
        first_relative_position=0,
    )


@pytest.mark.parametrize(
    "rows", [[(-1, 1)], [(2, 2)], [(3, 5)], [(2, 3), (1, 2)], [(0, 1 << 62)]], ids=str
)
def test_masked_rows_are_ascending_ranges_of_the_window(
    server: FakeServer, client: attnbias.Client, rows: list[tuple[int, int]]
) -> None:
    right, wrong = (Payload(TOEPLITZ_OF, first_relative_position=-8) for _ in range(2))
    right.header.fully_masked_rows.add(begin=2, end=4)
    for begin, end in rows:
        wrong.header.fully_masked_rows.add(begin=begin, end=end)
    server.describe = [describes(right), describes(wrong)]
    asked: dict[str, Any] = {
        "query_length": 4,
        "key_length": 6,
        "query_offset": 5,
        "window_left": 1,
    }
    assert client.describe(ALIBI, **asked).fully_masked_rows == ((2, 4),)
    says = f"header.fully_masked_rows: got [{rows[-1][0]}, {rows[-1][1]})"
    with pytest.raises(attnbias.DataLossError, match=re.escape(says)):
        client.describe(ALIBI, **asked)


def test_unary_calls_are_retried(server: FakeServer, client: attnbias.Client) -> None:
    server.describe = [
        refuses(grpc.StatusCode.UNAVAILABLE),
        refuses(grpc.StatusCode.UNAVAILABLE),
        describes(TOEPLITZ),
    ]
    assert client.describe(ALIBI, **SIZE).nbytes == DIAGONALS.nbytes
    assert server.describe_calls == 3


@pytest.mark.parametrize(
    ("pushback", "calls"), [("1", 2), ("-1", 1), ("", 1), ("soon", 1), ("1.5", 1)]
)
@pytest.mark.parametrize("timeout", [60, None])
def test_retry_pushback_is_honored(
    server: FakeServer, pushback: str, calls: int, timeout: float | None, connect: Connect
) -> None:
    def refuses_so(_request: Any, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "as planned")

    server.describe = [refuses_so, describes(TOEPLITZ)]
    with connect(server.target, timeout=timeout) as client:
        if calls == 1:
            with pytest.raises(attnbias.UnavailableError) as caught:
                client.describe(ALIBI, **SIZE)
            assert caught.value.retry_delay == float("inf")
        else:
            client.describe(ALIBI, **SIZE)
    assert server.describe_calls == calls


def test_errors_carry_status_details(server: FakeServer, client: attnbias.Client) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(
        field="alibi.num_heads", description="d"
    )
    server.describe = [
        refuses(
            grpc.StatusCode.INVALID_ARGUMENT,
            error_details_pb2.BadRequest(field_violations=[violation]),
            error_details_pb2.ErrorInfo(reason="TENSOR_TOO_LARGE_FOR_UNARY"),
            retry_info(0.5),
        )
    ]
    with pytest.raises(attnbias.InvalidArgumentError) as caught:
        client.describe(ALIBI, **SIZE)
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.message == "as planned"
    assert error.field_violations == (attnbias.FieldViolation("alibi.num_heads", "d"),)
    assert error.reason == "TENSOR_TOO_LARGE_FOR_UNARY"
    assert error.retry_delay == 0.5
    assert len(error.details) == 3


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_code_has_an_error_class(
    server: FakeServer, client: attnbias.Client, code: grpc.StatusCode, connect: Connect
) -> None:
    server.describe = [refuses(code)]
    with connect(server.target, max_attempts=1) as once, pytest.raises(attnbias.Error) as caught:
        once.describe(ALIBI, **SIZE)
    name = type(caught.value).__name__.removesuffix("Error").lower()
    assert caught.value.code is code
    if name:
        assert name == code.name.replace("_", "").lower()
    else:
        assert code in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.ALREADY_EXISTS}


def test_deadline_is_a_timeout_error() -> None:
    assert issubclass(attnbias.DeadlineExceededError, TimeoutError)
    assert str(attnbias.DeadlineExceededError("late")) == "DEADLINE_EXCEEDED: late"


def test_info_converts_server_limits(server: FakeServer, client: attnbias.Client) -> None:
    server.info = service_pb2.GetServerInfoResponse(
        version="1.2.3",
        backends=["cpu"],
        instruction_sets=["avx2", "scalar"],
        encodings=["t5"],
        data_types=[tensor_pb2.DATA_TYPE_BF16],
        limits=service_pb2.ServerLimits(max_unary_bytes=7),
    )
    info = client.info()
    assert info.version == "1.2.3"
    assert info.instruction_sets == ("avx2", "scalar")
    assert info.dtypes == ("bf16",)
    assert info.limits.max_unary_bytes == 7


def test_list_tables_follows_pages(server: FakeServer, client: attnbias.Client) -> None:
    t5 = encodings_pb2.T5(num_heads=8, num_buckets=32, bidirectional=False)
    t5.bucket_rule = encodings_pb2.BUCKET_RULE_FLOAT32_LOG
    t5.table.name = "m/decoder"
    t5.table.layout = tensor_pb2.TABLE_LAYOUT_BUCKETS_HEADS
    decoder = service_pb2.TableInfo(
        name="m/decoder",
        sha256="ab" * 32,
        data_type=tensor_pb2.DATA_TYPE_BF16,
        shape=[32, 8],
        source="model.safetensors:w",
        spec=encodings_pb2.TensorSpec(t5=t5),
    )
    positions = service_pb2.TableInfo(
        name="n", sha256="cd" * 32, data_type=tensor_pb2.DATA_TYPE_F32, shape=[4]
    )
    server.tables = {
        "": service_pb2.ListTablesResponse(tables=[decoder], next_page_token="2"),
        "2": service_pb2.ListTablesResponse(tables=[positions]),
    }
    first, second = client.list_tables()
    assert first == attnbias.TableInfo(
        name="m/decoder",
        sha256="ab" * 32,
        dtype=np.dtype(ml_dtypes.bfloat16),
        shape=(32, 8),
        source="model.safetensors:w",
        encoding=attnbias.T5(
            num_heads=8,
            num_buckets=32,
            bidirectional=False,
            bucket_rule="float32_log",
            table="m/decoder",
            table_layout="buckets_heads",
        ),
    )
    assert first.encoding
    assert first.encoding.to_spec().t5 == t5
    assert (second.name, second.encoding) == ("n", None)


def test_list_tables_omits_layout_of_single_layout_encodings(
    server: FakeServer, client: attnbias.Client
) -> None:
    def ref(name: str) -> tensor_pb2.TableRef:
        return tensor_pb2.TableRef(name=name, layout=tensor_pb2.TABLE_LAYOUT_BUCKETS_HEADS)

    positions = encodings_pb2.LearnedAbsolute(table=ref("m/positions"), offset=2)
    hidden = encodings_pb2.MlpLayer(weight=ref("m/0.weight"), bias=ref("m/0.bias"))
    mlp = encodings_pb2.MlpBias(
        num_heads=2,
        layers=[hidden, encodings_pb2.MlpLayer(weight=ref("m/2.weight"))],
        activation=encodings_pb2.ACTIVATION_RELU,
        window=[8, 8],
        coordinates=encodings_pb2.COORDINATES_LOG2_NORMALIZED,
        output=encodings_pb2.MLP_OUTPUT_SIGMOID_16,
    )
    infos = [
        table_info(name, spec=spec)
        for name, spec in (
            ("a", encodings_pb2.TensorSpec(learned_absolute=positions)),
            ("b", encodings_pb2.TensorSpec(mlp_bias=mlp)),
        )
    ]
    server.tables = {"": service_pb2.ListTablesResponse(tables=infos)}
    first, second = (info.encoding for info in client.list_tables())
    assert first == attnbias.LearnedAbsolute(table="m/positions", offset=2)
    assert second == attnbias.SwinV2(
        [attnbias.MlpLayer("m/0.weight", bias="m/0.bias"), attnbias.MlpLayer("m/2.weight")],
        window=(8, 8),
        num_heads=2,
    )


def table_info(name: str, **fields: Any) -> service_pb2.TableInfo:
    given: Any = {"sha256": "0" * 64, "data_type": tensor_pb2.DATA_TYPE_F32, "shape": [1]} | fields
    return service_pb2.TableInfo(name=name, **given)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sha256": "A" * 64}, "table m has sha256 A{64}, want 64 lowercase hex digits"),
        ({"shape": []}, r"table m has shape \[\], want lengths of at least 1"),
        ({"shape": [0, 1 << 62]}, r"table m has shape \[0, 4611686018427387904\], want lengths"),
        ({"shape": [2, -1]}, r"table m has shape \[2, -1\], want lengths"),
        (
            {"spec": encodings_pb2.TensorSpec(learned_relative={"left": 1})},
            "table m has an invalid spec",
        ),
    ],
)
def test_invalid_table_info_is_data_loss(
    server: FakeServer, client: attnbias.Client, fields: dict[str, Any], says: str
) -> None:
    server.tables = {"": service_pb2.ListTablesResponse(tables=[table_info("m", **fields)])}
    with pytest.raises(attnbias.DataLossError, match=says):
        client.list_tables()


ESCAPES = "\x1b]0;owned\x07\r\n\x9b2J\u202eline\u2028"


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE])
def test_server_messages_are_escaped(
    server: FakeServer, connect: Connect, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field=ESCAPES, description=ESCAPES)
    details = (
        error_details_pb2.ErrorInfo(reason=ESCAPES, domain=ESCAPES),
        error_details_pb2.RequestInfo(request_id=ESCAPES),
        error_details_pb2.BadRequest(field_violations=[violation]),
    )
    status = status_pb2.Status(code=code.value[0], message=ESCAPES)
    for detail in details:
        status.details.add().Pack(detail)

    def abort_so(_request: Any, context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, ESCAPES)

    server.describe = [abort_so]
    with connect(server.target, max_attempts=2) as client, pytest.raises(attnbias.Error) as caught:
        client.describe(ALIBI, **SIZE)
    error = caught.value
    (violated,) = error.field_violations
    said = [str(error), repr(error), error.message, error.reason, error.request_id, repr(violated)]
    said += [violated.field, violated.description, caplog.text.rstrip("\n")]
    assert all("owned" in each for each in said[:-1])
    assert all(map(str.isprintable, said))
    assert bool(caplog.records) == (code is grpc.StatusCode.UNAVAILABLE)


def test_table_info_repr_is_escaped(server: FakeServer, client: attnbias.Client) -> None:
    server.tables = {
        "": service_pb2.ListTablesResponse(tables=[table_info(ESCAPES, source=ESCAPES)])
    }
    (info,) = client.list_tables()
    assert info.name == ESCAPES
    assert repr(info).isprintable()


def test_table_of_unknown_type_is_unimplemented(
    server: FakeServer, client: attnbias.Client
) -> None:
    table = service_pb2.TableInfo(name="m", data_type=99)  # type: ignore[arg-type]
    server.tables = {"": service_pb2.ListTablesResponse(tables=[table])}
    with pytest.raises(attnbias.UnimplementedError, match="table m has data_type 99"):
        client.list_tables()


def test_server_limits_match_contract() -> None:
    fields = {field.name for field in service_pb2.ServerLimits.DESCRIPTOR.fields}
    assert set(attnbias.ServerLimits.__annotations__) == fields


def test_health_reports_serving(server: FakeServer, client: attnbias.Client) -> None:
    assert client.health()
    server.health = health_pb2.HealthCheckResponse.NOT_SERVING
    assert not client.health("readiness")


def test_safetensors_hold_all_parts(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    server.script = [TWO_PARTS.serve]
    info = client.save(tmp_path / "rotary.safetensors", ROTARY, positions=2)
    assert info.fingerprint == FINGERPRINT
    loaded = load_file(tmp_path / "rotary.safetensors")
    np.testing.assert_array_equal(loaded["cos"], COS, strict=True)
    np.testing.assert_array_equal(loaded["sin"], SIN, strict=True)


def test_safetensors_metadata_describes_toeplitz(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    server.script = [TOEPLITZ.serve]
    client.save(
        str(tmp_path / "bias.safetensors"), ALIBI, query_length=4, key_length=6, alignment="end"
    )
    with safetensors.safe_open(tmp_path / "bias.safetensors", framework="numpy") as file:
        assert file.metadata() == {
            "attnbias.fingerprint": FINGERPRINT,
            "attnbias.encoding_fingerprint": "e" * 64,
            "attnbias.query_length": "4",
            "attnbias.key_length": "6",
            "attnbias.diagonals.first_relative_position": "-5",
            "attnbias.diagonals.vectors": "false",
            "attnbias.resolved_spec": (
                '{"pair": {"query_length": "4", "key_length": "6", "query_offset": "2", '
                '"queries": {"end": "4"}, "keys": {"end": "6"}}, "alibi": {"num_heads": 2}}'
            ),
        }


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_bf16_files_keep_their_bits(
    server: FakeServer, client: attnbias.Client, tmp_path: Path, suffix: str
) -> None:
    values = sequence(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    server.script = [table(values).serve]
    path = tmp_path / f"t.{suffix}"
    client.save(path, attnbias.Sinusoidal(dim=3), positions=2, data_type="bf16")
    if suffix == "npy":
        loaded = np.load(path).view(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(loaded, values, strict=True)
    else:
        assert path.read_bytes().endswith(values.tobytes())
        assert b'"dtype":"BF16","shape":[2,3]' in path.read_bytes()


def test_failed_save_leaves_the_old_file(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    path = tmp_path / "t.npy"
    path.write_bytes(b"old")
    server.script = [TWO_PARTS.serve]
    with pytest.raises(ValueError, match=r"a \.npy holds one array, got cos, sin"):
        client.save(path, ROTARY, positions=2)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["t.npy"]


def test_unknown_suffix_is_rejected_before_any_call(
    server: FakeServer, client: attnbias.Client, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"want a name that ends in \.npy or \.safetensors"):
        client.save(tmp_path / "t.bin", ALIBI)
    assert server.requests == []


def test_progress_bar_counts_to_the_end(
    server: FakeServer, client: attnbias.Client, capfd: pytest.CaptureFixture[str]
) -> None:
    server.script = [table(sequence(4096)).serve]
    client.get(attnbias.Sinusoidal(dim=1), positions=4096, progress=True)
    assert "16.0k/16.0k" in capfd.readouterr().err


def test_progress_bar_reaches_total_on_terminal(
    server: FakeServer, client: attnbias.Client
) -> None:
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 100))
    server.script = [table(sequence(4096)).serve]
    with os.fdopen(terminal, "w") as stderr, contextlib.redirect_stderr(stderr):
        client.get(attnbias.Sinusoidal(dim=1), positions=4096, progress=True)
    shown = b""
    with contextlib.suppress(OSError):  # after all writes
        while part := os.read(reader, 1 << 12):
            shown += part
    os.close(reader)
    assert b"%|" in shown
    assert b"16.0k/16.0k" in shown


@pytest.mark.parametrize("progress", [None, False])
def test_no_progress_bar_by_default_without_terminal(
    server: FakeServer,
    client: attnbias.Client,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    progress: bool | None,
) -> None:
    monkeypatch.setattr("attnbias._transport.download._WORTHWHILE_BYTES", 0)
    monkeypatch.setattr("attnbias._transport.download._PATIENCE", 0)
    server.script = [table(sequence(4096)).serve]
    client.get(attnbias.Sinusoidal(dim=1), positions=4096, progress=progress)
    assert capfd.readouterr().err == ""
