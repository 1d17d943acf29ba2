# SPDX-License-Identifier: Apache-2.0
"""Writes the files generated from the chart, for ./dev chart: its README, and deploy/kubernetes.

Usage: python -m tests.tools.chart [--check]

With --check nothing is written, and an outdated file is an error. helm-docs makes the README from
README.md.gotmpl and the comments in values.yaml. The manifests are rendered from the default
values, without Helm's own labels.
"""

import re
import subprocess
from pathlib import Path

from tests.tools.renew import renew

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/attnbias"
MANIFESTS = ROOT / "deploy/kubernetes/attnbias.yaml"
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# Generated from deploy/helm/attnbias by ./dev chart. Do not edit.
"""
LEFT_OUT = re.compile(
    r"^(# Source|  *helm\.sh/chart|  *app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE
)


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def manifests() -> str:
    return HEAD + LEFT_OUT.sub("", output("helm", "template", "attnbias", CHART, "--skip-tests"))


def readme() -> str:
    options = ("--dry-run", "--sort-values-order=file", "--log-level=warning")
    return output("helm-docs", f"--chart-search-root={CHART}", *options)


def main() -> None:
    renew({CHART / "README.md": readme(), MANIFESTS: manifests()}, "./dev chart")


if __name__ == "__main__":
    main()
