# SPDX-License-Identifier: Apache-2.0
"""Rotary encodings from the fields of model configurations.

Since transformers 5 these fields are ``rope_parameters``; before, they were ``rope_scaling`` and
``rope_theta``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final

from attnbias._checks import require_known
from attnbias._models.config_fields import ConfigFields
from attnbias._spec import encodings
from attnbias._spec.choices import RotaryLayout
from attnbias._spec.encodings import Axis, Ladder, Rotary
from attnbias._spec.fields import Encoding
from attnbias.v1 import encodings_pb2

__all__ = ["Mrope"]

_ROTARY: Final[Any] = encodings_pb2.Rotary.DESCRIPTOR
EXTENSIONS: Final[dict[str, Any]] = {
    field.name: getattr(encodings, field.message_type.name)
    for field in _ROTARY.oneofs_by_name["extension"].fields
}
"""Rotary's length extension classes, keyed by field name, which is also the rope_type."""


def Mrope(  # noqa: N802
    head_dim: int,
    mrope_section: Sequence[int] | None = None,
    *,
    mrope_interleaved: bool = False,
    rope_type: str | None = None,
    rope_theta: float | None = None,
    **words: Any,
) -> Rotary:
    """Returns a Rotary with ``axes`` and ``pair_axis``, from rope_parameters.

    Requests take a list of ``position_ids`` per axis.

    Args:
        head_dim: Dimension of a head.
        mrope_section: Number of pairs for each axis, n in total. Default: one axis or, with
            ``rope_type`` "axial", two axes, each with half of the pairs.
        mrope_interleaved: True assigns pairs to the axes in turn; the turns of an axis that already
            has all its pairs go to axis 0 (Qwen3-VL). False assigns them one axis after the other
            (Qwen2-VL).
        rope_type: Name of a length extension of Rotary, or "default" for none; or "axial": every
            axis has the whole progression, over its own pairs (vision transformers).
        rope_theta: Base of the progression. Default: 10000.
        words: Parameters of the length extension, and other fields of Rotary.

    Raises:
        ValueError: pairs cannot be assigned in turn to these sections, or the rope_type is unknown.
    """
    axis, count, renamed = Axis(), 0, {}
    if str(rope_type).lower() == "axial":
        axis, rope_type, count = Axis(ladder=Ladder(base=rope_theta)), None, 2
        rope_theta, renamed = None, {"axes[0].ladder.base": "rope_theta"}
    dealt: dict[str, Any] = {}
    if mrope_section is not None:
        count = len(mrope_section)
        dealt["pair_axis"] = _dealt_out(mrope_section, in_turn=mrope_interleaved)
        renamed["pair_axis"] = "mrope_section"
    words = extended(rope_type, words)
    for name in EXTENSIONS.keys() & words.keys():
        renamed |= {f"{name}.{own.name}": own.name for own in fields(EXTENSIONS[name])}
    require_known(Mrope, words, {each.name for each in fields(Rotary)} - {"axes", *dealt})
    axes = (axis,) * count or None
    return Rotary(head_dim, rope_theta=rope_theta, axes=axes, **dealt, **words)._with_names(
        "Mrope", renamed
    )


def extended(rope_type: str | None, words: dict[str, Any]) -> dict[str, Any]:
    """Returns ``words`` as Rotary arguments; those of a length extension move into its message.

    Raises ValueError for an unknown rope_type.
    """
    name = "default" if rope_type is None else str(rope_type).lower()
    if name == "default":
        return words
    if name not in EXTENSIONS:
        want = ", ".join(["default", *EXTENSIONS, "axial"])
        raise ValueError(f"Mrope.rope_type: got {rope_type!r}, want one of {want}")
    kind = EXTENSIONS[name]
    own = {field.name: words.get(field.name) for field in fields(kind)}
    return {word: value for word, value in words.items() if word not in own} | {name: kind(**own)}


def with_length(encoding: Rotary, length: int) -> Rotary:
    """Returns the encoding for sequences of a given length, which may determine its frequencies."""
    if encoding.dynamic is not None:
        return replace(encoding, dynamic=replace(encoding.dynamic, sequence_length=length))
    if encoding.longrope is not None:
        return replace(encoding, longrope=replace(encoding.longrope, sequence_length=length))
    return encoding


