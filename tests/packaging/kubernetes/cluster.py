# SPDX-License-Identifier: Apache-2.0
"""A two-node Kubernetes cluster on this machine, started entirely by this process.

run.sh has created namespaces for this process. They end with it, so nothing here is ever stopped.
The network is isolated. Both nodes share its only address, on a bridge without ports; each node has
its own bridge for its pods.
"""

import contextlib
import json
import os
import pathlib
import secrets
import subprocess
from typing import Any

from tests.packaging.kubernetes.images import PAUSE
from tests.support.server import eventually

ADDRESS = "172.30.0.1"
SERVICES = "10.96.0.0/16"
DOMAIN = "cluster.local"
NODES = (1, 2)

_NETWORK = f"""
ip link set lo up
ip link add nodes type bridge
ip address add {ADDRESS}/24 dev nodes
ip link set nodes up
# Packets that kube-proxy redirects need a route beforehand.
ip route add {SERVICES} dev nodes src {ADDRESS}
echo 1 > /proc/sys/net/ipv4/ip_forward
"""

_NAMES = """
.:53 {{
  bind {address}
  errors
  kubernetes {domain} {{
    kubeconfig {kubeconfig} this
    ttl 30
  }}
}}
"""

_CONTAINERD = """
version = 2
root = "{folder}/containers"
state = "/run/containerd-{node}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # Root in a virtual machine may not lower scores; runc then dies without reporting why.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/network"
"""


class Cluster:
    """A cluster that is up once it is constructed."""

    def __init__(self) -> None:
        self._folder = pathlib.Path(os.environ["KUBERNETES_FOLDER"])
        self._config = self._folder / "kubeconfig"
        # Used by helm and kubectl.
        os.environ["KUBECONFIG"] = str(self._config)
        subprocess.run(["bash", "-euc", _NETWORK], check=True)
        self._start_control()
        for node in NODES:
            self._start_node(node)
        self._start_services()
        eventually(self._is_ready, f"the nodes ready; logs are in {self._folder}")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", *words], input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def apply(self, resource: Any) -> None:
        self.kubectl("apply", "--filename=-", stdin=json.dumps(resource))

    def _start(self, name: str, *command: object) -> None:
        with (self._folder / f"{name}.log").open("w") as log:
            subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _write(self, name: str, content: Any) -> pathlib.Path:
        """Writes a configuration file, as JSON if it is not text; YAML readers accept JSON."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def _start_control(self) -> None:
        """Starts the control plane. One token grants all rights, and clients do not verify the
        server."""
        token = secrets.token_hex(16)
        key = self._folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        cluster = {"server": f"https://{ADDRESS}:6443", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "this",
            "contexts": [{"name": "this", "context": {"cluster": "this", "user": "all"}}],
            "clusters": [{"name": "this", "cluster": cluster}],
            "users": [{"name": "all", "user": {"token": token}}],
        }
        self._write("kubeconfig", config)
        store = "http://127.0.0.1:2379"
        self._start(
            "etcd",
            *("etcd", f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={store}", f"--advertise-client-urls={store}"),
        )
        self._start(
            "apiserver",
            *("kube-apiserver", f"--etcd-servers={store}", f"--advertise-address={ADDRESS}"),
            *(f"--cert-dir={self._folder / 'apiserver'}", "--authorization-mode=AlwaysAllow"),
            f"--token-auth-file={self._write('tokens', f'{token},all,all')}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            "--kubelet-preferred-address-types=InternalIP",
        )
        eventually(self._answers, f"the API ready; logs are in {self._folder}")
        for name in ("kube-controller-manager", "kube-scheduler"):
            self._start(name, name, f"--kubeconfig={self._config}", "--leader-elect=false")

    def _answers(self) -> bool:
        with contextlib.suppress(AssertionError):
            return self.kubectl("get", "--raw=/readyz") == "ok"
        return False

    def _start_node(self, node: int) -> None:
        folder = self._folder / f"node-{node}"
        socket = pathlib.Path(f"/run/node-{node}.sock")
        self._write(f"{folder.name}/network/pods.conflist", _network_of(node, folder))
        containerd = _CONTAINERD.format(folder=folder, node=node, socket=socket, pause=PAUSE)
        config = self._write(f"{folder.name}/containerd.toml", containerd)
        self._start(f"containerd-{node}", "containerd", f"--config={config}")
        eventually(socket.exists, f"containerd listening; logs are in {self._folder}")
        for image in pathlib.Path(os.environ["KUBERNETES_IMAGES"]).glob("*.tar"):
            ctr = ["ctr", f"--address={socket}", "--namespace=k8s.io"]
            subprocess.run([*ctr, "images", "import", image], check=True, capture_output=True)
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{socket}",
            "address": ADDRESS,
            "port": 10250 + node,
            "healthzPort": 10350 + node,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{os.environ['KUBERNETES_GROUP']}/{folder.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "clusterDomain": DOMAIN,
            "clusterDNS": [ADDRESS],
            "resolvConf": str(self._folder / "resolv.conf"),
            "podLogsDir": str(folder / "logs"),
            "volumePluginDir": str(folder / "volume-plugins"),
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            # The images cannot be downloaded again, and other programs use the disk too.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi"},
        }
        self._start(
            f"kubelet-{node}",
            *("kubelet", f"--config={self._write(f'{folder.name}/kubelet.json', kubelet)}"),
            *(f"--kubeconfig={self._config}", f"--root-dir={folder / 'kubelet'}"),
            *(f"--cert-dir={folder / 'certificates'}", f"--hostname-override={folder.name}"),
            f"--node-ip={ADDRESS}",
        )

    def _start_services(self) -> None:
        proxy = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": "node-1",
            "bindAddress": "127.0.0.1",
            "clusterCIDR": "10.244.0.0/16",
            "clientConnection": {"kubeconfig": str(self._config)},
            "oomScoreAdj": 0,
            # These settings apply to the whole machine.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        self._start("kube-proxy", "kube-proxy", f"--config={self._write('proxy.json', proxy)}")
        names = _NAMES.format(address=ADDRESS, domain=DOMAIN, kubeconfig=self._config)
        self._start("names", "coredns", "-conf", self._write("Corefile", names))
        # Read by programs on this machine and by pods.
        search = f"default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
        self._write("resolv.conf", f"nameserver {ADDRESS}\nsearch {search}\noptions ndots:5\n")

    def _is_ready(self) -> bool:
        ready = [
            condition["status"] == "True"
            for node in self.read("nodes")["items"]
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        ]
        accounts = self.read("serviceaccounts")["items"]
        return ready == [True] * len(NODES) and bool(accounts)


def _network_of(node: int, folder: pathlib.Path) -> Any:
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": [[{"subnet": f"10.244.{node}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": f"pods{node}", "isGateway": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
