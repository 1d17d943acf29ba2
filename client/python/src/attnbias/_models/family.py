# SPDX-License-Identifier: Apache-2.0
"""Description of a family of models, which ``attach`` applies.

A family is a module in ``families`` that defines ``FAMILY``. The registry,
attnbias/_models/models.json, names the module in the rows for its model types.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from attnbias._client import Client
from attnbias._models.changes import Changes
from attnbias._models.register import MODELS, UNSERVED
from attnbias._spec.request import Request

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from attnbias._models.compare import Pair

Attention: TypeAlias = Literal["eager", "sdpa", "flex"]


@dataclass(frozen=True)
class AttachContext:
    """Arguments of ``attach``."""

    model: PreTrainedModel
    max_length: int
    attention: Attention | None  # None means an unlisted implementation, chosen by the model
    client: Client

    def modules(self, known: type | tuple[type, ...]) -> Iterator[tuple[str, Any]]:
        """Yields modules of a class with their paths. Rejects subclasses, which may differ."""
        classes = known if isinstance(known, tuple) else (known,)
        for path, module in self.model.named_modules():
            if class_of(module) in classes:
                yield path, module
            elif isinstance(module, classes):
                names = " or ".join(kind.__name__ for kind in classes)
                got = f"{path} of {type(module).__name__}"
                raise ValueError(f"model: got {got}, want transformers' {names}")


@dataclass(frozen=True)
class Site:
    """A computation to replace.

    Attributes:
        path: path of the module.
        method: the method or parameter that is replaced.
        module: the module itself.
        request: the values that it needs, shared by sites with the same Request; None if it needs
            none.
        replace: installs the fetched values in the module through ``Changes``; None leaves the
            module unchanged.
        spared_bytes: see ``Replacement``.
        compare: pairs the module's values with the fetched values; None if it has no values.
        reason: why the module is not replaced.
    """

    path: str
    method: str
    module: nn.Module
    request: Request | None
    replace: Callable[[Changes, Any, Any], None] | None
    spared_bytes: int
    compare: Callable[[Any], Iterator[Pair]] | None = None
    reason: str = ""

    @property
    def place(self) -> str:
        """Path and method."""
        return ".".join(filter(None, (self.path, self.method)))


def class_of(module: nn.Module) -> type:
    """Returns a module's class before FSDP derived one from it."""
    kind = type(module)
    is_sharded = any(base.__name__ == "FSDPModule" for base in kind.__bases__)
    return kind.__bases__[-1] if is_sharded else kind


@dataclass(frozen=True)
class Family:
    """How models of certain types get positions from a server.

    Attributes:
        sites: returns the computations to replace; raises ValueError for an unknown model.
        takes_any: whether positions are independent of attention, so that any implementation works.
        flex: the model types that can run with "flex".
    """

    sites: Callable[[AttachContext], Iterator[Site]]
    takes_any: bool = False
    flex: tuple[str, ...] = ()


def family_of(model: PreTrainedModel) -> Family:
    """Returns the family for a model's type.

    Raises ImportError for versions of transformers or torch that the extra "transformers" excludes,
    and ValueError for an unknown type.
    """
    module = _module_of(model)
    if module is None:
        model_type = model.config.model_type
        why = (
            MODELS[model_type].unattached if model_type in MODELS else UNSERVED.get(model_type, "")
        )
        parts = [path for path, part in model.named_modules() if path and _module_of(part)]
        attached = " or ".join(f"attach(model.{path}, ...)" for path in parts)
        raise ValueError(
            f"model: got model_type {model_type!r}, want one that attach supports; see "
            f"docs/models.md{why and f': {why}'}. "
            + (f"Attach a part of it: {attached}" if parts else _BY_HAND)
        )
    _require_versions()
    family: Family = importlib.import_module(f"attnbias._models.families.{module}").FAMILY
    return family


_BY_HAND: Final = "Leave it unattached, or use what Client.get returns: docs/encodings.md"


def _module_of(module: nn.Module) -> str | None:
    """Returns the family's module for a model, or for a part that is a model; None for others."""
    model_type: str = getattr(getattr(module, "config", None), "model_type", "")
    is_model = hasattr(module, "set_attn_implementation")
    return MODELS[model_type].attach if is_model and model_type in MODELS else None


def _require_versions() -> None:
    """Rejects untested versions, since families replace private parts of transformers."""
    from packaging.requirements import Requirement  # noqa: PLC0415  # a dependency of transformers

    for requirement in map(Requirement, importlib.metadata.requires("attnbias") or ()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": "transformers"}):
            continue
        version = importlib.import_module(requirement.name).__version__
        if not requirement.specifier.contains(version, prereleases=True):
            raise ImportError(
                f"{requirement.name}: got version {version}, want {requirement.specifier}, "
                "which pip install 'attnbias[transformers]' installs"
            )
