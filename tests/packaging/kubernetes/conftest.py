# SPDX-License-Identifier: Apache-2.0
"""One cluster for all tests, and their figures."""

import pytest

from tests.load.attack.conftest import (  # noqa: F401  # hooks and a fixture for pytest
    figures,
    pytest_configure,
    pytest_terminal_summary,
)
from tests.packaging.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster()
