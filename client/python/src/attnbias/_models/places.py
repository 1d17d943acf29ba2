# SPDX-License-Identifier: Apache-2.0
"""Encodings of transformers models, and their places, by family.

Facts follow the transformers 5.23 code. Places have the names under which servers mount a
checkpoint's tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from attnbias._models.config_fields import ConfigFields
from attnbias._models.rotary_places import RotaryModel, rotary_places
from attnbias._spec.encodings import (
    T5,
    ALiBi,
    Deberta,
    GridRelative,
    LearnedAbsolute,
    MlpLayer,
    Resample,
    Rotary,
    Sinusoidal,
)
from attnbias._spec.fields import Encoding
from attnbias._spec.presets import Beit, DetrSinusoidal, Shaw, Swin, SwinV2, Tensor2Tensor

Places: TypeAlias = "dict[str, Encoding]"
# Returns the name of a place's table; None if no checkpoint is named.
TableOf: TypeAlias = "Callable[[str], str | None]"


def none(_config: ConfigFields, _table: TableOf) -> Places:
    return {}


# Relative biases.


def _t5_of(config: ConfigFields, table: str | None, *, bidirectional: bool) -> T5:
    return T5(
        bidirectional=bidirectional,
        num_heads=config.count("num_attention_heads"),
        num_buckets=config.integer("relative_attention_num_buckets"),
        max_distance=config.integer("relative_attention_max_distance"),
        table=table,
        bucket_rule="float32_log",  # torch's logarithm determined the buckets in training
    )


def t5(config: ConfigFields, table: TableOf) -> Places:
    return {
        "encoder": _t5_of(config, table("encoder"), bidirectional=True),
        "decoder": _t5_of(config, table("decoder"), bidirectional=False),
    }


def umt5(config: ConfigFields, table: TableOf) -> Places:
    """Each layer has its own table."""
    layers = {"encoder": config.count("num_hidden_layers")}
    layers["decoder"] = config.count("num_decoder_layers")
    return {
        place: _t5_of(config, table(place), bidirectional=side == "encoder")
        for side, count in layers.items()
        for place in (f"{side}.layers.{i}" for i in range(count))
    }


def longt5(config: ConfigFields, table: TableOf) -> Places:
    places = t5(config, table)
    if config.choice("encoder_attention_type", ["local", "transient-global"]) != "local":
        # Positions are counted in blocks.
        places["encoder.global"] = _t5_of(config, table("encoder.global"), bidirectional=True)
    return places


def mpnet(config: ConfigFields, table: TableOf) -> Places:
    bias = T5(
        bidirectional=True,
        num_heads=config.count("num_attention_heads"),
        num_buckets=32,
        max_distance=128,
        table=table("encoder"),
        bucket_rule="float32_log",
    )
    # Its padding index is 1 in every configuration.
    return {"encoder": bias, "positions": LearnedAbsolute(table=table("positions"), offset=2)}


def _power_of_two_slopes(num_heads: int) -> list[float]:
    """Returns BLOOM's slopes: float32 powers of a base rounded to float32."""
    base = float(np.float32(2.0 ** -(2.0 ** (3 - math.log2(num_heads)))))
    return [float(np.float32(base**k)) for k in range(1, num_heads + 1)]


def _bloom_slopes(num_heads: int) -> list[float]:
    most = 1 << (num_heads.bit_length() - 1)
    return _power_of_two_slopes(most) + _power_of_two_slopes(2 * most)[: 2 * (num_heads - most) : 2]


def bloom(config: ConfigFields, _: TableOf) -> Places:
    num_heads = config.count("num_attention_heads")
    slopes = _bloom_slopes(num_heads)
    return {"decoder": ALiBi(num_heads=num_heads, slopes=slopes, variant="key_from_start")}


def falcon(config: ConfigFields, _: TableOf) -> Places:
    if not config.flag("alibi"):
        return rotary_places(config, RotaryModel())
    for name in ("rope_parameters", "rope_scaling", "rope_theta"):
        config.get(name)  # transformers writes them anyway
    num_heads = config.count("num_attention_heads")
    slopes = [float(ml_dtypes.bfloat16(slope)) for slope in _bloom_slopes(num_heads)]
    return {"decoder": ALiBi(num_heads=num_heads, slopes=slopes, variant="key_from_start")}


