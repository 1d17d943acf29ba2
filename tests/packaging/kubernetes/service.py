# SPDX-License-Identifier: Apache-2.0
"""The service in a cluster: its pods and their processes, and clients that call it continuously."""

import contextlib
import json
import pathlib
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import attnbias
from tests.packaging.kubernetes.cluster import Cluster
from tests.support.contract import dense_alibi
from tests.support.figures import Figures
from tests.support.server import calls_in, exposition_of, memory_of, samples_of
from tests.support.traffic import Traffic

HEADLESS, CLUSTER_IP = "attnbias-headless", "attnbias"
CLIENTS = 3
"""Number of clients that call each Service."""

BIAS = attnbias.ALiBi(num_heads=8)
WANTED = dense_alibi(8, 64, 64)
PATIENCE = 240  # seconds; on busy nodes, covers the work that a kubelet does every minute


def seconds_until(condition: Callable[[], bool], what: str) -> float:
    """Returns the seconds until the condition is met."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE, f"never happened: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


@dataclass(frozen=True)
class Pod:
    name: str
    uid: str
    node: str
    address: str
    ready: bool
    restarts: int

    @classmethod
    def of(cls, resource: Any) -> Self:
        status = resource["status"]
        [container] = status.get("containerStatuses", [{"ready": False, "restartCount": 0}])
        return cls(
            resource["metadata"]["name"],
            resource["metadata"]["uid"],
            resource["spec"].get("nodeName", ""),
            status.get("podIP", ""),
            container["ready"],
            container["restartCount"],
        )

    def pid(self) -> int:
        """Returns the process ID of the pod's server."""
        [found] = [
            path.parent
            for path in pathlib.Path("/proc").glob("[0-9]*/comm")
            if path.read_text() == "attnbias-server\n"
            and f"pod{self.uid}" in (path.parent / "cgroup").read_text()
        ]
        return int(found.name)

    def peak_resident_bytes(self) -> int:
        return memory_of(self.pid(), "VmHWM")

    def metrics(self) -> dict[str, float]:
        return samples_of(exposition_of(f"{self.address}:9464", timeout=5))

    def streams(self) -> float:
        """Returns the number of tensor calls that the pod has answered."""
        return calls_in(self.metrics(), "handled", "StreamTensor")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Disconnects the pod from the bridge, and reconnects it."""
        shown = _links("nsenter", f"--target={self.pid()}", "--net")
        [inner] = [link for link in shown if link["ifname"] == "eth0"]
        [outer] = [link for link in _links() if link["ifindex"] == inner["link_index"]]
        subprocess.run(["ip", "link", "set", outer["ifname"], "nomaster"], check=True)
        try:
            yield
        finally:
            back = ["ip", "link", "set", outer["ifname"], "master", outer["master"]]
            subprocess.run(back, check=True)


def _links(*prefix: str) -> list[dict[str, Any]]:
    shown = subprocess.run(
        [*prefix, "ip", "-json", "link", "show"], stdout=subprocess.PIPE, check=True
    )
    return list(json.loads(shown.stdout))


class Service:
    """The service in a namespace that admits only pods that meet the "restricted" profile."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": namespace, "labels": labels}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def remove(self) -> None:
        self.cluster.kubectl("delete", "namespace", self.namespace)

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *words)

    def target(self, service: str = HEADLESS) -> str:
        return f"dns:///{service}.{self.namespace}:50051"

    def pods(self) -> list[Pod]:
        """Returns the pods that are not terminating."""
        selector = "--selector=app.kubernetes.io/name=attnbias"
        found = self.cluster.read("pods", f"--namespace={self.namespace}", selector)["items"]
        return [Pod.of(one) for one in found if "deletionTimestamp" not in one["metadata"]]

    def pod(self, name: str) -> Pod:
        [found] = [pod for pod in self.pods() if pod.name == name]
        return found

    def ready(self) -> list[Pod]:
        return [pod for pod in self.pods() if pod.ready]

    def addresses(self) -> list[str]:
        """Returns the addresses that the headless Service returns to clients."""
        selector = f"--selector=kubernetes.io/service-name={HEADLESS}"
        slices = self.cluster.read("endpointslices", f"--namespace={self.namespace}", selector)
        return [
            endpoint["addresses"][0]
            for one in slices["items"]
            for endpoint in one["endpoints"] or []
            if endpoint["conditions"]["ready"]
        ]

    def rolled_out(self) -> None:
        self.kubectl("rollout", "status", "deployment/attnbias", f"--timeout={PATIENCE}s")

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "deployment/attnbias", f"--replicas={replicas}")

    def settle(self, replicas: int = 2) -> list[Pod]:
        """Returns its pods once all replicas are ready and earlier pods are gone."""
        self.scale(replicas)
        self.rolled_out()
        seconds_until(lambda: len(self.addresses()) == replicas, f"{replicas} replicas ready")
        return self.pods()


class Load:
    """Clients that call a service until the `with` block ends, some through each Service."""

    def __init__(
        self, service: Service, names: Iterable[str] = (HEADLESS, CLUSTER_IP), **options: Any
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._targets = [service.target(name) for name in names for _ in range(CLIENTS)]
        self._options = options
        self._traffic: list[Traffic] = []
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        for target in self._targets:
            client = self._stack.enter_context(attnbias.Client(target, **self._options))
            traffic = Traffic(calling(client), threads=1)
            self._traffic.append(self._stack.enter_context(traffic))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def failures(self) -> list[Exception]:
        return [failure for one in self._traffic for failure in one.failures]

    def tell(self, figures: Figures, what: str, bound: float | None = None) -> None:
        """Adds figures, and asserts that no call failed or took more than `bound` seconds."""
        failures = self.failures()
        seconds = [second for one in self._traffic for second in one.seconds]
        figures.add(
            "kubernetes",
            what,
            f"{len(seconds) + len(failures)} calls, {len(failures)} failed, the slowest "
            f"{max(seconds):.1f} s, in {time.monotonic() - self._began:.0f} s",
            "0 failed" if bound is None else f"0 failed, {bound:.0f} s",
        )
        assert failures == []
        assert bound is None or max(seconds) <= bound, "a call had to wait for a replica"


def calling(client: attnbias.Client) -> Callable[[], None]:
    """Returns a call whose answer is checked."""

    def call() -> None:
        answer = client.get(BIAS, query_length=64, key_length=64, form="dense")
        np.testing.assert_array_equal(answer, WANTED)

    return call
