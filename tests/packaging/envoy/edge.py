# SPDX-License-Identifier: Apache-2.0
"""The real Envoy, with the configuration in deploy/envoy, in front of real servers on loopback."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, Self

import grpc
import yaml

import attnbias
from tests.packaging.envoy.mounted_secret import Files, MountedSecret, tls
from tests.packaging.envoy.names import Names, name_server
from tests.support.certificates import Authority
from tests.support.server import Server, Stub, eventually, free_port, memory_of

DEPLOYED = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "envoy"
NAME = "attnbias-headless"

Config = dict[str, Any]


class Replicas:
    """Servers at different loopback addresses that share one port and one name."""

    def __init__(self, names: Names, stack: contextlib.ExitStack) -> None:
        self.names = names
        self._stack = stack
        self._port = 0
        self.servers: list[Server] = []

    def start(self, *flags: str) -> Server:
        address = f"127.0.0.{2 + len(self.servers)}"
        server = self._stack.enter_context(Server(f"--listen={address}:{self._port}", *flags))
        self._port = self.port_of(server)
        self.servers.append(server)
        self.names.addresses.append(address)
        return server

    @staticmethod
    def port_of(server: Server) -> int:
        return int(server.address.rpartition(":")[2])

    def handled(self, method: str) -> list[float]:
        """Returns how many calls to a method each server has answered."""
        return [server.calls("handled", method) for server in self.servers]


class Edge:
    """Envoy, until the `with` block ends.

    Only the ports, the discovery of replicas, and `change` differ from the deployed configuration.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        replicas: Replicas,
        change: Callable[[Config], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.replicas = replicas
        self._authority = Authority(folder)
        self.secret = MountedSecret(folder / "tls", self.new_certificate())
        for name in ("certificate.yaml", "ca.yaml"):
            shutil.copy(DEPLOYED / name, folder)
        self._admin = free_port()
        config = deployed_config()
        self._place(config)
        change(config)
        (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
        self._log = folder / "log"
        with self._log.open("w") as log, (folder / "access_log").open("w") as access_log:
            self._process = subprocess.Popen(
                [
                    os.environ["ENVOY_BINARY"],
                    "--config-path",
                    "envoy.yaml",
                    "--disable-hot-restart",
                ],
                cwd=folder,
                stdout=access_log,
                stderr=log,
            )

    def _place(self, config: Config) -> None:
        """Moves everything to loopback, on free ports."""
        config["admin"]["address"]["socket_address"]["port_value"] = self._admin
        for one in config["static_resources"]["listeners"]:
            one["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
        port = Replicas.port_of(self.replicas.servers[0])
        socket_address(config, "attnbias")["port_value"] = port
        socket_address(config, "admin")["port_value"] = self._admin
        names = {"address": "127.0.0.1", "port_value": self.replicas.names.port, "protocol": "UDP"}
        config["typed_dns_resolver_config"] = {
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {
                "@type": "type.googleapis.com/"
                "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
                "resolvers": [{"socket_address": names}],
            },
        }

    def __enter__(self) -> Self:
        eventually(self._is_ready, "Envoy ready")
        self.address, self.metrics_address = self._listening()
        self.tls_address = f"tls:{self.address}"
        eventually(lambda: self.healthy() == len(self.replicas.servers), "the replicas found")
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log()
        with contextlib.suppress(OSError):
            return bool(self._ask("ready") == b"LIVE\n")
        return False

    def _listening(self) -> tuple[str, str]:
        listed = json.loads(self._ask("listeners?format=json"))["listener_statuses"]
        ports = {
            one["name"]: one["local_address"]["socket_address"]["port_value"] for one in listed
        }
        return f"127.0.0.1:{ports['edge']}", f"127.0.0.1:{ports['metrics']}"

    def _ask(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/{path}") as response:
            answer: bytes = response.read()
            return answer

    def stats(self) -> dict[str, int]:
        """Returns counters and gauges by name; untouched ones are 0."""
        listed = json.loads(self._ask("stats?format=json"))["stats"]
        return {one["name"]: one["value"] for one in listed if "name" in one}

    def healthy(self) -> int:
        return self.stats().get("cluster.attnbias.membership_healthy", 0)

    def log(self) -> str:
        return self._log.read_text()

    def access_log(self) -> list[dict[str, Any]]:
        lines = (self.folder / "access_log").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def resident_bytes(self) -> int:
        return memory_of(self._process.pid, "VmRSS")

    def peak_resident_bytes(self) -> int:
        return memory_of(self._process.pid, "VmHWM")

    def new_certificate(self) -> Files:
        """Replaces the certificate with one signed by the authority that clients trust."""
        return tls(self._authority.sign("edge", alternatives="DNS:localhost,IP:127.0.0.1"))

    def stub(self) -> Stub:
        """Returns a stub whose calls only Envoy retries."""
        trusted = grpc.ssl_channel_credentials(self._authority.certificate.read_bytes())
        return Stub(self.address, trusted)

    def client(self) -> attnbias.Client:
        return attnbias.Client(self.address, tls=attnbias.Tls(ca=self._authority.certificate))

    def presented(self) -> bytes:
        """Returns the certificate that a new connection receives."""
        host, port = self.address.rsplit(":", 1)
        context = ssl.create_default_context(cafile=str(self._authority.certificate))
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            certificate = secure.getpeercert(binary_form=True)
            assert certificate
            return certificate


def ask_metrics(edge: Edge, path: str) -> str:
    """Returns an answer from the listener for Prometheus and probes."""
    with urllib.request.urlopen(f"http://{edge.metrics_address}/{path}") as response:
        return str(response.read().decode())


def deployed_config() -> Config:
    config: Config = yaml.safe_load((DEPLOYED / "envoy.yaml").read_text())
    return config


def socket_address(config: Config, cluster: str) -> Config:
    """Returns the address of a cluster's only endpoint."""
    endpoint = cluster_of(config, cluster)["load_assignment"]["endpoints"][0]["lb_endpoints"][0]
    address: Config = endpoint["endpoint"]["address"]["socket_address"]
    return address


def cluster_of(config: Config, name: str) -> Config:
    [found] = [one for one in config["static_resources"]["clusters"] if one["name"] == name]
    return dict_of(found)


def dict_of(found: Any) -> Config:
    assert isinstance(found, dict)
    return found


def http_of(config: Config) -> Config:
    """Returns the connection manager of the client listener."""
    [edge, _] = config["static_resources"]["listeners"]
    return dict_of(edge["filter_chains"][0]["filters"][0]["typed_config"])


def filter_of(config: Config, name: str) -> Config:
    filters = http_of(config)["http_filters"]
    [found] = [one for one in filters if one["name"] == f"envoy.filters.http.{name}"]
    return dict_of(found["typed_config"])


def monitor_of(config: Config, name: str) -> Config:
    """Returns the configuration of a resource monitor, such as "fixed_heap"."""
    monitors = config["overload_manager"]["resource_monitors"]
    [found] = [one for one in monitors if one["name"] == f"envoy.resource_monitors.{name}"]
    return dict_of(found["typed_config"])


@contextlib.contextmanager
def replicas_of(count: int, *flags: str) -> Iterator[Replicas]:
    with contextlib.ExitStack() as stack:
        replicas = Replicas(stack.enter_context(name_server()), stack)
        for _ in range(count):
            replicas.start(*flags)
        yield replicas
