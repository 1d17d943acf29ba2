# SPDX-License-Identifier: Apache-2.0
"""Marian, whose sinusoids end at a configured length; a server provides longer ones."""

# %% A model with random weights; or .from_pretrained(...)
import torch
import transformers

import attnbias

TRAINED, LENGTH = 64, 128

torch.manual_seed(0)
config = transformers.MarianConfig(
    vocab_size=1000,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_position_embeddings=TRAINED,
    pad_token_id=0,
    decoder_start_token_id=0,
)
model = transformers.MarianMTModel(config).eval()

# %% Output without a server, for no more tokens than the table has rows
tokens = torch.randint(3, config.vocab_size, (1, LENGTH))
start = torch.zeros(1, 1, dtype=torch.int64)
own = model(tokens[:, :TRAINED], decoder_input_ids=start).logits
try:
    model(tokens, decoder_input_ids=start)
except IndexError as error:
    print(f"{LENGTH} tokens, by itself: {error}")

# %% With a server's sinusoids
with attnbias.LocalServer() as client:  # or attnbias.Client("host")
    attached = attnbias.attach(model, client, max_length=LENGTH)

with attached:
    print(*attached.report(), sep="\n")
    logits = model(tokens[:, :TRAINED], decoder_input_ids=start).logits
    torch.testing.assert_close(logits, own, rtol=0, atol=1e-5 * float(own.abs().max()))
    logits = model(tokens, decoder_input_ids=start).logits
    print(f"{LENGTH} tokens, attached: logits of {list(logits.shape)}")
