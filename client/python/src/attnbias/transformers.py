# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers that take their positions from a server.

Imports torch and transformers only when it is used.
"""

from attnbias._models.attach import Attached, Replacement, attach

__all__ = ["Attached", "Replacement", "attach"]
