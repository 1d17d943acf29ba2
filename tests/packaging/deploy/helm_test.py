# SPDX-License-Identifier: Apache-2.0
"""The chart: which results its values yield, alone and combined, and which values it rejects."""

import copy
import functools
import itertools
import json
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from tests.packaging.deploy.manifests import (
    CHART,
    ROOT,
    Reasons,
    Resource,
    Values,
    documents,
    files_of,
    helm,
    kubeconform,
    of_kind,
    pod_of,
    rendered,
    server_of,
    settings_of,
    workload,
)
from tests.support.certificates import Authority
from tests.support.server import run_server

PAGE = ROOT / "docs" / "operations" / "kubernetes.md"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# Paths of the server's writable and readable folders in its pod.
SOCKET = "/run/attnbias"

CHECKPOINT_OF_A_REMOTE = "/var/lib/attnbias/remote/checkpoints/fetched"

# Values that turn on one feature each.
FEATURES: dict[str, Values] = yaml.safe_load("""
names: {nameOverride: bias, fullnameOverride: bias-of-all}
five replicas: {replicaCount: 5}
an image:
  image: {repository: example.org/attnbias, tag: "1", pullPolicy: Always}
  imagePullSecrets: [{name: registry}]
resources:
  resources: {requests: {cpu: 500m}, limits: {cpu: 2.5, memory: 8Gi, ephemeral-storage: 1Gi}}
cuda: {cuda: {gpus: 1, minBytes: 16_777_216, runtimeClassName: nvidia}}
tables of a claim: {tables: {persistentVolumeClaim: models, folder: t/small}}
tables of a config map: {tables: {configMap: tables}}
tables of a remote:
  tables: {remote: "s3:models/tables"}
  rclone: {configSecret: rclone, periodSeconds: 5}
checkpoints:
  checkpoints:
    - {name: t5-small, persistentVolumeClaim: models, folder: t5/small}
    - {name: bert, persistentVolumeClaim: bert}
    - {name: fetched, remote: ":http,url='https://example.org':t5 small"}
precompute: {precompute: [{alibi: {num_heads: 8}, pair: {query_length: 4096, key_length: 4096}}]}
tls of a secret: {tls: {secret: certificate}}
tls of cert-manager:
  tls: {certManager: {issuer: ca, kind: ClusterIssuer, dnsNames: [attnbias.example.org]}}
client certificates: {tls: {secret: certificate, clientCaSecret: client-ca}}
tokens: {auth: {tokensSecret: tokens}}
policy: {auth: {tokensSecret: tokens, policySecret: policy}}
daemon set: {kind: DaemonSet}
socket: {kind: DaemonSet, socket: {hostPath: /run/attnbias, mode: "0666"}}
load balancer:
  service:
    type: LoadBalancer
    loadBalancerSourceRanges: [192.0.2.0/24, "2001:db8::/32"]
    port: 443
    nodePort: 30051
    annotations: {example.org/a: b}
ingress:
  ingress:
    enabled: true
    className: nginx
    annotations: {nginx.ingress.kubernetes.io/backend-protocol: GRPC}
    hosts:
      - {host: attnbias.example.org}
      - {host: example.org, paths: [{path: /grpc, pathType: Prefix}]}
    tls: [{secretName: edge, hosts: [attnbias.example.org]}]
grpc route:
  grpcRoute:
    enabled: true
    annotations: {example.org/a: b}
    parentRefs: [{name: gateway, namespace: edge}]
    hostnames: [attnbias.example.org]
    matches: [{method: {service: attnbias.v1.AttentionBiasService}}]
network policy:
  networkPolicy:
    enabled: true
    metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: m}}}]
    egress: [{ports: [{port: 443}]}]
autoscaling:
  autoscaling:
    enabled: true
    maxReplicas: 4
    targetMemoryUtilizationPercentage: 0
    metrics:
      - type: Pods
        pods:
          metric: {name: attnbias_queued_tasks}
          target: {type: AverageValue, averageValue: "100"}
    behavior: {scaleDown: {stabilizationWindowSeconds: 600}}
a budget of those that stay: {podDisruptionBudget: {minAvailable: 50%}}
no budget: {podDisruptionBudget: {enabled: false}}
service monitor: {metrics: {serviceMonitor: {enabled: true, labels: {a: b}}}}
prometheus rule: {metrics: {prometheusRule: {enabled: true, labels: {a: b}}}}
dashboard: {metrics: {dashboard: {enabled: true}}}
a service account: {serviceAccount: {create: false, name: other}}
an annotated service account: {serviceAccount: {annotations: {example.org/a: b}, automount: true}}
security contexts:
  podSecurityContext: {runAsUser: 1000, fsGroup: 1000}
  securityContext: {runAsNonRoot: true}
probes:
  startupProbe: {failureThreshold: 600}
  readinessProbe: {httpGet: {path: /metrics, port: metrics}}
  livenessProbe: {enabled: false}
no surge: {maxSurge: 0, minReadySeconds: 0}
slow ends: {shutdownDelaySeconds: 0, drainGraceSeconds: 600}
flags and environment:
  extraFlags: [--log-format=json, --tables-poll=1m, --oip=false, --reflection]
  extraEnv: [{name: ATTNBIAS_LOG_LEVEL, value: warning}]
containers and volumes:
  extraVolumes: [{name: scratch, emptyDir: {}}]
  extraVolumeMounts: [{name: scratch, mountPath: /scratch}]
  initContainers:
    - &other # A container that the chart does not provide.
      image: rclone/rclone
      args: [copy, remote:tables, /scratch]
      volumeMounts: [{name: scratch, mountPath: /scratch}]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      name: before
  extraContainers: [{<<: *other, name: beside}]
placement:
  commonLabels: {owner: research}
  podAnnotations: {prometheus.io/port: "1", example.org/a: b}
  podLabels: {team: models}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  nodeSelector: {kubernetes.io/arch: amd64}
  affinity: {podAntiAffinity: {}}
  topologySpreadConstraints:
    - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {team: models}}
  priorityClassName: high
""")
# Mutually exclusive values: at most one side of each line.
ALTERNATIVES = [
    (
        {"tables of a claim", "tables of a config map"},
        {"tables of a claim", "tables of a remote"},
        {"tables of a config map", "tables of a remote"},
    ),
    ({"tls of a secret", "client certificates"}, {"tls of cert-manager"}),
    ({"autoscaling"}, {"daemon set", "socket"}),
    ({"a budget of those that stay"}, {"no budget"}),
    ({"a service account"}, {"an annotated service account"}),
]


