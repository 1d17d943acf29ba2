# SPDX-License-Identifier: Apache-2.0
"""A TensorSpec over the Open Inference Protocol: its fields as parameters and inputs, derived by
reflection, and outputs as parts of a payload.
"""

import itertools
import json
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
from google.protobuf import json_format

from tests.support.contract import inference_message
from tests.support.ways import Part, Parts

SERVICE = "inference.GRPCInferenceService"
DATA_TYPES = {"FP64": "F64", "FP32": "F32", "FP16": "F16", "BF16": "BF16", "INT32": "I32"}
ELEMENT_BYTES = {"FP64": 8, "FP32": 4, "FP16": 2, "BF16": 2, "INT32": 4}
OIP_TYPES = {short: name for name, short in DATA_TYPES.items()}


def _asked(of_kind: Any, method: str) -> Any:
    """Returns the callable for a method, made by one of a channel's factories."""
    return of_kind(
        f"/{SERVICE}/{method}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=inference_message(f"{method}Response").FromString,
    )


def call(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    return _asked(channel.unary_unary, method)(inference_message(f"{method}Request")(**fields))


def infer(channel: grpc.Channel, request: Any) -> Any:
    return _asked(channel.unary_unary, "ModelInfer")(request)


def stream_infer(channel: grpc.Channel, requests: Iterable[Any]) -> Iterator[Any]:
    replies: Iterator[Any] = _asked(channel.stream_stream, "ModelStreamInfer")(iter(requests))
    return replies


def by_infer(channel: grpc.Channel, spec: Any) -> Parts:
    response = infer(channel, request_of(spec))
    return {
        output.name: Part(DATA_TYPES[output.datatype], tuple(output.shape), data)
        for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def by_stream_infer(channel: grpc.Channel, spec: Any) -> Parts:
    """Returns the concatenated chunks."""
    parts: Parts = {}
    replies = list(stream_infer(channel, [request_of(spec)]))
    for number, reply in enumerate(replies, 1):
        assert not reply.error_message
        response = reply.infer_response
        final = response.parameters["triton_final_response"].bool_param
        assert final == (number == len(replies))
        (output,), (piece,) = response.outputs, response.raw_output_contents
        shape = tuple(json.loads(output.parameters["shape"].string_param))
        before = parts.get(output.name, Part(DATA_TYPES[output.datatype], shape, b""))
        (elements,), element_bytes = output.shape, ELEMENT_BYTES[output.datatype]
        assert len(piece) == elements * element_bytes
        assert output.parameters["begin"].int64_param * element_bytes == len(before.data)
        parts[output.name] = Part(before.data_type, shape, before.data + piece)
    return parts


def request_of(spec: Any, **fields: Any) -> Any:
    request = inference_message("ModelInferRequest")(
        model_name=spec.WhichOneof("encoding"), **fields
    )
    for field, value in spec.ListFields():
        _add(request, field.name, value)
    return request


def set_parameter(request: Any, path: str, value: Any) -> None:
    """Sets a parameter according to the value's type, as Triton's client does."""
    kinds = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    setattr(request.parameters[path], kinds[type(value)], value)


def _add(request: Any, path: str, message: Any) -> None:
    name = message.DESCRIPTOR.name
    if name == "PositionList":
        return _add_positions(request, path, [message])
    if name == "TableRef" and message.HasField("inline_table"):
        inline = message.inline_table
        data_type = inline.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[
            inline.data_type
        ]
        short = data_type.name.removeprefix("DATA_TYPE_")
        request.inputs.add(name=path, datatype=OIP_TYPES[short], shape=inline.shape)
        request.raw_input_contents.append(inline.data)
    if not message.ListFields():
        set_parameter(request, path, "{}")
    for field, value in message.ListFields():
        inside = f"{path}.{field.name}"
        if field.name == "inline_table":
            continue
        if field.message_type is not None and field.message_type.name == "PositionList":
            _add_positions(request, inside, value if field.is_repeated else [value])
        elif field.message_type is not None and field.is_repeated:
            _add_parts(request, inside, value)
        elif field.message_type is not None:
            _add(request, inside, value)
        elif field.is_repeated:
            set_parameter(request, inside, json.dumps(list(value)))
        elif field.enum_type is not None:
            set_parameter(request, inside, field.enum_type.values_by_number[value].name)
        else:
            set_parameter(request, inside, value)
    return None


def _add_parts(request: Any, path: str, parts: Any) -> None:
    if all(part.ListFields() for part in parts):
        for index, part in enumerate(parts):
            _add(request, f"{path}.{index}", part)
    else:  # a path cannot name an empty message
        set_parameter(request, path, json.dumps(list(map(json_format.MessageToDict, parts))))


def _add_positions(request: Any, path: str, lists: Iterable[Any]) -> None:
    axes = [[*positions.positions, *positions.doubles] for positions in lists]
    numbers = [*itertools.chain.from_iterable(axes)]
    are_doubles = any(isinstance(number, float) for number in numbers)
    shape = [len(axes), len(axes[0])] if len(axes) > 1 else [len(axes[0])]
    datatype = "FP64" if are_doubles else "INT64"
    request.inputs.add(name=path, datatype=datatype, shape=shape)
    kind = "d" if are_doubles else "q"
    request.raw_input_contents.append(struct.pack(f"<{len(numbers)}{kind}", *numbers))
