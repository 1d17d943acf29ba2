# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol: its model descriptions, its errors and their texts, and streams
whose requests fail. access_paths_test checks its tensors.
"""

import hashlib
import json
import math
import pathlib
import struct
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from tests.support import ways
from tests.support.contract import alibi, inference_message, message
from tests.support.inference import (
    SERVICE,
    by_stream_infer,
    call,
    infer,
    request_of,
    set_parameter,
    stream_infer,
)
from tests.support.server import Details, Server, Stub, eventually, refused, settled

Parameters = dict[str, Any]
HEADS_AND_LENGTHS: Parameters = {"alibi.num_heads": 2, "pair.query_length": 3, "pair.key_length": 3}


@pytest.fixture
def channel(stub: Stub) -> grpc.Channel:
    return stub.channel


def ask(model: str, parameters: Parameters, **fields: Any) -> Any:
    request = inference_message("ModelInferRequest")(model_name=model, **fields)
    for path, value in parameters.items():
        set_parameter(request, path, value)
    return request


def encodings() -> list[str]:
    oneof = message("TensorSpec").DESCRIPTOR.oneofs_by_name["encoding"]
    return [field.name for field in oneof.fields]


def test_every_encoding_is_a_model(channel: grpc.Channel) -> None:
    index = call(channel, "RepositoryIndex").models
    assert [(model.name, model.version, model.state) for model in index] == [
        (name, "1", "READY") for name in encodings()
    ]
    for name in encodings():
        assert call(channel, "ModelReady", name=name, version="1").ready
        metadata = call(channel, "ModelMetadata", name=name)
        assert (metadata.name, list(metadata.versions)) == (name, ["1"])
        config = call(channel, "ModelConfig", name=name).config
        assert config.name == name
        assert config.model_transaction_policy.decoupled
        for kind in ("input", "output"):
            assert [(tensor.name, tensor.datatype) for tensor in getattr(metadata, f"{kind}s")] == [
                (tensor.name, oip_type(tensor.data_type)) for tensor in getattr(config, kind)
            ]


def oip_type(number: int) -> str:
    enum = inference_message("ModelInput").DESCRIPTOR.fields_by_name["data_type"].enum_type
    return str(enum.values_by_number[number].name.removeprefix("TYPE_"))


def test_server_metadata_and_readiness(channel: grpc.Channel, stub: Stub) -> None:
    assert call(channel, "ServerLive").live
    eventually(lambda: call(channel, "ServerReady").ready, "ready")
    metadata = call(channel, "ServerMetadata")
    info = stub.info(message("GetServerInfoRequest")())
    assert (metadata.name, metadata.version) == ("attnbias", info.version)
    assert not call(channel, "ModelReady", name="bert").ready
    assert not call(channel, "ModelReady", name="alibi", version="2").ready


def test_model_config_lists_contract_fields(channel: grpc.Channel) -> None:
    """Expects a parameter per field, with its default, and an input per table and list."""
    config = call(channel, "ModelConfig", name="t5").config
    parameters = {path: value.string_value for path, value in config.parameters.items()}
    assert parameters["t5.num_heads"] == ""
    assert parameters["t5.num_buckets"] == "32"
    assert parameters["t5.bucket_rule"] == "BUCKET_RULE_EXACT"
    assert parameters["output.mask.window_left"] == ""
    assert "pair.queries.begin" in parameters
    inputs = {tensor.name for tensor in config.input}
    assert inputs == {"t5.table", "pair.query_positions", "pair.key_positions"}
    assert all(tensor.optional for tensor in config.input)


@pytest.mark.parametrize("model", encodings())
def test_every_parameter_listed_can_be_set(channel: grpc.Channel, model: str) -> None:
    """None is rejected as an unknown field."""
    config = call(channel, "ModelConfig", name=model).config
    for path in config.parameters:
        error = refused(lambda path=path: infer(channel, ask(model, {path: "?"})))
        assert "no such field" not in error.details()
    for tensor in config.input:
        request = ask(model, {})
        request.inputs.add(name=tensor.name, datatype="BOOL", shape=[1])
        request.raw_input_contents.append(b"1")
        assert (
            refused(lambda request=request: infer(channel, request))
            .details()
            .startswith(f"{tensor.name}.datatype: got 'BOOL', want ")
        )


BAD_PARAMETERS: dict[str, tuple[Parameters, str]] = {
    "an unknown field": (
        {"alibi.heads": 2},
        "alibi.heads: alibi has no such field, want a field that ModelConfig lists: alibi, pair, "
        "output",
    ),
    "another model's": ({"t5.num_heads": 2}, "t5.num_heads: alibi has no such field"),
    "another extent": ({"table.positions.end": 2}, "table.positions.end: alibi has no such field"),
    "too deep": ({"alibi.num_heads.x": 2}, "alibi.num_heads.x: alibi has no such field"),
    "nothing": ({"": 2}, ": alibi has no such field"),
    "a number as text": ({"alibi.num_heads": "many"}, "alibi.num_heads: got many, want int32"),
    "a bool as a number": ({"alibi.num_heads": True}, "alibi.num_heads: got true, want int32"),
    "a number too large": (
        {"alibi.num_heads": 1 << 40},
        "alibi.num_heads: got 1099511627776, want int32",
    ),
    "a fraction": ({"alibi.num_heads": 2.5}, "alibi.num_heads: got 2.5, want int32"),
    "a number as a bool": ({"output.mask.causal": 1}, "output.mask.causal: got 1, want bool"),
    "no such value": ({"pair.alignment": "LAST"}, "pair.alignment: got 'LAST', want START or END"),
    "no list": ({"alibi.slopes": "1, 2"}, "alibi.slopes: got 1, 2, want a JSON list, each double"),
    "text after the value": (
        {"alibi.slopes": '[1, 2], "num_heads": 3'},
        'alibi.slopes: got [1, 2], "num_heads": 3, want a JSON list, each double',
    ),
    "no object": (
        {"pair.queries": "3"},
        "pair.queries: got 3, want a message of type Range in JSON",
    ),
    "twice": (
        {"pair.queries": '{"end": 2}', "pair.queries.end": 3},
        "pair.queries.end: set twice, want it once",
    ),
    "both fields of a oneof": (
        {"pair.alignment": "ALIGNMENT_END", "pair.query_offset": 1},
        "pair.query_offset: set together with alignment, want one of them",
    ),
    **{
        f"Triton's {name}": ({name: 1}, f"{name}: got a Triton scheduler setting, want none")
        for name in ("priority", "timeout", "sequence_id", "sequence_start", "sequence_end")
    },
    "no extent": ({"alibi.num_heads": 2}, "pair.query_length: not set, want "),
    "not allowed": (
        {"alibi.num_heads": -1, "pair.query_length": 3, "pair.key_length": 3},
        "alibi.num_heads: got -1, want an integer in [1, 65536]",
    ),
    "too deep a list": ({"alibi.slopes": "[" * 60000}, "alibi.slopes: got [[["),
    "too long a list": (
        {"alibi.slopes": "[" + "0," * 40000 + "0]"},
        "alibi.slopes: got JSON of 80003 bytes, want at most 65536",
    ),
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_error_names_invalid_parameter(channel: grpc.Channel, name: str) -> None:
    parameters, want = BAD_PARAMETERS[name]
    error = refused(lambda: infer(channel, ask("alibi", parameters)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(want)
    field = want.partition(": ")[0]
    assert Details(error).fields == ([field] if field else [])


def t5_request(**tensor: Any) -> Any:
    request = ask(
        "t5",
        {"t5.num_heads": 2, "t5.bidirectional": True, "pair.query_length": 3, "pair.key_length": 3},
    )
    request.inputs.add(**{"name": "t5.table", "datatype": "FP32", "shape": [32, 2], **tensor})
    return request


def test_raw_and_typed_input_contents_are_equivalent(channel: grpc.Channel) -> None:
    table = np.random.default_rng(7).standard_normal((32, 2)).astype("f4")
    raw = t5_request()
    raw.raw_input_contents.append(table.tobytes())
    typed = t5_request(contents={"fp32_contents": table.ravel().tolist()})
    (want,) = infer(channel, raw).raw_output_contents
    assert list(infer(channel, typed).raw_output_contents) == [want]
    assert np.frombuffer(want, "<f4").reshape(2, 5)[:, 2].tolist() == table[0].tolist()

    doubles = t5_request(datatype="FP64", contents={"fp64_contents": table.ravel().tolist()})
    assert list(infer(channel, doubles).raw_output_contents) == [want]


BAD_INPUTS: dict[str, tuple[dict[str, Any], list[bytes], str]] = {
    "too few bytes": ({}, [bytes(255)], "t5.table: got 255 bytes, want 256"),
    "no numbers": ({}, [], "t5.table: got 0 bytes, want 256"),
    "a negative length": (
        {"shape": [-1, 2]},
        [bytes(256)],
        "t5.table.shape: got an axis of length -1",
    ),
    "a shape too large": (
        {"shape": [1 << 40, 1 << 40]},
        [bytes(256)],
        "t5.table.shape: got an axis of length 1099511627776",
    ),
    "a type without numbers": ({"datatype": "BOOL"}, [bytes(64)], "t5.table.datatype: got 'BOOL'"),
    "a type that tables lack": (
        {"datatype": "INT64"},
        [bytes(512)],
        "t5.table.datatype: got 'INT64', want FP64, FP32, FP16 or BF16",
    ),
    "whole numbers": (
        {"datatype": "INT32"},
        [bytes(256)],
        "t5.table.datatype: got 'INT32', want FP64, FP32, FP16 or BF16",
    ),
    "no input": ({"name": "t5.num_heads"}, [bytes(256)], "t5.num_heads: got an input, want a par"),
    "unknown": ({"name": "t5.bias"}, [bytes(256)], "t5.bias: t5 has no such field"),
    "not finite": ({}, [struct.pack("<64f", *[float("nan")] * 64)], "t5.table.inline_table: "),
    "one too many": ({}, [bytes(256)] * 2, "raw_input_contents: got 2, want 1"),
    "of another type": (
        {"contents": {"fp64_contents": [0.0] * 32}},
        [],
        "t5.table.contents: got numbers of a type other than FP32, want that type",
    ),
    "in both places": (
        {"contents": {"fp32_contents": [0.0] * 64}},
        [bytes(256)],
        "t5.table.contents: set together with raw_input_contents",
    ),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_error_names_invalid_input(channel: grpc.Channel, name: str) -> None:
    tensor, raw, want = BAD_INPUTS[name]
    request = t5_request(**tensor)
    request.raw_input_contents.extend(raw)
    error = refused(lambda: infer(channel, request))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(want)


def test_table_given_twice_is_rejected(channel: grpc.Channel) -> None:
    request = t5_request()
    request.raw_input_contents.append(bytes(256))
    set_parameter(request, "t5.table.name", "some")
    error = refused(lambda: infer(channel, request))
    assert error.details() == ("t5.table: set twice, want it once")


@pytest.mark.parametrize(
    ("shape", "want"),
    [
        ([], "table.position_ids.shape: got 0 axes, want 1 or 2"),
        ([1, 1, 1], "table.position_ids.shape: got 3 axes, want 1 or 2"),
        ([1 << 59, 0], "table.position_ids.shape: got an axis of length 0, want lengths"),
        ([0, 1 << 60], "table.position_ids.shape: got an axis of length 0, want lengths"),
        ([65, 1], "table.position_ids.shape: got 65 lists, want at most 64"),
    ],
)
def test_positions_need_one_or_two_axes(channel: grpc.Channel, shape: list[int], want: str) -> None:
    request = ask("rotary", {"rotary.head_dim": 8})
    request.inputs.add(name="table.position_ids", datatype="INT64", shape=shape)
    request.raw_input_contents.append(bytes(8 * math.prod(shape)))
    assert refused(lambda: infer(channel, request)).details().startswith(want)


def test_positions_accept_doubles(channel: grpc.Channel) -> None:
    def asked(datatype: str, kind: str) -> Any:
        request = ask("rotary", {"rotary.head_dim": 8})
        request.inputs.add(name="table.position_ids", datatype=datatype, shape=[3])
        request.raw_input_contents.append(struct.pack(f"<3{kind}", 2, 3, 4))
        return request

    integers, doubles = (infer(channel, asked(*of)) for of in (("INT64", "q"), ("FP64", "d")))
    assert doubles.raw_output_contents == integers.raw_output_contents
    error = refused(lambda: infer(channel, asked("FP32", "f")))
    want = "table.position_ids.datatype: got 'FP32', want INT64 or FP64"
    assert error.details() == want


def test_unsupported_protocol_features_are_unimplemented(channel: grpc.Channel) -> None:
    request = ask("alibi", HEADS_AND_LENGTHS)
    output = request.outputs.add(name="diagonals")
    output.parameters["shared_memory_region"].string_param = "here"
    error = refused(lambda: infer(channel, request))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.details().startswith("diagonals.parameters: got 'shared_memory_region'")
    load = channel.unary_unary(f"/{SERVICE}/RepositoryModelLoad")
    assert refused(lambda: load(b"")).code() == grpc.StatusCode.UNIMPLEMENTED


def test_short_enum_names_are_accepted(channel: grpc.Channel) -> None:
    short, whole = (
        infer(channel, ask("alibi", HEADS_AND_LENGTHS | {"output.form": name}))
        for name in ("DENSE", "FORM_DENSE")
    )
    assert short == whole
    assert [output.name for output in short.outputs] == ["dense"]


def test_grid_response_states_column_axes(channel: grpc.Channel) -> None:
    parameters = {"sinusoidal.dim": 6, "sinusoidal.axes": "[{}, {}]", "table.grid": "[2, 3]"}
    parameters |= {"sinusoidal.axis_dims": "[4, 2]", "table.grid_offset": "[0, -5]"}
    response = infer(channel, ask("sinusoidal", parameters))
    names = [output.name for output in response.outputs]
    assert names == ["positions.axis0", "positions.axis1"]
    assert response.parameters["column_axes"].string_param == "[0, 0, 0, 0, 1, 1]"
    parameters["output.form"] = "FORM_DENSE"
    response = infer(channel, ask("sinusoidal", parameters))
    assert [list(output.shape) for output in response.outputs] == [[6, 6]]
    assert "column_axes" not in response.parameters


def test_outputs_are_selected_by_name(channel: grpc.Channel) -> None:
    parameters = {"rotary.head_dim": 8, "table.positions.end": 3}
    request = ask("rotary", parameters, outputs=[{"name": "sin"}], id="it")
    response = infer(channel, request)
    everything = infer(channel, ask("rotary", parameters))
    assert response.id == "it"
    assert [output.name for output in everything.outputs] == ["cos", "sin"]
    assert [output.name for output in response.outputs] == ["sin"]
    assert list(response.raw_output_contents) == [everything.raw_output_contents[1]]

    request = ask("rotary", parameters, outputs=[{"name": "tan"}])
    assert refused(lambda: infer(channel, request)).details() == (
        "outputs: got 'tan', want cos or sin: this request has no other outputs"
    )
    request = ask("rotary", parameters, outputs=[{"name": "sin"}] * 60000)
    want = "outputs: got 'sin' twice, want it once"
    assert refused(lambda: infer(channel, request)).details() == want
    (reply,) = stream_infer(channel, [request])
    assert reply.error_message == f"INVALID_ARGUMENT: {want}"


@pytest.mark.parametrize(
    ("method", "fields", "want"),
    [
        ("ModelInfer", {"model_name": "bert"}, "model_name: got 'bert', want one of sinusoidal, "),
        (
            "ModelInfer",
            {"model_name": "alibi", "model_version": "2"},
            "model_version: got '2', want '1' or nothing",
        ),
        ("ModelMetadata", {"name": "bert"}, "name: got 'bert'"),
        ("ModelConfig", {"name": "alibi", "version": "x"}, "version: got 'x'"),
        ("ModelStatistics", {"name": "bert"}, "name: got 'bert'"),
    ],
)
def test_unknown_model_is_not_found(
    channel: grpc.Channel, method: str, fields: dict[str, str], want: str
) -> None:
    error = refused(lambda: call(channel, method, **fields))
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert Details(error).reason == "MODEL_NOT_FOUND"
    assert Details(error).fields == [want.partition(":")[0]]
    assert error.details().startswith(want)


def test_oversized_unary_answer_is_rejected(channel: grpc.Channel) -> None:
    big = alibi(16, 4096, form="FORM_DENSE")
    error = refused(lambda: infer(channel, request_of(big)))
    assert error.details() == (
        f"outputs: got {1 << 30} bytes, want at most {256 << 20} in one message; use "
        "ModelStreamInfer, or request less"
    )


def test_stream_continues_after_errors(channel: grpc.Channel, stub: Stub) -> None:
    dense = alibi(3, 600, form="FORM_DENSE")
    requests = [
        request_of(dense, id="a"),
        ask("alibi", {"alibi.heads": 1}, id="b"),
        ask("bert", {}, id="c"),
        ask("alibi", {}, id="c" * 257),
        ask("alibi", HEADS_AND_LENGTHS, id="d"),
    ]
    replies = list(stream_infer(channel, requests))
    # The 4.3 MB is streamed in three chunks.
    said = [(reply.infer_response.id, reply.error_message.partition(" ")[0]) for reply in replies]
    assert said == [
        *[("a", "")] * 3,
        ("b", "INVALID_ARGUMENT:"),
        ("c", "NOT_FOUND:"),
        ("c" * 256 + "... (257 bytes)", "INVALID_ARGUMENT:"),
        ("d", ""),
    ]
    assert by_stream_infer(channel, dense) == ways.by_stream(stub, dense)


def test_stream_without_requests_is_empty(channel: grpc.Channel) -> None:
    assert list(stream_infer(channel, [])) == []


def test_statistics_count_requests(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with server.connect() as stub:
        infer(stub.channel, ask("alibi", HEADS_AND_LENGTHS))
        refused(lambda: infer(stub.channel, ask("alibi", {})))
        list(stream_infer(stub.channel, [ask("alibi", HEADS_AND_LENGTHS), ask("alibi", {})]))
        settled(server)
        (alibi_statistics,) = call(stub.channel, "ModelStatistics", name="alibi").model_stats
        stats = alibi_statistics.inference_stats
        assert (stats.success.count, stats.fail.count) == (2, 2)
        assert stats.success.ns > 0
        assert alibi_statistics.inference_count == 2
        assert alibi_statistics.last_inference > 0
        everything = call(stub.channel, "ModelStatistics").model_stats
        assert [model.name for model in everything] == encodings()
        assert sum(model.inference_count for model in everything) == 2


def test_cancelled_stream_releases_memory(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with server.connect() as stub:
        replies: Any = stream_infer(stub.channel, [request_of(alibi(64, 2048, form="FORM_DENSE"))])
        next(replies)
        replies.cancel()
        settled(server)


def test_inference_protocol_can_be_disabled(start_server: Callable[..., Server]) -> None:
    server = start_server("--oip=false")
    with server.connect() as stub:
        error = refused(lambda: call(stub.channel, "ServerLive"))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_policy_applies_to_inference_protocol(
    start_server: Callable[..., Server], tmp_path: pathlib.Path
) -> None:
    tokens, policy = tmp_path / "tokens", tmp_path / "policy.json"
    tokens.write_text(f"worker sha256:{hashlib.sha256(b'secret').hexdigest()}\n")
    policy.write_text(
        json.dumps({"callers": {"worker": {"methods": ["ServerMetadata", "ModelInfer"]}}})
    )
    server = start_server(f"--tokens={tokens}", f"--policy={policy}")
    with server.connect() as stub:
        ask_about = stub.channel.unary_unary(f"/{SERVICE}/ServerMetadata")
        ask_index = stub.channel.unary_unary(f"/{SERVICE}/RepositoryIndex")
        metadata = [("authorization", "Bearer secret")]
        assert call(stub.channel, "ServerLive").live
        assert refused(lambda: ask_about(b"")).code() == grpc.StatusCode.UNAUTHENTICATED
        ask_about(b"", metadata=metadata)
        error = refused(lambda: ask_index(b"", metadata=metadata))
        assert error.code() == grpc.StatusCode.PERMISSION_DENIED
        assert error.details() == "worker may not call RepositoryIndex"
