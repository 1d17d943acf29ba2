# SPDX-License-Identifier: Apache-2.0
"""The folder that keeps tensors, and the way to a tensor through it."""