def _dealt_out(section: Sequence[int], *, in_turn: bool) -> list[int]:
    """Returns the axis of each pair."""
    count, pairs = len(section), sum(section)
    if in_turn:
        axes = [m % count if m // count < section[m % count] else 0 for m in range(pairs)]
    else:
        axes = [axis for axis, own in enumerate(section) for _ in range(own)]
    if [axes.count(axis) for axis in range(count)] != list(section):
        want = "the pairs of each axis" + ", fewer for each axis after the first" * in_turn
        raise ValueError(f"Mrope.mrope_section: got {list(section)}, want {want}")
    return axes


@dataclass(frozen=True)
class RotaryModel:
    """How a model's code interprets rope fields.

    Attributes:
        head_dim: the field that states how many columns of a head hold positions.
        hidden_size: the field that states the number of columns in all heads, used if there is no
            head_dim.
        rope_theta: the field that holds rope_theta if the rope parameters do not.
        partial_rotary_factor: the field that holds that factor if the rope parameters do not.
        is_partial: whether its default rope_type has a partial_rotary_factor.
        layout: layout of its columns.
        default_type: the rope_type that it uses for "default".
        renamed_types: rope_types that its code calls by other names.
        layer_types: if layers differ by type, the field that held each type's rope_theta before
            there were rope_parameters, or the rope_theta itself if it is fixed.
        scales_all_types: whether the former rope_scaling applies to all of these types instead of
            only the first.
        reads: additional parameters that its code reads but no encoding has.
        mrope_interleaved: whether pairs are assigned to the axes in turn, if there are several.
        mrope_section: number of pairs for each axis, if the rope parameters do not state it.
    """

    head_dim: str = "head_dim"
    hidden_size: str = "hidden_size"
    rope_theta: str = "rope_theta"
    partial_rotary_factor: str = "partial_rotary_factor"
    is_partial: bool = False
    layout: RotaryLayout | None = None
    default_type: str = "default"
    renamed_types: Mapping[str, str] = field(default_factory=dict)
    layer_types: Mapping[str, str | float] = field(default_factory=dict)
    scales_all_types: bool = False
    reads: tuple[str, ...] = ()
    mrope_interleaved: bool | None = None
    mrope_section: Sequence[int] | None = None


_ROPE_TYPES: Final = ("default", *(name for name in EXTENSIONS if name != "ntk"), "axial")
# Fields of length extensions that do not come from exactly one parameter.
_LENGTHS: Final = ("original_max_position_embeddings", "max_position_embeddings", "sequence_length")
# Parameters in published configurations that transformers reads only for some rope_types and
# models, or not at all.
_IGNORED_ELSEWHERE: Final = {
    *(own.name for kind in EXTENSIONS.values() for own in fields(kind)),
    "mrope_section",
    "mrope_interleaved",
    "alpha",
    "attn_factor",
    "finetuned",
    "llama_4_scaling_beta",
    "long_mscale",
    "short_mscale",
} - {"sequence_length"}
_AS_ATTACHED: Final = (
    "Use attnbias.attach(model, client, max_length=...), which takes the numbers from the model's "
    "module, or request Rotary(head_dim=..., inverse_frequencies=module.inv_freq.tolist())"
)
_NOT_NUMBERS: Final[Mapping[str, Callable[[ConfigFields, str], Any]]] = {
    "truncate": ConfigFields.flag,
    "short_factor": ConfigFields.numbers,
    "long_factor": ConfigFields.numbers,
}


def rotary_places(config: ConfigFields, model: RotaryModel) -> dict[str, Encoding]:
    """Returns the encoding at ``rotary``, or one for each layer type at ``rotary.TYPE``."""
    old, new = (config.has(name) for name in ("rope_scaling", "rope_parameters"))
    if old and new:
        config.refuse("rope_scaling", "none in addition to rope_parameters")
    rope = config.part("rope_scaling" if old else "rope_parameters")
    if not model.layer_types:
        config.get("original_max_position_embeddings")  # not every rope_type reads it
        return {"rotary": _rotary(config, model, rope, model.rope_theta)}
    places: dict[str, Encoding] = {}
    for layer_type, theta in model.layer_types.items():
        scaled = rope if not places or model.scales_all_types else ConfigFields({})
        words = scaled if old else rope.part(layer_type)
        places[f"rotary.{layer_type}"] = _rotary(config, model, words, theta)
    if not old:
        rope.refuse_unread(f"fields under {' and '.join(model.layer_types)}")
    return places


def _rotary(
    config: ConfigFields, model: RotaryModel, rope: ConfigFields, theta: str | float
) -> Rotary:
    rope_type = _rope_type(rope, model)
    own = fields(EXTENSIONS[rope_type]) if rope_type in EXTENSIONS else ()
    needs = [each.name for each in own if each.name not in _LENGTHS and each.default is MISSING]
    takes = [each.name for each in own if each.name not in _LENGTHS and each.name not in needs]
    factor = _own_or_models(rope, "partial_rotary_factor", config, model.partial_rotary_factor)
    words: dict[str, Any] = {
        "head_dim": _head_dim(config, model),
        "rope_theta": _own_or_models(rope, "rope_theta", config, theta),
        "partial_rotary_factor": None if factor == 1 else factor,
        "layout": model.layout,
    }
    if model.layer_types and "truncate" in takes:
        takes.remove("truncate")  # transformers reads it one level up, where it is missing
    for word in (*needs, *filter(rope.is_set, takes)):
        words[word] = _NOT_NUMBERS.get(word, ConfigFields.number)(rope, word)
    if any(each.name == "original_max_position_embeddings" for each in own):
        words["original_max_position_embeddings"] = _original_length(config, model, rope)
    if rope_type == "dynamic" or (rope_type == "longrope" and words.keys().isdisjoint(takes)):
        words["max_position_embeddings"] = config.integer("max_position_embeddings")
    if model.mrope_interleaved is not None:
        rope.ignore("mrope_interleaved", instead=model.mrope_interleaved)
        is_set = model.mrope_section is None or rope.is_set("mrope_section")
        section = rope.integers("mrope_section") if is_set else model.mrope_section
        words |= {"mrope_interleaved": model.mrope_interleaved, "mrope_section": section}
    for word in filter(rope.is_set, model.reads):
        rope.refuse(word, f"none: the model's code uses this field. {_AS_ATTACHED}")
    for word in sorted(_IGNORED_ELSEWHERE):
        rope.ignore_unread(word)
    rope.refuse_unread(f"a field of rope_type {rope_type!r}, or an ignored field. {_AS_ATTACHED}")
    _check_columns(config, model, rope, rope_type, words)
    words = _without_zeros(words)
    if model.mrope_interleaved is not None or rope_type == "axial":
        return Mrope(rope_type=rope_type, **words)
    return Rotary(**extended(rope_type, words))


def _rope_type(rope: ConfigFields, model: RotaryModel) -> str:
    name = "rope_type" if rope.is_set("rope_type") else "type"
    if not rope.is_set(name):
        return model.default_type
    rope.is_set("type")  # both the old and the new name may be set
    word = rope.choice(name, [*_ROPE_TYPES, *model.renamed_types])
    word = model.renamed_types.get(word, word)
    return model.default_type if word == "default" else word


def _head_dim(config: ConfigFields, model: RotaryModel) -> int:
    if config.is_set(model.head_dim):
        return config.integer(model.head_dim)
    columns, heads = config.integer(model.hidden_size), config.integer("num_attention_heads")
    if heads > columns:
        config.refuse("num_attention_heads", f"at most {model.hidden_size}, which is {columns}")
    return columns // heads


def _own_or_models(rope: ConfigFields, word: str, config: ConfigFields, name: str | float) -> float:
    models = config.number(name) if isinstance(name, str) else name
    return rope.number(word) if rope.is_set(word) else models


def _original_length(config: ConfigFields, model: RotaryModel, rope: ConfigFields) -> int:
    """Prefers the configuration's length to the rope parameters' own, as transformers does."""
    name = "original_max_position_embeddings"
    own = rope.integer(name) if rope.is_set(name) else None
    if not model.layer_types and config.is_set(name):
        return config.integer(name)
    return own if own is not None else config.integer("max_position_embeddings")


def _check_columns(
    config: ConfigFields,
    model: RotaryModel,
    rope: ConfigFields,
    rope_type: str,
    words: Mapping[str, Any],
) -> None:
    factor = words["partial_rotary_factor"]
    if factor is None or rope_type == "proportional":
        return
    if rope.is_set("partial_rotary_factor"):
        refuse = functools.partial(rope.refuse, "partial_rotary_factor")
    else:
        refuse = functools.partial(config.refuse, model.partial_rotary_factor)
    if rope_type == "default" and not model.is_partial:
        refuse("1: this model rotates all columns of a head")
    columns = int(words["head_dim"] * factor)
    if columns % 2:
        refuse(f"an even number of rotated columns, not {columns} of {words['head_dim']}")


def _without_zeros(words: dict[str, Any]) -> dict[str, Any]:
    """Drops values that transformers treats as unset: a zero, or one mscale without the other."""
    unset = {name for name in ("beta_fast", "beta_slow") if not words.get(name)}
    if not (words.get("mscale") and words.get("mscale_all_dim")):
        unset |= {"mscale", "mscale_all_dim"}
    return {name: value for name, value in words.items() if name not in unset}
