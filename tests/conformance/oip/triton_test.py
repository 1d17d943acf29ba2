# SPDX-License-Identifier: Apache-2.0
"""Triton's own client, unmodified, and the code in the guide."""

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

from tests.support.server_process import running_server

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "open-inference-protocol.md"
ALIBI: dict[str, Any] = {"alibi.num_heads": 4, "pair.query_length": 5, "pair.key_length": 7}
SLOPES = np.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], np.float32)


def alibi_bias() -> Any:
    query, key = np.ogrid[:5, :7]
    return -SLOPES[:, None, None] * np.abs(query + 2 - key).astype(np.float32)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_server() as running:
        yield running


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as connected:
        yield connected


def dense(**more: Any) -> dict[str, Any]:
    return ALIBI | {"pair.alignment": "ALIGNMENT_END", "output.form": "FORM_DENSE"} | more


def test_triton_client_reads_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("alibi")
    assert not client.is_model_ready("bert")
    assert client.get_server_metadata().name == "attnbias"
    names = [model.name for model in client.get_model_repository_index().models]
    assert {"alibi", "rotary", "t5"} <= set(names)
    for name in names:
        assert client.get_model_metadata(name).name == name
        assert client.get_model_config(name).config.name == name
    with pytest.raises(triton.InferenceServerException, match="got 'bert', want one of"):
        client.get_model_metadata("bert")


@pytest.mark.parametrize("data_type", ["F64", "F32", "F16", "BF16"])
def test_triton_client_infers(client: Any, data_type: str) -> None:
    result = client.infer(
        "alibi", [], parameters=dense(**{"output.data_type": f"DATA_TYPE_{data_type}"})
    )
    array = result.as_numpy("dense")
    assert np.array_equal(array.astype(np.float32), alibi_bias())
    assert array.dtype.itemsize == {"F64": 8, "F32": 4}.get(data_type, 2)


def test_triton_client_sends_inputs_and_selects_outputs(client: Any) -> None:
    positions = np.array([[5, 0, 7]])
    given = triton.InferInput("table.position_ids", [1, 3], "INT64")
    given.set_data_from_numpy(positions)
    result = client.infer(
        "rotary",
        [given],
        parameters={"rotary.head_dim": 4, "rotary.rope_theta": 100.0},
        outputs=[triton.InferRequestedOutput("cos")],
    )
    want = np.cos(positions.reshape(-1, 1) * np.array([1, 0.1, 1, 0.1]))
    assert np.abs(result.as_numpy("cos") - want).max() < 1e-7
    assert result.as_numpy("sin") is None


def test_triton_client_streams_and_reads_statistics(client: Any) -> None:
    before = client.get_inference_statistics("alibi").model_stats[0].inference_count
    answers: list[Any] = []
    client.start_stream(lambda result, error: answers.append((result, error)))
    for parameters in (dense(), {"alibi.num_heads": 0}, dense()):
        client.async_stream_infer(
            "alibi", [], parameters=parameters, enable_empty_final_response=True
        )
    client.stop_stream()
    assert [error is None for _, error in answers] == [True, False, True]
    assert "alibi.num_heads: not set, want" in str(answers[1][1])
    for result, _ in (answers[0], answers[2]):
        assert np.array_equal(result.as_numpy("dense"), alibi_bias().reshape(-1))
        shape = result.get_output("dense").parameters["shape"].string_param
        assert tuple(json.loads(shape)) == alibi_bias().shape
        assert result.get_response().parameters["triton_final_response"].bool_param
    after = client.get_inference_statistics("alibi").model_stats[0].inference_count
    assert after - before == 2


def test_triton_errors_name_the_triton_parameter(client: Any) -> None:
    with pytest.raises(triton.InferenceServerException, match=r"^\[.*\] priority: got a sett"):
        client.infer("alibi", [], parameters=dense(), priority=1)
    with pytest.raises(triton.InferenceServerException, match="UNIMPLEMENTED"):
        client.load_model("alibi")


def test_triton_client_infers_over_unix_socket(tmp_path: pathlib.Path) -> None:
    target = f"unix:{tmp_path}/attnbias.sock"
    with running_server(f"--listen={target}"), triton.InferenceServerClient(target) as connected:
        result = connected.infer("alibi", [], parameters=dense())
        assert np.array_equal(result.as_numpy("dense"), alibi_bias())


def test_guide_code_prints_documented_output(address: str) -> None:
    text = GUIDE.read_text()
    code = "".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    command = [sys.executable, "-c", code.replace("localhost:50051", address)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == shown


def published() -> dict[str, Any]:
    """Returns the protocol's messages and enums as Triton's client defines them."""
    found: dict[str, Any] = {}

    def add(owner: Any, prefix: str) -> None:
        nested = owner.message_type if prefix == "" else owner.nested_type
        for message in nested:
            found[prefix + message.name] = message
            add(message, f"{prefix}{message.name}.")
        found.update({prefix + enum.name: enum for enum in owner.enum_type})

    for module in (service_pb2, model_config_pb2):
        add(descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb), "")
    return found


def test_every_field_matches_the_protocol() -> None:
    """Compares each field's name, number and type; fields omitted here are rejected as unknown."""
    command = ["protoc", f"-I{ROOT}/proto", "--descriptor_set_out=/dev/stdout"]
    done = subprocess.run([*command, "inference/inference.proto"], capture_output=True, check=True)
    (ours,) = descriptor_pb2.FileDescriptorSet.FromString(done.stdout).file
    theirs = published()

    def kinds(message: Any) -> dict[str, Any]:
        return {
            field.name: (field.number, field.type, field.label, field.type_name.split(".")[-1])
            for field in message.field
        }

    def compare(message: Any, name: str) -> int:
        wanted = kinds(theirs[name])
        for field, kind in kinds(message).items():
            assert wanted[field] == kind, f"{name}.{field}"
        return len(message.field) + sum(
            compare(inner, f"{name}.{inner.name}") for inner in message.nested_type
        )

    assert sum(compare(message, message.name) for message in ours.message_type) > 90
    for enum in ours.enum_type:
        values = {value.name: value.number for value in theirs[enum.name].value}
        assert {value.name: value.number for value in enum.value}.items() <= values.items()
    methods = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    (service,) = ours.service
    for method in service.method:
        assert methods[method.name].input_type.name == method.input_type.split(".")[-1]
        assert methods[method.name].output_type.name == method.output_type.split(".")[-1]
