# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams Transformers' position tensors.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from typing import TYPE_CHECKING

from attnbias import _encodings, _errors, _models, _presets, aio
from attnbias._cache import Cache, CacheEntry
from attnbias._client import Client
from attnbias._config import from_config
from attnbias._encodings import *  # noqa: F403  # it has __all__
from attnbias._errors import *  # noqa: F403  # it has __all__
from attnbias._fields import Encoding, LogitsTerm
from attnbias._files import load, save
from attnbias._grid import BlockToeplitz, BorderedToeplitz
from attnbias._grid_table import GridTable
from attnbias._info import ServerInfo, ServerLimits, TensorInfo, TensorPart
from attnbias._local_server import LocalServer
from attnbias._logits import LogitsOptions
from attnbias._mask import Mask
from attnbias._models import *  # noqa: F403  # it has __all__
from attnbias._options import RequestOptions
from attnbias._plot import plot
from attnbias._presets import *  # noqa: F403  # it has __all__
from attnbias._request import Request
from attnbias._results import RotaryTables, XposTables
from attnbias._ring import RingShard
from attnbias._shards import shard_indices
from attnbias._structure import MAX_IMPLICIT_BYTES, Structure
from attnbias._tables import TableInfo
from attnbias._tensors import KeyRow, Toeplitz
from attnbias._tls import Tls
from attnbias._torch import to_torch
from attnbias.transformers import attach

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'attnbias' has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415  # only few ask

    return version("attnbias")


__all__ = [
    "MAX_IMPLICIT_BYTES",
    "BlockToeplitz",
    "BorderedToeplitz",
    "Cache",
    "CacheEntry",
    "Client",
    "Encoding",
    "GridTable",
    "KeyRow",
    "LocalServer",
    "LogitsOptions",
    "LogitsTerm",
    "Mask",
    "Request",
    "RequestOptions",
    "RingShard",
    "RotaryTables",
    "ServerInfo",
    "ServerLimits",
    "Structure",
    "TableInfo",
    "TensorInfo",
    "TensorPart",
    "Tls",
    "Toeplitz",
    "XposTables",
    "__version__",
    "aio",
    "attach",
    "from_config",
    "load",
    "plot",
    "save",
    "shard_indices",
    "to_torch",
]
__all__ += _encodings.__all__
__all__ += _errors.__all__
__all__ += _models.__all__
__all__ += _presets.__all__
