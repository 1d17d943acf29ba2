# SPDX-License-Identifier: Apache-2.0
"""Idiomatic Python arguments become the contract's message, field by field."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import pydoc
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import json_format

import attnbias
from attnbias._spec.enums import to_data_type
from attnbias.v1 import encodings_pb2, tensor_pb2

SINUSOIDAL = attnbias.Sinusoidal(dim=4)
SWIN = attnbias.Swin((2, 3))
ALIBI = attnbias.ALiBi(num_heads=8)
SIZE: dict[str, Any] = {"query_length": 4, "key_length": 6}
WHOLE: dict[str, Any] = {"query_length": "4", "key_length": "6"}
LAYER = attnbias.MlpLayer(weight=np.ones((1, 1), "f4"), bias=np.zeros(1, "f4"))


def spec_of(encoding: attnbias.Encoding, **options: Any) -> dict[str, Any]:
    spec = attnbias.Request(encoding, **options).to_spec()
    return json_format.MessageToDict(spec, preserving_proto_field_name=True)


def described_fields(described: type[Any]) -> dict[str, str]:
    """Returns the help text for each field, on one line."""
    page = pydoc.plain(pydoc.render_doc(described))
    _, _, attributes = page.partition("Attributes:\n")
    lines = itertools.takewhile(str.strip, (line.strip("| ") for line in attributes.split("\n")))
    whole = " ".join(lines)
    names = [field.name for field in dataclasses.fields(described)]
    parts = re.split(rf"(?:^| )({'|'.join(names)}): ", whole)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_help_describes_each_field() -> None:
    fields = [field.name for field in dataclasses.fields(attnbias.Request)]
    texts = described_fields(attnbias.Request)
    assert list(texts) == fields
    assert min(map(len, texts.values())) > 3


def test_request_options_match_request_fields() -> None:
    fields = {field.name for field in dataclasses.fields(attnbias.Request)} - {"encoding"}
    assert fields == set(attnbias.RequestOptions.__annotations__)


def test_unset_fields_are_not_sent() -> None:
    assert SINUSOIDAL.to_spec() == encodings_pb2.TensorSpec(sinusoidal={"dim": 4})


def test_zero_is_sent_if_field_has_presence() -> None:
    spec = attnbias.T5(bidirectional=False, num_buckets=0).to_spec()
    assert spec.t5.HasField("bidirectional")
    assert spec.t5.HasField("num_buckets")
    assert not spec.t5.HasField("max_distance")


def test_encoding_without_fields_is_sent() -> None:
    assert attnbias.ALiBi().to_spec().WhichOneof("encoding") == "alibi"


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"positions": 8}, {"positions": {"end": "8"}}),
        ({"positions": (-2, 8)}, {"positions": {"begin": "-2", "end": "8"}}),
        ({"positions": np.int64(8)}, {"positions": {"end": "8"}}),
        ({"position_ids": [5, 3]}, {"position_ids": [{"positions": ["5", "3"]}]}),
        (
            {"position_ids": [[0.5, 3], np.array([1, 2], np.float32), [4, 5]]},
            {
                "position_ids": [
                    {"doubles": [0.5, 3.0]},
                    {"doubles": [1.0, 2.0]},
                    {"positions": ["4", "5"]},
                ]
            },
        ),
        (
            {"position_ids": np.array([5, 1 << 40])},
            {"position_ids": [{"positions": ["5", "1099511627776"]}]},
        ),
        (
            {"position_ids": [[1], [2, 3]]},
            {"position_ids": [{"positions": ["1"]}, {"positions": ["2", "3"]}]},
        ),
        (
            {"grid": np.array([3, 1 << 40]), "grid_offset": (0, -2)},
            {"grid": ["3", "1099511627776"], "grid_offset": ["0", "-2"]},
        ),
    ],
)
def test_positions_are_sent(options: dict[str, Any], want: dict[str, Any]) -> None:
    assert spec_of(SINUSOIDAL, **options)["table"] == want


@pytest.mark.parametrize(
    ("options", "want"),
    [
        (SIZE, WHOLE),
        (
            {
                "query_length": 4,
                "queries": (3, 4),
                "key_length": 6,
                "keys": (2, 6),
                "heads": (1, 5),
            },
            {
                "query_length": "4",
                "key_length": "6",
                "queries": {"begin": "3", "end": "4"},
                "keys": {"begin": "2", "end": "6"},
                "heads": {"begin": "1", "end": "5"},
            },
        ),
        (SIZE | {"heads": 2}, WHOLE | {"heads": {"end": "2"}}),
        (SIZE | {"alignment": "end"}, WHOLE | {"alignment": "ALIGNMENT_END"}),
        (SIZE | {"query_offset": 0}, WHOLE | {"query_offset": "0"}),
        (
            {"query_positions": [4, 7], "key_positions": (1, 2)},
            {
                "query_positions": {"positions": ["4", "7"]},
                "key_positions": {"positions": ["1", "2"]},
            },
        ),
    ],
)
def test_pair_options_are_sent(options: dict[str, Any], want: dict[str, Any]) -> None:
    assert spec_of(ALIBI, **options)["pair"] == want


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, {}),
        ({"queries": 4}, {"queries": {"end": "4"}}),
        (
            {"queries": (0, 1), "keys": (2, 6), "heads": 3},
            {"queries": {"end": "1"}, "keys": {"begin": "2", "end": "6"}, "heads": {"end": "3"}},
        ),
    ],
)
def test_grid_options_are_sent(options: dict[str, Any], want: dict[str, Any]) -> None:
    spec = spec_of(SWIN, **options)
    assert spec["grid"] == want
    assert "pair" not in spec


@pytest.mark.parametrize("option", ["positions", "alignment", "query_offset", "key_positions"])
def test_grid_rejects_options_of_other_extents(option: str) -> None:
    options: dict[str, Any] = {option: 4}
    with pytest.raises(
        ValueError, match=f"{option}: got a value, want none: grid_relative takes queries, keys"
    ):
        attnbias.Request(SWIN, **options)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"data_type": "bf16"}, {"data_type": "DATA_TYPE_BF16"}),
        ({"data_type": ml_dtypes.bfloat16}, {"data_type": "DATA_TYPE_BF16"}),
        ({"data_type": "F64"}, {"data_type": "DATA_TYPE_F64"}),
        ({"data_type": "f16"}, {"data_type": "DATA_TYPE_F16"}),
        ({"data_type": np.float32}, {"data_type": "DATA_TYPE_F32"}),
        ({"data_type": np.dtype(">f4")}, {"data_type": "DATA_TYPE_F32"}),
        ({"form": "dense"}, {"form": "FORM_DENSE"}),
        ({"values": "buckets"}, {"values": "VALUES_BUCKETS"}),
        ({"scale": 0.5}, {"scale": 0.5}),
        ({"causal": True}, {"mask": {"causal": True}}),
        (
            {"window_left": 0, "window_right": 3},
            {"mask": {"window_left": "0", "window_right": "3"}},
        ),
        ({"causal": True, "fill_value": 0.0}, {"mask": {"causal": True, "fill_value": 0.0}}),
        ({"causal": True, "fill_lowest": True}, {"mask": {"causal": True, "fill_lowest": True}}),
    ],
)
def test_output_options_are_sent(options: dict[str, Any], want: dict[str, Any]) -> None:
    assert spec_of(ALIBI, **SIZE, **options)["output"] == want


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"alignment": "end", "query_offset": 3}, "query_offset: given together with alignment"),
        (
            {"positions": 4},
            "positions: got a value, want none: alibi takes query_length, key_length",
        ),
        ({"queries": (1, 2, 3)}, r"queries: got \(1, 2, 3\)"),
        ({"queries": (0, 1 << 64)}, "queries: got"),
        ({"alignment": "middle"}, "alignment: got 'middle', want one of 'start', 'end'"),
        ({"alignment": "unspecified"}, "alignment: got 'unspecified'"),
        ({"form": 3}, "form: got 3"),
        ({"data_type": "i8"}, "data_type: got 'i8', want one of f64, f32, f16, bf16, i32"),
        ({"data_type": "nonsense"}, "data_type: got 'nonsense'"),
        ({"data_type": "torch.int8"}, "data_type: got 'torch.int8', want one of f64"),
        ({"fill_value": "highest", "causal": True}, "fill_value: got 'highest'"),
        ({"fill_value": 0.0}, "fill_value: got 0.0 without causal, window_left or window_right"),
        ({"fill_lowest": True, "causal": False}, "fill_lowest: got True without causal"),
        ({"fill_value": [0.0], "causal": True}, r"fill_value: got \[0.0\]"),
        ({"causal": "yes"}, "causal: got 'yes'"),
        (
            {"fill_value": 0.0, "fill_lowest": True, "causal": True},
            "fill_lowest: given together with fill",
        ),
        ({"window_left": 1.5}, "window_left: got 1.5"),
        ({"scale": "2"}, "scale: got '2'"),
    ],
)
def test_error_names_invalid_option(options: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        attnbias.Request(ALIBI, **SIZE | options).to_spec()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"positions": 4, "heads": 2},
            "heads: got a value, want none: sinusoidal takes positions, position_ids",
        ),
        ({"positions": 1.5}, "positions: got 1.5"),
        ({"positions": (0, 1 << 64)}, "positions: got .*, want a 64-bit integer or a tuple"),
        (
            {"positions": [*range(99)]},
            r"positions: got \[0, .{,30}\], .*; position_ids takes a list$",
        ),
        ({"position_ids": ["1"]}, r"position_ids: got \['1'\], want a sequence of 64-bit numbers"),
        ({"position_ids": [True]}, r"position_ids: got \[True\], want"),
        ({"grid": [2, 1.5]}, "grid: got"),
    ],
)
def test_error_names_invalid_positions(options: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        attnbias.Request(SINUSOIDAL, **options).to_spec()


WORDS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}


@pytest.mark.parametrize(("short", "full"), WORDS.items())
def test_data_type_may_be_a_dtype_or_one_of_two_names(short: str, full: str) -> None:
    dtype = np.dtype(full)
    for given in (full, full.upper(), dtype, dtype.type, dtype.newbyteorder(">")):
        assert to_data_type(given) == to_data_type(short)


ALIASES = {*map(str, np.sctypeDict), *np.typecodes["All"], "f8", "<f4", "torch.float32", "f4,f4"}


@pytest.mark.parametrize("alias", [*sorted(ALIASES - {*WORDS, *WORDS.values()}), float, ""])
def test_other_names_of_data_types_are_rejected(alias: Any) -> None:
    names = ", ".join([*WORDS, *WORDS.values()])
    says = f"^data_type: got {re.escape(repr(alias))}, want one of {names}$"
    with pytest.raises(ValueError, match=says):
        to_data_type(alias)


def test_oversized_table_error_suggests_mounting() -> None:
    table = np.zeros((32, 70_000), "f4")
    with pytest.raises(ValueError, match=r"^t5.table: got 8960000 bytes, want .*\(--tables\)$"):
        attnbias.T5(bidirectional=True, table=table).to_spec()


def test_error_suggests_list_only_if_extent_has_one() -> None:
    ids: Any = [3, 5]
    with pytest.raises(TypeError, match=r"^keys: got \[3, 5\], .* \(begin, end\) of two; key_pos"):
        attnbias.Request(ALIBI, **SIZE, keys=ids).to_spec()
    with pytest.raises(TypeError, match=r"^keys: got \[3, 5\], .* \(begin, end\) of two$"):
        attnbias.Request(SWIN, keys=ids).to_spec()


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        (attnbias.Sinusoidal(dim="4"), "sinusoidal.dim: got '4'"),  # type: ignore[arg-type]
        (attnbias.Sinusoidal(dim=1 << 40), "sinusoidal.dim: got 1099511627776"),
        (attnbias.ALiBi(num_heads=2, slopes=[1, "a"]), r"alibi.slopes: got \[1, 'a'\]"),  # type: ignore[list-item]
        (
            attnbias.T5(bidirectional=True, bucket_rule="FLOAT"),  # type: ignore[arg-type]
            "t5.bucket_rule: got 'FLOAT', want one of 'exact', 'float32_log'",
        ),
        (attnbias.T5(bidirectional=True, table=[[1, 2]]), "t5.table: got an array of int64"),
        (attnbias.T5(bidirectional=True, table="sha256:12"), "t5.table: got 'sha256:12'"),
        (
            attnbias.T5(bidirectional=True, table=np.ones((2, 2)), table_layout="HEADS"),  # type: ignore[arg-type]
            "t5.table_layout: got 'HEADS'",
        ),
        (
            attnbias.MlpBias(layers=[LAYER, attnbias.MlpLayer(weight=[[1]])], activation="silu"),
            r"mlp_bias.layers\[1\].weight: got an array of int64",
        ),
    ],
)
def test_error_names_invalid_field(encoding: attnbias.Encoding, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        encoding.to_spec()


@pytest.mark.parametrize(
    ("dtype", "number"), [("f8", 1), ("f4", 2), ("f2", 3), (ml_dtypes.bfloat16, 4), (">f4", 2)]
)
def test_table_bytes_are_sent_unchanged(dtype: Any, number: int) -> None:
    weight = np.arange(12).reshape(4, 3).astype(dtype)
    transposed = attnbias.T5(bidirectional=True, table=weight.T, table_layout="heads_buckets")
    reference = transposed.to_spec().t5.table
    assert reference.layout == tensor_pb2.TABLE_LAYOUT_HEADS_BUCKETS
    assert reference.inline_table.data_type == number
    assert list(reference.inline_table.shape) == [3, 4]
    little = np.dtype(dtype).newbyteorder("<")
    sent = np.frombuffer(reference.inline_table.data, little).reshape(3, 4)
    np.testing.assert_array_equal(sent.astype("f8"), np.arange(12.0).reshape(4, 3).T)


def test_table_may_be_a_digest() -> None:
    encoding = attnbias.T5(bidirectional=True, table="sha256:" + "0a" * 32)
    assert encoding.to_spec().t5.table.sha256 == "0a" * 32


def test_table_may_be_a_name() -> None:
    encoding = attnbias.T5(bidirectional=True, table="t5-small/encoder")
    assert encoding.to_spec().t5.table.name == "t5-small/encoder"


def test_nested_message_lists_are_sent() -> None:
    layers = attnbias.DynamicPositionBias([LAYER, LAYER], num_heads=1).to_spec()
    for layer in layers.mlp_bias.layers:
        assert list(layer.weight.inline_table.shape) == [1, 1]
        assert list(layer.bias.inline_table.shape) == [1]
        assert not layer.HasField("norm_weight")
    assert len(layers.mlp_bias.layers) == 2


def test_encodings_compare_and_hash_by_value() -> None:
    same = [attnbias.T5(bidirectional=True, table=np.ones((2, 2), "f4")) for _ in range(2)]
    other = attnbias.T5(bidirectional=True, table=np.zeros((2, 2), "f4"))
    assert same[0] == same[1]
    assert hash(same[0]) == hash(same[1])
    assert same[0] != other
    assert attnbias.Sinusoidal(dim=8) != attnbias.ALiBi(num_heads=8)
    assert pickle.loads(pickle.dumps(other)) == other


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ("alibi", "encoding: got 'alibi'; want an encoding, such as attnbias.ALiBi"),
        (attnbias.ALiBi, "encoding: got the class ALiBi, not an instance; want"),
        (attnbias.ShawKeys, "encoding: got the class ShawKeys.*to Client.logits"),
        (
            attnbias.ShawKeys(table=np.ones((3, 2)), left=1, right=1),
            "encoding: got an object of type ShawKeys; want .*to Client.logits",
        ),
        (attnbias.Request(ALIBI, **SIZE), "encoding: got an object of type Request"),
    ],
)
def test_non_encoding_is_a_type_error(encoding: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        attnbias.Request(encoding)


def test_torch_type_names_are_accepted() -> None:
    class BFloat16:  # like torch.bfloat16, but without torch
        def __str__(self) -> str:
            return "torch.bfloat16"

    assert spec_of(ALIBI, **SIZE, data_type=BFloat16()) == spec_of(ALIBI, **SIZE, data_type="bf16")


def test_torch_types_are_accepted() -> None:
    torch = pytest.importorskip("torch")
    for name in WORDS.values():
        assert to_data_type(getattr(torch, name)) == to_data_type(name)
    with pytest.raises(ValueError, match=r"^data_type: got torch.float8_e4m3fn, want one of f64"):
        to_data_type(torch.float8_e4m3fn)


def test_mounted_table_is_sent_by_digest() -> None:
    info = attnbias.TableInfo(
        name="m/decoder",
        sha256="ab" * 32,
        dtype=np.dtype("f4"),
        shape=(32, 8),
        source="model.safetensors:w",
        encoding=None,
    )
    by_digest = attnbias.T5(bidirectional=True, table="sha256:" + info.sha256)
    assert attnbias.T5(bidirectional=True, table=info) == by_digest


WEIGHTS = np.full((32, 8), 0.125, np.float32)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (attnbias.T5(bidirectional=True), "T5(bidirectional=True)"),
        (
            attnbias.T5(bidirectional=True, table=WEIGHTS),
            "T5(bidirectional=True, table=float32[32, 8])",
        ),
        (attnbias.T5(bidirectional=True, table="t5:a"), "T5(bidirectional=True, table='t5:a')"),
        (
            attnbias.MlpBias([attnbias.MlpLayer(weight=WEIGHTS)] * 2, activation="relu"),
            "MlpBias(layers=[MlpLayer(weight=float32[32, 8]), MlpLayer(weight=float32[32, 8])], "
            "activation='relu')",
        ),
        (attnbias.ALiBi(slopes=[0.5] * 112), "ALiBi(slopes=[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...])"),
        (
            attnbias.Sinusoidal(4, ladder=attnbias.Ladder(base=np.float64(10))),
            "Sinusoidal(dim=4, ladder=Ladder(base=",
        ),
        (
            attnbias.Sinusoidal(4, axes=[attnbias.Axis(scale=2), attnbias.Axis()]),
            "Sinusoidal(dim=4, axes=[Axis(scale=2), Axis()])",
        ),
        (
            attnbias.ShawKeys(table=WEIGHTS, left=1, right=30),
            "ShawKeys(table=float32[32, 8], left=1, right=30)",
        ),
        (
            attnbias.Request(ALIBI, query_length=4, key_length=4, keys=(2, 4)),
            "Request(encoding=ALiBi(num_heads=8), query_length=4, key_length=4, keys=(2, 4))",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_repr_is_one_line_without_table_values(asked: Any, shown: str) -> None:
    assert repr(asked).startswith(shown)
    assert "0.125" not in repr(asked)


def test_repr_shows_shape_of_torch_table() -> None:
    torch = pytest.importorskip("torch")
    swin = attnbias.Swin((2, 2), table=torch.ones(9, 4))
    assert repr(swin) == "GridRelative(window=(2, 2), table=torch.float32[9, 4])"
