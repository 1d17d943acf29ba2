# SPDX-License-Identifier: Apache-2.0
"""Transformer-XL and BERT's relative keys against transformers 4.45, the last version to have them.

It runs in a separate process, since one process cannot import two versions.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from bits import Array, assert_same_bits
from conftest import serving

import attnbias

Oracle = Mapping[str, Array]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transformers445")


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    path = folder / "oracle.npz"
    script = Path(__file__).with_name("transformers445.py")
    subprocess.run([os.environ["TRANSFORMERS445_PYTHON"], script, path], check=True)
    return dict(np.load(path))


@pytest.mark.parametrize(("name", "clamp_len"), [("r", None), ("r_clamped", 120)])
def test_matches_transformer_xl(
    client: attnbias.Client, oracle: Oracle, name: str, clamp_len: int | None
) -> None:
    rows = oracle[name].astype(np.float64)
    keys, dim = rows.shape
    shifted = oracle["shifted_rows"]
    queries = len(shifted)
    encoding = attnbias.TransformerXL(dim=dim, clamp_len=clamp_len)
    dense = client.get(
        encoding,
        query_length=queries,
        key_length=keys,
        alignment="end",
        form="dense",
        data_type="f64",
    )
    distance = np.arange(queries)[:, None] + keys - queries - np.arange(keys)
    seen = distance >= 0
    # The rows' error: a float32 frequency with an error of a few ulps, times a float32 position.
    frequencies = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    farthest = np.minimum(distance, clamp_len or keys)[..., None]
    lost = 8 * 2.0**-24 * farthest * np.tile(frequencies, 2) + 2.0**-23
    assert np.all(np.abs(dense - rows[shifted])[seen] <= lost[seen])
    assert not np.any(dense[~seen])


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_bert_relative_key_logits_match(client: attnbias.Client, oracle: Oracle, kind: str) -> None:
    table = oracle[f"{kind}_table"]
    query, key = (oracle[f"{kind}_{name}"].astype(np.float64) for name in ("query", "key"))
    reach = len(table) // 2
    tokens = query.shape[1]
    encoding = attnbias.Shaw(
        table=table, left=reach, right=reach, beyond="REFUSE", sign="QUERY_MINUS_KEY"
    )
    vectors = client.get(encoding, query_length=tokens, key_length=tokens).dense()
    distance = np.arange(tokens)[:, None] - np.arange(tokens)
    assert_same_bits(vectors, table[distance + reach])
    # With these vectors, the model's attention matches to within float32's precision.
    scores = np.einsum("hid,hjd->hij", query, key) + np.einsum("hid,ijd->hij", query, vectors)
    if kind == "relative_key_query":
        scores += np.einsum("hjd,ijd->hij", key, vectors)
    scores /= np.sqrt(table.shape[1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    assert np.allclose(weights, oracle[f"{kind}_weights"], rtol=1e-4, atol=1e-6)


def test_bert_rejects_more_tokens_than_positions(client: attnbias.Client, oracle: Oracle) -> None:
    table = oracle["relative_key_table"]
    reach = len(table) // 2
    encoding = attnbias.Shaw(
        table=table, left=reach, right=reach, beyond="REFUSE", sign="QUERY_MINUS_KEY"
    )
    with pytest.raises(attnbias.OutOfRangeError):
        client.get(encoding, query_length=reach + 2, key_length=reach + 2)


def test_saved_bert_checkpoint_has_relative_vectors(folder: Path, oracle: Oracle) -> None:
    """The positions are in the file, but the model does not add them."""
    want = oracle["saved_bert_vectors"]
    with serving(folder / "bert") as client:
        tables = {table.name: table.encoding for table in client.list_tables()}
        assert tables.keys() == {"m/positions", "m/encoder.layers.0", "m/encoder.layers.1"}
        assert tables["m/positions"] is None
        vectors = client.get(
            tables["m/encoder.layers.1"], query_length=len(want), key_length=len(want)
        )
    assert_same_bits(vectors.dense(), want)
