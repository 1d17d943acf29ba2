# SPDX-License-Identifier: Apache-2.0
"""A model's encodings, from its Hugging Face configuration."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from attnbias._checks import require_instance
from attnbias._models.config_fields import ConfigFields
from attnbias._models.register import model_of, places_of
from attnbias._spec.fields import Encoding

# The same bounds as a server's.
_MOST_LEVELS: Final = 100
_MOST_BYTES: Final = 64 << 20


class Configuration(Protocol):
    """An object with the fields of a configuration, such as a PretrainedConfig."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, keyed by their names in config.json."""
        ...


ConfigSource: TypeAlias = "Mapping[str, Any] | Configuration | str | os.PathLike[str]"


def from_config(config: ConfigSource, *, checkpoint: str | None = None) -> dict[str, Encoding]:
    """Returns the encodings of a transformers model, keyed by their places in it.

    for place, encoding in attnbias.from_config("Llama-3.1-8B").items():
        print(place, encoding)

    Places are the names under which a server mounts a checkpoint's tables (docs/encodings/
    checkpoints.md): ``encoder``, ``decoder``, ``positions``, ``encoder.layers.0.blocks.1``. Other
    places are ``rotary``, or ``rotary.full_attention`` if layers differ, and ``decoder`` for ALiBi.
    A model with both text and vision adds the prefix ``text.`` or ``vision.``.

    Encodings contain everything that a configuration states. Set missing fields with
    ``dataclasses.replace``, or create a new ``DetrSinusoidal``:

    - ``table``, or the ``layers`` of SwinV2, which are in the checkpoint;
    - ``sequence_length`` in the ``dynamic`` or ``longrope`` of a Rotary, which is None until set;
    - ``height`` and ``width`` for DETR's sinusoids: the rows and columns of its feature map.

    The table of model types in docs/models.md lists the known types, and those whose positions do
    not start at 0. Fields that the model's code ignores are ignored with a warning.

    Args:
        config: a dict, an object with ``to_dict()``, or the path of config.json or of its folder.
            Missing fields have the defaults of the transformers class.
        checkpoint: the NAME under which a server has mounted the model (``--checkpoint``
            NAME=FOLDER): tables are then referred to by name.

    Raises:
        TypeError: config is none of these.
        ValueError: a field affects positions and is not understood, a model_type is not known,
            servers mount no checkpoints of that type, or the file is not a regular file.
        OSError: the file does not exist; the error lists what is in the folder.
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
                f"servers mount no tables for model_type {model_type!r}"
            )
        places = places_of(fields, table_of)
    except ValueError as error:
        raise ValueError(f"{source}{error}") from None
    if fields.ignored:
        warnings.warn(
            f"from_config: {source}the model's code ignores {', '.join(fields.ignored)}, "
            "and so do these encodings",
            stacklevel=2,
        )
    return places


def _values_of(config: ConfigSource) -> tuple[Mapping[str, Any], str]:
    """Returns the fields, and the prefix for errors about them."""
    if isinstance(config, Mapping):
        return config, ""
    if isinstance(config, (str, os.PathLike)):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        return _read(path), f"{path}: "
    want = "a dict, an object with to_dict(), or the path to config.json or its folder"
    to_dict = getattr(config, "to_dict", None)
    if isinstance(config, type) or not callable(to_dict):
        require_instance(config, (), "config", want)
    return config.to_dict(), ""


def _read(path: Path) -> dict[str, Any]:
    """Reads JSON as transformers and the server do: NaN and Infinity are numbers."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a FIFO may wait forever
            raise ValueError(f"{path}: got a folder, a FIFO or a device, want a regular file")
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"{path}: got {status.st_size} bytes, want at most {_MOST_BYTES}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(_no_config(path)) from None
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # rejects unpaired surrogates
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: got {type(values).__name__}, want a JSON object")
    if _is_deeper(values, 1 + _MOST_LEVELS):
        raise ValueError(f"{path}: nested deeper than {_MOST_LEVELS} levels")
    return values


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inside)


def _no_config(path: Path) -> str:
    """Returns the error for a missing config.json; it depends on what the folder contains."""
    folder = path.parent
    got = repr(str(path))
    if path.name == "config.json" and folder.is_dir():
        files = sorted(each.name for each in folder.iterdir())
        got = f"{str(folder)!r}, which has no config.json (files: {', '.join(files[:8]) or '-'})"
    return (
        f"config: got {got}, want config.json or its folder; for a model on the Hub, pass "
        "transformers.AutoConfig.from_pretrained(NAME)"
    )