def merged(one: Values, other: Values) -> Values:
    both = copy.deepcopy(one)
    for key, value in other.items():
        inner = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if inner else value
    return both


def together(names: Iterator[str] | tuple[str, ...]) -> Values:
    return functools.reduce(merged, (FEATURES[name] for name in names), {})


def cases() -> dict[str, tuple[str, ...]]:
    """Returns sets of features: none, each one alone, all compatible ones, and the largest of these
    with one feature left out."""
    found: dict[str, tuple[str, ...]] = {"nothing": ()}
    found |= {name: (name,) for name in FEATURES}
    for sides in itertools.product(*ALTERNATIVES):
        left_out = sorted(set[str]().union(*sides))
        found["all but " + ", ".join(left_out)] = tuple(
            name for name in FEATURES if name not in left_out
        )
    fullest = max(found.values(), key=len)
    for name in fullest:
        without = tuple(one for one in fullest if one != name)
        found["without " + name] = without
    return found


CASES = cases()


@functools.cache
def made(case: str) -> list[Resource]:
    return rendered(together(CASES[case]))


each_case = pytest.mark.parametrize("case", CASES)


def test_cases_turn_every_feature_on_and_off() -> None:
    for name in FEATURES:
        assert CASES[name] == (name,)
        assert any(name in on and len(on) > 10 for on in CASES.values())
        assert any(name not in on and len(on) > 10 for on in CASES.values())


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("without ")])
def test_lint_finds_nothing(case: str) -> None:
    said = helm("lint", "--strict", "--quiet", CHART, values=together(CASES[case]))
    assert said.returncode == 0, said.stdout + said.stderr


@each_case
def test_schemas_accept_every_resource(case: str, schemas: pathlib.Path) -> None:
    verdicts = kubeconform(schemas, made(case))
    assert sorted(verdicts) == sorted(f"statusValid {one['kind']}" for one in made(case))


def test_schemas_reject_unknown_field_of_every_kind(schemas: pathlib.Path) -> None:
    kinds = {one["kind"]: one for case in CASES for one in made(case)}
    assert len(kinds) == 14
    for kind, resource in kinds.items():
        wrong = copy.deepcopy(resource)
        wrong.get("spec", wrong)["surprise"] = 1
        [verdict] = kubeconform(schemas, [wrong])
        assert verdict.startswith(f"statusInvalid {kind}")
        assert "surprise" in verdict


@each_case
def test_pods_are_restricted(case: str, restricted: Reasons) -> None:
    assert restricted(of_kind(made(case), "Pod")) == [[]]
    [reasons] = restricted([workload(made(case))["spec"]["template"]])
    if "socket" in CASES[case]:
        # The profile forbids mounting a folder from the node, and running as root to change its
        # owner.
        assert sorted(reasons) == [
            "restricted volume types",
            "runAsNonRoot != true",
            "runAsUser=0",
            "unrestricted capabilities",
        ]
        pod = copy.deepcopy(workload(made(case))["spec"]["template"])
        del pod["spec"]["initContainers"]
        pod["spec"]["volumes"] = []
        [reasons] = restricted([pod])
    assert reasons == []


@each_case
def test_every_file_named_by_a_setting_is_mounted(case: str) -> None:
    server = server_of(made(case))
    mounts = [mount["mountPath"] for mount in server["volumeMounts"]]
    used = {"/scratch"} & set(mounts)
    settings = "\n".join([*server["args"], *itertools.chain(*all_settings(made(case)).values())])
    for path in re.findall(r"(?:^|[=:])(/[^:\n]*)", settings, re.MULTILINE):
        [mount] = [mount for mount in mounts if path == mount or path.startswith(mount + "/")]
        used.add(mount)
    assert used == set(mounts)


@each_case
def test_volumes_are_mounted_once(case: str) -> None:
    mounts = server_of(made(case))["volumeMounts"]
    volumes = [one["name"] for one in pod_of(made(case))["volumes"]]
    assert [mount["name"] for mount in mounts] == [name for name in volumes if name != "rclone"]
    assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
    writable = {"socket": SOCKET, "containers and volumes": "/scratch"}
    assert [one["mountPath"] for one in mounts if not one.get("readOnly")] == [
        path for feature, path in writable.items() if feature in CASES[case]
    ]


@each_case
def test_every_container_mount_has_a_volume(case: str) -> None:
    pod = pod_of(made(case))
    volumes = {one["name"] for one in pod["volumes"]}
    containers = [*pod.get("initContainers", []), *pod["containers"]]
    assert {mount["name"] for one in containers for mount in one["volumeMounts"]} == volumes


