# SPDX-License-Identifier: Apache-2.0
"""Swin, whose layers gather the same bias out of their tables for all images.

python swin.py [TARGET]      without a target, with a server of its own
"""

import sys

import torch
import transformers

import attnbias

torch.manual_seed(0)
config = transformers.SwinConfig(depths=[1, 1], num_heads=[3, 6], embed_dim=48)
model = transformers.SwinModel(config).eval().requires_grad_(False)
for name, table in model.named_parameters():
    if name.endswith("relative_position_bias_table"):
        table.normal_()  # it is zeros in an untrained model
images = torch.randn(1, 3, 224, 224)
own = model(images).last_hidden_state

with attnbias.Client(sys.argv[1]) if sys.argv[1:] else attnbias.LocalServer() as client:
    attached = attnbias.attach(model, client, max_length=config.window_size**2)

with attached:
    for one in attached.report():
        print(f"{one.path}: {one.fetched_bytes} bytes fetched, {one.spared_bytes} no longer made")
    assert torch.equal(model(images).last_hidden_state, own)
