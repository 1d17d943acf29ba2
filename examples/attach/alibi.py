# SPDX-License-Identifier: Apache-2.0
"""BLOOM, MPT and Falcon, whose ALiBi bias is a single row of values, computed once."""

# %% Models with random weights; or .from_pretrained(...)
import torch
import transformers

import attnbias

torch.manual_seed(0)
CONFIGS = [
    transformers.BloomConfig(vocab_size=1000, hidden_size=96, n_layer=2, n_head=6),
    transformers.MptConfig(vocab_size=1000, d_model=96, n_layers=2, n_heads=6),
    transformers.FalconConfig(
        vocab_size=1000, hidden_size=96, num_hidden_layers=2, num_attention_heads=6, alibi=True
    ),
]
models = [transformers.AutoModelForCausalLM.from_config(config).eval() for config in CONFIGS]

# %% Output without a server
prompt = torch.randint(3, 1000, (1, 100))
options = {"max_new_tokens": 28, "do_sample": False, "pad_token_id": 0}
own = [model.generate(prompt, **options) for model in models]

# %% Output with a server's values
with attnbias.LocalServer() as client:  # or attnbias.Client("host")
    attached = [attnbias.attach(model, client, max_length=128) for model in models]

for model, tokens, handle in zip(models, own, attached, strict=True):
    print(*handle.report(), sep="\n")
    assert torch.equal(model.generate(prompt, **options), tokens)
    handle.detach()
