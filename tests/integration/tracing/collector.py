# SPDX-License-Identifier: Apache-2.0
"""An OpenTelemetry Collector, and misbehaving substitutes."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, Self

import grpc

from tests.support.certificates import Authority, Pair
from tests.support.server import eventually, free_port, listens

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Collector:
    """Runs until the `with` block ends, and writes the spans that it receives to a file.

    Given an authority (the one that signed `pair`), the collector requires client certificates.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        port: int | None = None,
        authority: Authority | None = None,
        pair: Pair | None = None,
    ) -> None:
        self.port = port or free_port()
        self.endpoint = f"http{'s' if pair else ''}://localhost:{self.port}"
        self._spans = folder / "spans.json"
        grpc_port: dict[str, Any] = {"endpoint": f"127.0.0.1:{self.port}"}
        if authority and pair:
            files = {"cert_file": pair.certificate, "key_file": pair.key}
            files["client_ca_file"] = authority.certificate
            grpc_port["tls"] = {name: str(path) for name, path in files.items()}
        config = folder / "collector.yaml"
        # JSON is valid YAML.
        config.write_text(
            json.dumps(
                {
                    "receivers": {"otlp": {"protocols": {"grpc": grpc_port}}},
                    "exporters": {"file": {"path": str(self._spans), "flush_interval": "50ms"}},
                    "service": {
                        "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
                        "telemetry": {"metrics": {"level": "none"}},
                    },
                }
            )
        )
        with (folder / "collector.log").open("w") as log:
            self._process = subprocess.Popen(
                [os.environ["OTELCOL_BINARY"], f"--config={config}"], stderr=log
            )
        eventually(self._listens, "the collector listens")

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the collector has ended"
        return listens(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()

    def spans(self) -> list[dict[str, Any]]:
        """Returns the spans in order of start time; "resource" holds the attributes of their
        resource."""
        if not self._spans.exists():
            return []
        spans = []
        lines = self._spans.read_text().splitlines(keepends=True)
        for line in lines:
            if not line.endswith("\n"):
                continue  # being written
            for group in json.loads(line)["resourceSpans"]:
                for scope in group["scopeSpans"]:
                    assert scope["scope"]["name"] == "attnbias"
                    for span in scope["spans"]:
                        span["attributes"] = _attributes(span)
                        span["resource"] = _attributes(group["resource"])
                        spans.append(span)
        return sorted(spans, key=lambda span: int(span["startTimeUnixNano"]))

    def after(self, number: int) -> list[dict[str, Any]]:
        """Returns the spans once `number` of them exist."""
        eventually(lambda: len(self.spans()) >= number, f"{number} spans in the collector")
        spans = self.spans()
        assert len(spans) == number
        return spans


def _attributes(of: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Callable[[Any], Any]] = {
        "stringValue": str,
        "intValue": int,
        "doubleValue": float,
    }
    found = {}
    for attribute in of["attributes"]:
        ((kind, value),) = attribute["value"].items()
        found[attribute["key"]] = read[kind](value)
    assert len(found) == len(of["attributes"])
    return found


class Impostor:
    """Answers each export with the bytes of `answer`, and records its metadata."""

    def __init__(self, answer: bytes = b"") -> None:
        self.metadata: list[dict[str, Any]] = []
        self._answer = answer
        self._server = grpc.server(futures.ThreadPoolExecutor(1))
        self._server.add_generic_rpc_handlers((_Exports(self._export),))
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _export(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.metadata.append(dict(context.invocation_metadata()))
        return self._answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.stop(None)


class _Exports(grpc.GenericRpcHandler):
    def __init__(self, export: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(export)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._handler if details.method == EXPORT else None


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yields the endpoint of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
