# SPDX-License-Identifier: Apache-2.0
"""Presets: constants, renamed fields, and errors that use these names."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnbias
from attnbias._spec import encodings, presets
from attnbias._spec.fields import from_spec


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        (
            attnbias.TransformerXL(8, clamp_len=4),
            {"columns": "sines_cosines", "causal": True, "left": 4},
        ),
        (
            attnbias.XLNet(8, base=500.0),
            {"columns": "sines_cosines", "ladder": attnbias.Ladder(base=500.0)},
        ),
        (attnbias.XLNet(8, clamp_len=4), {"columns": "sines_cosines", "left": 4, "right": 4}),
        (
            attnbias.XLNet(8, clamp_len=4, causal=True),
            {"columns": "sines_cosines", "left": 4, "causal": True},
        ),
        (attnbias.Conformer(8), {"columns": "interleaved"}),
        (
            attnbias.SymmetricSinusoidal(8, columns="cosines_sines"),
            {"columns": "cosines_sines", "symmetric": True},
        ),
    ],
)
def test_preset_equals_its_encoding(
    preset: attnbias.RelativeSinusoidal, fields: dict[str, Any]
) -> None:
    assert type(preset) is attnbias.RelativeSinusoidal
    assert preset == attnbias.RelativeSinusoidal(dim=8, **fields)


def test_nested_presets_equal_their_encodings() -> None:
    axis = attnbias.Axis(scale=6.283185307179586, eps=1e-6, ladder=attnbias.Ladder(base=20.0))
    axes = [replace(axis, length=length) for length in (3.0, 2.0)]
    preset = attnbias.DetrSinusoidal(8, height=3.0, width=2.0, temperature=20.0)
    assert preset == attnbias.Sinusoidal(8, axes=axes)
    assert from_spec(preset.to_spec()) == preset
    tensor2tensor = attnbias.Sinusoidal(
        8,
        columns="sines_cosines",
        odd="zero",
        ladder=attnbias.Ladder(timescales=attnbias.Timescales(max=500.0)),
    )
    assert attnbias.Tensor2Tensor(8, max_timescale=500.0) == tensor2tensor
    # Without the argument, a preset omits the message.
    assert not attnbias.XLNet(8).to_spec().relative_sinusoidal.HasField("ladder")


def test_grid_presets_equal_their_encodings() -> None:
    given: dict[str, Any] = {"window": (2, 3), "table": "w", "table_layout": "heads_buckets"}
    given["resample"] = attnbias.Resample(source=(5, 7), filter="cubic")
    assert attnbias.Swin(**given) == attnbias.GridRelative(**given)
    assert attnbias.Beit(**given) == attnbias.GridRelative(class_token=True, **given)
    assert attnbias.LeViT(**given) == attnbias.GridRelative(symmetric=True, **given)


def test_mlp_presets_equal_their_encodings() -> None:
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


def test_shaw_table_holds_vectors() -> None:
    table = np.ones((3, 2))
    preset = attnbias.Shaw(left=1, right=1, table=table)
    assert preset == attnbias.LearnedRelative(1, left=1, vectors=table)
    assert preset.has_vectors
    scalars = attnbias.LearnedRelative(1, left=1, scalars=table)
    assert not scalars.has_vectors
    assert attnbias.Shaw(left=1, right=1) == attnbias.LearnedRelative(1, left=1)


def test_xpos_is_rotary_with_a_decay() -> None:
    decay = attnbias.Decay(center=3, gamma=0.5)
    assert attnbias.Xpos(8, center=3, gamma=0.5) == attnbias.Rotary(8, decay=decay)
    assert attnbias.Xpos(8) == attnbias.Rotary(8, decay=attnbias.Decay())
    assert attnbias.Xpos(8) != attnbias.Rotary(8)


def test_mrope_sections_assign_pairs() -> None:
    one = attnbias.Axis()
    chunked = attnbias.Mrope(16, [4, 2, 2], rope_theta=7.0, layout="compact")
    dealt = [0, 0, 0, 0, 1, 1, 2, 2]
    want = attnbias.Rotary(16, axes=[one] * 3, pair_axis=dealt, rope_theta=7.0, layout="compact")
    assert chunked == want
    in_turn = attnbias.Mrope(16, [4, 2, 2], mrope_interleaved=True)
    assert in_turn == attnbias.Rotary(16, axes=[one] * 3, pair_axis=[0, 1, 2, 0, 1, 2, 0, 0])
    with pytest.raises(ValueError, match=r"^Mrope\.mrope_section: got \[1, 3\], want the pairs"):
        attnbias.Mrope(8, [1, 3], mrope_interleaved=True)


def test_mrope_accepts_length_extension_fields() -> None:
    words: dict[str, Any] = {"factor": 4.0, "original_max_position_embeddings": 512}
    yarn = attnbias.Rotary(
        16, rope_theta=7.0, yarn=attnbias.Yarn(4.0, original_max_position_embeddings=512)
    )
    assert attnbias.Mrope(16, rope_type="YARN", rope_theta=7.0, **words) == yarn
    assert attnbias.Mrope(16, rope_type="default", rope_theta=7.0) == attnbias.Rotary(
        16, rope_theta=7.0
    )
    with pytest.raises(ValueError, match=r"^Mrope\.rope_type: got 'su', want one of default, lin"):
        attnbias.Mrope(16, rope_type="su")
    with pytest.raises(ValueError, match=r"^Mrope\.rope_type: got 3, want one of default, lin"):
        attnbias.Mrope(16, rope_type=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^Mrope\(\) got .* argument 'low_freq_factor'$"):
        attnbias.Mrope(16, rope_type="yarn", low_freq_factor=1.0, **words)
    with pytest.raises(TypeError, match=r"^Mrope\(\) got .* 'type'. Did you mean 'rope_type'\?$"):
        attnbias.Mrope(16, type="yarn")


@pytest.mark.parametrize("name", ["Mrope", "Request", *encodings.__all__, *presets.__all__])
def test_unknown_argument_error_names_the_class_or_preset_called(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}(\.__init__)?\(\) got an unexpected keyword"):
        getattr(attnbias, name)(8, nonsense=1)


@pytest.mark.parametrize("word", ["axes", "pair_axis"])
def test_mrope_rejects_fields_that_it_sets(word: str) -> None:
    with pytest.raises(TypeError, match=rf"^Mrope\(\) got an unexpected keyword argument '{word}'"):
        attnbias.Mrope(8, [2, 2], **{word: []})  # type: ignore[arg-type]


def test_axial_mrope_has_ladders() -> None:
    axis = attnbias.Axis(ladder=attnbias.Ladder(base=7.0))
    halves = attnbias.Mrope(16, rope_type="AXIAL", rope_theta=7.0)
    assert halves == attnbias.Rotary(16, axes=[axis, axis])
    thirds = attnbias.Mrope(16, [2, 3, 3], rope_type="axial", rope_theta=7.0)
    assert thirds == attnbias.Rotary(16, axes=[axis] * 3, pair_axis=[0, 0, 1, 1, 1, 2, 2, 2])
    assert attnbias.Mrope(16, rope_type="axial") == attnbias.Rotary(
        16, axes=[attnbias.Axis(ladder=attnbias.Ladder())] * 2
    )


def test_presets_are_exported_and_reject_constants() -> None:
    for name in presets.__all__:
        assert name in attnbias.__all__
    with pytest.raises(TypeError, match="columns"):
        attnbias.XLNet(8, columns="interleaved")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "copied", [lambda it: it, copy.copy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_client_errors_use_preset_field_names(copied: Any) -> None:
    clamp: Any = "far"
    preset = copied(attnbias.XLNet(8, clamp_len=clamp))
    with pytest.raises(TypeError, match=r"^XLNet\.clamp_len: got 'far'"):
        preset.to_spec()
    with pytest.raises(TypeError, match=r"^Shaw\.table: "):
        copied(attnbias.Shaw(left=1, right=1, table=np.ones((3, 2), np.int8))).to_spec()
    with pytest.raises(TypeError, match=r"^DetrSinusoidal\.width: got 'far'"):
        copied(attnbias.DetrSinusoidal(8, height=1, width=clamp)).to_spec()
    with pytest.raises(ValueError, match=r"^TransformerXL\.dim: "):
        attnbias.TransformerXL(1 << 40).to_spec()
    with pytest.raises(ValueError, match=r"^Xpos\.center: "):
        attnbias.Xpos(8, center=1 << 70).to_spec()
    with pytest.raises(ValueError, match=r"^relative_sinusoidal\.left: "):
        attnbias.RelativeSinusoidal(8, left=1 << 70).to_spec()


def test_server_errors_use_preset_field_names(real_client: attnbias.Client) -> None:
    extent: Any = {"query_length": 3, "key_length": 3}
    with pytest.raises(
        attnbias.InvalidArgumentError,
        match=r"^INVALID_ARGUMENT: XLNet\.clamp_len: got 0, want an integer in \[1, 2\^40\]",
    ) as refused:
        real_client.get(attnbias.XLNet(8, clamp_len=0), **extent)
    assert refused.value.message.startswith("XLNet.clamp_len: ")
    assert refused.value.field_violations[0].field == "spec.relative_sinusoidal.left"
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r": MaeSinusoidal\.temperature: got 0, want a number"
    ):
        real_client.get(attnbias.MaeSinusoidal(8, temperature=0), positions=3)
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r": Shaw\.table: got shape \[4, 2\], want \[left "
    ):
        real_client.get(attnbias.Shaw(left=1, right=1, table=np.ones((4, 2))), **extent)
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r": Shaw\.table: not set, want exactly"
    ):
        real_client.get(attnbias.Shaw(left=1, right=1), **extent)
    for mrope, refusal in (
        (attnbias.Mrope(16, [1, 2]), r"Mrope\.mrope_section: got 3 numbers, want 8"),
        (attnbias.Mrope(16, rope_type="axial", rope_theta=0.5), r"Mrope\.rope_theta: got 0\.5"),
        (attnbias.Mrope(16, rope_type="linear", factor=0.5), r"Mrope\.factor: got 0\.5"),
        (attnbias.Mrope(16, rope_type="dynamic"), r"Mrope\.factor: not set"),
    ):
        with pytest.raises(attnbias.InvalidArgumentError, match=refusal):
            real_client.get(mrope, position_ids=[[0]] * 2)
    with pytest.raises(
        attnbias.InvalidArgumentError, match=r"spec\.relative_sinusoidal\.left: got 0"
    ):
        real_client.get(attnbias.RelativeSinusoidal(8, left=0), **extent)
