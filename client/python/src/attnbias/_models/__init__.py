# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers: their encodings, and replacing their positions."""
