# SPDX-License-Identifier: Apache-2.0
"""Sharded torch and JAX tensors: the boxes that a process holds, and their assembly.

Imports torch and JAX only when they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attnbias._arrays.axes import chunk
from attnbias._arrays.convert import to_torch
from attnbias._arrays.structure import Structure

if TYPE_CHECKING:
    import jax
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

Box = tuple[tuple[int, int], ...]
"""A part of a tensor: the half-open bounds along each axis."""

Numbers = npt.NDArray[Any] | Structure
"""The contents of a box."""

Sharding: TypeAlias = "OnMesh | OnJax"
"""How a tensor is placed on devices."""


def to_sharding(
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    sharding: jax.sharding.Sharding | None,
    out: Any,
) -> Sharding | None:
    """Returns the sharding for arguments of ``Client.get``; None if all are None.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: arguments contradict each other, or the sharding is not supported.
    """
    names = {"device_mesh": device_mesh, "sharding": sharding, "out": out}
    named = [name for name, value in names.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{named[1]}: given together with {named[0]}, want one of the two")
    if sharding is not None:
        return OnJax(sharding)
    if device_mesh is not None:
        return OnMesh(device_mesh, placements)
    if placements is not None:
        raise ValueError("placements: got a value without device_mesh, want both")
    return None


class OnMesh:
    """A ``DTensor``: one box, determined by this process's coordinates in the mesh."""

    def __init__(self, device_mesh: Any, placements: Any) -> None:
        module = sys.modules.get("torch.distributed.device_mesh")
        if module is None or not isinstance(device_mesh, module.DeviceMesh):
            got = type(device_mesh).__name__
            raise TypeError(f"device_mesh: got {got}, want a torch DeviceMesh")
        from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415

        is_list = isinstance(placements, (list, tuple))
        if not is_list or len(placements) != device_mesh.ndim:
            raise ValueError(
                f"placements: got {placements!r}, want one for each of the mesh's "
                f"{device_mesh.ndim} axes: Shard(dim) or Replicate()"
            )
        for index, placement in enumerate(placements):
            # Checks the exact types: torch's strided shards are subclasses, but not contiguous.
            if type(placement) not in (Shard, Replicate):
                raise ValueError(
                    f"placements[{index}]: got {placement!r}, want Shard(dim) or Replicate(): "
                    "the server returns complete values, never partial sums"
                )
        self._mesh = device_mesh
        self._placements = tuple(placements)

    def boxes(self, shape: tuple[int, ...]) -> list[Box]:
        """Returns the distinct boxes that this process holds for a tensor with this shape.

        Raises ValueError if such a tensor cannot be sharded this way.
        """
        coordinate = self._mesh.get_coordinate()
        box = [(0, length) for length in shape]
        for axis, placement in enumerate(self._placements):
            if not placement.is_shard():
                continue
            if not -len(shape) <= placement.dim < len(shape):
                raise ValueError(
                    f"placements[{axis}]: got {placement!r} for a tensor of shape {shape}, want a "
                    f"dim in [{-len(shape)}, {len(shape)})"
                )
            if coordinate is not None:
                begin, end = box[placement.dim]
                ranks = self._mesh.size(axis)
                first, last = chunk(end - begin, coordinate[axis], ranks)
                box[placement.dim] = (begin + first, begin + last)
        return [] if coordinate is None else [tuple(box)]  # None outside the mesh

    def assemble(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], boxes: Mapping[Box, Numbers]
    ) -> DTensor:
        """Returns the tensor of which this process holds ``boxes``."""
        import torch  # noqa: PLC0415
        from torch.distributed.tensor import DTensor  # noqa: PLC0415

        numbers = next(iter(boxes.values()), np.empty(0, dtype))
        local = to_torch(numbers, self._mesh.device_type).contiguous()
        if local.numel() == 0:
            local = local.new_empty(local.shape)  # NumPy's empty arrays may have strides of 0
        return DTensor.from_local(
            local,
            self._mesh,
            self._placements,
            shape=torch.Size(shape),
            stride=torch.empty(shape, device="meta").stride(),
        )


class OnJax:
    """A ``jax.Array``: one box for each of this process's devices; some boxes may be equal."""

    def __init__(self, sharding: Any) -> None:
        jax = sys.modules.get("jax")
        if jax is None or not isinstance(sharding, jax.sharding.Sharding):
            got = type(sharding).__name__
            raise TypeError(
                f"sharding: got {got}, want a jax.sharding.Sharding, such as NamedSharding"
            )
        self._sharding = sharding

    def boxes(self, shape: tuple[int, ...]) -> list[Box]:
        """Implements OnMesh's method."""
        return list(dict.fromkeys(self._by_device(shape).values()))

    def assemble(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], boxes: Mapping[Box, Numbers]
    ) -> jax.Array:
        """Implements OnMesh's method."""
        import jax  # noqa: PLC0415

        arrays = [
            numbers.to_jax(device)
            if isinstance(numbers := boxes[box], Structure)
            else jax.device_put(numbers, device)
            for device, box in self._by_device(shape).items()
        ]
        return jax.make_array_from_single_device_arrays(shape, self._sharding, arrays)

    def _by_device(self, shape: tuple[int, ...]) -> dict[jax.Device, Box]:
        try:
            slices = self._sharding.addressable_devices_indices_map(shape)
        except (IndexError, ValueError) as error:
            raise ValueError(
                f"sharding: got {self._sharding} for a tensor of shape {shape}, want one that "
                f"divides its axes and names no others: {error}"
            ) from error
        return {
            device: tuple(cut.indices(length)[:2] for cut, length in zip(index, shape, strict=True))
            for device, index in slices.items()
        }
