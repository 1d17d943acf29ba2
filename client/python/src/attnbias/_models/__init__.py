# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers: their encodings, and the replacement of their positions."""
