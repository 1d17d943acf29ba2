# SPDX-License-Identifier: Apache-2.0
"""Swin, whose layers gather the same bias from their tables for every image."""

# %% A model with random weights; or .from_pretrained(...)
import torch
import transformers

import attnbias

torch.manual_seed(0)
config = transformers.SwinConfig(depths=[1, 1], num_heads=[3, 6], embed_dim=48)
model = transformers.SwinModel(config).eval().requires_grad_(False)  # nothing is trained
for name, table in model.named_parameters():
    if name.endswith("relative_position_bias_table"):
        table.normal_()  # all zeros in an untrained model

# %% Output without a server
images = torch.randn(1, 3, 224, 224)
own = model(images).last_hidden_state

# %% With biases that are computed once
with attnbias.LocalServer() as client:  # or attnbias.Client("host")
    attached = attnbias.attach(model, client, max_length=config.window_size**2)

with attached:
    for one in attached.report():
        sizes = f"{one.fetched_bytes} bytes fetched, {one.spared_bytes} bytes not computed"
        print(f"{one.path}: {sizes}")
    assert torch.equal(model(images).last_hidden_state, own)