def mpt(config: ConfigFields, _: TableOf) -> Places:
    attention = config.part("attn_config")
    attention.ignore("alibi", instead=True)
    attention.ignore("alibi_bias_max", instead=8)
    attention.refuse_unread_of_positions()
    num_heads = config.count("num_attention_heads")
    most = 1 << (num_heads - 1).bit_length()
    powers = (np.float32(2.0 ** float(np.float32(k * 8 / most))) for k in range(1, most + 1))
    slopes = [float(1 / power) for power in powers]
    if most != num_heads:
        slopes = (slopes[1::2] + slopes[::2])[:num_heads]
    return {"decoder": ALiBi(num_heads=num_heads, slopes=slopes, variant="key_from_end")}


def deberta_v2(config: ConfigFields, table: TableOf) -> Places:
    places: Places = {}
    if config.flag("position_biased_input"):
        places["positions"] = LearnedAbsolute(table=table("positions"), offset=0)
    if config.flag("relative_attention"):
        buckets = config.integer("position_buckets", least=-1)
        distance = config.integer("max_relative_positions", least=-1)
        if distance < 1:
            distance = config.integer("max_position_embeddings")
        # The result is the row that each pair uses, for both terms; the row itself depends on
        # content.
        places["encoder"] = (
            Deberta(
                bucket_size=buckets, max_position=distance, edge="hf", bucket_rule="float32_log"
            )
            if buckets > 0
            else Deberta(bucket_size=0, max_position=distance)
        )
    return places


# Absolute positions.


def learned(config: ConfigFields, table: TableOf, *, offset: int = 0) -> Places:
    return {"positions": LearnedAbsolute(table=table("positions"), offset=offset)}


def of_both_sides(config: ConfigFields, table: TableOf, *, offset: int = 0) -> Places:
    return {
        place: LearnedAbsolute(table=table(place), offset=offset)
        for place in ("encoder.positions", "decoder.positions")
    }


def sinusoidal(
    config: ConfigFields,
    _: TableOf,
    *,
    tensor2tensor: bool = False,
    sides: Sequence[str] = ("encoder", "decoder"),
) -> Places:
    dim = config.integer("hidden_size")
    encoding = Tensor2Tensor(dim) if tensor2tensor else Sinusoidal(dim, columns="sines_cosines")
    return {f"{side}.positions": encoding for side in sides}


def whisper(config: ConfigFields, table: TableOf) -> Places:
    """The encoder's frozen sinusoids are in the checkpoint too."""
    place = "decoder.positions"
    return {
        "encoder.positions": Tensor2Tensor(config.integer("hidden_size")),
        place: LearnedAbsolute(table=table(place), offset=0),
    }


def bert(config: ConfigFields, table: TableOf, *, offset: int = 0) -> Places:
    """Before transformers 5, models could use relative distances in place of positions."""
    kinds = ["absolute", "relative_key", "relative_key_query"]
    if config.choice("position_embedding_type", kinds) == "absolute":
        return learned(config, table, offset=offset)
    reach = config.integer("max_position_embeddings") - 1
    return {
        place: Shaw(
            left=reach, right=reach, table=table(place), beyond="refuse", sign="query_minus_key"
        )
        for place in _layers(config.count("num_hidden_layers"))
    }


def roberta(config: ConfigFields, table: TableOf) -> Places:
    return bert(config, table, offset=config.integer("pad_token_id", least=-1) + 1)


def _layers(count: int) -> list[str]:
    return [f"encoder.layers.{i}" for i in range(count)]


# Images.


def _grid(config: ConfigFields) -> tuple[int, int]:
    """Returns the number of patches per column and per row."""
    image, patch = config.sides("image_size"), config.sides("patch_size")
    return image[0] // patch[0], image[1] // patch[1]


def _blocks(config: ConfigFields) -> dict[str, int]:
    """Returns the stage of each block."""
    return {
        f"encoder.layers.{stage}.blocks.{block}": stage
        for stage, depth in enumerate(config.integers("depths"))
        for block in range(depth)
    }


