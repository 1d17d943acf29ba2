# SPDX-License-Identifier: Apache-2.0
"""The memory that a payload is written into: the caller's own, or new. Decides what fits."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attnbias._arrays.convert import is_torch_tensor, to_numpy
from attnbias._errors import ResourceExhaustedError

if TYPE_CHECKING:
    from attnbias._spec.info import TensorInfo
    from attnbias.v1 import service_pb2

_RAW_FORMATS = frozenset("bBc")
_LARGEST_BLOCK = 31 << 20


class Payload(NamedTuple):
    """What a request is answered with."""

    info: TensorInfo
    memory: npt.NDArray[np.uint8]
    header: service_pb2.TensorHeader
    """What the server said of it, which ``info`` is made of."""


@functools.cache
def keep_freed_memory() -> None:
    """Has glibc reuse the memory of received messages; elsewhere does nothing.

    By itself it returns a message's pages to the kernel, only to get cleared
    ones for the next: a third of a download's CPU time. The size from which it
    does so follows the largest block freed, up to 32 MiB; so one is freed, of
    which no page was ever touched.
    """
    np.empty(_LARGEST_BLOCK, np.uint8)


def require_within(nbytes: int, limit: int) -> None:
    """Refuses a payload that is larger than the caller said that one may be."""
    if nbytes > limit:
        raise ResourceExhaustedError(
            f"max_tensor_bytes: the tensor has {nbytes} bytes, this client takes at most {limit}"
        )


def allocate(info: TensorInfo) -> npt.NDArray[np.uint8]:
    """New memory for a payload."""
    return np.empty(info.nbytes, np.uint8)


def borrow(out: Any, info: TensorInfo) -> npt.NDArray[np.uint8]:
    """The caller's memory as bytes; copies nothing.

    Args:
        out: an array, a torch CPU tensor, or anything with the buffer protocol.
            Raw bytes take any payload of their size, elements only their own type,
            in the payload's shape or flat.
        info: what is to be written.

    Raises:
        TypeError: out has no memory that can be reached.
        ValueError: out does not fit; the message says what came and what was wanted.
    """
    array = _as_array(out)
    if not array.flags.c_contiguous:
        raise ValueError(f"out: got strides {array.strides}, want C-contiguous memory")
    if not array.flags.writeable:
        raise ValueError("out: got read-only memory, want writeable")
    wanted = {part.dtype for part in info.parts}
    raw = array.dtype.char in _RAW_FORMATS
    if not raw and wanted != {array.dtype}:
        names = ", ".join(sorted(str(dtype) for dtype in wanted))
        raise ValueError(f"out: got dtype {array.dtype}, want {names}")
    if array.nbytes != info.nbytes:
        shapes = ", ".join(str(part.shape) for part in info.parts)
        raise ValueError(
            f"out: got {array.nbytes} bytes of shape {array.shape}, "
            f"want {info.nbytes} bytes of shape {shapes}"
        )
    if not raw and array.ndim != 1 and array.shape != _shape_of(info):
        shapes = " and ".join(str(part.shape) for part in info.parts)
        raise ValueError(f"out: got shape {array.shape}, want {shapes}, or one axis")
    return array.reshape(-1).view(np.uint8)


def _shape_of(info: TensorInfo) -> tuple[int, ...] | None:
    """The shape of a payload as one array; None where its parts have several."""
    shape = info.parts[0].shape
    if any(part.shape != shape for part in info.parts):
        return None
    return shape if len(info.parts) == 1 else (len(info.parts), *shape)


def _as_array(out: Any) -> npt.NDArray[Any]:
    if isinstance(out, np.ndarray):
        return out
    if is_torch_tensor(out):
        if out.device.type != "cpu":
            raise ValueError(f"out: got a tensor on {out.device}, want one on the CPU")
        return to_numpy(out)
    try:
        return np.asarray(memoryview(out))
    except TypeError as error:
        name = type(out).__name__
        raise TypeError(f"out: got {name}, want an array, a CPU tensor or a buffer") from error


def part_of(memory: npt.NDArray[np.uint8], info: TensorInfo, index: int) -> npt.NDArray[Any]:
    """One part of a payload as an array over its memory."""
    part = info.parts[index]
    raw = memory[part.offset : part.offset + part.nbytes]
    return raw.view(part.dtype).reshape(part.shape)
