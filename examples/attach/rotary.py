# SPDX-License-Identifier: Apache-2.0
"""Llama 3.1's rotary positions, correctly rounded, unlike transformers' own at large positions."""

# %% A model with random weights; or .from_pretrained(...)
import numpy as np
import torch
import transformers

import attnbias

LENGTH = 131072

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=2,
    max_position_embeddings=LENGTH,
    rope_parameters={
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
)
model = transformers.LlamaForCausalLM(config).eval()

# %% Output without a server, and the cosines at the last position
prompt = torch.randint(config.vocab_size, (1, 100))
options = {"max_new_tokens": 28, "do_sample": False}
own_tokens = model.generate(prompt, **options)
last, like = torch.tensor([[LENGTH - 1]]), torch.zeros(1)
own_cos, _ = model.model.rotary_emb(like, last)

# %% With a server's tables
with attnbias.LocalServer() as client:  # or attnbias.Client("host")
    attached = attnbias.attach(model, client, max_length=LENGTH)

with attached:
    print(*attached.report(), sep="\n")
    cos, _ = model.model.rotary_emb(like, last)
    assert torch.equal(model.generate(prompt, **options), own_tokens)

# %% Difference between the two
exact = np.float32(np.cos(float(LENGTH - 1)))  # the first pair, which rotates by 1 per position
print(f"cosine of position {LENGTH - 1}: {cos[0, 0, 0]:.9f}, exactly {exact:.9f}")
print(f"transformers' own are off by up to {(own_cos - cos).abs().max():.1e} there")
assert cos[0, 0, 0] == exact
