# SPDX-License-Identifier: Apache-2.0
"""The suite's Python clients: for each line of JSON, gets the tensor it describes and prints the
last outcome as a line of JSON. `driver.py sync|aio`
"""

import asyncio
import hashlib
import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import safetensors

import attnbias
from attnbias import aio
from attnbias._public.google.rpc import error_details_pb2
from attnbias.v1 import encodings_pb2


def encoding_of(asked: dict[str, Any]) -> attnbias.Encoding[Any]:
    classes = {each.field: each for each in attnbias.Encoding.__subclasses__()}
    field = encodings_pb2.TensorSpec.DESCRIPTOR.fields_by_name[asked["encoding"]]
    return classes[field.name](**in_classes(field.message_type, asked["fields"]))


def in_classes(owner: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns a message's fields, with arrays for tables and objects for nested messages."""
    return {name: in_class(owner.fields_by_name.get(name), value) for name, value in fields.items()}


def in_class(field: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [in_class(field, each) for each in value]
    if not isinstance(value, dict):
        return value
    if "hex" in value:
        raw = bytes.fromhex(value["hex"])
        return np.frombuffer(raw, np.dtype(value["dtype"])).reshape(value["shape"])
    kind = field.message_type
    return getattr(attnbias, kind.name)(**in_classes(kind, value))


def options_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Returns the options with windows as tuples, which JSON lacks."""
    windows = ("positions", "queries", "keys", "heads")
    return {
        name: tuple(value) if name in windows and isinstance(value, list) else value
        for name, value in asked["options"].items()
    }


Request = dict[str, Any] | None
"""A tensor; None for the list of tables."""


async def ask_aio(path: pathlib.Path, asked: Request, settings: dict[str, Any], times: int) -> Any:
    async with aio.Client(**settings) as client:
        if asked is None:
            return await client.list_tables()
        for _ in range(times):
            info = await client.save(path, encoding_of(asked), **options_of(asked))
    return info


def ask_sync(path: pathlib.Path, asked: Request, settings: dict[str, Any], times: int) -> Any:
    with attnbias.Client(**settings) as client:
        if asked is None:
            return client.list_tables()
        for _ in range(times):
            info = client.save(path, encoding_of(asked), **options_of(asked))
    return info


def outcome(kind: str, asked: Request, settings: dict[str, Any]) -> dict[str, Any]:
    times = settings.pop("times", 1)
    if "ca" in settings:
        settings["tls"] = attnbias.Tls(ca=settings.pop("ca"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "tensor.safetensors")
        try:
            if kind == "aio":
                got = asyncio.run(ask_aio(path, asked, settings, times))
            else:
                got = ask_sync(path, asked, settings, times)
        except attnbias.Error as error:
            return {
                "status": error.code.name,
                "reason": error.reason,
                "request_id": error.request_id,
                "fields": [
                    violation.field
                    for detail in error.details
                    if isinstance(detail, error_details_pb2.BadRequest)
                    for violation in detail.field_violations
                ],
                "message": str(error),
            }
        if asked is None:
            return {"tables": [table.name for table in got]}
        return {"fingerprint": got.fingerprint, "parts": parts_in(path)}


def parts_in(path: pathlib.Path) -> dict[str, Any]:
    return {
        name: {
            "dtype": part["dtype"],
            "shape": list(part["shape"]),
            "sha256": hashlib.sha256(part["data"]).hexdigest(),
        }
        for name, part in safetensors.deserialize(path.read_bytes())
    }


if __name__ == "__main__":
    for line in sys.stdin:
        settings = json.loads(line)
        print(json.dumps(outcome(sys.argv[1], settings.pop("request"), settings)), flush=True)
