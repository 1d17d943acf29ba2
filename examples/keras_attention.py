# SPDX-License-Identifier: Apache-2.0
"""Trains a Keras 3 model whose attention has T5's bias, on any Keras backend.

The server returns the bucket of each pair of positions; the learned table is a weight of the layer.
After training, the server's bias for that table equals the layer's, bit for bit.

    pip install ./client/python keras jax  # or tensorflow
    KERAS_BACKEND=jax python examples/keras_attention.py --address localhost:50051
"""

import argparse
import dataclasses

import keras
import numpy as np
from keras import layers, ops

import attnbias

HEADS, DIM, VOCABULARY, LENGTH = 4, 32, 16, 48

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="localhost:50051", help="the attnbias server")
arguments = parser.parse_args()


class T5Attention(layers.Layer):
    """Attention with a learned bias per bucket.

    Args:
        buckets: the table row for each query and key.
        num_buckets: the number of table rows.
    """

    def __init__(self, buckets: np.ndarray, num_buckets: int) -> None:
        super().__init__()
        self.buckets, self.num_buckets = buckets, num_buckets
        self.qkv = layers.EinsumDense("btd,dcnh->btcnh", (LENGTH, 3, HEADS, DIM // HEADS))
        self.out = layers.EinsumDense("btnh,nhd->btd", (LENGTH, DIM))

    def build(self, input_shape: tuple[int, ...]) -> None:
        self.table = self.add_weight((self.num_buckets, HEADS), "glorot_uniform", name="table")

    def bias(self) -> keras.KerasTensor:
        """Returns the bias [heads, queries, keys]."""
        return ops.transpose(ops.take(self.table, self.buckets, axis=0), (2, 0, 1))

    def call(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        query, key, value = ops.unstack(self.qkv(inputs), axis=2)
        bias = self.bias()[None]
        return self.out(ops.dot_product_attention(query, key, value, bias=bias, scale=1.0))


keras.utils.set_random_seed(0)
t5 = attnbias.T5(bidirectional=True, num_buckets=32, max_distance=128)
lengths = {"query_length": LENGTH, "key_length": LENGTH}
client = attnbias.Client(arguments.address)

attention = T5Attention(client.get(t5, values="buckets", **lengths).dense(), t5.num_buckets)
model = keras.Sequential([layers.Embedding(VOCABULARY, DIM), attention, layers.Dense(VOCABULARY)])
model.compile(
    keras.optimizers.Adam(1e-2), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
)
tokens = np.random.default_rng(0).integers(VOCABULARY, size=(256, LENGTH))
labels = np.roll(tokens, 1, axis=1)  # each token's label is the previous token
losses = model.fit(tokens, labels, batch_size=32, epochs=4, verbose=0).history["loss"]

table = ops.convert_to_numpy(attention.table)
served = client.get(dataclasses.replace(t5, num_heads=HEADS, table=table), **lengths)
client.close()

print(f"{keras.backend.backend()}: loss {losses[0]:.4f}, then {losses[-1]:.4f}")
assert np.array_equal(served, ops.convert_to_numpy(attention.bias()))
assert losses[-1] < losses[0]
