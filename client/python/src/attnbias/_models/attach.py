# SPDX-License-Identifier: Apache-2.0
"""Replaces the positions that a model computes with a server's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from attnbias._checks import require_instance
from attnbias._client import Client
from attnbias._errors import Error
from attnbias._models.changes import Changes
from attnbias._models.family import AttachContext, Attention, Family, Site, family_of
from attnbias._spec.fields import Encoding

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_MARK: Final = "_attnbias_attached"
_FLEX: Final = "attnbias"  # the name under which transformers registers our attention function


@dataclass(frozen=True)
class Replacement:
    """A computation that was replaced, or a learned table that was kept.

    Before anything was replaced, the model's values were compared with the server's.

    Attributes:
        path: path of the module in ``model.named_modules()``, followed by the method or parameter.
        encoding: the encoding fetched for it; None if the model adds zeros, which are omitted.
        fetched_bytes: size of the response; 0 if another replacement fetched it.
        spared_bytes: size of the tensors that need not be computed, for max_length tokens and a
            batch of one.
        left: True if it was left unchanged.
        reason: why it was not replaced, or why its values could not be compared with the server's;
            empty if neither applies.
    """

    path: str
    encoding: Encoding | None
    fetched_bytes: int
    spared_bytes: int
    left: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.left:
            return f"{self.path}: left unchanged; {self.reason}"
        by = "nothing" if self.encoding is None else str(self.encoding)
        sizes = f"{self.fetched_bytes} bytes fetched, {self.spared_bytes} bytes not computed"
        compared = f"; not compared with the model's own: {self.reason}" if self.reason else ""
        return f"{self.path}: {by}; {sizes}{compared}"


class Attached:
    """A model that gets its positions from a server; leaving the ``with`` block detaches it."""

    def __init__(self, changes: Changes, replacements: tuple[Replacement, ...]) -> None:
        self._changes = changes
        self._replacements = replacements

    def __repr__(self) -> str:
        left = sum(each.left for each in self._replacements)
        return f"Attached({len(self._replacements) - left} replaced, {left} left unchanged)"

    def report(self) -> tuple[Replacement, ...]:
        """Returns the replacements, in the order of the model's modules."""
        return self._replacements

    def detach(self) -> None:
        """Restores the model; a second call does nothing."""
        self._changes.undo()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def attach(
    model: PreTrainedModel, client: Client, *, max_length: int, attention: Attention | None = None
) -> Attached:
    """Makes a transformers model get its positions from a server.

    with attnbias.attach(model, client, max_length=16384, attention="flex") as attached:
        print(attached.report())
        model(tokens)

    The values that the model needs are fetched once, during this call, and compared with its own
    within the bounds in docs/models.md. The model keeps its learned bias tables: the server only
    provides the row index for each relative position. Learned position tables are replaced by the
    server's if the server has identical values. The model can be trained, moved, cast and saved.

    Args:
        model: a model from a family in docs/models.md, which lists the replacements: T5, BLOOM,
            Llama, Swin and others.
        client: used during this call; not needed afterwards, except with the rope_type "dynamic".
        max_length: maximum number of tokens that the model will process, including cached ones.
        attention: implementation to use from now on: "eager", "sdpa" or "flex"; None keeps the
            model's. "flex" is torch's FlexAttention, which reads a bias in its compact form: it
            needs no memory that grows with the square of the length. It does not support dropout,
            attention weights or, on a CPU, gradients. Not every family supports it.

    Returns:
        An object that reports the replacements, and that can detach the model.

    Raises:
        ImportError: transformers or torch is not installed, or has a version that
            ``attnbias[transformers]`` excludes. The model is unchanged.
        ValueError: the model is unknown or already attached, cannot run with this attention, has a
            position table that the server does not have, or has a module whose values differ from
            the server's. The model is unchanged.
        Error: a call to the server failed.
    """
    try:
        import torch  # noqa: PLC0415
        import transformers  # noqa: PLC0415
    except ImportError as error:
        message = "attach: transformers is not installed; pip install 'attnbias[transformers]'"
        raise ImportError(message) from error

    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        model = model.get_base_model()  # the model to which a PeftModel added its adapters
    want = "a transformers model, such as transformers.T5Model"
    require_instance(model, transformers.PreTrainedModel, "model", want)
    require_instance(client, Client, "client", "an attnbias.Client")
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 1:
        raise ValueError(f"max_length: got {max_length!r}, want a positive integer")
    # Tensors created in inference mode cannot be used in training. Comparisons run on the CPU.
    with torch.inference_mode(mode=False), torch.device("cpu"):
        return _attached(model, client, max_length, attention)


