# SPDX-License-Identifier: Apache-2.0
"""KServe's own client, unmodified.

It cannot share a process with Triton's, since both define the protocol's messages.
"""

import asyncio

import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

from tests.support.server_process import running_server

SETTINGS = {
    "t5.num_heads": 2,
    "t5.bidirectional": True,
    "pair.query_length": 3,
    "pair.key_length": 3,
}


async def use(address: str) -> None:
    client = InferenceGRPCClient(address)
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready("t5")
    assert not await client.is_model_ready("bert")
    table = np.random.default_rng(3).standard_normal((32, 2)).astype(np.float32)
    given = InferInput("t5.table", [32, 2], "FP32")
    given.set_data_from_numpy(table, binary_data=True)
    response = await client.infer(InferRequest("t5", [given], parameters=SETTINGS))
    assert np.array_equal(response.get_output_by_name("diagonals").as_numpy()[:, 2], table[0])
    await client.close()


def test_kserve_client_reads_metadata_and_infers() -> None:
    with running_server() as address:
        asyncio.run(use(address))
