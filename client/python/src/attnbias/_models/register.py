# SPDX-License-Identifier: Apache-2.0
"""The registry of transformers' model types, models.json.

``from_config``, ``export`` and ``attach`` read it here; servers have it compiled in for
``--checkpoint``; the table in docs/models.md is generated from it. Facts follow transformers 5.23;
tests compare them with its classes.

- ``models`` has a row for each known model type, with the arguments of ``Model``. A default of
  "=NAME" is the value of the field NAME.
- ``tables`` lists the checkpoint tensors that hold positions. Rows refer to its entries by name in
  their ``tables``; see core/mount/checkpoint_rules.h.
- ``shapes`` has the axis lengths of these tensors, computed from the configuration's fields. Terms
  are evaluated from left to right; terms that are not fields are defined in
  core/mount/checkpoint_rules.cc.
- ``unserved`` lists the model types without a served encoding, by reason.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from attnbias._models import places
from attnbias._models.config_fields import As, ConfigFields
from attnbias._models.places import Places, TableOf


@dataclass(frozen=True)
class Model:
    """A model type.

    Attributes:
        rule: names the function of places.py that makes its encodings.
        arguments: that function's arguments after the configuration.
        defaults: values for fields that the code reads but a configuration omits.
        only: fields that its code does not read, with the value that the code uses; any other value
            is rejected, since the weights depend on it.
        ignored: the same, but no weights depend on the value, so a different value is accepted with
            a warning.
        unused: fields whose names suggest positions but that have no effect.
        parts: the model types of its parts by name; the part's configuration is ``NAME_config``.
        flat: the part whose fields are in the outer configuration if it has no configuration of its
            own, as in older files.
        note: for readers of docs/models.md.
        tables: names the tensors that servers mount; None if they mount no checkpoints of this
            type.
        attach: the module of ``families`` that replaces its positions; None if ``attach`` does
            not support it.
        unattached: why ``attach`` does not support it.
    """

    rule: str = "none"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    ignored: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    flat: str | None = None
    note: str = ""
    tables: str | None = None
    attach: str | None = None
    unattached: str = ""


def _model(row: dict[str, Any]) -> Model:
    defaults = {
        name: As(value[1:]) if isinstance(value, str) and value.startswith("=") else value
        for name, value in row.pop("defaults", {}).items()
    }
    return Model(defaults=defaults, **row)


_REGISTER: Final[dict[str, Any]] = json.loads(
    resources.files("attnbias._models").joinpath("models.json").read_text(encoding="utf-8")
)
MODELS: Final[Mapping[str, Model]] = {
    name: _model(row) for name, row in _REGISTER["models"].items()
}
# Reasons by model type.
UNSERVED: Final[Mapping[str, str]] = {
    name: why for why, names in _REGISTER["unserved"].items() for name in names
}


def places_of(config: ConfigFields, table_of: TableOf) -> Places:
    """Returns the encodings of a configuration and of its parts."""
    model = model_of(config)
    fields = config.with_defaults(model.defaults)
    for name, only in model.only.items():
        fields.require(name, only)
    for name, instead in model.ignored.items():
        fields.ignore(name, instead)
    for name in model.unused:
        fields.get(name)
    rule = getattr(places, model.rule)
    found: Places = rule(fields, table_of, **model.arguments)
    for part in model.parts:
        of_part = places_of(_part(fields, model, part), table_of)
        found |= {f"{part}.{place}": encoding for place, encoding in of_part.items()}
    fields.refuse_unread_of_positions()
    return found


def _part(fields: ConfigFields, model: Model, name: str) -> ConfigFields:
    model_type, field_name = model.parts[name], f"{name}_config"
    if name == model.flat and not fields.has(field_name):
        return fields.all_as(model_type)
    part = fields.part(field_name, {"model_type": model_type})
    # In older files, a part has the model_type of the whole model.
    return part.all_as(model_type) if part.get("model_type") == fields.get("model_type") else part


def model_of(config: ConfigFields) -> Model:
    """Returns the model that ``model_type`` names."""
    name = config.get("model_type")
    if isinstance(name, str) and name in MODELS:
        return MODELS[name]
    if isinstance(name, str) and name in UNSERVED:
        config.refuse("model_type", f"one whose encodings the server provides: {UNSERVED[name]}")
    near = difflib.get_close_matches(name, MODELS) if isinstance(name, str) else []
    want = f"{', '.join(map(repr, near))} or another" if near else "a"
    return config.refuse("model_type", f"{want} model type in docs/models.md")
