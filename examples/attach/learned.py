# SPDX-License-Identifier: Apache-2.0
"""GPT-2, whose learned positions must be bit-identical to the server's."""

# %% A model with random weights; or .from_pretrained(...)
import tempfile

import torch
import transformers

import attnbias

torch.manual_seed(0)
config = transformers.GPT2Config(vocab_size=1000, n_embd=96, n_layer=2, n_head=6, n_positions=128)
model = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)

# %% Output without a server
prompt = torch.randint(3, config.vocab_size, (1, 100))
options = {"max_new_tokens": 28, "do_sample": False, "pad_token_id": 0}
own = model.generate(prompt, **options)

# %% With the table from a server that has the same checkpoint
folder = tempfile.TemporaryDirectory()
model.save_pretrained(folder.name)
server = attnbias.LocalServer(f"--checkpoint=gpt2={folder.name}")  # or attnbias.Client("host")
client = server.start()

with attnbias.attach(model, client, max_length=config.n_positions) as attached:
    print(*attached.report(), sep="\n")
    assert torch.equal(model.generate(prompt, **options), own)

# %% A table with a different value is rejected
model.transformer.wpe.weight[5, 7] += 1
try:
    attnbias.attach(model, client, max_length=config.n_positions)
except ValueError as error:
    print(f"changed: {error}")

# %% Cleanup
server.close()
folder.cleanup()
