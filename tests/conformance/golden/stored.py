# SPDX-License-Identifier: Apache-2.0
"""The stored requests and answers, and the function that sends them to a server.

Each line of requests/NAME.jsonl contains a request for the encoding or term of that name, in
Protobuf's JSON: `tensor`, a TensorSpec, or `logits`, the ComputeLogitsRequests in one call. Numbers
that would take up a lot of space are written as recipes: strings from which `expanded` regenerates
them.

The answer follows: `parts` (the name, form, type and shape of each) and the payload's `sha256`; for
logits, `answer` (type, heads and width) and the `sha256` of all rows' data; for an error,
`changed`, the field whose change made a served request invalid, and `code`.
"""

import base64
import contextlib
import hashlib
import json
import math
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import ml_dtypes
import numpy as np
from google.protobuf import json_format
from safetensors.numpy import save_file

from tests.support.contract import message
from tests.support.server import Server, Stub
from tests.support.ways import MAX_UNARY_BYTES

Json = dict[str, Any]

STORE = pathlib.Path(__file__).with_name("requests")
# Requests for encodings that the contract no longer has, in files named after their replacements.
TRANSLATED = STORE / "translated"
TYPES: dict[str, Any] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "I32": "<i4",
}
# Keys in a line that describe the answer.
ANSWER = ("parts", "answer", "sha256", "code")
TIMEOUT = 60
# Name of the mounted table.
MOUNTED_NAME, MOUNTED = "golden", "uniform 0 F32 32x4"


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Stub]:
    """Yields a stub for a server with everything that the stored requests need."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "golden.safetensors")
        save_file({"table": numbers(MOUNTED)}, path)
        mounted = f"--table={MOUNTED_NAME}={path}:table"
        with Server("--memory-budget=1GiB", mounted, *flags) as server, server.connect() as stub:
            yield stub


class Line(NamedTuple):
    path: pathlib.Path
    number: int
    content: Json

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(STORE)}:{self.number}"

    @property
    def is_refused(self) -> bool:
        return "code" in self.content


def names() -> list[str]:
    """Returns the contract's encodings and terms, each of which has a file."""
    oneofs = (("TensorSpec", "encoding"), ("LogitsSpec", "term"))
    return [
        field.name
        for owner, oneof in oneofs
        for field in message(owner).DESCRIPTOR.oneofs_by_name[oneof].fields
    ]


def owner_of(name: str) -> Any:
    """Returns the message descriptor for an encoding or term."""
    fields = (message(owner).DESCRIPTOR.fields_by_name for owner in ("TensorSpec", "LogitsSpec"))
    return next(of[name].message_type for of in fields if name in of)


def lines(name: str) -> list[Line]:
    return [
        Line(path, i, json.loads(line))
        for path in (STORE / f"{name}.jsonl", TRANSLATED / f"{name}.jsonl")
        if path.exists()
        for i, line in enumerate(path.read_text().splitlines(), 1)
    ]


def words(seed: str, count: int) -> Any:
    """Returns 64-bit integers that depend only on the seed."""
    return np.frombuffer(hashlib.shake_256(seed.encode()).digest(8 * count), "<i8")


def numbers(recipe: str) -> Any:
    """Returns the array that "KIND SEED TYPE SHAPE" describes: "uniform 7 BF16 32x4".

    "uniform" values are in [-4, 4], "integers" in [-8, 8]. "units" has one power of two per row and
    zeros elsewhere, so that sums of its products are exact in any order.
    """
    kind, seed, data_type, sides = recipe.split()
    shape = tuple(map(int, sides.split("x")))
    drawn = words(seed, math.prod(shape)).reshape(shape)
    if kind == "uniform":
        drawn = drawn * 2.0**-61
    elif kind == "integers":
        drawn = drawn % 17 - 8
    elif kind == "units":
        row = drawn[..., :1]
        drawn = np.where(np.arange(shape[-1]) == row % shape[-1], 2.0 ** (row // 64 % 5 - 2), 0)
    else:
        raise ValueError(recipe)
    # Rounds through F32, since not every library narrows F64 to BF16 in one rounding.
    return drawn.astype("<f8" if data_type == "F64" else "<f4").astype(TYPES[data_type])


def drawn_positions(recipe: str) -> list[int]:
    """Returns the positions that "drawn SEED COUNT FIRST LAST" describes."""
    seed, count, first, last = map(int, recipe.split()[1:])
    return [int(first + word % (last - first + 1)) for word in words(str(seed), count)]


def expanded(value: Any) -> Any:
    """Returns the JSON with recipes replaced by their numbers."""
    if isinstance(value, list):
        return [expanded(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {name: expanded(item) for name, item in value.items()}
    if " " in made.get("data", ""):
        made["data"] = base64.b64encode(numbers(made["data"]).tobytes()).decode()
    if isinstance(made.get("positions"), str):
        made["positions"] = drawn_positions(made["positions"])
    return made


def tensor_spec(content: Json) -> Any:
    return json_format.ParseDict(expanded(content["tensor"]), message("TensorSpec")())


def logits_requests(content: Json) -> list[Any]:
    """Returns the messages of a call."""
    empty = message("ComputeLogitsRequest")
    return [json_format.ParseDict(expanded(request), empty()) for request in content["logits"]]


def name_of(owner: Any, field: str) -> str:
    """Returns the short name of an enum value: "TOEPLITZ" for FORM_TOEPLITZ."""
    values = owner.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    return str(values[getattr(owner, field)].name.removeprefix(prefix))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def payload(stub: Stub, spec: Any) -> tuple[Any, bytes]:
    """Returns a stream's header and bytes; a unary call must agree if they fit in one."""
    replies = list(stub.stream(spec, timeout=TIMEOUT))
    header, data = replies[0].header, b"".join(reply.data for reply in replies)
    if len(data) <= MAX_UNARY_BYTES:
        whole = stub.get(message("GetTensorRequest")(spec=spec), timeout=TIMEOUT)
        assert whole.data == data
    return header, data


def tensor_answer(stub: Stub, content: Json) -> Json:
    header, data = payload(stub, tensor_spec(content))
    parts = [
        [part.name, name_of(part, "form"), name_of(part, "data_type"), list(part.shape)]
        for part in header.parts
    ]
    return {"parts": parts, "sha256": sha256(data)}


def logits_answer(stub: Stub, content: Json) -> Json:
    replies = list(stub.logits(logits_requests(content), timeout=TIMEOUT))
    header = replies[0].header
    data = b"".join(reply.data for reply in replies)
    return {
        "answer": [name_of(header, "data_type"), header.num_heads, header.width],
        "sha256": sha256(data),
    }


def answer(stub: Stub, content: Json) -> Json:
    """Returns the server's answer: parts and digest, or its error code."""
    try:
        return (tensor_answer if "tensor" in content else logits_answer)(stub, content)
    except grpc.RpcError as error:
        return {"code": error.code().name}
