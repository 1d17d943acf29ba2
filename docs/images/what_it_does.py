# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/what_it_does.png from the responses of a server at localhost:50051.

Top: the numbers sent over the network. Bottom: the dense biases that clients see. The learned
tables are synthetic, since real ones belong to their checkpoints.
"""

import pathlib

import attnbias
import matplotlib.pyplot as plt
import numpy as np

LENGTH = 160
SIDE = 8

buckets = np.linspace(2, -2, 16, dtype=np.float32)
t5_table = np.concatenate([buckets, 0.6 * buckets])[:, None]  # [num_buckets, num_heads]
rows, columns = np.mgrid[1 - SIDE : SIDE, 1 - SIDE : SIDE]
swin_table = 2 * np.exp(-(rows**2 / 8 + columns**2 / 40)) + 0.5 * np.cos(columns)
swin_table = swin_table.reshape(-1, 1).astype(np.float32)  # [displacements, num_heads]

with attnbias.Client("localhost:50051") as client:
    t5 = client.get(
        attnbias.T5(num_heads=1, bidirectional=True, table=t5_table),
        query_length=LENGTH,
        key_length=LENGTH,
    )
    alibi = client.get(
        attnbias.ALiBi(num_heads=8), query_length=LENGTH, key_length=LENGTH, causal=True
    )
    swin = client.get(attnbias.Swin((SIDE, SIDE), table=swin_table))
    rotary = client.get(attnbias.Rotary(head_dim=64), positions=LENGTH)

figure = plt.figure(figsize=(10.4, 5.2), layout="constrained")
grid = figure.subplot_mosaic(
    [["t5 few", "alibi few", "swin few", "rotary"], ["t5", "alibi", "swin", "rotary"]],
    height_ratios=[2, 3],
)

t5.plot(kind="curves", ax=grid["t5 few"])
alibi.plot(kind="curves", ax=grid["alibi few"])
grid["swin few"].imshow(swin.block[0], extent=(-7.5, 7.5, 7.5, -7.5), aspect="auto")
grid["swin few"].set_xlabel("columns, key - query")
grid["swin few"].set_ylabel("rows, key - query")
t5.plot(ax=grid["t5"])
alibi.window(heads=(1, 2)).plot(ax=grid["alibi"])
swin.plot(ax=grid["swin"])
attnbias.plot(rotary.cos, ax=grid["rotary"])

for name, axes in grid.items():
    if axes.get_legend():
        axes.get_legend().remove()
    for image in axes.images:
        if image.colorbar:
            image.colorbar.remove()
    axes.set_title("")
    axes.tick_params(labelsize="small")
    if name.endswith("few"):
        axes.set_box_aspect(0.62)

few = "{} numbers sent per head"
dense = "dense view: {}"
for name, title, bias in (
    ("t5", "T5", t5.diagonals),
    ("alibi", "ALiBi, causal", alibi.diagonals),
    ("swin", "Swin, 8 x 8 tokens", swin.block),
):
    grid[f"{name} few"].set_title(f"{title}\n{few.format(bias[0].size)}", fontsize="medium")
for name, bias in (("t5", t5), ("alibi", alibi), ("swin", swin)):
    size = f"{bias.shape[-1]} x {bias.shape[-2]}"
    grid[name].set_title(dense.format(size), fontsize="medium")
grid["rotary"].set_title("rotary, cosines\nsent in full", fontsize="medium")
figure.savefig(pathlib.Path(__file__).with_suffix(".png"), dpi=90)