@each_case
def test_selectors_and_ports_match_across_resources(case: str) -> None:
    found = made(case)
    main = workload(found)
    template = main["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in server_of(found)["ports"]}

    assert main["spec"]["selector"]["matchLabels"].items() <= labels
    for spread in pod_of(found).get("topologySpreadConstraints", []):
        wanted = spread["labelSelector"]["matchLabels"]
        assert wanted.items() <= labels
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for one in of_kind(found, kind):
            spec = one["spec"]
            assert spec.get("selector", spec.get("podSelector"))["matchLabels"].items() <= labels
    for policy in of_kind(found, "NetworkPolicy"):
        rules = policy["spec"]["ingress"]
        wanted = ["grpc", "metrics", "probe"] if "probe" in ports else ["grpc", "metrics"]
        assert [rule["ports"][0]["port"] for rule in rules] == wanted
        if "probe" in ports:
            [peer] = rules[2]["from"]
            [test] = of_kind(found, "Pod")
            assert peer["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    services = of_kind(found, "Service")
    moved = "load balancer" in CASES[case]
    for service in services:
        assert service["spec"]["selector"].items() <= labels
        for port in service["spec"]["ports"]:
            number = 443 if (port["name"], service) == ("grpc", services[0]) and moved else None
            assert port["port"] == (number or ports[port["targetPort"]])
    [test] = of_kind(found, "Pod")
    assert not services[0]["spec"]["selector"].items() <= test["metadata"]["labels"].items()
    port = 50052 if "probe" in ports else services[0]["spec"]["ports"][0]["port"]
    host = services["probe" in ports]["metadata"]["name"]
    assert test["spec"]["containers"][0]["command"][-1] == f"{host}:{port}"
    for ingress in of_kind(found, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            [path] = rule["http"]["paths"]
            to = path["backend"]["service"]
            assert to == {"name": services[0]["metadata"]["name"], "port": {"name": "grpc"}}
    for route in of_kind(found, "GRPCRoute"):
        [to] = route["spec"]["rules"][0]["backendRefs"]
        [_] = [
            service
            for service in services
            if service["metadata"]["name"] == to["name"]
            and to["port"] in [port["port"] for port in service["spec"]["ports"]]
        ]
    for monitor in of_kind(found, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        [endpoint] = monitor["spec"]["endpoints"]
        job = {"targetLabel": "job", "replacement": main["metadata"]["name"]}
        assert endpoint["relabelings"] == [job]
        [_] = [
            service
            for service in services
            if wanted <= service["metadata"]["labels"].items()
            and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        ]
    for autoscaler in of_kind(found, "HorizontalPodAutoscaler"):
        target = autoscaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == (main["kind"], main["metadata"]["name"])
    accounts = [one["metadata"]["name"] for one in of_kind(found, "ServiceAccount")]
    assert accounts == ([] if "a service account" in CASES[case] else [main["metadata"]["name"]])
    assert pod_of(found)["serviceAccountName"] == (accounts or ["other"])[0]


@each_case
def test_probes_reach_a_port_without_tls(case: str) -> None:
    server, settings = server_of(made(case)), settings_of(made(case))
    listening = {50052} if "tls-cert" in settings else {50051}
    assert settings.get("probe-listen") == ("[::]:50052" if "tls-cert" in settings else None)
    probes = [server[name]["grpc"] for name in PROBES if "grpc" in server.get(name, {})]
    assert len(probes) == (1 if "probes" in CASES[case] else 3)
    for probe in probes:
        assert probe["port"] in listening
        assert probe["port"] in [one["containerPort"] for one in server["ports"]]


@each_case
def test_rollout_can_proceed(case: str) -> None:
    """Kubernetes rejects any rollout that may neither add nor remove replicas, and a DaemonSet's
    rollout that may do both."""
    spec = workload(made(case))["spec"]
    rolling = spec.get("strategy", spec.get("updateStrategy"))["rollingUpdate"]
    assert sorted(rolling.values()) == [0, 1]
    on = CASES[case]
    assert rolling["maxSurge"] == (0 if "no surge" in on or "socket" in on else 1)


@pytest.fixture(scope="module")
def pod_root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a folder that stands in for the pod's /, with everything that can be mounted
    there."""
    root = tmp_path_factory.mktemp("pod")
    settings, data = root / "etc" / "attnbias", root / "var" / "lib" / "attnbias"
    for folder in ("tls", "tls-client-ca", "tokens", "policy", "config"):
        (settings / folder).mkdir(parents=True)
    authority = Authority(tmp_path_factory.mktemp("authority"))
    pair = authority.sign("server")
    pair.certificate.rename(settings / "tls" / "tls.crt")
    pair.key.rename(settings / "tls" / "tls.key")
    authority.certificate.rename(settings / "tls-client-ca" / "ca.crt")
    (settings / "tokens" / "tokens").write_text(f"trainer sha256:{64 * '0'}\n")
    (settings / "policy" / "policy.json").write_text('{"callers": {"trainer": {"methods": ["*"]}}}')
    (data / "tables" / "t" / "small").mkdir(parents=True)
    (data / "remote" / "tables").mkdir(parents=True)
    (root / "run" / "attnbias").mkdir(parents=True)
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    for name in ("checkpoints/t5-small/t5/small", "checkpoints/bert", "remote/checkpoints/fetched"):
        checkpoint = data / name
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text('{"model_type": "t5", "num_heads": 2}')
        tables = {f"{side}.{bias}": np.zeros((32, 2), "f4") for side in ("encoder", "decoder")}
        save_file(tables, checkpoint / "model.safetensors")
    return root


def check_config(resources: list[Resource], pod_root: pathlib.Path) -> dict[str, str]:
    """Returns the values that the server's --check-config prints, keyed by flag name."""
    for name, text in files_of(resources).items():
        moved = re.sub(r"(?<=[=:'])/", f"{pod_root}/", text) if name.endswith(".toml") else text
        (pod_root / "etc" / "attnbias" / "config" / name).write_text(moved)
    server = server_of(resources)
    flags = [flag.replace("=/", f"={pod_root}/") for flag in server["args"]]
    variables = {one["name"]: one["value"] for one in server.get("env", [])}
    said = run_server("--check-config", *flags, **variables)
    assert said.returncode == 0, said.stderr
    printed = said.stdout.replace(f"{pod_root}/", "/")
    return dict(line.split("=", 1) for line in printed.splitlines())


@each_case
def test_server_accepts_rendered_settings(case: str, pod_root: pathlib.Path) -> None:
    effective = check_config(made(case), pod_root)
    wanted = {name: ",".join(values) for name, values in all_settings(made(case)).items()}
    assert {name: effective[name] for name in wanted} == wanted


def test_special_characters_in_folder_names_are_escaped(pod_root: pathlib.Path) -> None:
    folder = r'a "b"\c [d] \n = {e}; ${f}'
    tables = pod_root / "var" / "lib" / "attnbias" / "tables" / folder
    tables.mkdir()
    checkpoint = pod_root / "var" / "lib" / "attnbias" / "checkpoints" / "bert"
    (checkpoint / folder).symlink_to(checkpoint)
    claim = {"persistentVolumeClaim": "models"}
    found = rendered(
        {
            "tables": claim | {"folder": folder},
            "checkpoints": [
                claim | {"name": "bert", "folder": folder},
                claim | {"name": "t5-small", "folder": "t5/small"},
            ],
        }
    )
    effective = check_config(found, pod_root)
    assert effective["tables"] == f"/var/lib/attnbias/tables/{folder}"
    first, _ = effective["checkpoint"].split(",")
    assert first == f"bert=/var/lib/attnbias/checkpoints/bert/{folder}"


def test_extra_flags_are_settings() -> None:
    flags = ["--max-connection-age=1m", "--table=a=/a", "--oip", "--table=b=/b", "--log-format="]
    assert settings_of(rendered({"extraFlags": flags})) == {
        "max-connection-age": "1m",
        "table": ["a=/a", "b=/b"],
        "oip": "true",
        "log-format": "",
        "shutdown-delay": "5s",
        "drain-grace": "30s",
    }


def test_flags_with_pod_variables_stay_flags() -> None:
    flag = "--table=a=/$(POD_IP)"
    found = rendered({"extraFlags": [flag]})
    assert server_of(found)["args"] == ["--config=/etc/attnbias/config/attnbias.toml", flag]
    assert settings_of(found) == settings_of(made("nothing"))


def test_flags_reserved_by_chart_exist_in_server() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    [refused] = re.findall(r'"attnbias.flagsOfTheChart" -}}\n(.*?){{', helpers, re.DOTALL)
    names = set(yaml.safe_load(refused))
    assert "listen" in names
    assert {f"--{name}" for name in names} <= set(
        re.findall("--[a-z][-a-z]*", run_server("--help").stdout)
    )


def all_settings(resources: list[Resource]) -> dict[str, list[str]]:
    """Returns the values of each flag."""
    settings = settings_of(resources).items()
    return {name: value if isinstance(value, list) else [value] for name, value in settings}


def further_settings(case: str) -> dict[str, Any]:
    """Returns the settings that the default values do not yield."""
    always = settings_of(made("nothing"))
    return {name: one for name, one in settings_of(made(case)).items() if name not in always}


def test_deployment_values_are_rendered() -> None:
    assert workload(made("five replicas"))["spec"]["replicas"] == 5
    assert server_of(made("an image"))["image"] == "example.org/attnbias:1"
    assert server_of(made("resources"))["resources"] == FEATURES["resources"]["resources"]
    assert "requests" not in server_of(made("nothing"))["resources"]

    assert server_of(made("cuda"))["image"].endswith("-cuda")
    assert server_of(made("cuda"))["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert further_settings("cuda") == {"cuda-min-bytes": "16777216"}

    assert "replicas" not in workload(made("autoscaling"))["spec"]
    [autoscaler] = of_kind(made("autoscaling"), "HorizontalPodAutoscaler")
    given = FEATURES["autoscaling"]["autoscaling"]
    cpu, queue = autoscaler["spec"]["metrics"]
    assert cpu["resource"]["name"] == "cpu"
    assert [queue] == given["metrics"]
    assert autoscaler["spec"]["behavior"] == given["behavior"]

    spec = workload(made("daemon set"))["spec"]
    assert "replicas" not in spec
    assert of_kind(made("daemon set"), "PodDisruptionBudget") == []

    probes = {name: server_of(made("probes")).get(name) for name in PROBES}
    assert probes["startupProbe"] == {
        "periodSeconds": 1,
        "failureThreshold": 600,
        "grpc": {"port": 50051, "service": "readiness"},
    }
    assert "grpc" not in probes["readinessProbe"]
    assert probes["livenessProbe"] is None

    def budget(case: str) -> list[Any]:
        found = of_kind(made(case), "PodDisruptionBudget")
        return [
            (one["spec"].get("minAvailable"), one["spec"].get("maxUnavailable")) for one in found
        ]

    assert budget("nothing") == [(None, 1)]
    assert budget("a budget of those that stay") == [("50%", None)]
    assert budget("no budget") == []


def test_name_overrides_are_rendered() -> None:
    assert workload(made("names"))["metadata"]["name"] == "bias-of-all"
    assert workload(made("names"))["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "bias",
        "app.kubernetes.io/instance": "attnbias",
    }
    assert workload(rendered({"nameOverride": "other"}))["metadata"]["name"] == "attnbias-other"


def test_common_labels_are_on_every_resource() -> None:
    fullest = max(CASES, key=lambda case: len(CASES[case]))
    template = workload(made(fullest))["spec"]["template"]
    for resource in [*made(fullest), template]:
        assert resource["metadata"]["labels"]["owner"] == "research"
    assert "owner" not in workload(made(fullest))["spec"]["selector"]["matchLabels"]


def test_extra_containers_and_volumes_are_rendered() -> None:
    pod = pod_of(made("containers and volumes"))
    assert [one["name"] for one in pod["initContainers"]] == ["before"]
    assert [one["name"] for one in pod["containers"]] == ["attnbias", "beside"]
    assert [one["name"] for one in pod["volumes"]] == ["config", "scratch"]


def test_security_contexts_merge_user_values() -> None:
    pod = pod_of(made("security contexts"))
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 65532,
        "fsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    context = server_of(made("security contexts"))["securityContext"]
    assert context.items() >= {"runAsNonRoot": True, "readOnlyRootFilesystem": True}.items()


def test_spread_defaults_to_pods_of_this_release() -> None:
    zone, host = pod_of(made("placement"))["topologySpreadConstraints"]
    assert zone["labelSelector"] == workload(made("placement"))["spec"]["selector"]
    assert host["labelSelector"] == {"matchLabels": {"team": "models"}}


def test_values_reach_service_account_and_routes() -> None:
    annotations = {"example.org/a": "b"}
    service, headless = of_kind(made("load balancer"), "Service")
    assert service["metadata"]["annotations"] == annotations
    given = FEATURES["load balancer"]["service"]
    assert service["spec"]["type"] == given["type"]
    assert service["spec"]["loadBalancerSourceRanges"] == given["loadBalancerSourceRanges"]
    [port] = service["spec"]["ports"]
    assert (port["port"], port["nodePort"]) == (given["port"], given["nodePort"])
    assert headless["spec"]["clusterIP"] == "None"

    [account] = of_kind(made("an annotated service account"), "ServiceAccount")
    assert account["metadata"]["annotations"] == annotations

    [ingress] = of_kind(made("ingress"), "Ingress")
    given = FEATURES["ingress"]["ingress"]
    assert ingress["metadata"]["annotations"] == given["annotations"]
    assert ingress["spec"]["ingressClassName"] == given["className"]
    assert ingress["spec"]["tls"] == given["tls"]

    [route] = of_kind(made("grpc route"), "GRPCRoute")
    given = FEATURES["grpc route"]["grpcRoute"]
    assert route["metadata"]["annotations"] == annotations
    assert route["spec"]["parentRefs"] == given["parentRefs"]
    assert route["spec"]["hostnames"] == given["hostnames"]
    assert route["spec"]["rules"][0]["matches"] == given["matches"]


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer"])
def test_metrics_port_is_never_published(kind: str) -> None:
    service, headless = of_kind(rendered({"service": {"type": kind}}), "Service")
    assert service["spec"]["type"] == kind
    assert [port["name"] for port in service["spec"]["ports"]] == ["grpc"]
    assert headless["spec"]["clusterIP"] == "None"
    assert [port["name"] for port in headless["spec"]["ports"]] == ["grpc", "metrics"]


def test_chart_metadata_for_catalogues_is_complete() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    icon = about["icon"].removeprefix("https://raw.githubusercontent.com/attnbias/attnbias/main/")
    assert (ROOT / icon).is_file()
    assert about["home"] in about["sources"]
    assert [sorted(one) for one in about["maintainers"]] == [["name", "url"]]


def test_ingress_defaults_to_all_paths() -> None:
    [ingress] = of_kind(made("ingress"), "Ingress")
    paths = {rule["host"]: rule["http"]["paths"][0]["path"] for rule in ingress["spec"]["rules"]}
    assert paths == {"attnbias.example.org": "/", "example.org": "/grpc"}


def test_table_and_checkpoint_flags_are_rendered() -> None:
    assert further_settings("tables of a claim") == {"tables": "/var/lib/attnbias/tables/t/small"}
    assert further_settings("tables of a config map") == {"tables": "/var/lib/attnbias/tables"}
    assert further_settings("tables of a remote") == {"tables": "/var/lib/attnbias/remote/tables"}
    assert further_settings("checkpoints") == {
        "checkpoint": [
            "t5-small=/var/lib/attnbias/checkpoints/t5-small/t5/small",
            "bert=/var/lib/attnbias/checkpoints/bert",
            "fetched=/var/lib/attnbias/remote/checkpoints/fetched",
        ]
    }


def test_remotes_are_fetched_before_start_and_kept_current() -> None:
    one, three = pod_of(made("tables of a remote")), pod_of(made("checkpoints"))
    for pod, pairs in (
        (one, ["s3:models/tables", "/var/lib/attnbias/remote/tables"]),
        (three, [":http,url='https://example.org':t5 small", CHECKPOINT_OF_A_REMOTE]),
    ):
        [fetch] = pod["initContainers"]
        server, refresh = pod["containers"]
        assert server["name"] == "attnbias"
        assert fetch["args"] == refresh["args"] == pairs
        assert fetch["image"] == refresh["image"] == "rclone/rclone:1.75.2"
        assert fetch["securityContext"] == refresh["securityContext"] == server["securityContext"]
    retries = [
        {"name": name, "value": "1"} for name in ("RCLONE_RETRIES", "RCLONE_LOW_LEVEL_RETRIES")
    ]
    variables = {"name": "RCLONE_CONFIG", "value": "/etc/rclone/rclone.conf"}
    for container in (one["initContainers"][0], one["containers"][1]):
        assert container["env"] == [*retries, variables]
        assert {"name": "rclone", "mountPath": "/etc/rclone", "readOnly": True} in (
            container["volumeMounts"]
        )
    assert {"name": "rclone", "secret": {"secretName": "rclone"}} in one["volumes"]
    assert "while sleep 5 &" in one["containers"][1]["command"][2]
    assert three["containers"][1]["env"] == retries


def test_precompute_is_rendered_as_a_file() -> None:
    file = files_of(made("precompute"))["precompute.json"]
    assert json.loads(file) == FEATURES["precompute"]["precompute"]
    assert further_settings("precompute") == {"precompute": "/etc/attnbias/config/precompute.json"}


def test_changed_configuration_triggers_rollout() -> None:
    def annotations(values: Values) -> dict[str, str]:
        return dict(workload(rendered(values))["spec"]["template"]["metadata"]["annotations"])

    spec = FEATURES["precompute"]["precompute"][0]
    changes: list[Values] = [
        {},
        {"extraFlags": ["--log-format=json"]},
        {"extraFlags": ["--log-format=text"]},
        {"precompute": [spec]},
        {"precompute": [spec | {"scale": 2}]},
    ]
    sums = {annotations(change)["checksum/config"] for change in changes}
    assert len(sums) == len(changes)
    assert annotations({"replicaCount": 5}) == annotations({})


def test_tls_certificate_is_mounted() -> None:
    [certificate] = of_kind(made("tls of cert-manager"), "Certificate")
    _, volume = pod_of(made("tls of cert-manager"))["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    names = certificate["spec"]["dnsNames"]
    assert {"attnbias-headless", "localhost", "attnbias.example.org"} <= set(names)
    [service, _] = of_kind(made("tls of a secret"), "Service")
    assert service["spec"]["ports"][0]["appProtocol"] == "https"
    settings = settings_of(made("client certificates"))
    assert settings["tls-client-ca"] == "/etc/attnbias/tls-client-ca/ca.crt"


def test_network_policy_denies_all_other_traffic() -> None:
    [policy] = of_kind(made("network policy"), "NetworkPolicy")
    spec = policy["spec"]
    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
    given = FEATURES["network policy"]["networkPolicy"]
    assert spec["egress"] == given["egress"]
    assert [rule["from"] for rule in spec["ingress"]] == [
        [{"podSelector": {}}],
        given["metricsFrom"],
    ]
    [closed] = of_kind(rendered({"networkPolicy": {"enabled": True}}), "NetworkPolicy")
    assert closed["spec"]["egress"] == []


def test_network_policy_allows_rclone_egress() -> None:
    own = {"ports": [{"port": 9000}], "to": [{"podSelector": {}}]}
    policy = {"networkPolicy": {"enabled": True, "egress": [own]}}
    [open_] = of_kind(rendered(merged(policy, FEATURES["tables of a remote"])), "NetworkPolicy")
    first, second = open_["spec"]["egress"]
    assert first == own
    assert [(one["protocol"], one["port"]) for one in second["ports"]] == [
        ("UDP", 53),
        ("TCP", 53),
        ("TCP", 443),
    ]
    [closed] = of_kind(rendered(policy), "NetworkPolicy")
    assert closed["spec"]["egress"] == [own]


def test_socket_listens_in_addition_to_port() -> None:
    assert further_settings("socket") == {
        "listen": ["[::]:50051", f"unix:{SOCKET}/attnbias.sock"],
        "socket-mode": "0666",
    }
    [first] = pod_of(made("socket"))["initContainers"]
    assert first["command"] == ["chown", "65532:65532", SOCKET]
    user = pod_of(made("socket"))["securityContext"]
    assert (user["runAsUser"], user["runAsGroup"]) == (65532, 65532)
    other = FEATURES["socket"] | {"podSecurityContext": {"runAsUser": 0, "runAsGroup": 7}}
    [first] = pod_of(rendered(other))["initContainers"]
    assert first["command"][1] == "0:7"


def test_scrape_annotations_yield_to_monitor_and_user() -> None:
    def annotations(case: str) -> dict[str, str]:
        found = dict(workload(made(case))["spec"]["template"]["metadata"]["annotations"])
        del found["checksum/config"]
        return found

    assert annotations("service monitor") == {}
    assert annotations("placement") == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "1",
        "example.org/a": "b",
    }


def test_rules_and_dashboards_match_deploy_folder() -> None:
    rules = ROOT / "deploy" / "prometheus" / "rules.yaml"
    assert rules.samefile(CHART / "files" / "rules.yaml")
    [rule] = of_kind(made("prometheus rule"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(rules.read_text())
    assert rule["spec"]["groups"]

    dashboards = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
    assert dashboards
    _, shown = of_kind(made("dashboard"), "ConfigMap")
    assert shown["data"] == {path.name: path.read_text() for path in dashboards}
    for path in dashboards:
        assert path.samefile(CHART / "files" / "dashboards" / path.name)


def test_packaged_chart_renders_the_same(tmp_path: pathlib.Path) -> None:
    subprocess.run(
        ["helm", "package", CHART, "--destination", tmp_path], check=True, stdout=subprocess.DEVNULL
    )
    [package] = tmp_path.glob("*.tgz")
    fullest = max(CASES, key=lambda case: len(CASES[case]))
    assert rendered(together(CASES[fullest]), package) == made(fullest)


def test_releases_in_one_namespace_do_not_conflict() -> None:
    one = documents(helm("template", "one", CHART).stdout)
    other = documents(helm("template", "other", CHART).stdout)
    assert {one["metadata"]["name"] for one in one}.isdisjoint(
        other["metadata"]["name"] for other in other
    )
    labels = workload(one)["spec"]["template"]["metadata"]["labels"].items()
    assert not workload(other)["spec"]["selector"]["matchLabels"].items() <= labels


def test_names_stay_within_63_characters() -> None:
    longest = "r" * 53
    for resource in documents(helm("template", longest, CHART).stdout):
        assert len(resource["metadata"]["name"]) <= 63


def test_documented_command_renders_the_chart() -> None:
    [line] = re.findall(r"^\./dev (helm template .*)$", PAGE.read_text(), re.MULTILINE)
    made = subprocess.run(line.split(), cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert documents(made.stdout) == rendered({})


def test_notes_state_server_address(tmp_path: pathlib.Path) -> None:
    # Helm shows notes only on installation, so a copy of the chart has them as a resource.
    chart = shutil.copytree(CHART, tmp_path / "attnbias")
    templates = chart / "templates"
    text = (templates / "NOTES.txt").read_text()
    (templates / "_notes.tpl").write_text('{{ define "notes" }}' + text + "{{ end }}")
    (templates / "notes.yaml").write_text('{kind: Notes, text: {{ include "notes" . | quote }}}')

    def notes(case: str) -> str:
        [found] = of_kind(rendered(together(CASES[case]), chart), "Notes")
        return str(found["text"])

    assert "dns:///attnbias-headless.default:50051" in notes("nothing")
    assert "localhost:50051" in notes("nothing")
    assert "unix:" not in notes("nothing")
    assert "unix:/run/attnbias/attnbias.sock" in notes("socket")
    assert "WARNING: callers' tokens are sent in plaintext" in notes("tokens")
    assert "WARNING" not in notes("nothing")
    assert "port 9464 at /metrics" in notes("nothing")
    assert "Callers need" not in notes("nothing")
    assert "Callers need a token.\n" in notes("tokens")
    assert "Callers need a client certificate. The" in notes("client certificates")
    assert "--tls-ca ca.crt \\\n    --tls-cert FILE --tls-key FILE" in notes("client certificates")
    assert "localhost:50052" in notes("tls of cert-manager")
    assert "attnbias-tls" in notes("tls of cert-manager")


# Values that the schema rejects, and its messages.
REFUSED: list[tuple[Values, str]] = [
    ({"replicaCounts": 3}, "replicaCounts"),
    ({"resources": {"limit": {}}}, "limit"),
    ({"metrics": {"serviceMonitor": {"enable": True}}}, "enable"),
    ({"kind": "StatefulSet"}, "/kind"),
    ({"replicaCount": "3"}, "/replicaCount"),
    ({"replicaCount": -1}, "/replicaCount"),
    ({"replicaCount": None}, "replicaCount"),
    ({"fullnameOverride": "a.b"}, "/fullnameOverride"),
    ({"nameOverride": "a" * 64}, "/nameOverride"),
    ({"commonLabels": {"a": 1}}, "/commonLabels/a"),
    ({"image": {"repository": ""}}, "/image/repository"),
    ({"image": {"tag": "a b"}}, "/image/tag"),
    ({"image": {"pullPolicy": "always"}}, "/image/pullPolicy"),
    ({"image": {"digest": "sha256:0"}}, "/image/digest"),
    ({"imagePullSecrets": [{"secret": "registry"}]}, "/imagePullSecrets/0"),
    ({"resources": {"limits": {"cpu": "two"}}}, "/resources/limits/cpu"),
    ({"resources": {"limits": {"cpu": 0}}}, "/resources/limits/cpu"),
    ({"resources": {"requests": {"memory": "1GB"}}}, "/resources/requests/memory"),
    ({"cuda": {"gpus": 0.5}}, "/cuda/gpus"),
    ({"tables": {"persistentVolumeClaim": "a", "folder": "/a"}}, "/tables/folder"),
    ({"tables": {"persistentVolumeClaim": "a", "folder": "a/../.."}}, "/tables/folder"),
    ({"tables": {"persistentVolumeClaim": "Models"}}, "/tables/persistentVolumeClaim"),
    ({"checkpoints": [{"name": "a"}]}, "/checkpoints/0"),
    ({"checkpoints": [{"name": "a/b", "persistentVolumeClaim": "c"}]}, "/checkpoints/0/name"),
    ({"checkpoints": [{"name": "a", "remote": "s3:b", "folder": "c"}]}, "/checkpoints/0"),
    ({"checkpoints": [{"name": "a", "remote": ""}]}, "/checkpoints/0/remote"),
    ({"tables": {"remote": "models/tables"}}, "/tables/remote"),
    ({"tables": {"remote": "--config=:a"}}, "/tables/remote"),
    ({"rclone": {"periodSeconds": 0}}, "/rclone/periodSeconds"),
    ({"precompute": "specs.json"}, "/precompute"),
    ({"tls": {"certManager": {"issuer": "a", "kind": "issuer"}}}, "/tls/certManager/kind"),
    ({"auth": {"tokens": "secret"}}, "tokens"),
    ({"kind": "DaemonSet", "socket": {"hostPath": "run"}}, "/socket/hostPath"),
    ({"kind": "DaemonSet", "socket": {"mode": 432}}, "/socket/mode"),
    ({"service": {"type": "ExternalName"}}, "/service/type"),
    ({"service": {"port": 65536}}, "/service/port"),
    ({"service": {"type": "NodePort", "nodePort": "http"}}, "/service/nodePort"),
    (
        {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["192.0.2.1"]}},
        "/service/loadBalancerSourceRanges/0",
    ),
    ({"ingress": {"hosts": ["example.org"]}}, "/ingress/hosts/0"),
    ({"ingress": {"hosts": [{"host": "a", "paths": ["/"]}]}}, "/ingress/hosts/0/paths/0"),
    ({"grpcRoute": {"hostnames": ["*"]}}, "/grpcRoute/hostnames/0"),
    ({"podDisruptionBudget": {"maxUnavailable": "half"}}, "/podDisruptionBudget/maxUnavailable"),
    ({"startupProbe": {"periodSecond": 1}}, "periodSecond"),
    ({"extraVolumes": [{"emptyDir": {}}]}, "/extraVolumes/0"),
    ({"networkPolicy": {"enabled": True, "grpcFrom": []}}, "/networkPolicy/grpcFrom"),
    ({"networkPolicy": {"enabled": True, "grpcFrom": [{}]}}, "/networkPolicy/grpcFrom/0"),
    ({"autoscaling": {"targetCPUUtilizationPercentage": -1}}, "/autoscaling/targetCPU"),
    ({"metrics": {"serviceMonitor": {"interval": "30"}}}, "/metrics/serviceMonitor/interval"),
    ({"maxSurge": "25%"}, "/maxSurge"),
    ({"extraFlags": ["log-format=json"]}, "/extraFlags/0"),
    ({"extraEnv": [{"value": "a"}]}, "/extraEnv/0"),
    ({"podLabels": {"a": 1}}, "/podLabels/a"),
]


@pytest.mark.parametrize(("values", "named"), REFUSED, ids=str)
def test_invalid_values_are_rejected(values: Values, named: str) -> None:
    said = helm("template", "attnbias", CHART, values=values)
    assert said.returncode != 0
    assert "schema" in said.stderr
    assert named in said.stderr


# Incompatible values, and the chart's advice.
UNFIT: list[tuple[Values, str]] = yaml.safe_load("""
- - {image: {repository: example.org:5000/attnbias:1}}
  - 'image.repository: got "example.org:5000/attnbias:1", want the tag in image.tag'
- - {imagePullSecrets: [{name: a}, registry]}
  - 'imagePullSecrets: got "registry", want {name: registry}'
- - {tables: {configMap: a, persistentVolumeClaim: b}}
  - 'tables.configMap: got "a" together with tables.persistentVolumeClaim, want one of them'
- - {tables: {configMap: a, remote: "s3:b"}}
  - 'tables.remote: got "s3:b" together with tables.configMap or tables.persistentVolumeClaim'
- - {tables: {persistentVolumeClaim: a, folder: it's}}
  - 'tables: got "/var/lib/attnbias/tables/it''s", want a value without '' and #'
- - {extraFlags: ["--table=a=/b#c"]}
  - 'table: got "a=/b#c", want a value without'
- - {extraFlags: ['--table=a=\\']}
  - 'table: got "a=\\\\", want a value without'
- - {extraFlags: [--config=/a]}
  - 'extraFlags: got "--config=/a", want none: the chart renders the file'
- - {tables: {folder: a}}
  - 'tables.folder: got "a", want tables.persistentVolumeClaim as well'
- - {tls: {secret: a, certManager: {issuer: b}}}
  - 'tls.secret: got "a" together with tls.certManager.issuer, want one of them'
- - {tls: {clientCaSecret: a}}
  - 'tls.clientCaSecret: got "a", want tls.secret or tls.certManager.issuer as well'
- - {auth: {policySecret: a}}
  - 'auth.policySecret: got "a", want auth.tokensSecret or tls.clientCaSecret as well'
- - {socket: {hostPath: /run/attnbias}}
  - 'socket.hostPath: got "/run/attnbias", want kind: DaemonSet: two replicas'
- - {kind: DaemonSet, autoscaling: {enabled: true}}
  - 'autoscaling.enabled: got true, want kind: Deployment: a DaemonSet has'
- - autoscaling:
      enabled: true
      targetCPUUtilizationPercentage: 0
      targetMemoryUtilizationPercentage: 0
  - 'autoscaling.enabled: got true, want a metric as well'
- - {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}
  - 'autoscaling.maxReplicas: got 2, want at least autoscaling.minReplicas, 3'
- - {service: {type: NodePort, loadBalancerSourceRanges: [192.0.2.0/24]}}
  - 'service.loadBalancerSourceRanges: got ["192.0.2.0/24"], want service.type: LoadBalancer'
- - {service: {nodePort: 30051}}
  - 'service.nodePort: got 30051, want service.type: NodePort or LoadBalancer as well'
- - {ingress: {enabled: true}}
  - 'ingress.enabled: got true, want ingress.hosts as well'
- - {grpcRoute: {enabled: true}}
  - 'grpcRoute.enabled: got true, want grpcRoute.parentRefs as well'
- - {extraFlags: [--threads=8]}
  - 'extraFlags: got "--threads=8", want the value resources.limits.cpu'
- - {extraFlags: [--tls-cert=/a]}
  - 'extraFlags: got "--tls-cert=/a", want the value tls.secret'
- - {extraFlags: [--oip=false, --policy]}
  - 'extraFlags: got "--policy", want the value auth.p'
- - {extraFlags: [--drain-grace=1m]}
  - 'extraFlags: got "--drain-grace=1m", want the value drainGraceSeconds'
- - {extraEnv: [{name: ATTNBIAS_SHUTDOWN_DELAY, value: 1m}]}
  - 'extraEnv: got "ATTNBIAS_SHUTDOWN_DELAY", want the value shutdownDelaySeconds'
""")


@pytest.mark.parametrize(("values", "complaint"), UNFIT, ids=str)
def test_conflicting_values_are_rejected(values: Values, complaint: str) -> None:
    said = helm("template", "attnbias", CHART, values=values)
    assert said.returncode != 0
    assert f": {complaint}" in said.stderr


def values_of_other_charts() -> dict[str, str]:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    [table] = re.findall(r'"attnbias.valuesOfOtherCharts" -}}\n(.*?)\n{{- end', helpers, re.S)
    return yaml.safe_load(table)


@pytest.mark.parametrize("given", ["a", []])
@pytest.mark.parametrize(("name", "replacement"), values_of_other_charts().items())
def test_values_of_other_charts_are_rejected(name: str, replacement: str, given: Any) -> None:
    said = helm("template", "attnbias", CHART, values={name: given})
    assert f"{name}: got {json.dumps(given)}, want the value {replacement}" in said.stderr
    value = yaml.safe_load((CHART / "values.yaml").read_text())
    for part in replacement.split("."):
        value = value[part]


def test_schema_and_helpers_list_the_same_values_of_other_charts() -> None:
    patterns = json.loads((CHART / "values.schema.json").read_text())["patternProperties"]
    names = {name for pattern in patterns for name in pattern.strip("^$()").split("|")}
    assert names == values_of_other_charts().keys()


def test_image_repository_may_have_a_port() -> None:
    repository = "example.org:5000/attnbias"
    made = server_of(rendered({"image": {"repository": repository}}))
    assert made["image"].startswith(f"{repository}:")


def test_digest_replaces_tag() -> None:
    digest = "sha256:" + 64 * "0"
    pinned = {"tag": "1", "digest": digest}
    images = {"image": pinned, "rclone": {"image": pinned}}
    found = rendered(merged(FEATURES["tables of a remote"], images))
    assert [one["image"] for one in pod_of(found)["containers"]] == [
        f"attnbias@{digest}",
        f"rclone/rclone@{digest}",
    ]


def test_equal_minimum_and_maximum_of_replicas_are_accepted() -> None:
    assert rendered({"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 3}})


@pytest.mark.parametrize(("delay", "grace"), [(5, 30), (0, 0), (20, 0), (60, 3600)])
def test_grace_period_exceeds_drain(delay: int, grace: int) -> None:
    found = rendered({"shutdownDelaySeconds": delay, "drainGraceSeconds": grace})
    settings = settings_of(found)
    assert (settings["shutdown-delay"], settings["drain-grace"]) == (f"{delay}s", f"{grace}s")
    # Cancelled calls get 2 s, and traces get 1 s.
    assert pod_of(found)["terminationGracePeriodSeconds"] > delay + grace + 3


def test_drain_defaults_match_server() -> None:
    usage = run_server("--help").stdout
    for name in ("shutdown-delay", "drain-grace"):
        assert f"--{name} DURATION={settings_of(made('nothing'))[name]} " in usage


def test_the_schema_lists_every_value() -> None:
    def compare(schema: dict[str, Any], values: Values, where: str) -> None:
        assert schema["additionalProperties"] is False, where
        assert sorted(schema["required"]) == sorted(values), where
        assert set(schema["properties"]) - {"global"} == set(values), where
        for name, value in values.items():
            if "properties" in (inner := schema["properties"][name]):
                compare(inner, value, f"{where}.{name}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    compare(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "values")


def test_chart_works_as_subchart(tmp_path: pathlib.Path) -> None:
    """Helm adds a `global` value to a subchart."""
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "attnbias").symlink_to(CHART)
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: above, version: 0.1.0}")
    assert workload(rendered({"attnbias": {"replicaCount": 3}}, tmp_path))["spec"]["replicas"] == 3


def test_every_value_is_described() -> None:
    rows = re.findall(r"^\| `.*\|$", (CHART / "README.md").read_text(), re.MULTILINE)
    assert rows
    assert [row for row in rows if not row.endswith(". |")] == []


def test_documented_values_are_accepted() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(shown) == 8
    for block in shown:
        assert rendered(yaml.safe_load(block)) != made("nothing")
