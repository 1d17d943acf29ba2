# SPDX-License-Identifier: Apache-2.0
"""Tensors as arrays: compact structures, masks, shards, torch and JAX."""
