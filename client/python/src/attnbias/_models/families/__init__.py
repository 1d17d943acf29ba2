# SPDX-License-Identifier: Apache-2.0
"""Families of models, by the way in which they take positions from a server."""
