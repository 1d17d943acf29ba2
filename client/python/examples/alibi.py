# SPDX-License-Identifier: Apache-2.0
"""BLOOM, whose ALiBi is one row of numbers, made once.

python alibi.py [TARGET]      without a target, with a server of its own
"""

import sys

import torch
import transformers

import attnbias

torch.manual_seed(0)
config = transformers.BloomConfig(vocab_size=1000, hidden_size=96, n_layer=2, n_head=6)
model = transformers.BloomForCausalLM(config).eval().requires_grad_(False)
prompt = torch.randint(3, config.vocab_size, (1, 100))
options = {"max_new_tokens": 28, "do_sample": False}
own = model.generate(prompt, **options)

with attnbias.Client(sys.argv[1]) if sys.argv[1:] else attnbias.LocalServer() as client:
    attached = attnbias.attach(model, client, max_length=128)

with attached:
    print(*attached.report(), sep="\n")
    assert torch.equal(model.generate(prompt, **options), own)
