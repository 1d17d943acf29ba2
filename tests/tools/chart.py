# SPDX-License-Identifier: Apache-2.0
"""Writes deploy/kubernetes, which ./dev chart generates from the chart.

Usage: python -m tests.tools.chart [--check]

With --check nothing is written, and a file that is not current is an error. The manifests are those
of the default values, without Helm's own labels.
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


def main() -> None:
    renew({MANIFESTS: manifests()}, "./dev chart")


if __name__ == "__main__":
    main()
