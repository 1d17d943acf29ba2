# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds for fuzzing: for each program, a folder of small inputs made from the tests' own
cases, and a dictionary of the words in these inputs.

Usage: python -m tests.fuzz.seeds FOLDER
"""

import io
import json
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import crc32c
import numpy as np
from google.protobuf import json_format
from safetensors.numpy import save

from tests.integration.logits_test import BAD_SPECS, GRIDS, spec_of, table_of
from tests.integration.oip_test import BAD_INPUTS, BAD_PARAMETERS, ask, t5_request
from tests.integration.refusals_test import BAD_SPECS as BAD_TENSORS
from tests.support.cases import ENCODINGS, Case, case_of
from tests.support.contract import message
from tests.support.inference import request_of

SEEDS = range(3)
MOST_BYTES = 16 << 10
MASKS: list[Any] = [{}, {"mask": {"causal": True, "window_left": 3}, "form": "FORM_DENSE"}]

# Each checkpoint is a configuration and the shapes of its tensors.
T5_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
SWIN_MLP = "encoder.layers.0.blocks.0.attention.self.continuous_position_bias_mlp."
CHECKPOINTS: list[tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = [
    (
        {"model_type": "t5", "num_heads": 2},
        {f"encoder.{T5_BIAS}": (32, 2), f"decoder.{T5_BIAS}": (32, 2)},
    ),
    (
        {
            "model_type": "roberta",
            "pad_token_id": 1,
            "position_embedding_type": "absolute",
            "max_position_embeddings": 8,
            "hidden_size": 4,
        },
        {"embeddings.position_embeddings.weight": (8, 4)},
    ),
    (
        {
            "model_type": "bert",
            "max_position_embeddings": 4,
            "hidden_size": 8,
            "num_attention_heads": 2,
        },
        {"encoder.layer.1.attention.self.distance_embedding.weight": (7, 4)},
    ),
    (
        {
            "model_type": "swinv2",
            "image_size": [32, 32],
            "patch_size": 4,
            "window_size": 4,
            "num_heads": [2, 4],
            "pretrained_window_sizes": [2, 0],
        },
        {
            f"{SWIN_MLP}0.weight": (512, 2),
            f"{SWIN_MLP}0.bias": (512,),
            f"{SWIN_MLP}2.weight": (2, 512),
        },
    ),
    (
        {
            "model_type": "beit",
            "image_size": 32,
            "patch_size": 16,
            "hidden_size": 2,
            "num_attention_heads": 2,
        },
        {
            "embeddings.position_embeddings": (1, 5, 2),
            "encoder.relative_position_bias.relative_position_bias_table": (12, 2),
        },
    ),
    (
        {
            "model_type": "deberta-v2",
            "position_buckets": 2,
            "max_relative_positions": 8,
            "hidden_size": 2,
        },
        {"encoder.rel_embeddings.weight": (4, 2)},
    ),
]


def extents_of(case: Case) -> Iterator[dict[str, Any]]:
    first = max(case.first, -2)
    if case.extent == "grid":
        yield {}
        yield {"grid": {"queries": {"begin": 0, "end": 1}}}
        yield {"grid": {"query_stride": [2] * len(case.sides)}}
    elif case.extent == "table":
        yield {"table": {"positions": {"begin": first, "end": first + 4}}}
        yield {"table": {"position_ids": [{"positions": [first, first + 2]}] * case.axes}}
        if case.encoding in ("sinusoidal", "rotary"):
            yield {"table": {"position_ids": [{"doubles": [first, 0.5]}] * case.axes}}
        if case.has_grid:
            yield {"table": {"grid": [1, 2, 3, 1][: case.axes], "grid_offset": [-1] * case.axes}}
    else:
        yield {"pair": {"query_length": 3, "key_length": 4, "alignment": "ALIGNMENT_END"}}
        yield {"pair": {"query_positions": {"positions": [2, 1]}, "key_length": 3}}


def good_specs() -> Iterator[Any]:
    for encoding in ENCODINGS:
        for seed in SEEDS:
            case = case_of(encoding, seed)
            for extent in extents_of(case):
                for output in MASKS if case.extent == "pair" else MASKS[:1]:
                    yield case.spec(**extent, output=output)


def tensor_specs() -> Iterator[Any]:
    yield from good_specs()
    for bad in BAD_TENSORS.values():
        yield message("TensorSpec")(**bad.spec)
    pair = {"query_length": 2, "key_length": 2}
    yield message("TensorSpec")(t5={"num_heads": 2, "table": {"name": "bias"}}, pair=pair)


def tensor_requests() -> Iterator[bytes]:
    for spec in tensor_specs():
        yield message("StreamTensorRequest")(spec=spec).SerializeToString()
    yield b"\xc2\x3e\xff\xff\xff\x07"  # an unknown field that claims 16 MB
    resumed = {"read_offset": 4, "read_limit": 9, "expected_fingerprint": "0" * 64}
    yield message("StreamTensorRequest")(spec=spec, **resumed).SerializeToString()


def infer_requests() -> Iterator[bytes]:
    for spec in good_specs():
        yield request_of(spec).SerializeToString()
    for parameters, _ in BAD_PARAMETERS.values():
        yield ask("alibi", parameters).SerializeToString()
    for tensor, raw, _ in BAD_INPUTS.values():
        request = t5_request(**tensor)
        request.raw_input_contents.extend(raw)
        yield request.SerializeToString()


def logits_requests() -> Iterator[bytes]:
    sinusoidal = {"dim": 8, "columns": "COLUMNS_SINES_COSINES"}
    vectors = {"name": "vectors"}
    for fields in [
        {},
        {"shaw_values": {"table": vectors, "left": 4, "right": 4, "sign": 2}},
        {"sinusoidal_distances": {"sinusoidal": sinusoidal, "clamp_len": 3}},
        {"absolute_keys": {"positions": vectors}, "query_bias": table_of(np.ones((2, 8)))},
        {"decomposed_relative_positions": GRIDS, "direction": "DIRECTION_BIDIRECTIONAL"},
        *(fields for fields, _ in BAD_SPECS),
    ]:
        yield spec_of(6, 6, **fields).SerializeToString()


def stream_responses() -> Iterator[bytes]:
    response = message("StreamTensorResponse")
    part = {"name": "row", "data_type": "DATA_TYPE_F32", "shape": [2, 3], "size_bytes": 24}
    yield response(header={"parts": [part], "total_bytes": 24}).SerializeToString()
    for size in (0, 24, 1000, 1001):
        data = bytes(size)
        yield response(offset=size, crc32c=crc32c.crc32c(data), data=data).SerializeToString()


def streams() -> Iterator[bytes]:
    """Yields inputs for stream_fuzz.cc: 24 bytes sent whole, resumed, restarted as another tensor,
    and damaged.
    """
    header, other, chunk, early, damaged, end = 0, 1, 2, 5, 6, 7
    ok, changed, later = 0, 1, 3
    yield bytes([6, header, 24, end, ok])
    yield bytes([6, header, 0, chunk, 24, end, ok])
    yield bytes([6, header, 0, chunk, 8, end, later, header, 0, chunk, 16, end, ok])
    yield bytes([6, header, 0, chunk, 8, end, changed, other, 0, chunk, 24, end, ok])
    yield bytes([6, header, 0, chunk, 8, end, later, other, 0, chunk, 16, end, ok])
    yield bytes([6, header, 0, early, 8])
    yield bytes([6, header, 0, damaged, 8])


def tensor_files() -> Iterator[bytes]:
    yield save({})
    yield save({"a": np.zeros((2, 3), "f4"), "b": np.zeros(2, "i8")}, {"format": "pt"})


def checkpoints() -> Iterator[bytes]:
    for config, shapes in CHECKPOINTS:
        model = save({name: np.zeros(shape, "f4") for name, shape in shapes.items()})
        end = 8 + int.from_bytes(model[:8], "little")
        index = json.dumps({"weight_map": dict.fromkeys(shapes, "shard")})
        for first in ("", index):
            text = f"{json.dumps(config)}\0{first}\0".encode()
            yield text + model[8:end] + b"\0" + model[end:]


def numpy_files() -> Iterator[bytes]:
    for array in (np.zeros((2, 3), "f4"), np.zeros(5, "f2"), np.zeros((2, 2), "f8", order="F")):
        file = io.BytesIO()
        np.save(file, array)
        yield file.getvalue()


def precomputed() -> Iterator[bytes]:
    for spec in tensor_specs():
        yield f"[{json_format.MessageToJson(spec, indent=None)}]".encode()


def write(folder: pathlib.Path, name: str, inputs: Iterator[bytes]) -> None:
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    words: set[str] = set()
    for number, content in enumerate(inputs):
        if len(content) > MOST_BYTES:
            continue
        (corpus / f"seed{number}").write_bytes(content)
        words |= set(re.findall(r'"[\w.-]{1,60}"', content.decode("latin-1")))
    lines = ["# Words of the inputs.", *map(json.dumps, sorted(words)), ""]  # never an empty file
    (folder / f"{name}.dict").write_text("\n".join(lines), encoding="ascii")


def main(folder: pathlib.Path) -> None:
    write(folder, "tensor_request_fuzz", tensor_requests())
    write(folder, "infer_request_fuzz", infer_requests())
    write(folder, "logits_request_fuzz", logits_requests())
    write(folder, "precompute_fuzz", precomputed())
    write(folder, "checkpoint_fuzz", checkpoints())
    write(folder, "safetensors_fuzz", tensor_files())
    write(folder, "npy_fuzz", numpy_files())
    write(folder, "chunk_fuzz", stream_responses())
    write(folder, "stream_fuzz", streams())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
