# SPDX-License-Identifier: Apache-2.0
"""Every rope_parameters of transformers' default configurations, against the model's own module.

Each is served by its own words, or stands in the table of docs/encodings.md, with the reason.
"""

import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers as hf
from bits import to_array
from huggingface_hub.errors import StrictDataclassError
from transformers.integrations.heterogeneity.configuration_utils import (
    AmbiguousGlobalPerLayerAttributeError,
)
from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionRotaryEmbedding
from transformers.models.ministral3.modeling_ministral3 import (
    get_llama_4_attn_scale as ministral3_scale,
)
from transformers.models.mistral4.modeling_mistral4 import (
    get_llama_4_attn_scale as mistral4_scale,
)

import attnbias

Array = npt.NDArray[Any]
Rows = tuple[Array, Array]
Words = dict[str, Any]
# Fields, lists of positions, and the rows that the module has for them.
Served = tuple[Words, list[list[int]], Rows]

DOCS = Path(__file__).parents[2] / "docs" / "encodings.md"
ROWS = [0, 1, 2, 3, 7, 60, 511, 4095]
COLUMNS = [5, 0, 1, 9, 2, 33, 4000, 60]


class Rope(NamedTuple):
    name: str  # CONFIG, or CONFIG.LAYER_TYPE
    config: Any
    layer: str | None
    words: Words


def with_ropes(config: Any) -> Iterator[Any]:
    """The configuration and its parts, those that have rope_parameters."""
    if getattr(config, "rope_parameters", None):
        yield config
    for name in getattr(config, "sub_configs", None) or {}:
        part = getattr(config, name, None)
        if isinstance(part, hf.PreTrainedConfig):
            yield from with_ropes(part)


def default_ropes() -> tuple[list[Rope], set[str]]:
    """All of them, equal ones of a class once; and the types that have no default."""
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
                words = config.rope_parameters[layer] if layer else config.rope_parameters
                name = type(config).__name__ + (f".{layer}" if layer else "")
                ropes.setdefault(
                    f"{name} {words} {head_dim_of(config, layer)}",
                    Rope(name, config, layer, dict(words)),
                )
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
    """The rotary module of the configuration's class, as the model makes it."""
    config = rope.config
    name = type(config).__module__.replace(".configuration_", ".modeling_")
    try:
        modeling = importlib.import_module(name)
    except ModuleNotFoundError:  # another model's classes
        modeling = importlib.import_module(hf.MODEL_MAPPING[type(config)].__module__)
    classes = [
        kind
        for kind in vars(modeling).values()
        if inspect.isclass(kind) and re.search(r"(Rotary|Ro[Pp][Ee]).*Embedding", kind.__name__)
    ]

    def is_for_another(kind: Any) -> bool:
        hint = inspect.signature(kind).parameters["config"].annotation
        return getattr(hint, "__name__", hint) != type(config).__name__

    for kind in sorted(classes, key=is_for_another):
        try:
            module = kind(config).eval()
        except (AttributeError, KeyError, ValueError):  # wants another part's configuration
            continue
        if rope.layer and not hasattr(module, f"{rope.layer}_inv_freq"):  # no layer is of this type
            layers = [rope.layer] * config.num_hidden_layers
            window = config.sliding_window or 64
            module = kind(type(config)(layer_types=layers, sliding_window=window))
        return module
    return None


def frequencies_of(rope: Rope, module: Any) -> Array:
    inv_freq = getattr(module, f"{rope.layer}_inv_freq" if rope.layer else "inv_freq")
    return to_array(inv_freq).astype(np.float64)


def cos_and_sin(rope: Rope, module: Any, axes: list[list[int]]) -> Rows:
    """[positions, columns], whatever further axes a module's answer has."""
    positions = torch.tensor(axes)
    if is_axial(words_of(rope)):
        positions = positions.T  # [positions, axes]
        if isinstance(module, Gemma4VisionRotaryEmbedding):
            positions = positions[None]
    elif len(axes) > 1:
        positions = positions[:, None]  # [axes, batch, positions]
    answer = module(torch.empty(0), positions, *([rope.layer] if rope.layer else []))
    cos, sin = (answer.real, answer.imag) if torch.is_tensor(answer) else answer
    rows = len(axes[0])
    return to_array(cos).reshape(rows, -1), to_array(sin).reshape(rows, -1)


def is_axial(words: Words) -> bool:
    return bool(words["rope_type"] == "AXIAL")


def words_of(rope: Rope) -> Words:
    """What the configuration says, word by word."""
    words = {"head_dim": head_dim_of(rope.config, rope.layer), **rope.words}
    words.pop("type", None)
    return words | {"rope_type": words["rope_type"].upper()}


