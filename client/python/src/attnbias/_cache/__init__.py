# SPDX-License-Identifier: Apache-2.0
"""The folder in which tensors are cached, and fetching through it."""
