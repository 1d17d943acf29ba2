# SPDX-License-Identifier: Apache-2.0
"""Trains a T5 whose sequence is sharded across processes, each with its own bias rows.

Each rank holds some of the tokens (context parallelism): it computes their queries and gathers all
keys and values. It fetches the buckets for its own rows from the server; the learned table is
trained like any other weight. The losses and the trained table equal those of the unsharded model.

    pip install './client/python[transformers]'
    torchrun --standalone --nproc-per-node 2 examples/t5_sharded.py --address localhost:50051
"""

import argparse
import copy
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AttentionInterface, T5Config, T5ForTokenClassification
from transformers.models.t5.modeling_t5 import eager_attention_forward

import attnbias

LENGTH, LABELS, STEPS = 64, 8, 10

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="localhost:50051", help="the attnbias server")
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world_size,))


def attend_to_all(module: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
    """Attends from this rank's queries to all ranks' keys."""
    key, value = (
        DTensor.from_local(part, mesh, [Shard(2)]).full_tensor(grad_placements=[Partial()])
        for part in (key, value)
    )
    return eager_attention_forward(module, query, key, value, *rest, **options)


torch.manual_seed(0)  # the same weights and tokens on every rank
config = T5Config(
    vocab_size=LABELS,
    d_model=32,
    d_kv=8,
    d_ff=64,
    num_heads=4,
    num_layers=2,
    num_labels=LABELS,
    dropout_rate=0.0,
)
unsharded = T5ForTokenClassification(config)
sharded = copy.deepcopy(unsharded)
AttentionInterface.register("attend_to_all", attend_to_all)
sharded.set_attn_implementation("attend_to_all")

with attnbias.Client(arguments.address) as client:
    rows = client.get(
        attnbias.from_config(config)["encoder"],
        query_length=LENGTH,
        key_length=LENGTH,
        values="buckets",
        device_mesh=mesh,
        placements=[Shard(0)],
    ).to_local()
print(f"rank {rank}: buckets of {list(rows.shape)}")

own, attention = (
    model.transformer.encoder.block[0].layer[0].SelfAttention  # all layers share its bias
    for model in (unsharded, sharded)
)
table = own.relative_attention_bias.weight.detach().clone()


def bias_of_rows(*_: Any, **__: Any) -> torch.Tensor:
    """Returns the bias [1, heads, this rank's queries, all keys]."""
    return attention.relative_attention_bias(rows).movedim(-1, 0)[None]


attention.compute_bias = bias_of_rows

tokens = torch.randint(LABELS, (8, LENGTH))
labels = tokens.roll(1, dims=1)  # each token's label is the previous token
mine = attnbias.shard_indices(LENGTH, rank, world_size)

models = {"unsharded": unsharded, "sharded": DistributedDataParallel(sharded)}
losses: dict[str, list[torch.Tensor]] = {name: [] for name in models}
for name, model in models.items():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    part = mine if name == "sharded" else slice(None)
    for _ in range(STEPS):
        loss = model(input_ids=tokens[:, part], labels=labels[:, part]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses[name].append(mean)

if rank == 0:
    for name, means in losses.items():
        print(f"{name}: loss {means[0]:.4f}, then {means[-1]:.4f}")
torch.testing.assert_close(losses["sharded"], losses["unsharded"], rtol=1e-4, atol=0)
assert losses["sharded"][-1] < losses["sharded"][0]
trained = attention.relative_attention_bias.weight
torch.testing.assert_close(trained, own.relative_attention_bias.weight, rtol=1e-4, atol=1e-6)
assert not torch.allclose(trained, table, rtol=1e-2)
dist.destroy_process_group()
