# SPDX-License-Identifier: Apache-2.0
"""Trains a Flax model whose causal attention uses an ALiBi bias from the server.

The bias is a pytree: the compiled step receives its diagonals and expands them on the device. The
model trains on short sequences and then reads longer ones, with a bias of matching length.

    pip install ./client/python flax
    python examples/flax_attention.py --address localhost:50051
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import attnbias

HEADS, DIM, VOCABULARY, LENGTH, LONGER, STEPS = 8, 64, 16, 32, 128, 60

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="localhost:50051", help="the attnbias server")
arguments = parser.parse_args()


class Model(nnx.Module):
    """An embedding, one attention layer, and logits."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(VOCABULARY, DIM, rngs=rngs)
        self.qkv = nnx.LinearGeneral(DIM, (3, HEADS, DIM // HEADS), rngs=rngs)
        self.logits = nnx.LinearGeneral((HEADS, DIM // HEADS), VOCABULARY, axis=(-2, -1), rngs=rngs)

    def __call__(self, tokens: jax.Array, bias: attnbias.Toeplitz) -> jax.Array:
        query, key, value = jnp.moveaxis(self.qkv(self.embed(tokens)), 2, 0)
        return self.logits(nnx.dot_product_attention(query, key, value, bias=bias.to_jax()))


def loss_of(model: Model, tokens: jax.Array, bias: attnbias.Toeplitz) -> jax.Array:
    """Returns the loss for predicting the previous token at each token."""
    logits = model(tokens, bias)[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, :-1]).mean()


@nnx.jit
def train_step(
    model: Model, optimizer: nnx.Optimizer, tokens: jax.Array, bias: attnbias.Toeplitz
) -> jax.Array:
    loss, gradients = nnx.value_and_grad(loss_of)(model, tokens, bias)
    optimizer.update(model, gradients)
    return loss


with attnbias.Client(arguments.address) as client:
    short, longer = (
        client.get(
            attnbias.ALiBi(num_heads=HEADS), query_length=length, key_length=length, causal=True
        )
        for length in (LENGTH, LONGER)
    )

slopes = 2.0 ** -np.arange(1, HEADS + 1)  # the paper's slopes for 8 heads
distances = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
causal = np.where(distances < 0, -np.inf, -slopes[:, None, None] * distances)
assert np.array_equal(jax.jit(lambda bias: bias.to_jax())(short), causal)

model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
keys = jax.random.split(jax.random.key(0), STEPS + 1)
losses = [
    train_step(model, optimizer, jax.random.randint(key, (16, LENGTH), 0, VOCABULARY), short)
    for key in keys[1:]
]
tokens = jax.random.randint(keys[0], (4, LONGER), 0, VOCABULARY)
extrapolated = nnx.jit(loss_of)(model, tokens, longer)

print(f"loss {losses[0]:.4f}, then {losses[-1]:.4f}; of {LONGER} tokens {extrapolated:.4f}")
assert max(losses[-1], extrapolated) < losses[0] / 2
