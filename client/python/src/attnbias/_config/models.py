# SPDX-License-Identifier: Apache-2.0
"""The models of transformers whose encodings are known: their places, and their fields' defaults.

Facts are those of transformers 5.23; a test compares the defaults with its classes'.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from attnbias._config import places
from attnbias._config.fields import As, ConfigFields
from attnbias._config.rotary import RotaryModel, rotary_places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnbias._config.places import Places, TableOf


@dataclass(frozen=True)
class Model:
    """A model type.

    Attributes:
        places: its encodings.
        defaults: what its fields are that a configuration leaves out, of those that are read.
        only: fields that its code does not read, with the value that it computes with.
        unused: fields whose names speak of positions, but change nothing.
        mounted: whether servers mount its checkpoints.
        parts: the model types of its parts by name; the part's configuration is ``NAME_config``.
    """

    places: Callable[[ConfigFields, TableOf], Places] = lambda _config, _table: {}
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    mounted: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)


def _rotary(
    head_dim: int | None = None,
    *,
    model: RotaryModel | None = None,
    unused: tuple[str, ...] = (),
    **defaults: Any,
) -> Model:
    """A model with nothing but rotary positions; ``head_dim`` is the default of the field."""
    rotary_model = model or RotaryModel()
    words = {"rope_theta": 10000.0, "partial_rotary_factor": 1.0, "head_dim": head_dim} | defaults
    return Model(lambda config, _: rotary_places(config, rotary_model), words, unused=unused)


_T5_DEFAULTS: Final = {
    "num_attention_heads": As("num_heads"),
    "num_heads": 8,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "num_hidden_layers": As("num_layers"),
    "num_layers": 8,
    "num_decoder_layers": As("num_layers"),
    "encoder_attention_type": "local",
}
_BERT_DEFAULTS: Final = {
    "position_embedding_type": "absolute",
    "max_position_embeddings": 512,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
}
_SWIN_DEFAULTS: Final = {
    "image_size": 224,
    "patch_size": 4,
    "depths": (2, 2, 6, 2),
    "num_attention_heads": As("num_heads"),
    "num_heads": (3, 6, 12, 24),
    "window_size": 7,
    "pretrained_window_sizes": (0, 0, 0, 0),
    "use_absolute_embeddings": False,
}
_BART_LIKE: Final = functools.partial(places.of_both_sides, offset=2)
# Of fairseq's configurations, from which they come.
_BART_ONLY: Final = {"static_position_embeddings": False, "extra_pos_embeddings": 2}
_SINES: Final = {"static_position_embeddings": True}


def _d_model(size: int) -> dict[str, Any]:
    return {"hidden_size": As("d_model"), "d_model": size}


def _sizes(hidden_size: int, num_attention_heads: int, length: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden_size,
        "num_attention_heads": num_attention_heads,
        "max_position_embeddings": length,
    }


MODELS: Final[Mapping[str, Model]] = {
    "t5": Model(places.t5, _T5_DEFAULTS, mounted=True),
    "mt5": Model(places.t5, _T5_DEFAULTS | {"num_heads": 6}, mounted=True),
    "umt5": Model(places.umt5, _T5_DEFAULTS | {"num_heads": 6}, mounted=True),
    "longt5": Model(places.longt5, _T5_DEFAULTS, mounted=True),
    "mpnet": Model(
        places.mpnet,
        {"num_attention_heads": 12},
        only={"relative_attention_num_buckets": 32},
        mounted=True,
    ),
    "bloom": Model(
        places.bloom,
        {"num_attention_heads": As("n_head"), "n_head": 8},
        unused=("offset_alibi",),  # a constant, which its code does not add
    ),
    "mpt": Model(
        places.mpt,
        {"num_attention_heads": As("n_heads"), "n_heads": 16},
        unused=("learned_pos_emb",),  # its code has no such table
    ),
    "falcon": Model(
        places.falcon,
        {
            "alibi": False,
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
            **_sizes(4544, 71, 2048),
        },
    ),
    "deberta-v2": Model(
        places.deberta_v2,
        {
            "position_biased_input": True,
            "relative_attention": False,
            "position_buckets": -1,
            "max_relative_positions": -1,
            "max_position_embeddings": 512,
        },
        unused=("pos_att_type",),  # which terms there are, of the same indices
        mounted=True,
    ),
    "bert": Model(places.bert, _BERT_DEFAULTS, mounted=True),
    "roberta": Model(places.roberta, _BERT_DEFAULTS, mounted=True),
    "gpt2": Model(places.learned, mounted=True),
    "opt": Model(functools.partial(places.learned, offset=2), mounted=True),
    "bart": Model(_BART_LIKE, only=_BART_ONLY, mounted=True),
    "mbart": Model(_BART_LIKE, only=_BART_ONLY),
    "plbart": Model(_BART_LIKE, only=_BART_ONLY),
    "blenderbot": Model(places.of_both_sides),
    "blenderbot-small": Model(places.of_both_sides),
    "marian": Model(
        places.sinusoidal, _d_model(1024), only=_SINES, unused=("extra_pos_embeddings",)
    ),
    "pegasus": Model(
        places.sinusoidal, _d_model(1024), only=_SINES, unused=("extra_pos_embeddings",)
    ),
    "whisper": Model(places.whisper, _d_model(384)),
    "vit": Model(places.learned, mounted=True),
    "deit": Model(places.learned, mounted=True),
    "siglip_vision_model": Model(places.learned),
    "swin": Model(places.swin, _SWIN_DEFAULTS, mounted=True),
    "swinv2": Model(
        places.swin_v2, _SWIN_DEFAULTS, only={"use_absolute_embeddings": False}, mounted=True
    ),
    "beit": Model(
        places.beit,
        {
            "image_size": 224,
            "patch_size": 16,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "use_shared_relative_position_bias": False,
            "use_relative_position_bias": False,
            "use_absolute_position_embeddings": False,
        },
        mounted=True,
    ),
    "detr": Model(places.detr, _d_model(256) | {"position_embedding_type": "sine"}, mounted=True),
    "gptj": Model(places.gptj, {"rotary_dim": 64}, only={"rotary": True}),
    "gpt_neox": _rotary(
        model=RotaryModel(
            rope_theta="rotary_emb_base", partial_rotary_factor="rotary_pct", is_partial=True
        ),
        rotary_emb_base=10000.0,
        rotary_pct=0.25,
        **_sizes(6144, 64, 2048),
    ),
    "llama": _rotary(**_sizes(4096, 32, 2048)),
    "mistral": _rotary(**_sizes(4096, 32, 131072)),
    "mixtral": _rotary(rope_theta=1e6, **_sizes(4096, 32, 131072)),
    "qwen2": _rotary(**_sizes(4096, 32, 32768)),
    "qwen2_moe": _rotary(**_sizes(2048, 16, 32768)),
    "qwen3": _rotary(128, **_sizes(4096, 32, 32768)),
    "qwen3_moe": _rotary(**_sizes(2048, 32, 32768)),
    "gemma": _rotary(256, **_sizes(3072, 16, 8192)),
    "gemma2": _rotary(256, **_sizes(2304, 8, 8192)),
    "gemma3_text": _rotary(
        256,
        model=RotaryModel(
            layer_types={
                "full_attention": "rope_theta",
                "sliding_attention": "rope_local_base_freq",
            }
        ),
        rope_theta=1e6,
        rope_local_base_freq=10000.0,
        **_sizes(2304, 8, 131072),
    ),
    "gemma3": Model(parts={"text": "gemma3_text", "vision": "siglip_vision_model"}),
    "phi": _rotary(
        model=RotaryModel(is_partial=True), partial_rotary_factor=0.5, **_sizes(2048, 32, 2048)
    ),
    "phi3": _rotary(
        model=RotaryModel(is_partial=True, renamed_types={"su": "longrope", "yarn": "longrope"}),
        original_max_position_embeddings=4096,
        **_sizes(3072, 32, 4096),
    ),
    "deepseek_v2": _rotary(
        model=RotaryModel(head_dim="qk_rope_head_dim", layout="compact"),
        qk_rope_head_dim=64,
        **_sizes(4096, 32, 2048),
    ),
    "deepseek_v3": _rotary(
        model=RotaryModel(head_dim="qk_rope_head_dim"),
        unused=("rope_interleave",),  # how queries are laid out to be turned
        qk_rope_head_dim=64,
        **_sizes(7168, 128, 4096),
    ),
    "olmo2": _rotary(**_sizes(4096, 32, 2048)),
    "granite": _rotary(**_sizes(4096, 32, 2048)),
    "starcoder2": _rotary(**_sizes(3072, 24, 4096)),
    "stablelm": _rotary(
        model=RotaryModel(is_partial=True), partial_rotary_factor=0.25, **_sizes(2560, 32, 4096)
    ),
    "cohere": _rotary(
        model=RotaryModel(layout="interleaved"), rope_theta=500000.0, **_sizes(8192, 64, 8192)
    ),
}


def places_of(config: ConfigFields, table_of: TableOf) -> Places:
    """The encodings of a configuration, those of its parts among them."""
    model = model_of(config)
    fields = config.with_defaults(model.defaults)
    for name, only in model.only.items():
        fields.require(name, only)
    for name in model.unused:
        fields.get(name)
    found = dict(model.places(fields, table_of))
    for part, model_type in model.parts.items():
        of_part = places_of(fields.part(f"{part}_config", {"model_type": model_type}), table_of)
        found |= {f"{part}.{place}": encoding for place, encoding in of_part.items()}
    fields.refuse_unread_of_positions()
    return found


def model_of(config: ConfigFields) -> Model:
    """The model that its ``model_type`` names."""
    name = config.get("model_type")
    if not isinstance(name, str) or name not in MODELS:
        near = difflib.get_close_matches(str(name), MODELS)
        meant = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        config.refuse("model_type", f"one of {', '.join(sorted(MODELS))}{meant}")
    return MODELS[name]
