# SPDX-License-Identifier: Apache-2.0
"""The programs of attnbias, `attnbias-server` and `attnbias`, with the libraries they need."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PROGRAMS"]

#: The folder that holds the two programs.
PROGRAMS = Path(__file__).parent / "bin"
