# SPDX-License-Identifier: Apache-2.0
"""Trains a T5 with transformers' Trainer and positions from the server.

The same model trains twice, first with its own positions. `attnbias.attach` then fetches T5's
buckets once; the learned tables remain the model's parameters. The first losses are equal bit for
bit; later ones differ only by the rounding of gradients.

    pip install './client/python[transformers]' 'accelerate>=1.1'
    python examples/trainer.py --address localhost:50051
"""

import argparse
import tempfile

import numpy as np
import torch
from transformers import (
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
    set_seed,
)

import attnbias

LENGTH, VOCABULARY, STEPS = 24, 32, 10

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="localhost:50051", help="the attnbias server")
arguments = parser.parse_args()


def make_model() -> T5ForConditionalGeneration:
    set_seed(0)
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_heads=4,
        num_layers=2,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration._from_config(config, attn_implementation="eager")


def examples() -> list[dict[str, torch.Tensor]]:
    """Returns sequences whose labels are the same tokens in reverse."""
    tokens = torch.randint(2, VOCABULARY, (64, LENGTH), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": row, "labels": row.flip(0)} for row in tokens]


def train(model: T5ForConditionalGeneration) -> list[float]:
    """Returns the loss at each step."""
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=16,
            learning_rate=1e-2,
            logging_steps=1,
            disable_tqdm=True,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        )
        trainer = Trainer(model, options, train_dataset=examples())
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


own = train(make_model())

model = make_model()
with attnbias.Client(arguments.address) as client:
    attached = attnbias.attach(model, client, max_length=LENGTH)
print(*attached.report(), sep="\n")
losses = train(model)

print(f"loss {losses[0]:.4f}, then {losses[-1]:.4f}")
assert losses[0] == own[0]
assert np.allclose(losses, own, rtol=1e-5, atol=0)  # gradients are summed in a different order
assert losses[-1] < losses[0]
