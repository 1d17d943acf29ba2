# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers: their encodings, and how they take positions."""
