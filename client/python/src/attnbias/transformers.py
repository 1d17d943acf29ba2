# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers models that get their positions from a server.

Imports torch and transformers only when used.
"""

from attnbias._models.attach import Attached, Replacement, attach

__all__ = ["Attached", "Replacement", "attach"]
