# SPDX-License-Identifier: Apache-2.0
"""A model without weights, as a configuration describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import transformers

if TYPE_CHECKING:
    from pathlib import Path


def empty_model(config: Path) -> Any:
    """A model whose parameters have shapes, and no numbers.

    Raises:
        ValueError: transformers does not make a model of it.
    """
    try:
        read = transformers.AutoConfig.from_pretrained(config)
        with torch.device("meta"):
            # Whatever attention runs with, positions are the same.
            return transformers.AutoModel.from_config(read, attn_implementation="eager")
    except Exception as error:  # of transformers and what it checks by, which raise many kinds
        raise ValueError(f"{config}: transformers does not take it: {error}") from error
