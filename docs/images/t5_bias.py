# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/t5_bias.png from a running server's answer.

The table is made up: real ones belong to their checkpoints. What the picture shows is
the rule: exact buckets near the diagonal, logarithmic ones further out, a half for keys
on either side of the query.
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np

import attnbias

BUCKETS = 32
LENGTH = 160
table = np.linspace(2, -2, BUCKETS // 2, dtype=np.float32)
table = np.concatenate([table, 0.6 * table])[:, None]  # [num_buckets, num_heads]

with attnbias.Client("localhost:50051") as client:
    t5 = attnbias.T5(
        num_heads=1, num_buckets=BUCKETS, max_distance=128, bidirectional=True, table=table
    )
    bias = client.get(t5, queries=LENGTH, keys=LENGTH).view()[0]

figure, axes = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
image = axes.imshow(bias, cmap="coolwarm", interpolation="nearest")
axes.set(xlabel="key", ylabel="query", title="T5 bias of one head, 32 buckets, max_distance 128")
figure.colorbar(image, ax=axes)
figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=120)
