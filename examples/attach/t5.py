# SPDX-License-Identifier: Apache-2.0
"""T5 with FlexAttention, which never materializes its bias [heads, length, length]."""

# %% A model with random weights; or .from_pretrained(...)
import torch
import transformers

import attnbias

LENGTH = 2048

torch.manual_seed(0)
config = transformers.T5Config(num_layers=2)
model = transformers.T5EncoderModel(config).eval().requires_grad_(False)

# %% Output without a server
tokens = torch.randint(config.vocab_size, (1, LENGTH))
own = model(tokens).last_hidden_state

# %% Output with a server's biases
with attnbias.LocalServer() as client:  # or attnbias.Client("host")
    attached = attnbias.attach(model, client, max_length=LENGTH, attention="flex")

print(*attached.report(), sep="\n")
hidden = model(tokens).last_hidden_state
torch.testing.assert_close(hidden, own, rtol=1e-4, atol=1e-4)  # FlexAttention reorders sums

# %% The original model again
attached.detach()
assert torch.equal(model(tokens).last_hidden_state, own)
