# SPDX-License-Identifier: Apache-2.0
"""transformers' rotary modules, each created from a configuration, and their rope parameters as
fields.
"""

import copy
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers as hf
from bits import Array, to_array
from huggingface_hub.errors import StrictDataclassError
from transformers.integrations.heterogeneity.configuration_utils import (
    AmbiguousGlobalPerLayerAttributeError,
)

import attnbias

Rows = tuple[Array, Array]
Words = dict[str, Any]

ROWS = [0, 1, 2, 3, 7, 60, 511, 4095]
# Positions that differ between axes.
AXES = [
    ROWS,
    [5, 0, 1, 9, 2, 33, 4000, 60],
    [8, 1, 0, 3, 77, 2, 1000, 4],
    [3, 9, 4, 0, 11, 20, 30, 500],
]


# Modules for configurations that several modules in their file accept.
MODULES = dict.fromkeys(
    ("Qwen3OmniMoeTalkerCodePredictorConfig", "Qwen3OmniMoeCode2WavConfig"),
    "Qwen3OmniMoeRotaryEmbedding",
)


class Rope(NamedTuple):
    name: str  # CONFIG, or CONFIG.LAYER_TYPE
    config: Any
    layer: str | None
    words: Words


def rope_of(config: Any, layer: str | None = None) -> Rope:
    words = config.rope_parameters[layer] if layer else config.rope_parameters
    name = type(config).__name__ + (f".{layer}" if layer else "")
    return Rope(name, config, layer, dict(words))


def with_words(rope: Rope, words: Words) -> Rope:
    """Returns the same configuration with other fields."""
    config = copy.deepcopy(rope.config)
    if vars(config).get("head_dim", 0) is None:  # some rope_types fail with it
        config.head_dim = head_dim_of(config, rope.layer)
    if rope.layer is None:
        config.rope_parameters = dict(words)
    else:
        config.rope_parameters = {**config.rope_parameters, rope.layer: dict(words)}
    return rope_of(config, rope.layer)


def with_ropes(config: Any) -> Iterator[Any]:
    """Yields the configuration and its parts, if they have rope_parameters."""
    if getattr(config, "rope_parameters", None):
        yield config
    for name in getattr(config, "sub_configs", None) or {}:
        part = getattr(config, name, None)
        if isinstance(part, hf.PreTrainedConfig):
            yield from with_ropes(part)


def default_ropes() -> tuple[list[Rope], set[str]]:
    """Returns all default ropes, without duplicates within a class, and the types that have no
    default.
    """
    ropes: dict[str, Rope] = {}
    without = set()
    for model_type in sorted(hf.CONFIG_MAPPING):
        try:
            default = hf.CONFIG_MAPPING[model_type]()
        except (ValueError, StrictDataclassError):  # transformers' own default fails its checks
            without.add(model_type)
            continue
        for config in with_ropes(default):
            nested = [key for key, words in config.rope_parameters.items() if type(words) is dict]
            for layer in nested or [None]:
                rope = rope_of(config, layer)
                ropes.setdefault(f"{rope.name} {rope.words} {head_dim_of(config, layer)}", rope)
    return list(ropes.values()), without


