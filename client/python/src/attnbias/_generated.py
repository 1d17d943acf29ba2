# SPDX-License-Identifier: Apache-2.0
"""Creates a generated module's message classes, using API available since protobuf 4.25."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import (
    any_pb2,
    descriptor_pb2,  # noqa: F401  # registers it in OURS
    descriptor_pool,
    duration_pb2,
    message,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.reflection import GeneratedProtocolMessageType

OURS: Final = descriptor_pool.Default()
"""Holds our own contract; its options extend messages in this pool."""
PUBLIC: Final = descriptor_pool.DescriptorPool()
"""Holds google.rpc and grpc.health.v1, since other packages may add theirs to the default pool."""


def load(module: dict[str, Any], pool: Any, serialized: bytes) -> None:
    """Adds a FileDescriptorProto to a pool and its declarations to a module's globals."""
    file = pool.AddSerializedFile(serialized)
    module["DESCRIPTOR"] = file
    module.update(file.extensions_by_name)
    for name, enum in file.enum_types_by_name.items():
        module[name] = EnumTypeWrapper(enum)
        module.update({value.name: value.number for value in enum.values})
    for name, descriptor in file.message_types_by_name.items():
        module[name] = _message_class(descriptor, name, module["__name__"])


def is_repeated(field: FieldDescriptor) -> bool:
    """Reports whether a field holds a list, like ``field.is_repeated`` in protobuf 6.31."""
    return isinstance(field.default_value, list)


def _message_class(descriptor: Descriptor, path: str, module: str) -> type[message.Message]:
    names: dict[str, Any] = {
        nested.name: _message_class(nested, f"{path}.{nested.name}", module)
        for nested in descriptor.nested_types
    }
    names |= {"DESCRIPTOR": descriptor, "__module__": module, "__qualname__": path}
    make: Any = GeneratedProtocolMessageType
    made: type[message.Message] = make(descriptor.name, (message.Message,), names)
    return made


for _imported in (any_pb2, duration_pb2):
    load({"__name__": __name__}, PUBLIC, _imported.DESCRIPTOR.serialized_pb)
