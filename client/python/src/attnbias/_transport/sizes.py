# SPDX-License-Identifier: Apache-2.0
"""The sizes of payloads that a client has come to know, by their specs."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from attnbias._cache.cache import key_of

if TYPE_CHECKING:
    from attnbias.v1 import encodings_pb2

_MOST_PAYLOADS: Final = 1024
_MOST_SPEC_BYTES: Final = 64 << 10  # a larger one is better asked for as a stream than remembered
_MESSAGE_BYTES: Final = (4 << 20) - (64 << 10)
"""The largest payload of ``GetTensor``: 4 MiB less room for its header (docs/protocol.md)."""


class Sizes:
    """The sizes that were learnt last. Threads share it."""

    def __init__(self) -> None:
        self._nbytes: OrderedDict[str, int] = OrderedDict()
        self._fit_none = False

    def learn(self, spec: encodings_pb2.TensorSpec, nbytes: int) -> None:
        """Hears how large a payload is."""
        if spec.ByteSize() > _MOST_SPEC_BYTES:
            return
        key = key_of(spec)
        self._nbytes.pop(key, None)
        self._nbytes[key] = nbytes
        while len(self._nbytes) > _MOST_PAYLOADS:
            self._nbytes.popitem(last=False)

    def fit_none(self) -> None:
        """Hears that this client gets nothing in one message."""
        self._fit_none = True

    def fits_message(self, spec: encodings_pb2.TensorSpec) -> bool:
        """Whether a payload is known to fit one message."""
        if self._fit_none or spec.ByteSize() > _MOST_SPEC_BYTES:
            return False
        return self._nbytes.get(key_of(spec), _MESSAGE_BYTES + 1) <= _MESSAGE_BYTES
