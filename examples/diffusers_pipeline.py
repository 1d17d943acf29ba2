# SPDX-License-Identifier: Apache-2.0
"""Runs a diffusers video pipeline whose rotary tables come from the server.

The table is fetched once, before the first step, as rows per axis rather than per token. diffusers
rounds Wan's tables once, from float64, as does the server, so the video is identical bit for bit.

    pip install './client/python[torch]' diffusers transformers
    python examples/diffusers_pipeline.py --address localhost:50051
"""

import argparse

import torch
from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    WanPipeline,
    WanTransformer3DModel,
)

import attnbias

FRAMES, HEIGHT, WIDTH = 9, 32, 48

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="localhost:50051", help="the attnbias server")
arguments = parser.parse_args()


class ServedRotary(torch.nn.Module):
    """Replaces WanRotaryPosEmbed for videos of a single size.

    Args:
        client: a client of the server.
        own: the module to replace.
        grid: the frames, rows and columns of the token grid.
    """

    def __init__(self, client: attnbias.Client, own: torch.nn.Module, grid: list[int]) -> None:
        super().__init__()
        pairs = [dim // 2 for dim in (own.t_dim, own.h_dim, own.w_dim)]
        wan = attnbias.Mrope(own.attention_head_dim, pairs, rope_type="axial", layout="interleaved")
        self.tables = client.get(wan, grid=grid)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(table.to_torch(hidden_states.device)[None, :, None] for table in self.tables)


torch.manual_seed(0)
transformer = WanTransformer3DModel(
    num_attention_heads=2,
    attention_head_dim=32,
    text_dim=32,
    freq_dim=64,
    ffn_dim=64,
    num_layers=2,
    rope_max_seq_len=32,
)
vae = AutoencoderKLWan(base_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
pipeline = WanPipeline(
    tokenizer=None,  # the prompt is given as embeddings
    text_encoder=None,
    vae=vae,
    scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
    transformer=transformer,
)
pipeline.set_progress_bar_config(disable=True)
prompt, negative_prompt = torch.randn(2, 1, 16, 32)


def video() -> torch.Tensor:
    return pipeline(
        prompt_embeds=prompt,
        negative_prompt_embeds=negative_prompt,
        height=HEIGHT,
        width=WIDTH,
        num_frames=FRAMES,
        num_inference_steps=3,
        generator=torch.Generator().manual_seed(0),
        output_type="pt",
    ).frames


own = video()

latents = [
    (FRAMES - 1) // pipeline.vae_scale_factor_temporal + 1,
    HEIGHT // pipeline.vae_scale_factor_spatial,
    WIDTH // pipeline.vae_scale_factor_spatial,
]
patches = transformer.config.patch_size
grid = [length // patch for length, patch in zip(latents, patches, strict=True)]
with attnbias.Client(arguments.address) as client:
    transformer.rope = ServedRotary(client, transformer.rope, grid)

served = video()
cos = transformer.rope.tables.cos
print(f"video of {list(served.shape)}; cosines of {cos.shape} in {cos.nbytes} bytes")
assert torch.equal(served, own)
