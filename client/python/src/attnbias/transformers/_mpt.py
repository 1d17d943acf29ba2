# SPDX-License-Identifier: Apache-2.0
"""MPT: ALiBi that counts from the last key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from transformers.models.mpt.modeling_mpt import MptModel

from attnbias.transformers import _alibi
from attnbias.transformers._family import Family, Site, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from attnbias._tensors import KeyRow
    from attnbias.transformers._changes import Changes


def _sites(wanted: Wanted) -> Iterator[Site]:
    for path, module in wanted.modules(MptModel):
        request = _alibi.row_request(module, wanted.max_length)
        yield Site(path, "build_mpt_alibi_tensor", module, request, _with_row, 0)


def _with_row(changes: Changes, model: Any, answer: KeyRow) -> None:
    _alibi.add_row(changes, model, answer)
    changes.set_method(model, "build_mpt_alibi_tensor", _alibi_tensor)
    changes.add_pre_hook(model, _alibi.check_length)


def _alibi_tensor(model: Any, *_: Any, **__: Any) -> torch.Tensor:
    # Its attention takes the last keys. With as many as the model was attached with, a sequence
    # may be longer than the configuration's max_seq_len.
    return _alibi.row_of(model)[:, None]


FAMILY: Final = Family(attentions=("eager",), sites=_sites)
