# SPDX-License-Identifier: Apache-2.0
"""Run by an interpreter with transformers 4.45: writes its models' results to an .npz file.

Saves a BERT model next to it.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import (
    PositionalEmbedding,
    RelPartialLearnableMultiHeadAttn,
)

DIM, KEYS, QUERIES, CLAMP = 64, 300, 40, 120
HEADS, HEAD_DIM, MAX_POSITIONS, TOKENS = 4, 16, 48, 33


def transformer_xl() -> dict[str, torch.Tensor]:
    embedding = PositionalEmbedding(DIM)
    positions = torch.arange(KEYS - 1, -1, -1.0)
    # _rel_shift maps [queries, keys] of R's rows to distances; here it is applied to row indices.
    rows = torch.arange(KEYS).expand(QUERIES, KEYS)[:, :, None, None]
    shift = RelPartialLearnableMultiHeadAttn._rel_shift
    return {
        "r": embedding(positions)[:, 0],
        "r_clamped": embedding(positions.clamp(max=CLAMP))[:, 0],
        "shifted_rows": shift(None, rows)[:, :, 0, 0],
    }


def bert(kind: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        max_position_embeddings=MAX_POSITIONS,
    )
    attention = BertSelfAttention(config, position_embedding_type=kind).eval()
    hidden = torch.randn(1, TOKENS, HEADS * HEAD_DIM)
    seen = {}
    attention.dropout.register_forward_hook(lambda *call: seen.update(weights=call[-1]))
    attention(hidden)
    return {
        f"{kind}_table": attention.distance_embedding.weight,
        f"{kind}_query": attention.transpose_for_scores(attention.query(hidden))[0],
        f"{kind}_key": attention.transpose_for_scores(attention.key(hidden))[0],
        f"{kind}_weights": seen["weights"][0],
    }


def saved_bert(folder: Path) -> dict[str, torch.Tensor]:
    """Returns the vectors that the saved model's last layer looks up."""
    config = BertConfig(
        vocab_size=8,
        hidden_size=HEADS * HEAD_DIM,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=8,
        max_position_embeddings=MAX_POSITIONS,
        position_embedding_type="relative_key",
    )
    model = BertModel(config).eval()
    model.save_pretrained(folder)
    seen = {}
    embedding = model.encoder.layer[-1].attention.self.distance_embedding
    embedding.register_forward_hook(lambda *call: seen.update(vectors=call[-1]))
    model(torch.zeros(1, TOKENS, dtype=torch.long))
    return {"saved_bert_vectors": seen["vectors"]}


def main() -> None:
    path = Path(sys.argv[1])
    with torch.no_grad():
        tensors = {
            **transformer_xl(),
            **bert("relative_key"),
            **bert("relative_key_query"),
            **saved_bert(path.with_name("bert")),
        }
    np.savez(path, **{name: tensor.detach().numpy() for name, tensor in tensors.items()})


if __name__ == "__main__":
    main()
