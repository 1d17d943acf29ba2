# SPDX-License-Identifier: Apache-2.0
"""Alerts fire as expected and link to a page; alerts and panels use existing metrics."""

import copy
import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.server import Server

ROOT = pathlib.Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
RULES_TEST = RULES.with_name("rules_test.yaml")
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "attnbias.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PAGE = ROOT / "docs" / "operations" / "runbook.md"
WATCH = PAGE.with_name("watch.md")
PAGE_URL = "https://github.com/attnbias/attnbias/blob/main/docs/operations/runbook.md"

ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
# Labels that Prometheus adds to a target's series.
TARGET_LABELS = {"namespace": "n", "job": "j", "instance": "i"}
# Values that Grafana substitutes for its variables if "All" is selected for each.
VARIABLES = {"__rate_interval": "5m"} | dict.fromkeys(
    ["namespace", "job", "instance", "method"], ".*"
)

Sample = dict[str, str]


def promtool(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def expression_of(target: dict[str, Any]) -> str:
    return re.sub(r"\$(\w+)", lambda name: VARIABLES[name[1]], target["expr"])


# tests/packaging/envoy checks Envoy's metrics.
OF_EDGE = "envoy_"
EDGE_EXPRESSIONS = [rule["expr"] for rule in ALERTS if OF_EDGE in rule["expr"]]
EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in ALERTS if OF_EDGE not in rule["expr"]] + [
    (panel["title"], expression_of(target)) for panel in PANELS for target in panel["targets"]
]