def relative_bound(rope: Rope) -> float:
    """Of float32 powers, quotients and blends: see rotary_test.py."""
    return float((math.log(rope.words["rope_theta"]) + 16) * 2.0**-23)


def assert_derived(client: attnbias.Client, rope: Rope, module: Any, words: Words) -> None:
    derived = client.describe(attnbias.Rotary(**words), positions=1).derived
    name = f"{rope.layer}_attention_scaling" if rope.layer else "attention_scaling"
    assert derived["attention_factor"] == pytest.approx([getattr(module, name)], rel=4e-16)
    ours = np.sort(derived["inverse_frequencies"])
    theirs = frequencies_of(rope, module)
    theirs = np.sort(np.tile(theirs, 2) if is_axial(words) else theirs)
    assert len(ours) == len(theirs)
    assert np.all(np.abs(ours - theirs) <= relative_bound(rope) * ours)


# The module's columns of one for each pair. No word says which.
LAYOUTS: list[Callable[[Array], Array]] = [
    lambda pairs: np.concatenate([pairs, pairs], axis=1),  # HALF
    lambda pairs: pairs.repeat(2, axis=1),  # INTERLEAVED
    lambda pairs: pairs,  # COMPACT
]


def assert_gives(
    client: attnbias.Client,
    rope: Rope,
    served: Served,
    layouts: list[Callable[[Array], Array]] = LAYOUTS,
) -> None:
    """As near as float32 comes: an angle loses what its frequency does, times the position."""
    words, axes, want = served
    encoding = attnbias.Rotary(layout="COMPACT", **words)
    position_ids: Any = axes if len(axes) > 1 else axes[0]
    got = client.get(encoding, position_ids=position_ids, dtype="f64")
    bound = np.max(axes, axis=0)[:, None] * relative_bound(rope) + 2.0**-21
    assert any(
        all(
            layout(ours).shape == theirs.shape and np.all(np.abs(layout(ours) - theirs) <= bound)
            for ours, theirs in zip((got.cos, got.sin), want, strict=True)
        )
        for layout in layouts
    )


def assert_served_by_words(client: attnbias.Client, rope: Rope, module: Any) -> None:
    words = words_of(rope)
    assert_derived(client, rope, module, words)
    axes = [ROWS, COLUMNS] if is_axial(words) else [ROWS] * len(words.get("mrope_section", [1]))
    assert_gives(client, rope, (words, axes, cos_and_sin(rope, module, axes)))


def problem_with(client: attnbias.Client, rope: Rope) -> str | None:
    try:
        assert_served_by_words(client, rope, module_of(rope))
    except (attnbias.Error, AssertionError, *FAILURES) as error:
        return repr(error)
    return None


# Of modules that cannot be called as others are.
FAILURES = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)


def documented() -> set[str]:
    """The configurations in the table of docs/encodings.md."""
    table = DOCS.read_text().split("## Configurations of transformers\n")[1]
    return set(re.findall(r"`(\w+Config)`", "".join(re.findall(r"^\|[^|]*\|", table, re.M))))


def test_every_default_is_served_or_documented(client: attnbias.Client) -> None:
    ropes, without_default = default_ropes()
    assert len(ropes) >= 250
    problems = {rope.name: problem_with(client, rope) for rope in ropes}
    assert {name: why for name, why in problems.items() if why and name not in documented()} == {}
    assert {name for name, why in problems.items() if why} == documented()
    assert without_default == {"gemma4_assistant", "nougat"}


def given_words(rope: Rope, module: Any) -> Words:
    frequencies = frequencies_of(rope, module).tolist()
    return {"head_dim": 2 * len(frequencies), "inverse_frequencies": frequencies}


def given(rope: Rope, module: Any) -> Served:
    return given_words(rope, module), [ROWS], cos_and_sin(rope, module, [ROWS])