def _attached(
    model: PreTrainedModel, client: Client, max_length: int, attention: Attention | None
) -> Attached:
    family = family_of(model)
    for path, module in model.named_modules():
        if _MARK in vars(module):
            raise ValueError(
                f"model: got a model that is already attached ({path}): detach() it first"
            )
    chosen = _attention_of(model, attention, family)
    with _errors_of_the_models_code(type(model).__name__, "read"):
        sites = list(family.sites(AttachContext(model, max_length, chosen, client)))
    if not sites:
        raise ValueError(
            f"model: got {type(model).__name__}, which has no positions that a server can provide"
        )
    requests = {
        id(site.request): site.request
        for site in sites
        if site.request is not None and site.replace is not None
    }
    answers = dict(zip(requests, client.get_many(requests.values()), strict=True))
    reasons = [_compared(site, answers.get(id(site.request))) for site in sites]

    changes = Changes()
    try:
        if attention is not None and chosen is not None:
            _set_attention(changes, model, chosen)
        for site in sites:
            if site.replace is None:
                continue
            changes.set(site.module, _MARK, True)
            site.replace(changes, site.module, answers.get(id(site.request)))
    except BaseException:
        changes.undo()
        raise
    unreported = dict(answers)
    return Attached(
        changes,
        tuple(
            Replacement(
                path=site.place,
                encoding=None if site.request is None else site.request.encoding,
                fetched_bytes=getattr(unreported.pop(id(site.request), None), "nbytes", 0),
                spared_bytes=site.spared_bytes,
                left=site.replace is None,
                reason=reason,
            )
            for site, reason in zip(sites, reasons, strict=True)
        ),
    )


def _compared(site: Site, answer: Any) -> str:
    """Returns why a site was not replaced or compared; "" if it was compared."""
    from attnbias._models.compare import (  # noqa: PLC0415  # imports torch
        IncomparableError,
        require_same,
    )

    if site.replace is None or site.compare is None:
        return site.reason
    path = site.place
    try:
        with _errors_of_the_models_code(path, "compared"):
            for pair in site.compare(answer):
                require_same(path, pair)
    except IncomparableError as reason:
        return str(reason)
    return ""


@contextlib.contextmanager
def _errors_of_the_models_code(what: str, done: str) -> Iterator[None]:
    """Raises ValueError in place of errors from a model's modified code."""
    from attnbias._models.compare import IncomparableError  # noqa: PLC0415  # imports torch

    try:
        yield
    except (Error, ImportError, IncomparableError, ValueError):
        raise
    except Exception as error:
        raise ValueError(
            f"model: got {what} with custom code or attributes, which fail when they are "
            f"{done}: {type(error).__name__}: {error}"
        ) from error


def _attention_of(
    model: PreTrainedModel, attention: str | None, family: Family
) -> Attention | None:
    """Returns the attention to run with; None if the model keeps an unlisted implementation."""
    name = model.config._attn_implementation if attention is None else attention
    known: list[Attention] = ["eager"]
    if model._supports_sdpa:
        known.append("sdpa")
    if model.config.model_type in family.flex:
        known.append("flex")
    for one in known:
        if name == one:
            if one == "flex" and model.config.output_attentions:
                raise ValueError(
                    'attention: got "flex" for a model with output_attentions=True, want "eager": '
                    "FlexAttention has no attention weights"
                )
            return one
    if attention is None and family.takes_any:
        return None
    got = f"{name!r}, which the model has" if attention is None else repr(name)
    wanted = " or ".join(f'"{one}"' for one in known)
    message = f"attention: got {got}, want {wanted} for {type(model).__name__}"
    if attention == "flex" and family.takes_any and model._supports_flex_attn:
        message += (
            "; or the one that transformers uses: "
            'model.set_attn_implementation("flex_attention"), and omit the attention argument'
        )
    raise ValueError(message)


def _set_attention(changes: Changes, model: PreTrainedModel, attention: Attention) -> None:
    """Sets the attention in each configuration, since encoder and decoder have their own."""
    if attention == "flex":
        from attnbias._models.families import flex  # noqa: PLC0415  # imports torch

        flex.register(_FLEX)
    name = _FLEX if attention == "flex" else attention
    configs = (getattr(module, "config", None) for module in model.modules())
    for config in {id(config): config for config in configs if config is not None}.values():
        changes.set(config, "_attn_implementation_internal", name)