@pytest.fixture(scope="module")
def exposition(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("access")
    (folder / "tokens").write_text(f"someone sha256:{'0' * 64}\n")
    pair = Authority(folder).sign("server")
    tls = (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")
    with Server(*tls, f"--tokens={folder / 'tokens'}") as server:
        return server.exposition()


@pytest.fixture(scope="module")
def samples(exposition: str) -> list[Sample]:
    """Returns the labels, including __name__, of the server's samples and of Prometheus' own."""
    return [*samples_of(exposition), {"__name__": "up"}]


def samples_of(exposition: str) -> list[Sample]:
    lines = [line for line in exposition.splitlines() if not line.startswith("#")]
    return [labels_of(line.rsplit(" ", 1)[0]) for line in lines]


def labels_of(series: str) -> Sample:
    selector = promql_parser.parse(series)
    labels = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
    return labels | {"__name__": selector.name}


def nodes(expression: Any, kind: type) -> Iterator[Any]:
    """Yields the nodes of this kind in an expression."""
    found: list[Any] = []
    promql_parser.walk(expression, found.append)
    return (node for node in found if isinstance(node, kind))


def unknown(expression: str, samples: list[Sample]) -> list[str]:
    """Returns names in an expression that no sample has: metrics, labels and label values."""
    parsed = promql_parser.parse(expression)
    selectors = list(nodes(parsed, promql_parser.VectorSelector))
    assert selectors
    missing = [what for selector in selectors for what in unknown_of(selector, samples)]
    for aggregation in nodes(parsed, promql_parser.AggregateExpr):
        inner = {one.name for one in nodes(aggregation.expr, promql_parser.VectorSelector)}
        known = {label for s in samples if s["__name__"] in inner for label in s}
        grouped = aggregation.modifier.labels if aggregation.modifier else []
        missing += [label for label in grouped if label not in known | TARGET_LABELS.keys()]
    return missing


def unknown_of(selector: Any, samples: list[Sample]) -> Iterator[str]:
    named = [sample for sample in samples if sample["__name__"] == selector.name]
    if not named:
        yield selector.name
        return
    for matcher in selector.matchers.matchers:
        if matcher.name in TARGET_LABELS:
            continue
        values = {sample.get(matcher.name, "") for sample in named}
        for value in matcher.value.split("|"):
            if not any(re.fullmatch(value, one) for one in values if one):
                yield f'{selector.name}{{{matcher.name}="{value}"}}'


def test_promtool_accepts_the_alerts() -> None:
    checked = promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in checked.stdout


def test_alerts_fire_only_when_expected() -> None:
    tested = promtool("test", "rules", RULES_TEST)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("always", ["vector(1)", "vector(0) > 1"], ids=["always", "never"])
@pytest.mark.parametrize("index", range(len(ALERTS)))
def test_constant_alert_fails_rule_tests(tmp_path: pathlib.Path, index: int, always: str) -> None:
    rules = copy.deepcopy(ALERTS)
    rules[index]["expr"] = always
    (tmp_path / RULES.name).write_text(
        yaml.safe_dump({"groups": [{"name": "attnbias", "rules": rules}]})
    )
    (tmp_path / RULES_TEST.name).write_text(RULES_TEST.read_text())
    tested = promtool("test", "rules", tmp_path / RULES_TEST.name)
    assert tested.returncode == 1
    assert ALERTS[index]["alert"] in tested.stdout + tested.stderr


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_has_severity_and_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"{PAGE_URL}#{rule['alert'].lower()}"


def test_page_has_one_section_per_alert() -> None:
    """Each section starts with the alert's severity, in the order of the rules."""
    alerts = PAGE.read_text().partition("\n## Alerts\n")[2]
    _, *parts = re.split("^### (.*)$", alerts, flags=re.MULTILINE)
    severities: dict[str, list[str]] = {}
    for rule in ALERTS:
        severities.setdefault(rule["alert"], []).append(rule["labels"]["severity"])
    written = zip(parts[::2], map(severities_of, parts[1::2]), strict=True)
    assert list(written) == list(severities.items())


def severities_of(section: str) -> list[str]:
    return [word.lower() for word in re.findall(r"\*\*(\w+)\.?\*\*", section)]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_server_exports_every_named_metric(
    title: str, expression: str, samples: list[Sample]
) -> None:
    assert unknown(expression, samples) == [], title


def test_server_exports_series_of_alert_tests(samples: list[Sample]) -> None:
    tested = series_of_tests()
    assert tested
    assert [one for one in tested if one not in samples] == []


def series_of_tests(*, edge: bool = False) -> list[Sample]:
    """Returns the labels of the series in alert tests, either the server's or Envoy's."""
    tests = yaml.safe_load(RULES_TEST.read_text())["tests"]
    given = {series["series"] for test in tests for series in test["input_series"]}
    return [
        {name: value for name, value in labels_of(series).items() if name not in TARGET_LABELS}
        for series in given
        if series.startswith(OF_EDGE) == edge
    ]


@pytest.mark.parametrize(
    ("wrong", "missing"),
    [
        ("attnbias_redy", ["attnbias_redy"]),
        ("sum by (phase, metod) (rate(attnbias_phase_seconds_sum[5m]))", ["metod"]),
        (
            'rate(attnbias_phase_seconds_sum{phase=~"plan|wit"}[5m])',
            ['attnbias_phase_seconds_sum{phase="wit"}'],
        ),
        ('attnbias_ready{phase="plan"}', ['attnbias_ready{phase="plan"}']),
    ],
)
def test_missing_metric_is_reported(wrong: str, missing: list[str], samples: list[Sample]) -> None:
    assert unknown(wrong, samples) == missing


def test_metrics_pass_promtool_checks(exposition: str) -> None:
    checked = promtool("check", "metrics", input=exposition)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_documented_scrape_config_is_valid(tmp_path: pathlib.Path) -> None:
    [shown] = re.findall(r"^```yaml\n(.*?)^```$", WATCH.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "prometheus.yml").write_text(shown)
    checked = promtool("check", "config", tmp_path / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_panels_are_complete() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for sourced in panel, *panel["targets"]:
            assert sourced["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_dashboard_variables_query_existing_metrics(samples: list[Sample]) -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert variables.pop("datasource")["type"] == "datasource"
    assert variables.keys() == VARIABLES.keys() - {"__rate_interval"}
    for variable in variables.values():
        assert variable["allValue"] == ".*"
        query = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        assert query is not None
        selector = expression_of({"expr": query[1]})
        assert unknown(f"count by ({query[2]}) ({selector})", samples) == []


def test_every_panel_expression_has_a_result(samples: list[Sample], tmp_path: pathlib.Path) -> None:
    """If all counters increase, every expression has a result."""
    series = [
        {
            "series": sample["__name__"]
            + "{"
            + ",".join(
                f'{label}="{value}"'
                for label, value in (sample | TARGET_LABELS).items()
                if label != "__name__"
            )
            + "}",
            "values": "1+1x10",
        }
        for sample in samples
    ]
    expected = [
        {
            "expr": f"count({expression_of(target)}) > bool 0",
            "eval_time": "10m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for panel in PANELS
        for target in panel["targets"]
    ]
    file = tmp_path / "panels.yaml"
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expected}
    file.write_text(yaml.safe_dump({"tests": [test]}))
    tested = promtool("test", "rules", file)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_legends_use_labels_of_their_expression() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                groups = re.findall(r"\bby \((.*?)\)", target["expr"])
                shown = groups[0].split(", ") if groups else [*TARGET_LABELS]
                assert label in shown, panel["title"]
