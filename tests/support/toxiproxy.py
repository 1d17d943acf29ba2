# SPDX-License-Identifier: Apache-2.0
"""Links to a server that toxiproxy can make slow, distant or silent."""

import contextlib
import json
import os
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.server import eventually, free_port, listens

Request = dict[str, Any]


class Toxiproxy(NamedTuple):
    """The process that serves all of a test's links."""

    api: str
    pid: int


class Link:
    """A link that clients use in place of the server's address."""

    def __init__(self, proxy: Toxiproxy, server: str) -> None:
        proxies = f"{proxy.api}/proxies"
        made = _ask(
            proxies, {"name": uuid.uuid4().hex, "listen": "127.0.0.1:0", "upstream": server}
        )
        self.address: str = made["listen"]
        self._toxics = f"{proxies}/{made['name']}/toxics"

    @contextlib.contextmanager
    def slow(self, bytes_per_second: float) -> Iterator[None]:
        """Limits the rate of the server's data on each connection."""
        rate = max(1, int(bytes_per_second / 1000))
        with self._toxic("bandwidth", "downstream", rate=rate):
            yield

    @contextlib.contextmanager
    def far(self, milliseconds: int) -> Iterator[None]:
        """Delays the server's data."""
        with self._toxic("latency", "downstream", latency=milliseconds):
            yield

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Passes nothing in either direction; discarded bytes are lost, and connections break once
        it passes bytes again."""
        with self._toxic("timeout", "upstream"), self._toxic("timeout", "downstream"):
            yield

    @contextlib.contextmanager
    def _toxic(self, kind: str, stream: str, **attributes: int) -> Iterator[None]:
        toxic = {"type": kind, "stream": stream, "attributes": attributes}
        name = _ask(self._toxics, toxic)["name"]
        yield
        _ask(f"{self._toxics}/{name}", method="DELETE")


@contextlib.contextmanager
def toxiproxy() -> Iterator[Toxiproxy]:
    """Yields a running toxiproxy, for links."""
    port = free_port()
    command = [os.environ["TOXIPROXY_BINARY"], "-host=127.0.0.1", f"-port={port}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: listens(port), "toxiproxy listens")
            yield Toxiproxy(f"http://127.0.0.1:{port}", process.pid)
        finally:
            process.kill()


def _ask(url: str, body: Request | None = None, method: str | None = None) -> Request:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    with urllib.request.urlopen(request) as response:
        answer: Request = json.loads(response.read() or "{}")
        return answer
