# SPDX-License-Identifier: Apache-2.0
"""Messages built from proto/ at run time, so that these tests do not depend on our clients."""

import functools
import pathlib
import subprocess
import tempfile
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
SERVICE = "attnbias.v1.AttentionBiasService"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x00"  # a ServerReflectionRequest
DENSE = {"form": "FORM_DENSE"}


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(
            [
                "protoc",
                f"-I{PROTO}",
                "--include_imports",
                f"--descriptor_set_out={file.name}",
                "attnbias/v1/service.proto",
                "inference/inference.proto",
            ],
            check=True,
        )
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(
            pathlib.Path(file.name).read_bytes()
        )
    pool = descriptor_pool.DescriptorPool()
    for descriptor in descriptors.file:
        pool.Add(descriptor)
    return pool


@functools.cache
def message(name: str) -> Any:
    """Returns the class for a message in attnbias.v1."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"attnbias.v1.{name}"))


@functools.cache
def option(descriptor: Any, name: str) -> Any:
    """Returns the value of one of the contract's options on a message, a field or an enum value."""
    extension = _pool().FindExtensionByName(f"attnbias.v1.{name}")
    kind = message_factory.GetMessageClass(extension.containing_type)
    return kind.FromString(descriptor.GetOptions().SerializeToString()).Extensions[extension]


@functools.cache
def inference_message(name: str) -> Any:
    """Returns the class for an Open Inference Protocol message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"inference.{name}"))


def header_checksum(reply: Any) -> int:
    """Returns the CRC-32C of a reply's header, which protobuf serializes here in the same way as in
    the server."""
    return int(crc32c.crc32c(reply.header.SerializeToString()))


def nested(numbers: list[int], payload: bytes) -> bytes:
    """Returns a serialized message whose only field is numbers[0], whose only field is numbers[1],
    etc."""
    for number in reversed(numbers):
        payload = _varint(number << 3 | 2) + _varint(len(payload)) + payload
    return payload


def _varint(number: int) -> bytes:
    encoded = b""
    while number >= 0x80:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def spec(**fields: Any) -> Any:
    """Returns a TensorSpec."""
    return message("TensorSpec")(**fields)


def alibi(heads: int, queries: int, keys: int | None = None, **output: Any) -> Any:
    """Returns a TensorSpec for symmetric ALiBi, in diagonal form unless `output` changes it."""
    pair = {"query_length": queries, "key_length": keys or queries, "alignment": "ALIGNMENT_END"}
    return spec(alibi={"num_heads": heads}, pair=pair, output=output)


def dense_alibi(heads: int, queries: int, keys: int) -> npt.NDArray[np.float32]:
    """Returns Press et al.'s bias for 2^n heads, with the last query at the last key; exact in
    F32."""
    slopes = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    distance = np.abs(np.arange(queries)[:, None] + (keys - queries) - np.arange(keys)[None, :])
    return (slopes[:, None, None] * -distance).astype("<f4")  # an integer 0 has no sign


def with_large_table() -> Any:
    """Returns a TensorSpec with a 2 MiB table of zeros, the largest that a request may contain."""
    table = {"data_type": "DATA_TYPE_F32", "shape": [4096, 128], "data": bytes(2 << 20)}
    fields = {"num_heads": 128, "num_buckets": 4096, "max_distance": 8192, "bidirectional": True}
    pair = {"query_length": 4, "key_length": 4}
    return spec(t5=fields | {"table": {"inline_table": table}}, pair=pair)


def sinusoid(positions: int, dim: int, **output: Any) -> Any:
    """Returns a TensorSpec for an interleaved sinusoidal table."""
    return spec(sinusoidal={"dim": dim}, table={"positions": {"end": positions}}, output=output)
