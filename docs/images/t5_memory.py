# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/t5_memory.png from build/bench/results.json, which ./dev bench model writes."""

import json
import pathlib
import re

import matplotlib.pyplot as plt

NAME = r"T5 encoder \(2 layers, 8 heads\) at (\d+): peak memory"
HERE = pathlib.Path(__file__).parent

rows = json.loads((HERE / "../../build/bench/results.json").read_text())["rows"]
lengths, ours, theirs, stopped = [], [], [], []
for row in rows:
    if match := re.fullmatch(NAME, row["what"]):
        lengths.append(int(match[1]))
        ours.append(row["ours"])
        (stopped if "wanted more" in row["against"] else theirs).append(row["theirs"])

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
axes.plot(lengths, ours, "o-", color="#2a7f62", label='attnbias, attention="flex"')
axes.plot(
    lengths[: len(theirs)], theirs, "o-", color="#c1443c", label="transformers, SDPA"
)
axes.plot(
    lengths[len(theirs) :],
    stopped,
    "x",
    color="#c1443c",
    label="transformers, SDPA: out of memory",
)
axes.annotate(
    f"{ours[-1]:.1f} GiB", (lengths[-1], ours[-1]), (0, 7), textcoords="offset points"
)
axes.set_xscale("log", base=2)
axes.set_xticks(lengths, map(str, lengths))
axes.minorticks_off()
axes.set_ylim(0)
axes.set_xlabel("sequence length (tokens)")
axes.set_ylabel("peak memory (GiB)")
axes.set_title(f"T5 encoder: {lengths[-1]} tokens in {ours[-1]:.1f} GiB")
axes.spines[["top", "right"]].set_visible(False)
axes.grid(alpha=0.3)
axes.legend()
figure.savefig(HERE / "t5_memory.png", dpi=110)
