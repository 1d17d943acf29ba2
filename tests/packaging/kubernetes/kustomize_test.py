# SPDX-License-Identifier: Apache-2.0
"""After `kubectl apply -k deploy/kubernetes` the service is soon ready, and no change, failure or
attack makes a call fail."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

import attnbias
from tests.load.attack.attack import MIB, RECOVERY_SECONDS, Attack
from tests.load.attack.load import MEMORY
from tests.packaging.deploy.manifests import BASE
from tests.packaging.kubernetes.cluster import Cluster
from tests.packaging.kubernetes.service import HEADLESS, Load, Pod, Service, calling, seconds_until
from tests.support.figures import Figures, mib

ROLLOUTS = 5
FAIR_SECONDS = 30
"""Maximum time until a new replica has its share of the calls."""
RESTART_SECONDS = 60
"""Maximum time until a hanging server is replaced: three probes 10 s apart, 5 s for the last probe,
and 5 s to end."""
PLANNED_SECONDS = 3
"""Maximum duration of a call during planned changes, since another replica always answers."""
CUT_SECONDS = 40
ATTACK_SECONDS = 3
"""Duration of each load."""


@pytest.fixture(scope="module")
def applied(cluster: Cluster, figures: Figures) -> Iterator[Service]:
    service = Service(cluster, "kustomized")
    began = time.monotonic()
    service.kubectl("apply", f"--kustomize={BASE}")
    service.rolled_out()
    seconds = time.monotonic() - began
    figures.add("kubernetes", "kubectl apply -k, until two replicas are ready", f"{seconds:.0f} s")
    yield service
    service.remove()


@pytest.fixture
def service(applied: Service) -> Service:
    applied.settle()
    return applied


def test_threads_and_memory_follow_pod_limits(service: Service) -> None:
    for pod in service.pods():
        log = service.kubectl("logs", pod.name)
        assert f" threads=1 memory-budget={256 * MIB} " in log, log


def test_both_services_answer_calls(service: Service, figures: Figures) -> None:
    with Load(service) as load:
        time.sleep(5)
    load.tell(figures, "nothing happens")
    assert min(shares(service.pods())) > 0


def shares(pods: list[Pod]) -> list[float]:
    """Returns each pod's share of the calls answered so far."""
    return [pod.streams() for pod in pods]


def test_rolling_updates_fail_no_calls(service: Service, figures: Figures) -> None:
    with Load(service) as load:
        for _ in range(ROLLOUTS):
            before = {pod.name for pod in service.pods()}
            service.kubectl("rollout", "restart", "deployment/attnbias")
            service.rolled_out()
            assert before.isdisjoint(pod.name for pod in service.pods())
        time.sleep(10)  # the last pod drains
    load.tell(figures, f"{ROLLOUTS} rolling updates", PLANNED_SECONDS)


@pytest.mark.parametrize("replicas", [2, 1])
def test_node_drain_fails_no_calls(service: Service, figures: Figures, replicas: int) -> None:
    service.settle(replicas)
    node = service.pods()[0].node
    with Load(service) as load:
        try:
            service.cluster.kubectl("drain", node, "--timeout=120s")
            service.settle(replicas)
        finally:
            service.cluster.kubectl("uncordon", node)
        assert node not in [pod.node for pod in service.pods()]
        time.sleep(5)
    bound = PLANNED_SECONDS if replicas > 1 else None
    load.tell(figures, f"the drain of a node, {replicas} replicas", bound)


def test_scaled_out_replica_gets_its_share(service: Service, figures: Figures) -> None:
    old = {pod.name for pod in service.pods()}
    with Load(service, [HEADLESS]) as load:
        service.scale(3)
        seconds_until(lambda: len(service.ready()) == 3, "a third replica ready")
        pods = sorted(service.ready(), key=lambda pod: pod.name in old)

        def has_its_share() -> bool:
            before = shares(pods)
            time.sleep(1)
            new, *others = (b - a for a, b in zip(before, shares(pods), strict=True))
            return new >= 0.8 * min(others)

        seconds = seconds_until(has_its_share, "a third of the calls for the third replica")
    figures.add(
        "kubernetes",
        "scaled from 2 to 3, until the new replica, once ready, has its share",
        f"{seconds:.0f} s",
        f"{FAIR_SECONDS} s",
    )
    load.tell(figures, "scaled from 2 to 3", PLANNED_SECONDS)
    assert seconds <= FAIR_SECONDS


def test_scaling_in_fails_no_calls(service: Service, figures: Figures) -> None:
    service.settle(3)
    with Load(service) as load:
        service.settle(1)
        time.sleep(10)  # the other pods drain
    load.tell(figures, "scaled from 3 to 1", PLANNED_SECONDS)


def never_restarted(service: Service) -> Pod:
    """Returns a pod with no or few restarts: Kubernetes delays repeated restarts."""
    return min(service.pods(), key=lambda pod: pod.restarts)


def restarted(service: Service, pod: Pod) -> bool:
    now = service.pod(pod.name)
    return now.ready and now.restarts > pod.restarts


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_or_hung_server_is_restarted(
    service: Service, figures: Figures, how: signal.Signals
) -> None:
    pod = never_restarted(service)
    with Load(service) as load:
        os.kill(pod.pid(), how)
        seconds = seconds_until(lambda: restarted(service, pod), "the server restarted")
        time.sleep(5)
    figures.add(
        "kubernetes",
        f"{how.name}, until the server is ready again",
        f"{seconds:.0f} s",
        f"{RESTART_SECONDS} s",
    )
    load.tell(figures, f"{how.name} of a server")
    assert seconds <= RESTART_SECONDS


def test_pod_without_network_is_removed_and_returns(service: Service, figures: Figures) -> None:
    pod = never_restarted(service)
    with Load(service) as load:
        with pod.cut_off():
            out = seconds_until(
                lambda: pod.address not in service.addresses(), "the replica left out"
            )
            time.sleep(CUT_SECONDS)
        back = seconds_until(lambda: pod.address in service.addresses(), "the replica back")
        time.sleep(5)
    figures.add(
        "kubernetes",
        f"a pod's network cut for {out + CUT_SECONDS:.0f} s",
        f"left out after {out:.0f} s, back {back:.0f} s after the end",
    )
    load.tell(figures, "a pod's network cut")


@pytest.mark.parametrize("limit", ["256Mi", "1Gi"])
def test_memory_limit_holds_under_attack(service: Service, figures: Figures, limit: str) -> None:
    memory = (f"--requests=memory={limit}", f"--limits=memory={limit}")
    service.kubectl("set", "resources", "deployment/attnbias", *memory)
    [pod] = service.settle(1)
    address = f"{pod.address}:50051"
    for name in MEMORY:
        with Attack(name, address):
            time.sleep(ATTACK_SECONDS)
        with attnbias.Client(address, timeout=RECOVERY_SECONDS) as client:
            calling(client)()
        after = service.pod(pod.name)
        assert after.restarts == 0, f"killed by {MEMORY[name].what}"
    figures.add(
        "kubernetes",
        f"its limit of {limit} under each of {len(MEMORY)} attacks",
        f"{mib(pod.peak_resident_bytes())} at most, no restart",
        "no restart",
    )
