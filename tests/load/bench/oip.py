# SPDX-License-Identifier: Apache-2.0
"""This server's Open Inference Protocol compared with Triton's, both called by Triton's own
client."""

import contextlib
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.load.bench.measure import Round, Row, by_turns, compare
from tests.load.bench.programs import rounds_of, server
from tests.support.server import Server

NUM_BYTES = 128 << 20
MODEL = "a model of Triton's Python backend that"
# The settings that docs/open-inference-protocol.md recommends.
KEEP_MEMORY = ("MALLOC_MMAP_THRESHOLD_=1073741824", "MALLOC_TRIM_THRESHOLD_=2147483648")
AGAINST = {"computed": f"{MODEL} computes ALiBi by numpy", "ready": f"{MODEL} has the answer ready"}


def rows(running: Server, repetitions: int) -> Iterator[Row]:
    with (
        triton() as address,
        socket_file() as file,
        client("stream", running.address) as stream,
        client("stream", file) as by_file,
        client("infer", running.address) as infer,
        client("computed", address) as computed,
        client("ready", address) as ready,
        client("stream", running.address, *KEEP_MEMORY) as kept_stream,
        client("computed", address, *KEEP_MEMORY) as kept_computed,
    ):
        rounds = {
            "stream": stream,
            "by_file": by_file,
            "infer": infer,
            "computed": computed,
            "ready": ready,
        }
        times = by_turns(rounds, repetitions)
        kept = by_turns({"ours": kept_stream, "theirs": kept_computed}, repetitions)
    for way, what, goal in [
        ("stream", "128 MiB by Triton's client, streamed into one array", 5.0),
        ("by_file", "the same by a socket file", 5.0),
        ("infer", "128 MiB by Triton's client, in one message", None),
    ]:
        for model, against in AGAINST.items():
            yield compare(
                what=what,
                against=against,
                ours=times[way],
                theirs=times[model],
                goal=goal,
                num_bytes=NUM_BYTES,
            )
    yield compare(
        what="128 MiB by Triton's client, streamed into one array; it keeps the memory of messages",
        against=f"{AGAINST['computed']}, by such a client",
        **kept,
        goal=None,
        num_bytes=NUM_BYTES,
    )


@contextlib.contextmanager
def socket_file() -> Iterator[str]:
    """Yields the target of a server that listens on a socket file, which Triton does not
    support."""
    with tempfile.TemporaryDirectory() as folder:
        target = f"unix:{folder}/attnbias.sock"
        with server(f"--listen={target}"):
            yield target


def client(way: str, address: str, *environment: str) -> contextlib.AbstractContextManager[Round]:
    script = str(Path(__file__).with_name("oip_client.py"))
    return rounds_of("/usr/bin/env", *environment, os.environ["OIP_PYTHON"], script, way, address)


@contextlib.contextmanager
def triton() -> Iterator[str]:
    """Runs Triton with this folder's model, which takes seconds to load; yields its address."""
    venv = Path(os.environ["TRITON_VENV"])
    version = sysconfig.get_python_version()
    packages = venv / "lib" / f"python{version}" / "site-packages"
    root = packages / "pytriton" / "tritonserver"
    with tempfile.TemporaryDirectory() as folder:
        backend = Path(folder, "python")
        shutil.copytree(root / "backends" / "python", backend)
        shutil.copy(root / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [
            str(root / "bin" / "tritonserver"),
            f"--model-repository={Path(__file__).with_name('triton')}",
            f"--backend-directory={folder}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={port}",
            "--allow-http=false",
            "--allow-metrics=false",
        ]
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
            # The backend uses the packages of the interpreter on this path.
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
        }
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()
