# SPDX-License-Identifier: Apache-2.0
"""The folder that caches tensors, and fetching through it."""
