# SPDX-License-Identifier: Apache-2.0
"""Triton's client in a separate process: `WAY ADDRESS`.

The ways are `infer` and `stream` for this project's server, and `computed` and `ready` for Triton.
For each line of input it fetches 128 MiB and prints the seconds taken.
"""

import contextlib
import queue
import sys
import time
from typing import Any

import numpy as np
import tritonclient.grpc as triton

HEADS, LENGTH = 32, 1024
ALIBI: dict[str, Any] = {
    "alibi.num_heads": HEADS,
    "pair.query_length": LENGTH,
    "pair.key_length": LENGTH,
    "output.form": "FORM_DENSE",
}


def infer(client: Any) -> Any:
    return client.infer("alibi", [], parameters=ALIBI).as_numpy("dense")


def infer_from_triton(client: Any, is_ready: bool) -> Any:
    heads = triton.InferInput("heads", [1], "INT64")
    heads.set_data_from_numpy(np.array([HEADS]))
    ready = triton.InferInput("is_ready", [1], "BOOL")
    ready.set_data_from_numpy(np.array([is_ready]))
    return client.infer("dense", [heads, ready]).as_numpy("dense")


class Stream:
    """Copies pieces to one array with resident pages, on the thread that receives them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._out = np.zeros((HEADS, LENGTH, LENGTH), np.float32)
        self._flat = self._out.reshape(-1)
        client.start_stream(self._receive)

    def _receive(self, result: Any, error: Any) -> None:
        if error is not None:
            self._ended.put(error)
            return
        piece = result.as_numpy("dense")
        begin = result.get_output("dense").parameters["begin"].int64_param
        self._flat[begin : begin + len(piece)] = piece
        if result.get_response().parameters["triton_final_response"].bool_param:
            self._ended.put(None)

    def fetch(self) -> Any:
        self._client.async_stream_infer("alibi", [], parameters=ALIBI)
        error = self._ended.get()
        assert error is None, error
        return self._out


def await_model(client: Any, name: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(triton.InferenceServerException):
            if client.is_model_ready(name):
                return
        assert time.monotonic() < deadline, f"{name} is not ready"
        time.sleep(0.1)


def main() -> None:
    way, address = sys.argv[1:]
    with triton.InferenceServerClient(address) as client:
        await_model(client, "alibi" if way in ("infer", "stream") else "dense")
        serve(client, way)


def serve(client: Any, way: str) -> None:
    stream = Stream(client) if way == "stream" else None
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        if stream is not None:
            array = stream.fetch()
        else:
            array = infer(client) if way == "infer" else infer_from_triton(client, way == "ready")
        elapsed = time.perf_counter() - start
        assert array.nbytes == 128 << 20
        print(elapsed, flush=True)


if __name__ == "__main__":
    main()
