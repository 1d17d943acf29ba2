# SPDX-License-Identifier: Apache-2.0
"""Families of models, each of which takes its positions from a server in one way."""
