# SPDX-License-Identifier: Apache-2.0
"""Presets: constants, other names of fields, and errors that have these names."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import attnbias
from attnbias import _presets


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        (
            attnbias.TransformerXL(8, clamp_len=4),
            {"layout": "concatenated", "causal": True, "left": 4},
        ),
        (attnbias.XLNet(8, base=500.0), {"layout": "concatenated", "base": 500.0}),
        (attnbias.XLNet(8, clamp_len=4), {"layout": "concatenated", "left": 4, "right": 4}),
        (
            attnbias.XLNet(8, clamp_len=4, causal=True),
            {"layout": "concatenated", "left": 4, "causal": True},
        ),
        (attnbias.Conformer(8), {"layout": "interleaved"}),
        (
            attnbias.SymmetricSinusoidal(8, layout="tensor2tensor"),
            {"layout": "tensor2tensor", "symmetric": True},
        ),
    ],
)
def test_a_preset_is_its_encoding(
    preset: attnbias.RelativeSinusoidal, fields: dict[str, Any]
) -> None:
    assert type(preset) is attnbias.RelativeSinusoidal
    assert preset == attnbias.RelativeSinusoidal(dim=8, **fields)


def test_presets_of_grids_are_their_encodings() -> None:
    given: dict[str, Any] = {"window": (2, 3), "table": "w", "table_layout": "heads_buckets"}
    assert attnbias.Swin(**given) == attnbias.GridRelative(**given)
    assert attnbias.Beit(**given) == attnbias.GridRelative(class_token=True, **given)
    assert attnbias.LeViT(**given) == attnbias.GridRelative(symmetric=True, **given)


def test_presets_of_networks_are_their_encodings() -> None:
    layers = [attnbias.MlpLayer("0.weight", bias="0.bias"), attnbias.MlpLayer("2.weight")]
    given: dict[str, Any] = {"layers": layers, "window": (2, 3), "class_token": True}
    swin: Any = {"coordinates": "log2_normalized", "output": "sigmoid_16", "activation": "relu"}
    preset = attnbias.SwinV2(**given, pretrained_window=(4, 4))
    assert preset == attnbias.MlpBias(**given, **swin, pretrained_window=(4, 4))
    relu: Any = {"coordinates": "signed_log", "activation": "relu"}
    assert attnbias.RelPosMlp(**given) == attnbias.MlpBias(**given, **relu)
    silu: Any = {"coordinates": "signed_log", "activation": "silu"}
    dynamic = attnbias.DynamicPositionBias(layers, coordinates="signed_log")
    assert dynamic == attnbias.MlpBias(layers, **silu)
    assert (preset.extent, dynamic.extent) == ("grid", "pair")


def test_shaws_table_is_vectors() -> None:
    table = np.ones((3, 2))
    preset = attnbias.Shaw(left=1, right=1, table=table)
    assert preset == attnbias.LearnedRelative(1, left=1, vectors=table)
    assert preset.has_vectors
    scalars = attnbias.LearnedRelative(1, left=1, scalars=table)
    assert not scalars.has_vectors
    assert attnbias.Shaw(left=1, right=1) == attnbias.LearnedRelative(1, left=1)


def test_all_are_exported_and_take_no_constants() -> None:
    for name in _presets.__all__:
        assert name in attnbias.__all__
    with pytest.raises(TypeError, match="layout"):
        attnbias.XLNet(8, layout="interleaved")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "copied", [lambda it: it, copy.copy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_errors_have_the_presets_words(copied: Any) -> None:
    clamp: Any = "far"
    preset = copied(attnbias.XLNet(8, clamp_len=clamp))
    with pytest.raises(TypeError, match=r"^XLNet\.clamp_len: got 'far'"):
        preset.to_spec()
    with pytest.raises(TypeError, match=r"^Shaw\.table: "):
        copied(attnbias.Shaw(left=1, right=1, table=np.ones((3, 2), np.int8))).to_spec()
    with pytest.raises(ValueError, match=r"^TransformerXL\.dim: "):
        attnbias.TransformerXL(1 << 40).to_spec()
    with pytest.raises(ValueError, match=r"^relative_sinusoidal\.left: "):
        attnbias.RelativeSinusoidal(8, left=1 << 70).to_spec()


def test_refusals_have_the_presets_words(real_client: attnbias.Client) -> None:
    extent: Any = {"query_length": 3, "key_length": 3}
    with pytest.raises(
        attnbias.InvalidArgumentError,
        match=r"^INVALID_ARGUMENT: XLNet\.clamp_len: got 0, want an integer in \[1, 2\^40\]",
    ) as refused:
        real_client.get(attnbias.XLNet(8, clamp_len=0), **extent)
    assert refused.value.message.startswith("XLNet.clamp_len: ")
    assert refused.value.field_violations[0].field == "spec.relative_sinusoidal.left"
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r": Shaw\.table: got shape \[4, 2\], want \[3 "
    ):
        real_client.get(attnbias.Shaw(left=1, right=1, table=np.ones((4, 2))), **extent)
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r": Shaw\.table: not set, want exactly"
    ):
        real_client.get(attnbias.Shaw(left=1, right=1), **extent)
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r"spec\.relative_sinusoidal\.left: got 0"
    ):
        real_client.get(attnbias.RelativeSinusoidal(8, left=0), **extent)
