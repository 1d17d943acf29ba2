# SPDX-License-Identifier: Apache-2.0
"""What is asked for: an encoding, an extent, an output; by the contract's names."""

from __future__ import annotations

import itertools
import reprlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, Required, TypeAlias, TypedDict

from attnbias._checks import require_instance
from attnbias._spec.arguments import set_fields
from attnbias._spec.fields import Encoding
from attnbias._spec.options import Asked, CompactOptions, GridOptions, ListOptions, RequestOptions
from attnbias.v1 import encodings_pb2, tensor_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Placement

CompactForm: TypeAlias = Literal["table", "toeplitz", "key_row", "block_toeplitz"]


class AnyCall(RequestOptions, total=False):
    """All keyword arguments of ``Client.get`` except where its answer lies."""

    progress: bool | None
    timeout: float | None


class NewCall(TypedDict, total=False):
    """Those that do not describe the tensor, of a call whose answer lies in new memory."""

    out: None
    progress: bool | None
    timeout: float | None


class CompactCall(CompactOptions, NewCall, total=False):
    """Those that give an encoding's compact form."""

    form: CompactForm | None


class GridCall(GridOptions, NewCall):
    """Those over a grid."""


class DenseCall(ListOptions, NewCall, total=False):
    """Those that give an array."""

    form: Required[Literal["dense"]]


class MeshCall(AnyCall):
    """Those that give a DTensor."""

    device_mesh: DeviceMesh
    placements: Sequence[Placement]


class JaxCall(AnyCall):
    """Those that give a jax.Array."""

    sharding: jax.sharding.Sharding


@dataclass(frozen=True, eq=False, repr=False)
class Request(Asked):
    """One tensor to ask for.

    A window is a half-open tuple (begin, end), or n for (0, n).

    Attributes:
        encoding: what to compute, as ``attnbias.ALiBi(num_heads=8)``.
        positions: a window of consecutive positions, of an encoding of absolute positions.
        position_ids: explicit positions instead; for an encoding of several axes, one sequence for
            each. Of sinusoidal and rotary tables they may be fractions.
        grid: lengths of a grid instead, for an encoding of several axes one for each: all its
            tokens, row-major. The result is a ``GridTable``, or with form "dense" an array.
        grid_offset: position of the grid's first token on each axis; None is 0.
        query_length: how many queries the whole has.
        key_length: how many keys, the first at position 0.
        alignment: "start" where the first query meets the first key, "end" where the last meets the
            last. Not needed where there are as many queries as keys.
        query_offset: position of query 0, instead of alignment.
        queries: a window of the queries, and so for keys and heads; None is all. Of an encoding
            whose tokens lie in a grid, of these.
        keys: a window of the keys.
        heads: a window of the heads.
        query_positions: explicit positions instead of query_length, alignment and queries.
        key_positions: explicit positions instead of key_length and keys; queries then need a
            query_offset, or explicit positions too.
        query_stride: for each axis of a window of tokens the stride n of queries: every n-th token
            is a query; None is 1.
        data_type: "f64", "f32", "f16", "bf16", or numpy's or torch's dtype. None is f32 (i32 for
            buckets).
        form: None is the encoding's compact form; or "dense".
        values: "bias" (None too), or "buckets", the indices into its learned table.
        scale: factor applied before the one rounding.
        causal: masks keys after the query.
        window_left: masks keys more than so many positions before the query.
        window_right: masks keys more than so many positions after the query.
        fill_value: what masked elements become; None is -inf. Goes with a mask alone: causal,
            window_left or window_right.
        fill_lowest: they become the data type's lowest number instead.
    """

    def __post_init__(self) -> None:
        require_instance(self.encoding, Encoding, "encoding", _WANTED_ENCODING)
        taken = _EXTENTS[self.encoding.extent]
        for name in itertools.chain(*_EXTENTS.values()):
            if name not in taken and getattr(self, name) is not None:
                takes = f"{self.encoding.field} takes {', '.join(taken)}"
                raise ValueError(f"{name}: got a value, want none: {takes}")
        if self.causal or self.window_left is not None or self.window_right is not None:
            return
        for name in ("fill_value", "fill_lowest"):
            value = getattr(self, name)
            if value is not None and value is not False:
                message = f"{name}: got {value!r} without causal, window_left or window_right"
                raise ValueError(message)

    def brief(self) -> str:
        """What is asked for in one line, as it was said."""
        said = [repr(self.encoding)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not field.default:
                said.append(f"{field.name}={reprlib.repr(value)}")
        return ", ".join(said)

    def to_spec(self) -> encodings_pb2.TensorSpec:
        """The contract's message.

        Raises:
            TypeError: a value is of the wrong type.
            ValueError: a value does not fit its field, an enum has no such value, or two fields
                are given of which there can be one.
        """
        spec = self.encoding.to_spec()
        extent = getattr(spec, self.encoding.extent)
        extent.SetInParent()
        for message in (extent, spec.output, spec.output.mask):
            set_fields(message, self)
        return spec

    def to_mask(self) -> tensor_pb2.Mask:
        """The contract's message of what is to be hidden."""
        mask = tensor_pb2.Mask()
        set_fields(mask, self)
        return mask


_WANTED_ENCODING = (
    "an encoding, as attnbias.ALiBi(num_heads=8) (Client.logits takes the terms of logits)"
)
_EXTENTS = {
    "table": list(tensor_pb2.TableExtent.DESCRIPTOR.fields_by_name),
    "pair": list(tensor_pb2.PairExtent.DESCRIPTOR.fields_by_name),
    "grid": list(tensor_pb2.GridExtent.DESCRIPTOR.fields_by_name),
}
"""The fields of each extent."""
