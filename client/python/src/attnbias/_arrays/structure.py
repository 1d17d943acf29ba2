# SPDX-License-Identifier: Apache-2.0
"""Base class of the compact forms, which represent a dense array and behave like one.

A structure has the shape and element type of its dense array ``[H, queries, keys]`` but holds far
fewer values. Bucket indices, and vectors that all heads share, have no head axis; for them, read
shapes without the H. Vectors have an additional last axis, their columns.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Self,
    SupportsIndex,
    TypeAlias,
    overload,
)

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from attnbias import _plot
from attnbias._arrays.axes import (
    BlockSize,
    Device,
    DeviceCopies,
    Layout,
    block_sizes,
    chunk,
    group_of,
    indices_of,
    inside,
    padding,
    place_on,
    require_heads,
)
from attnbias._arrays.convert import (
    BFLOAT16,
    OF_DEVICES,
    is_torch_tensor,
    register_with_jax,
    to_torch,
)
from attnbias._arrays.mask import Mask
from attnbias._checks import Span, require_instance
from attnbias._plot import HeatMap
from attnbias.v1 import encodings_pb2

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

QueryOffset: TypeAlias = "SupportsIndex | torch.Tensor | None"
Mod: TypeAlias = "Callable[..., torch.Tensor]"
Index: TypeAlias = SupportsIndex | slice | EllipsisType | None

MAX_IMPLICIT_BYTES: Final = 1 << 30
"""Size of the largest dense array to which a structure is expanded implicitly, for example by
``numpy.asarray(bias)`` or ``bias + array``. ``dense()``, ``view()``, ``to_torch()`` and
``to_jax()`` have no limit."""

_CPU: Final = (1, 0)  # DLPack's device type, and the device's index
_PAIR_AXES: Final = 2  # queries and keys
_SDPA_ALIGNMENT: Final = 8  # elements; torch copies masks with other alignments on a GPU
_WHOLE: Final = slice(None, None, 1)


class Structure(NDArrayOperatorsMixin, ABC):
    """A tensor that is stored compactly, and that NumPy treats as an array.

    Indexing by a head or by contiguous slices, ``bias[3]`` or ``bias[..., :100]``, returns a
    structure, as does a ufunc applied to one structure and scalars, such as ``2 * bias``. Any other
    operation returns a NumPy array; other indexing with integers, slices or None returns a
    read-only view. Instead of array methods, use functions, such as ``np.sum(bias)``.

    A dense array of more than ``attnbias.MAX_IMPLICIT_BYTES`` is never created implicitly.
    ``dense()``, ``view()``, ``to_torch()`` and ``to_jax()`` have no limit.

    ``==`` compares elementwise, as in NumPy, so a structure has no hash.

    Attributes:
        fingerprint: 64 hex digits that identify the server's bytes; "" for a structure created
            locally.
        resolved_spec: the request as the server resolved it, with positions and mask; None for a
            structure created locally.
        mask: the mask of a Toeplitz and of its windows and shards; None if the request had none.
    """

    fingerprint: str = ""
    resolved_spec: encodings_pb2.TensorSpec | None = None
    mask: Mask | None = None
    vectors: bool = False

    _is_strided: ClassVar[bool] = False
    """True if strides over the stored values form the dense array, so ``view`` copies nothing."""
    _leaves: ClassVar[tuple[str, ...]]
    """Constructor arguments that are arrays: the leaves of the JAX pytree."""
    _others: ClassVar[tuple[str, ...]] = ()
    """Other constructor arguments."""
    _whole: DeviceCopies | None = None
    """The whole tensor's values, even if this is a window, for ``score_mod``; made on first use."""
    _begin: int = 0
    """Index in ``_whole`` of this window's first value."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        register_with_jax(cls)
        return super().__new__(cls)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the dense tensor."""

    def parts(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the stored arrays, keyed by the contract's names for the parts of a payload."""
        held = {name: getattr(self, name) for name in self._leaves}
        return {name: array for name, array in held.items() if array is not None}

    def view(self) -> npt.NDArray[Any]:
        """Returns ``[H, queries, keys]``, read-only; copies only if strides cannot express it."""
        dense = self.dense()
        dense.flags.writeable = False
        return dense

    @abstractmethod
    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        """Implements ``window`` for bounds that are inside the tensor."""

    @abstractmethod
    def _bias_on(self, device: Device) -> Mod:
        """Returns ``bias(head, query, key)`` for torch indices; the tensor must have heads."""

    @abstractmethod
    def _numbers(self) -> npt.NDArray[Any]:
        """Returns all values along one axis: the last or, with vectors, the second to last."""

    @abstractmethod
    def _place(self, query: Any, key: Any, where: Any) -> Any:
        """Returns the index of a pair's value in ``_numbers``; accepts ints or arrays."""

    def window(
        self, *, queries: Span | None = None, keys: Span | None = None, heads: Span | None = None
    ) -> Self:
        """Returns a part of this tensor, without copying.

        Args:
            queries: rows inside the tensor: (begin, end), or n for the first n.
            keys: columns, in the same form.
            heads: heads, in the same form.

        Raises:
            IndexError: a window is empty or not inside the tensor.
        """
        rows, columns = self._lengths()
        return self._window(inside(queries, rows, "queries"), inside(keys, columns, "keys"), heads)

    def shard(
        self,
        rank: int,
        world_size: int,
        *,
        heads: bool = False,
        queries: Layout | None = None,
        keys: Layout | None = None,
    ) -> Any:
        """Returns the part that one rank in a group holds under tensor or context parallelism.

        One call shards one axis, since a rank belongs to one group. Chain calls for more::

            bias.shard(tp_rank, tp_size, heads=True).shard(cp_rank, cp_size, queries="zigzag")

        and, for a ring step with another rank's keys::

            mine = bias.shard(rank, world_size, queries="zigzag")
            step = mine.shard(source_rank, world_size, keys="zigzag")

        Args:
            rank: rank in the group, in [0, world_size).
            world_size: number of ranks in the group.
            heads: True shards the heads, contiguously.
            queries: layout for the queries: "contiguous", "zigzag" or "striped"; see
                ``attnbias.shard_indices``.
            keys: layout for the keys.

        Returns:
            For heads and "contiguous", a window of the same kind; for "zigzag" and "striped", a
            ``RingShard``. Both share this tensor's memory.

        Raises:
            TypeError: rank or world_size is not an integer.
            IndexError: the rank's shard is empty.
            ValueError: rank is not in the group, no axis or more than one is named, or the layout
                does not divide the length of the axis.
        """
        axis, layout = _one_axis(heads, queries, keys)
        if axis == "heads":
            require_heads(self.shape, self._has_heads())
            length = self.shape[0]
        else:
            length = self._lengths()[axis == "keys"]
        if layout != "contiguous":
            return self._of_indices(
                axis, indices_of(length, rank, world_size, layout, (axis, axis))
            )
        rank, world_size = group_of(rank, world_size)
        begin, end = chunk(length, rank, world_size)
        if begin == end:
            raise IndexError(
                f"rank: got {rank} of {world_size}, which holds none of the {length} {axis} split "
                f"into chunks of {chunk(length, 0, world_size)[1]}; want fewer ranks"
            )
        return self.window(**{axis: (begin, end)})

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return next(iter(self.parts().values())).dtype

    @property
    def ndim(self) -> int:
        """Number of axes in the dense tensor."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements in the dense tensor."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays, not of the dense tensor."""
        return sum(part.nbytes for part in self.parts().values())

    def dense(self) -> npt.NDArray[Any]:
        """Returns the dense tensor ``[H, queries, keys]`` as an ordinary array."""
        if self._is_strided:
            return self.view().copy(order="C")
        queries, keys = self._indices()
        places: npt.NDArray[np.intp] = self._place(queries[:, None], keys, np.where)
        axis = -2 if self.vectors else -1
        dense: npt.NDArray[Any] = np.take(np.asarray(self._numbers()), places, axis=axis)
        return dense

    def to_torch(self, device: Device = None, *, align: int = 1) -> torch.Tensor:
        """Returns the dense tensor as a torch tensor, expanded on the device from the compact form.

        Args:
            device: the tensor's device; None means the CPU.
            align: all strides except the last are multiples of this many elements. Rows are
                padded; the result is a view without the padding.

        Raises:
            ValueError: align is not an integer of at least 1.
        """
        if not _is_integer(align) or align < 1:
            raise ValueError(f"align: got {align!r}, want an integer of at least 1")
        return self._expanded(to_torch(self._numbers(), device), align)

    def to_jax(self, device: Any = None) -> Any:
        """Returns the dense tensor as a JAX array, expanded on the device from the compact form.

        JAX has no f64 unless ``jax_enable_x64`` is set.

        Args:
            device: a ``jax.Device``; None means JAX's default.

        Raises:
            ImportError: jax is not installed.
        """
        try:
            import jax  # noqa: PLC0415
        except ImportError as error:
            raise ImportError("to_jax: jax is not installed; pip install jax") from error

        numbers = jax.device_put(self._numbers(), device)
        with jax.default_device(device):
            queries, keys = (jax.numpy.asarray(indices) for indices in self._indices())
            places = self._place(queries[:, None], keys, jax.numpy.where)
            return jax.numpy.take(numbers, places, axis=-2 if self.vectors else -1)

    def __jax_array__(self) -> Any:
        self._check_implicit(self.dtype)
        return self.to_jax()

    def as_attn_mask(self, device: Device = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Returns the ``attn_mask`` for ``torch.nn.functional.scaled_dot_product_attention``.

        The mask is ``[1, heads, queries, keys]``, which works for any batch size, and its rows are
        aligned for torch's kernels. Hidden pairs are -inf, not the fill value. The mask occupies
        heads x queries x keys elements, or heads x keys for a KeyRow, whose queries share a row.
        Use ``score_mod`` to avoid materializing it.

        Args:
            device: device that attention runs on; None means the CPU.
            dtype: dtype of the queries; None means this tensor's. A different dtype causes a second
                rounding.

        Raises:
            TypeError: dtype is not a torch dtype.
            ValueError: the tensor holds vectors or integers, or dtype is an integer type.
        """
        import torch  # noqa: PLC0415

        self._require_addable()
        if self.dtype.kind == "i":
            message = f"values: got a tensor of {self.dtype}, want numbers to add to scores"
            raise ValueError(f"{message}, not buckets")
        numbers = to_torch(self._numbers(), device)
        if dtype is not None:
            require_instance(dtype, torch.dtype, "dtype", "a torch.dtype, such as query.dtype")
            numbers = numbers.to(dtype)
        if not numbers.is_floating_point():
            raise ValueError(
                f"dtype: got {numbers.dtype}, want a floating-point type, such as query.dtype"
            )
        mask = self._expanded(self._with_hidden(numbers), _SDPA_ALIGNMENT)
        return mask[None] if self._has_heads() else mask[None, None]

    def score_mod(self, device: Device = None, *, query_offset: QueryOffset = None) -> Mod:
        """Returns a ``score_mod`` for ``torch.nn.attention.flex_attention`` that adds this bias.

        Query 0 and key 0 in attention correspond to query 0 and key 0 of this tensor; to use
        others, take a window first, or pass ``query_offset``. ``torch.compile`` compiles once for
        all windows of a tensor: they share the whole tensor's values, which are copied to a device
        once and stay there as long as the tensor exists. Hidden pairs have the mask's fill value.

        Args:
            device: device that attention runs on; None means the CPU.
            query_offset: the query of this tensor that corresponds to query 0 in attention. If this
                is a torch tensor, its value may change between calls, so that one function can
                decode token after token. The value is not checked: out-of-range queries read wrong
                values or fail on the device.

        Raises:
            IndexError: query_offset is an int outside this tensor.
            TypeError: query_offset is neither an int nor a tensor.
            ValueError: the tensor has no head axis or holds vectors, or query_offset is a tensor
                with a different shape, type or device.
        """
        self._require_addable()
        require_heads(self.shape, self._has_heads())
        bias, moved = self._bias_on(device), self._moved_by(query_offset, device)

        def add_bias(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
            return score + bias(head, moved(query), key)

        return add_bias

    def mask_mod(self, device: Device = None, *, query_offset: QueryOffset = None) -> Mod:
        """Returns a ``mask_mod`` for flex_attention that hides the same pairs as the mask.

        Queries, keys, arguments and errors are the same as for ``score_mod``.

        Raises:
            ValueError: the tensor has no mask: see ``mask``.
        """
        self._require_mask()
        is_seen, moved = self._seen_on(device), self._moved_by(query_offset, device)

        def is_visible(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return is_seen(moved(query), key)

        return is_visible

    def block_mask(self, device: Device = None, *, block_size: BlockSize = 128) -> BlockMask:
        """Returns the ``block_mask`` for flex_attention, which skips blocks that the mask hides.

        Equals the result of torch's ``create_block_mask`` with ``mask_mod``, for this tensor's
        queries and keys, any batch and all heads. A Toeplitz computes it without looking at each
        pair.

        Args:
            device: device that attention runs on; None means the CPU.
            block_size: block size for queries and keys, or a pair (queries, keys).

        Raises:
            ValueError: the tensor has no mask (see ``mask``), or block_size is not positive.
        """
        self._require_mask()
        from torch.nn.attention.flex_attention import create_block_mask  # noqa: PLC0415

        device = "cpu" if device is None else device
        sizes = block_sizes(block_size)
        mask_mod, lengths = self.mask_mod(device), self._lengths()
        return create_block_mask(mask_mod, None, None, *lengths, device, BLOCK_SIZE=sizes)

    def _require_mask(self) -> None:
        if self.mask is None:
            raise ValueError(
                f"mask: this {type(self).__name__} has no mask, want a Toeplitz requested with "
                "causal, window_left or window_right; or combine score_mod() with your own "
                "mask_mod"
            )

    def _seen_on(self, device: Device) -> Mod:
        """Returns ``is_seen(query, key)`` for torch indices; the tensor must have a mask."""
        raise NotImplementedError

    def _expanded(self, numbers: torch.Tensor, align: int) -> torch.Tensor:
        """Expands values to the dense tensor, with strides that are multiples of ``align``."""
        import torch  # noqa: PLC0415

        queries, keys = (to_torch(indices, numbers.device) for indices in self._indices())
        length = self.shape[-1]
        more = (0, padding(length, align))
        if self.vectors:
            numbers = torch.nn.functional.pad(numbers, more)
        else:
            keys = torch.nn.functional.pad(keys, more)
        places = self._place(queries[:, None], keys, torch.where)
        dense = numbers[..., places, :] if self.vectors else numbers[..., places]
        return dense[..., :length]

    def _with_hidden(self, numbers: torch.Tensor) -> torch.Tensor:
        """Returns the values, with -inf in place of those that a mask hides."""
        return numbers

    def _moved_by(self, query_offset: QueryOffset, device: Device) -> Callable[[Any], Any]:
        """Returns a function that maps the attention's query indices to this tensor's."""
        if query_offset is None:
            return lambda query: query
        offset = self._offset_on(device, query_offset)
        return lambda query: query + offset

    def _offset_on(self, device: Device, offset: Any) -> Any:
        if not is_torch_tensor(offset):
            want = "want an integer or a 0-dimensional tensor"
            if isinstance(offset, bool) or not _is_integer(offset):
                raise TypeError(f"query_offset: got {offset!r}, {want}")
            index, (queries, _) = operator.index(offset), self._lengths()
            if not 0 <= index < queries:
                raise IndexError(f"query_offset: got {index}, want an integer in [0, {queries})")
            return place_on(device, index)
        import torch  # noqa: PLC0415

        got = f"query_offset: got a tensor of dtype {offset.dtype} and shape {tuple(offset.shape)}"
        if offset.shape or offset.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"{got}, want a 0-dimensional int32 or int64 tensor")
        there = torch.empty(0, device="cpu" if device is None else device).device
        if offset.device != there:
            got = f"query_offset: got a tensor on {offset.device}"
            raise ValueError(f"{got}, want a tensor on {there} (device)")
        return offset

    def _require_addable(self) -> None:
        if self.vectors:
            message = f"vectors: got a tensor of shape {self.shape}, want numbers to add to scores"
            raise ValueError(message)

    plot = _plot.plot

    def _heat_maps(self, name: str) -> list[HeatMap]:
        """Returns the pictures that ``plot`` draws; their names begin with ``name``."""
        numbers = self._numbers()
        rows, columns = self._indices()

        def read(head: int, i: npt.NDArray[Any], j: npt.NDArray[Any]) -> npt.NDArray[Any]:
            places = self._place(rows[i][:, None], columns[j], np.where)
            chosen: npt.NDArray[Any] = _plot.of_head(numbers, head, 1)[places]
            return chosen

        *outer, queries, keys = self.shape
        num_heads = outer[0] if outer else None
        return [_plot.HeatMap(read, num_heads, (queries, keys), *self._picture_axes(), name)]

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        """Returns the labels of a picture's rows and columns, and the first position of each."""
        return _plot.POSITIONS, (0, 0)

    def _curve(self) -> _plot.Curve | None:
        """Returns the curves that ``plot`` draws; None if values depend on more than one index."""
        return None

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(shape={self.shape}, dtype={self.dtype}, {self.nbytes} bytes)"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return value in np.asarray(self)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        if copy is False:
            if dtype != self.dtype or not self._is_strided:
                raise ValueError(
                    f"copy: got False, but a {type(self).__name__} of {self.dtype} cannot become "
                    f"an array of {dtype} without a copy"
                )
            return self.view()
        self._check_implicit(dtype)
        tensor = self if dtype == self.dtype else self._mapped(lambda part: part.astype(dtype))
        return tensor.view() if self._is_strided and not copy else tensor.dense()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.get("out") or ()
        for value in (*inputs, *out):
            if is_torch_tensor(value):
                raise TypeError(
                    f"{ufunc.__name__}: got a torch.Tensor and a {type(self).__name__}; "
                    "want both in torch (bias.to_torch(device)) or both in numpy"
                )
            if _has_rules_of_its_own(value):
                return NotImplemented
        if any(isinstance(array, Structure) for array in out):
            raise TypeError(f"out: got a {type(self).__name__}, which is read-only; want an array")
        # Elementwise, with a new array as the result.
        of_elements = method == "__call__" and ufunc.nout == 1 and ufunc.signature is None
        of_elements &= not {"out", "where"} & set(options)
        others = [x for x in inputs if x is not self]
        if of_elements and not any(isinstance(x, Structure) or np.ndim(x) for x in others):
            return self._mapped(
                lambda part: ufunc(*(part if x is self else x for x in inputs), **options)
            )
        arrays = (_without_structure(x) for x in inputs)
        options = {name: _without_structure(value) for name, value in options.items()}
        return getattr(ufunc, method)(*arrays, **options)

    def __dlpack__(self, **options: Any) -> Any:
        self._check_implicit(self.dtype)
        if self.dtype != BFLOAT16:
            return self.dense().__dlpack__(**options)
        try:  # NumPy cannot export bfloat16
            return self.to_torch("cpu").contiguous().__dlpack__(**options)
        except ImportError:
            message = "dtype: got bfloat16, which needs torch for DLPack; torch is not installed"
            raise BufferError(f"{message}; want to_jax()") from None

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    @overload
    def __getitem__(self, index: tuple[SupportsIndex, ...]) -> Any: ...  # an array or a number
    @overload
    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self | npt.NDArray[Any]: ...
    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        entries = index if isinstance(index, tuple) else (index,)
        _require_basic(entries)
        # NumPy determines which indices are out of bounds, and the shape of an empty result.
        like = np.broadcast_to(np.zeros((), self.dtype), self.shape)[entries]
        if like.size == 0:
            return like
        spans, steps = self._touched(entries)
        part = self._part(spans)
        heads, inner = steps[: self._has_heads()], steps[self._has_heads() :]
        columns_cut = spans.get("columns", (0, self.shape[-1])) != (0, self.shape[-1])
        if heads not in ([], [_WHOLE], [0]) or any(s != _WHOLE for s in inner) or columns_cut:
            if not self._is_strided:
                part._check_implicit(self.dtype)
            view = part.view()
            if self.vectors:
                view = view[..., slice(*spans["columns"])]
            return view[tuple(steps)]
        return part._mapped(lambda held: held[0]) if heads == [0] else part

    def _arguments(self) -> dict[str, Any]:
        """Returns the constructor arguments that rebuild this structure."""
        return {name: getattr(self, name) for name in (*self._leaves, *self._others)}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in OF_DEVICES}

    def _named(self, fingerprint: str, resolved_spec: encodings_pb2.TensorSpec | None) -> Self:
        """Sets the fingerprint and the resolved spec, and returns self."""
        self.fingerprint, self.resolved_spec = fingerprint, resolved_spec
        return self

    def _mapped(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Self:
        """Returns a structure like this one, with a function applied to its arrays."""

        def mapped(name: str, value: Any) -> Any:
            if isinstance(value, Structure):
                return value._mapped(function)
            # Decided by name: while JAX traces, the value is not a NumPy array.
            return value if value is None or name not in self._leaves else function(value)

        return type(self)(
            **{name: mapped(name, value) for name, value in self._arguments().items()}
        )

    def _device_copies(self) -> DeviceCopies:
        if self._whole is None:
            self._whole = DeviceCopies(self._numbers())
        return self._whole

    def _has_heads(self) -> bool:
        return self.ndim - self.vectors > _PAIR_AXES

    def _lengths(self) -> tuple[int, int]:
        queries, keys = self.shape[self._has_heads() :][:_PAIR_AXES]
        return queries, keys

    def _indices(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Returns the arguments of ``_place`` for all queries and all keys."""
        queries, keys = self._lengths()
        return np.arange(queries), np.arange(keys)

    def _of_indices(self, axis: str, indices: npt.NDArray[Any]) -> Structure:
        """Returns the structure with only these queries or keys, in this order."""
        return RingShard(self)._of_indices(axis, indices)

    def _touched(
        self, entries: tuple[Index, ...]
    ) -> tuple[dict[str, tuple[int, int]], list[slice | int | None]]:
        """Returns the span of each axis that an index needs, and the index into these spans."""
        given = sum(not isinstance(entry, EllipsisType | None) for entry in entries)
        missing = [slice(None)] * (self.ndim - given)
        whole: list[SupportsIndex | slice | None] = []
        has_ellipsis = any(entry is Ellipsis for entry in entries)
        for entry in entries if has_ellipsis else (*entries, Ellipsis):
            whole += missing if isinstance(entry, EllipsisType) else [entry]
        axes = [*(["heads"] if self._has_heads() else []), "queries", "keys", "columns"]
        spans: dict[str, tuple[int, int]] = {}
        steps: list[slice | int | None] = []
        for index in whole:
            if index is None:
                steps.append(None)
                continue
            inside = range(self.shape[len(spans)])
            if isinstance(index, slice):
                touched = inside[index]
                first, last = sorted((touched[0], touched[-1]))
                steps.append(slice(None, None, touched.step if len(touched) > 1 else 1))
            else:
                first = last = inside[operator.index(index)]
                steps.append(0)
            spans[axes[len(spans)]] = (first, last + 1)
        return spans, steps

    def _part(self, spans: dict[str, tuple[int, int]]) -> Self:
        """Returns a window, or self if the window covers everything."""
        cut = {axis: span for axis, span in spans.items() if axis != "columns"}
        if list(cut.values()) == [(0, length) for length in self.shape[: len(cut)]]:
            return self
        return self.window(**cut)

    def _check_implicit(self, dtype: np.dtype[Any]) -> None:
        nbytes = self.size * dtype.itemsize
        if nbytes > MAX_IMPLICIT_BYTES:
            copies = ".view() copies nothing" if self._is_strided else ".window() selects a part"
            raise ValueError(
                f"{type(self).__name__}: the dense array of shape {self.shape} has {nbytes} bytes, "
                f"want at most {MAX_IMPLICIT_BYTES} unless requested explicitly: .dense() makes "
                f"it, {copies}"
            )


def _one_axis(heads: bool, queries: Layout | None, keys: Layout | None) -> tuple[str, Layout]:
    if not isinstance(heads, (bool, np.bool_)):
        raise TypeError(f"heads: got {heads!r}, want True or False: rank selects the heads")
    of_heads: Layout | None = "contiguous" if heads else None
    layouts: dict[str, Layout | None] = {"heads": of_heads, "queries": queries, "keys": keys}
    named: list[tuple[str, Layout]] = [
        (axis, layout) for axis, layout in layouts.items() if layout is not None
    ]
    if len(named) != 1:
        got = " and ".join(axis for axis, _ in named) or "none"
        raise ValueError(
            f"shard: got {got} of heads, queries and keys, want one per call: "
            "bias.shard(tp_rank, tp_size, heads=True).shard(cp_rank, cp_size, queries='zigzag')"
        )
    return named[0]


def _require_basic(entries: tuple[Any, ...]) -> None:
    for entry in entries:
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            continue
        if isinstance(entry, (bool, np.bool_)) or not _is_integer(entry):
            raise IndexError(
                f"index: got {entry!r}, want integers, slices, Ellipsis and None; "
                "for arrays of indices use .view()[...]"
            )


def _is_integer(entry: Any) -> bool:
    try:
        operator.index(entry)
    except TypeError:
        return False
    return True


def _without_structure(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Structure) else value


def _has_rules_of_its_own(value: Any) -> bool:
    """Reports whether another class overrides ufuncs."""
    override = getattr(type(value), "__array_ufunc__", np.ndarray.__array_ufunc__)
    return override not in (np.ndarray.__array_ufunc__, Structure.__array_ufunc__)


Indices = npt.NDArray[np.integer[Any]]


class RingShard(Structure):
    """Some queries and keys of a structure, in the order used by a ring attention rank.

    ``dense[h, i, j] = whole[h, query_indices[i], key_indices[j]]``. ``Structure.shard`` returns it
    for the layouts "zigzag" and "striped". It shares the whole structure's memory. See
    ``Structure`` for common members.

    Attributes:
        whole: the structure that was sharded.
        query_indices: for each row, its query in the whole.
        key_indices: for each column, its key in the whole.
    """

    _leaves: ClassVar[tuple[str, ...]] = ("whole", "query_indices", "key_indices")

    def __init__(
        self,
        whole: Structure,
        *,
        query_indices: npt.ArrayLike | None = None,
        key_indices: npt.ArrayLike | None = None,
    ) -> None:
        """Wraps a structure without copying. None selects all queries or keys.

        If the structure is a RingShard, wraps its ``whole`` instead and composes the indices.

        Raises:
            IndexError: there are no indices, or some are outside the structure.
            TypeError: whole is not a structure, or indices are not integers.
        """
        require_instance(whole, Structure, "whole", "a Toeplitz or another structure")
        queries, keys = whole._indices()
        self.query_indices = queries[_inside(query_indices, len(queries), "query_indices")]
        self.key_indices = keys[_inside(key_indices, len(keys), "key_indices")]
        self.whole: Structure = whole.whole if isinstance(whole, RingShard) else whole
        self.mask = whole.mask
        self.vectors = whole.vectors

    @property
    def shape(self) -> tuple[int, ...]:
        before, after = self.whole._has_heads(), self.whole.ndim - self.vectors
        lengths = (len(self.query_indices), len(self.key_indices))
        return (*self.whole.shape[:before], *lengths, *self.whole.shape[after:])

    def parts(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the parts of the whole structure."""
        return self.whole.parts()

    def _window(self, queries: tuple[int, int], keys: tuple[int, int], heads: Span | None) -> Self:
        return type(self)(
            self.whole if heads is None else self.whole.window(heads=heads),
            query_indices=self.query_indices[slice(*queries)],
            key_indices=self.key_indices[slice(*keys)],
        )

    def _heat_maps(self, name: str) -> list[HeatMap]:
        return self.whole._heat_maps(name) if self.vectors else super()._heat_maps(name)

    def _picture_axes(self) -> tuple[tuple[str, str], tuple[int, int]]:
        return _plot.OF_SHARD, (0, 0)

    # Shards share the structure's device copies, so a ring step sends only indices.

    def _bias_on(self, device: Device) -> Mod:
        bias = self.whole._bias_on(device)
        queries, keys = (to_torch(indices, device) for indices in self._indices())
        return lambda head, query, key: bias(head, queries[query], keys[key])

    def _seen_on(self, device: Device) -> Mod:
        is_seen = self.whole._seen_on(device)
        queries, keys = (to_torch(indices, device) for indices in self._indices())
        return lambda query, key: is_seen(queries[query], keys[key])

    def _with_hidden(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.whole._with_hidden(numbers)

    def _mapped(self, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Self:
        return type(self)(**{**self._arguments(), "whole": self.whole._mapped(function)})

    def _numbers(self) -> npt.NDArray[Any]:
        return self.whole._numbers()

    def _indices(self) -> tuple[Indices, Indices]:
        return self.query_indices, self.key_indices

    def _place(self, query: Any, key: Any, where: Any) -> Any:
        return self.whole._place(query, key, where)

    def _of_indices(self, axis: str, indices: Indices) -> RingShard:
        queries, keys = self._indices()
        if axis == "queries":
            queries = queries[indices]
        else:
            keys = keys[indices]
        return type(self)(self.whole, query_indices=queries, key_indices=keys)


def _inside(given: npt.ArrayLike | None, length: int, name: str) -> Indices | slice:
    if given is None:
        return slice(None)
    indices = np.asarray(given)
    if indices.dtype.kind not in "iu" and indices.size > 0:
        raise TypeError(f"{name}: got an array of {indices.dtype}, want integers")
    fits = indices.ndim == 1 and len(indices) > 0
    if not fits or indices.min() < 0 or indices.max() >= length:
        raise IndexError(
            f"{name}: got an array of shape {indices.shape}, want one axis of at least one index "
            f"in [0, {length})"
        )
    return indices