def head_dim_of(config: Any, layer: str | None) -> int:
    if hasattr(config, "memory_attention_hidden_size"):  # SAM 2
        heads = config.memory_attention_num_attention_heads
        return int(
            config.memory_attention_hidden_size // (config.memory_attention_downsample_rate * heads)
        )
    try:
        head_dim = getattr(config, "head_dim", None)
    except AmbiguousGlobalPerLayerAttributeError:
        head_dim = config.per_layer_config[layer].head_dim
    if head_dim:
        return int(head_dim)
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "num_heads", 1)
    return int((getattr(config, "embed_dim", None) or getattr(config, "hidden_size", 0)) // heads)


def module_of(rope: Rope) -> Any:
    """Returns the rotary module of the configuration's class, as the model creates it."""
    config = rope.config
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    try:
        modeling = importlib.import_module(name)
    except ModuleNotFoundError:  # classes of another model
        modeling = importlib.import_module(hf.MODEL_MAPPING[type(config)].__module__)
    classes = [
        kind
        for kind in vars(modeling).values()
        if inspect.isclass(kind) and re.search(r"(Rotary|Ro[Pp][Ee]).*Embedding", kind.__name__)
    ]

    def is_for_another(kind: Any) -> bool:
        hint = inspect.signature(kind).parameters["config"].annotation
        name = type(config).__name__
        return MODULES.get(name) != kind.__name__ and getattr(hint, "__name__", hint) != name

    for kind in sorted(classes, key=is_for_another):
        try:
            module = kind(config).eval()
        except (AttributeError, KeyError, ValueError):  # needs another part's configuration
            continue
        if rope.layer and not hasattr(module, f"{rope.layer}_inv_freq"):  # no layer has this type
            layers = [rope.layer] * config.num_hidden_layers
            window = config.sliding_window or 64
            other = type(config)(layer_types=layers, sliding_window=window)
            other.rope_parameters = config.rope_parameters
            module = kind(other)
        return module
    return None


def inv_freq_of(rope: Rope, module: Any) -> Array:
    """Returns the module's current frequencies: dynamic ones change with its inputs."""
    inv_freq = getattr(module, f"{rope.layer}_inv_freq" if rope.layer else "inv_freq")
    return to_array(inv_freq).astype(np.float64)


def cos_and_sin(rope: Rope, module: Any, axes: list[list[int]]) -> Rows:
    """Returns [positions, columns], without the additional axes of a module's result."""
    positions = torch.tensor(axes)
    if is_axial(rope.words):
        positions = positions.T  # [positions, axes]
        if type(module).__name__ == "Gemma4VisionRotaryEmbedding":
            positions = positions[None]
    elif len(axes) > 1:
        positions = positions[:, None]  # [axes, batch, positions]
    answer = module(torch.empty(0), positions, *([rope.layer] if rope.layer else []))
    cos, sin = (answer.real, answer.imag) if torch.is_tensor(answer) else answer
    rows = len(axes[0])
    return to_array(cos).reshape(rows, -1), to_array(sin).reshape(rows, -1)


def is_axial(words: Words) -> bool:
    return str(words.get("rope_type")).lower() == "axial"


def words_of(rope: Rope) -> Words:
    """Returns the configuration's rope parameters."""
    words = {"head_dim": head_dim_of(rope.config, rope.layer), **rope.words}
    words.pop("type", None)
    return words


def relative_bound(rope: Rope) -> float:
    """Bounds the error of float32 powers, quotients and blends; see rotary_test.py."""
    return float((math.log(rope.words["rope_theta"]) + 16) * 2.0**-23)


def assert_rows(client: attnbias.Client, encoding: Any, rope: Rope, axes: list[list[int]]) -> None:
    """Compares an encoding's rows with the module's.

    The bound is for float32: an angle's error is its frequency's error times the position.
    """
    want = cos_and_sin(rope, module_of(rope), axes)
    got = client.get(encoding, position_ids=axes if len(axes) > 1 else axes[0], data_type="f64")
    bound = np.max(axes, axis=0)[:, None] * relative_bound(rope) + 2.0**-21
    for ours, theirs in zip((got.cos, got.sin), want, strict=True):
        assert ours.shape == theirs.shape
        assert np.all(np.abs(ours - theirs) <= bound)


def assert_gives(
    client: attnbias.Client,
    words: Words,
    axes: list[list[int]],
    want: Rows,
    *,
    bound: float,
    arranged: Callable[[Array], Array] = lambda columns: columns,
    angles: Array | None = None,
) -> None:
    """Compares to within float32's error: an angle's error is its frequency's error times the
    position.

    Args:
        bound: relative error bound for the frequencies.
        arranged: function applied to the answer's columns.
        angles: the largest angle in each row, if a frequency may exceed 1.
    """
    ids: Any = axes if len(axes) > 1 else axes[0]
    kind = attnbias.Rotary if "axes" in words else attnbias.Mrope
    got = client.get(kind(**words), position_ids=ids, data_type="f64")
    largest = np.max(np.abs(axes), axis=0) if angles is None else angles
    factor = max(1.0, float(np.max(np.hypot(*want))))
    most = factor * (largest[:, None] * bound + 2.0**-21)
    for part, theirs in zip((got.cos, got.sin), want, strict=True):
        ours = arranged(part)
        assert ours.shape == theirs.shape
        assert np.all(np.abs(ours - theirs) <= most), np.max(np.abs(ours - theirs))
