# SPDX-License-Identifier: Apache-2.0
"""What a family of models says of itself, for ``attach`` to do.

A family is a module of this package with a ``FAMILY``, and its model types' lines in ``_FILES``.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn
    from transformers import PreTrainedModel

    from attnbias._client import Client
    from attnbias._request import Request
    from attnbias.transformers._changes import Changes
    from attnbias.transformers._compare import Pair

Attention: TypeAlias = Literal["eager", "sdpa", "flex"]


@dataclass(frozen=True)
class Wanted:
    """What the caller of ``attach`` asked for."""

    model: PreTrainedModel
    max_length: int
    attention: Attention | None  # None is another that the model has
    client: Client

    def modules(self, known: type | tuple[type, ...]) -> Iterator[tuple[str, Any]]:
        """Those of a class, with their paths. Refuses subclasses: they may compute otherwise."""
        classes = known if isinstance(known, tuple) else (known,)
        for path, module in self.model.named_modules():
            if _class_of(module) in classes:
                yield path, module
            elif isinstance(module, classes):
                names = " or ".join(kind.__name__ for kind in classes)
                got = f"{path} of {type(module).__name__}"
                raise ValueError(f"model: got {got}, want transformers' {names}")


@dataclass(frozen=True)
class Site:
    """A computation to replace.

    Attributes:
        path: of the module.
        method: the method that is replaced, or the parameter.
        module: that module.
        request: what it needs; sites with the same Request share what is fetched. None is nothing.
        replace: puts what was fetched in its place, by ``Changes`` of the module. None leaves the
            module as it is.
        spared_bytes: see ``Replacement``.
        compare: the module's numbers beside those fetched; None where it has no numbers.
        reason: why the module is left as it is.
    """

    path: str
    method: str
    module: nn.Module
    request: Request | None
    replace: Callable[[Changes, Any, Any], None] | None
    spared_bytes: int
    compare: Callable[[Any], Iterator[Pair]] | None = None
    reason: str = ""


def _class_of(module: nn.Module) -> type:
    """The class of a module before FSDP made one of it that also shards."""
    kind = type(module)
    is_sharded = any(base.__name__ == "FSDPModule" for base in kind.__bases__)
    return kind.__bases__[-1] if is_sharded else kind


@dataclass(frozen=True)
class Family:
    """How models of some types take their positions from a server.

    Attributes:
        attentions: the attention implementations that its code can be set to run with.
        sites: what there is to replace. Refuses a model that it does not know with a ValueError.
        takes_any: whether its positions do not meet its attention, so that whatever the model has
            will do.
    """

    attentions: tuple[Attention, ...]
    sites: Callable[[Wanted], Iterator[Site]]
    takes_any: bool = False


_FILES: Final[Mapping[str, str]] = {
    "t5": "_t5",
    "mt5": "_t5",
    "umt5": "_t5",
    "longt5": "_longt5",
    "mpnet": "_mpnet",
    "bloom": "_bloom",
    "mpt": "_mpt",
    "falcon": "_falcon",
    "marian": "_sinusoidal",
    "pegasus": "_sinusoidal",
    "whisper": "_sinusoidal",
    "bert": "_learned",
    "roberta": "_learned",
    "gpt2": "_learned",
    "opt": "_learned",
    "bart": "_learned",
    "mbart": "_learned",
    "plbart": "_learned",
    "blenderbot": "_learned",
    "blenderbot-small": "_learned",
    "swin": "_windows",
    "swinv2": "_swin_v2",
    "beit": "_windows",
    "gptj": "_gptj",
    "llama": "_rotary",
    "mistral": "_rotary",
    "mixtral": "_rotary",
    "qwen2": "_rotary",
    "qwen2_moe": "_rotary",
    "qwen3": "_rotary",
    "qwen3_moe": "_rotary",
    "gemma": "_rotary",
    "gemma2": "_rotary",
    "gemma3": "_rotary",
    "gemma3_text": "_rotary",
    "phi": "_rotary",
    "phi3": "_rotary",
    "gpt_neox": "_rotary",
    "granite": "_rotary",
    "starcoder2": "_rotary",
    "stablelm": "_rotary",
    "deepseek_v2": "_rotary",
    "deepseek_v3": "_rotary",
}


def family_of(model_type: str) -> Family:
    """The family of a model type.

    Raises:
        ValueError: none is known.
    """
    if model_type not in _FILES:
        known = ", ".join(sorted(_FILES))
        raise ValueError(f"model: got model_type {model_type!r}, want one of {known}")
    family: Family = importlib.import_module(f"attnbias.transformers.{_FILES[model_type]}").FAMILY
    return family
