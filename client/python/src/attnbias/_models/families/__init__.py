# SPDX-License-Identifier: Apache-2.0
"""Families of models, grouped by the way in which they get positions from a server."""
