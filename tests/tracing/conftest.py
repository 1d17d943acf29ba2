# SPDX-License-Identifier: Apache-2.0
"""Servers of a test's own."""

from tests.integration.conftest import start_server

__all__ = ["start_server"]
