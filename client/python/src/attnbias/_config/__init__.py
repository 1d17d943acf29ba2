# SPDX-License-Identifier: Apache-2.0
"""A model's encodings out of its Hugging Face configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from attnbias._checks import require_instance
from attnbias._config.fields import ConfigFields
from attnbias._config.models import model_of, places_of

if TYPE_CHECKING:
    from attnbias._encodings import Encoding


class Configuration(Protocol):
    """An object with the fields of a configuration, such as a PretrainedConfig."""

    def to_dict(self) -> dict[str, Any]:
        """Its fields, by their names in config.json."""
        ...


ConfigSource: TypeAlias = "Mapping[str, Any] | Configuration | str | os.PathLike[str]"


def from_config(config: ConfigSource, *, checkpoint: str | None = None) -> dict[str, Encoding]:
    """The encodings of a model of transformers, by their places in it.

    for place, encoding in attnbias.from_config("Llama-3.1-8B").items():
        print(place, encoding)

    Places are those under which a server mounts the tables of a checkpoint (docs/encodings/
    checkpoints.md): ``encoder``, ``decoder``, ``positions``, ``encoder.layers.0.blocks.1``.
    Beside them there are ``rotary``, or ``rotary.full_attention`` where layers differ; ``decoder``
    of ALiBi; and ``text.`` or ``vision.`` in front in a model of both.

    Encodings have all that a configuration says. Complete them by ``dataclasses.replace`` with
    what it does not say:

    - ``table``, or the tables of SwinV2, which are in the checkpoint;
    - ``sequence_length`` of a Rotary whose rope_type is "dynamic" or "longrope";
    - ``axis_lengths`` of DETR's sinusoids, the rows and columns of its feature map.

    Args:
        config: a dict, an object with ``to_dict()``, or a path: of config.json or of the folder
            that has it. What it leaves out is what transformers' class takes.
        checkpoint: the NAME under which a server has mounted the model (``--checkpoint``
            NAME=FOLDER): tables are then named.

    Raises:
        ValueError: a field bears on positions and is not understood, a model_type is not known, or
            servers mount no checkpoints of it.
        OSError: there is no such file.
    """
    require_instance(checkpoint, (str, type(None)), "checkpoint", "a name, or None")
    if checkpoint == "":
        raise ValueError("checkpoint: got '', want a name, or None")
    values, source = _values_of(config)
    for name in values:
        require_instance(name, str, "config", "fields whose names are str")
    fields = ConfigFields(values)

    def table_of(place: str) -> str | None:
        return None if checkpoint is None else f"{checkpoint}/{place}"

    try:
        if checkpoint is not None and model_of(fields).tables is None:
            model_type = fields.get("model_type")
            raise ValueError(
                f"checkpoint: got {checkpoint!r}, want None: "
                f"servers mount no tables of model_type {model_type!r}"
            )
        return places_of(fields, table_of)
    except ValueError as error:
        raise ValueError(f"{source}{error}") from None


def _values_of(config: ConfigSource) -> tuple[Mapping[str, Any], str]:
    """The fields, and what stands before an error about one."""
    if isinstance(config, Mapping):
        return config, ""
    if isinstance(config, (str, os.PathLike)):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        return _read(path), f"{path}: "
    want = "a dict, an object with to_dict(), or the path of config.json or of its folder"
    to_dict = getattr(config, "to_dict", None)
    if isinstance(config, type) or not callable(to_dict):
        require_instance(config, (), "config", want)
    return config.to_dict(), ""


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        want = "config.json or its folder"
        raise FileNotFoundError(f"config: got {str(path)!r}, want {want}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: got {type(values).__name__}, want a JSON object")
    return values