def _of_stages(config: ConfigFields, name: str, least: int = 1) -> tuple[int, ...]:
    """Returns a list with one value per stage."""
    values, stages = config.integers(name, least), len(config.integers("depths"))
    if len(values) < stages:
        config.refuse(name, f"one for each of the {stages} stages in depths")
    return values


def swin(config: ConfigFields, table: TableOf) -> Places:
    window = config.integer("window_size")
    num_heads = _of_stages(config, "num_attention_heads")
    places: Places = {
        place: Swin((window, window), num_heads=num_heads[stage], table=table(place))
        for place, stage in _blocks(config).items()
    }
    if config.flag("use_absolute_embeddings"):
        places |= learned(config, table)
    return places


def swin_v2(config: ConfigFields, table: TableOf) -> Places:
    """Limits each window to its stage, a square whose side depends on the image's height."""
    window, (height, _) = config.integer("window_size"), _grid(config)
    num_heads = _of_stages(config, "num_attention_heads")
    pretrained = _of_stages(config, "pretrained_window_sizes", least=0)
    places: Places = {}
    for place, stage in _blocks(config).items():
        side = min(window, height >> stage)
        if side == 0:
            config.refuse("image_size", f"a size that leaves pixels for stage {stage}")
        weight, bias = (table(f"{place}.mlp.0.{name}") for name in ("weight", "bias"))
        places[place] = SwinV2(
            [MlpLayer(weight, bias=bias), MlpLayer(table(f"{place}.mlp.2.weight"))],
            window=(side, side),
            num_heads=num_heads[stage],
            pretrained_window=[pretrained[stage]] * 2 if pretrained[stage] else None,
        )
    return places


def beit_bias(window: tuple[int, int], *, num_heads: int, table: Any) -> GridRelative:
    """Returns transformers' bias, which swaps unequal sides and resamples the table."""
    height, width = window
    source = (2 * width - 1, 2 * height - 1)
    resample = Resample(source=source) if height != width else None
    return Beit(window, num_heads=num_heads, table=table, resample=resample)


def beit(config: ConfigFields, table: TableOf) -> Places:
    height, width = _grid(config)
    sites: list[str] = []
    if config.flag("use_shared_relative_position_bias"):
        sites.append("encoder")
    if config.flag("use_relative_position_bias"):
        sites += _layers(config.count("num_hidden_layers"))
    places: Places = {
        place: beit_bias(
            (height, width), num_heads=config.count("num_attention_heads"), table=table(place)
        )
        for place in sites
    }
    if not config.flag("use_absolute_position_embeddings"):
        return places
    side = math.isqrt(height * width)
    if side**2 != height * width:
        want = "a size with a square number of patches: the model's code resamples from a square"
        config.refuse("image_size", want)
    from_square = None
    if height != width:
        from_square = Resample(
            source=(side, side), target=(height, width), prefix_rows=1, filter="cubic"
        )
    positions = LearnedAbsolute(table=table("positions"), offset=0, resample=from_square)
    return places | {"positions": positions}


def detr(config: ConfigFields, table: TableOf) -> Places:
    """Positions are fractions of the image size, which the caller sets instead of the invalid 0."""
    places: Places = {"queries": LearnedAbsolute(table=table("queries"), offset=0)}
    if config.choice("position_embedding_type", ["sine", "learned"]) == "learned":
        axes = ("rows", "columns")
        return places | {axis: LearnedAbsolute(table=table(axis), offset=0) for axis in axes}
    places["positions"] = DetrSinusoidal(config.integer("hidden_size"), height=0, width=0)
    return places


# Rotary positions.


def rotary(config: ConfigFields, _: TableOf, **arguments: Any) -> Places:
    return rotary_places(config, RotaryModel(**arguments))


def granitemoehybrid(config: ConfigFields, _: TableOf) -> Places:
    """Has positions only if the configuration enables them."""
    places = rotary_places(config, RotaryModel())
    kinds = ["rope", "nope"]
    is_set = config.is_set("position_embedding_type")
    kind = config.choice("position_embedding_type", kinds) if is_set else "nope"
    return places if kind == "rope" else {}


def gptj(config: ConfigFields, _: TableOf) -> Places:
    return {"rotary": Rotary(head_dim=config.integer("rotary_dim"), layout="interleaved")}