def halves(rope: Rope, module: Any) -> Served:
    words = given_words(rope, module)
    axes = [ROWS, COLUMNS]
    sections = [words["head_dim"] // 4] * 2
    return words | {"mrope_section": sections}, axes, cos_and_sin(rope, module, axes)


def in_turn(rope: Rope, module: Any) -> Words:
    frequencies = frequencies_of(rope, module).repeat(2).tolist()
    return {
        "head_dim": 2 * len(frequencies),
        "inverse_frequencies": frequencies,
        "mrope_section": [len(frequencies) // 2] * 2,
        "mrope_order": "INTERLEAVED",
    }


def columns_in_turn(rope: Rope, module: Any) -> Served:
    want = cos_and_sin(rope, module, [ROWS, COLUMNS])
    return in_turn(rope, module), [COLUMNS, ROWS], want


def columns_first(rope: Rope, module: Any) -> Served:
    return words_of(rope), [COLUMNS, ROWS], cos_and_sin(rope, module, [ROWS, COLUMNS])


def axes_apart(rope: Rope, module: Any) -> Served:
    return words_of(rope), [ROWS, COLUMNS], cos_and_sin(rope, module, [ROWS, COLUMNS])


def three_axes(rope: Rope, module: Any) -> Served:
    pairs = len(frequencies_of(rope, module))
    words = words_of(rope) | {"head_dim": 6 * pairs, "mrope_section": [pairs] * 3}
    axes = [ROWS, COLUMNS, ROWS[::-1]]
    return words, axes, cos_and_sin(rope, module, axes)


def from_one(rope: Rope, module: Any) -> Served:
    height, width = 3, 5
    step, kernel = rope.config.q_aggregation_stride, rope.config.q_aggregation_kernel_size
    features = torch.empty(1, 1, (height - 1) * step + kernel, (width - 1) * step + kernel)
    cos, sin = (to_array(each).reshape(height * width, -1) for each in module(features))
    axes = [
        [row + 1 for row in range(height) for _ in range(width)],
        [*range(1, width + 1)] * height,
    ]
    return in_turn(rope, module), axes, (cos, sin)


def class_token_last(rope: Rope, module: Any) -> Served:
    side = rope.config.image_size // rope.config.patch_size
    turns = to_array(torch.view_as_real(module(torch.empty(0)))).reshape(side * side + 1, -1, 2)
    axes = [
        [*range(1, side + 1)] * side + [0],
        [row + 1 for row in range(side) for _ in range(side)] + [0],
    ]
    return words_of(rope) | {"rope_type": "AXIAL"}, axes, (turns[..., 0], turns[..., 1])


def without_what_queries_take(rope: Rope, module: Any) -> Served:
    words = words_of(rope)
    del words["llama_4_scaling_beta"], words["max_position_embeddings"]
    return words, [ROWS], cos_and_sin(rope, module, [ROWS])


INSTEAD: dict[str, Callable[[Rope, Any], Served]] = {
    "EfficientLoFTRConfig": from_one,
    "Gemma4VisionConfig": axes_apart,
    "Glm4MoeConfig": given,
    "Inkling2VisionConfig": columns_first,
    "Kimi_K25VisionConfig": columns_in_turn,
    "Llama4VisionConfig": class_token_last,
    "MiniMaxM3VLVisionConfig": three_axes,
    "Ministral3Config": without_what_queries_take,
    "Mistral4Config": without_what_queries_take,
    "PixtralVisionConfig": halves,
    "Qwen3OmniMoeTextConfig": given,
    "Step3p7VisionConfig": columns_first,
}
# Whose module cannot be called, or whose angles are no product of an integer position.
NOT_SERVED = {
    "BltConfig",
    "EomtDinov3Config",
    "Glm4vMoeTextConfig",
    "Glm4vTextConfig",
    "GlmImageTextConfig",
    "HunYuanVLTextConfig",
    "MusicFlamingoConfig",
}


def test_the_table_is_of_what_is_tested() -> None:
    assert documented() == INSTEAD.keys() | NOT_SERVED


def blockwise(pairs: Array) -> Array:
    """Each axis has halves of its own."""
    rows, columns = np.split(pairs, 2, axis=1)
    return np.concatenate([rows, rows, columns, columns], axis=1)


@pytest.mark.parametrize("name", INSTEAD)
def test_what_the_table_says_to_ask_for(client: attnbias.Client, name: str) -> None:
    ropes = [rope for rope in default_ropes()[0] if rope.name == name]
    assert ropes
    for rope in ropes:
        layouts = [blockwise] if name == "Gemma4VisionConfig" else LAYOUTS
        assert_gives(client, rope, INSTEAD[name](rope, module_of(rope)), layouts)


@pytest.mark.parametrize("get_scale", [ministral3_scale, mistral4_scale])
def test_llama_4_scaling_beta(get_scale: Any) -> None:
    """As docs/encodings.md has it: a factor of queries after they were turned."""
    positions = np.arange(0, 10**6, 4095)
    scale = to_array(get_scale(torch.tensor(positions)[None], 0.1, 8192)).ravel()
    want = 1 + 0.1 * np.log1p(positions // 8192)
    assert np.allclose(scale, want, rtol=2e-7, atol=0)
