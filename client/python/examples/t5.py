# SPDX-License-Identifier: Apache-2.0
"""T5 with FlexAttention, which never makes its bias of [heads, length, length].

python t5.py [TARGET]      without a target, with a server of its own
"""

import sys

import torch
import transformers

import attnbias

LENGTH = 2048

torch.manual_seed(0)
config = transformers.T5Config(num_layers=2)  # random weights; or .from_pretrained(...)
model = transformers.T5EncoderModel(config).eval().requires_grad_(False)
tokens = torch.randint(config.vocab_size, (1, LENGTH))
own = model(tokens).last_hidden_state

with attnbias.Client(sys.argv[1]) if sys.argv[1:] else attnbias.LocalServer() as client:
    attached = attnbias.attach(model, client, max_length=LENGTH, attention="flex")

print(*attached.report(), sep="\n")
hidden = model(tokens).last_hidden_state
torch.testing.assert_close(hidden, own, rtol=1e-4, atol=1e-4)  # FlexAttention adds in another order
attached.detach()
assert torch.equal(model(tokens).last_hidden_state, own)
