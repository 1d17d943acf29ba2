# SPDX-License-Identifier: Apache-2.0
"""Structures as pytrees of JAX, which this package does not import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from attnbias._arrays.structure import Structure

_registered: Final[set[type[Structure]]] = set()
# Attributes that name the bytes as they came, and copies on torch's devices.
_FORGOTTEN: Final = {"fingerprint", "resolved_spec", "_whole", "_begin"}


def register_with_jax(kind: type[Structure]) -> None:
    """Registers a class as a pytree, once, and only if JAX is imported."""
    tree_util = getattr(sys.modules.get("jax"), "tree_util", None)  # None while it is imported
    if tree_util is None or kind in _registered:
        return
    _registered.add(kind)
    keys = [tree_util.GetAttrKey(name) for name in kind._leaves]

    def flatten(structure: Structure) -> tuple[list[Any], tuple[tuple[str, Any], ...]]:
        rest = set(vars(structure)).difference(kind._leaves, _FORGOTTEN)
        leaves = [getattr(structure, name) for name in kind._leaves]
        return leaves, tuple((name, getattr(structure, name)) for name in sorted(rest))

    def flatten_with_keys(structure: Structure) -> tuple[list[tuple[Any, Any]], Any]:
        leaves, rest = flatten(structure)
        return list(zip(keys, leaves, strict=True)), rest

    def unflatten(rest: tuple[tuple[str, Any], ...], leaves: tuple[Any, ...]) -> Structure:
        # Checks nothing: JAX makes trees of what are no arrays, too.
        structure = object.__new__(kind)
        vars(structure).update(rest, **dict(zip(kind._leaves, leaves, strict=True)))
        return structure

    tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)
