# SPDX-License-Identifier: Apache-2.0
"""Client for attnbias, which computes, caches and streams position tensors of Transformers.

with attnbias.Client("localhost:50051") as client:
    table = client.get(attnbias.Sinusoidal(dim=512), positions=131072)
"""

from typing import TYPE_CHECKING

from attnbias import _errors, aio
from attnbias._arrays.axes import shard_indices
from attnbias._arrays.convert import to_torch
from attnbias._arrays.grid import BlockToeplitz, BorderedToeplitz
from attnbias._arrays.mask import Mask
from attnbias._arrays.structure import MAX_IMPLICIT_BYTES, RingShard, Structure
from attnbias._arrays.tables import GridTable, RotaryTables, XposTables
from attnbias._arrays.toeplitz import KeyRow, Toeplitz
from attnbias._cache.cache import Cache, CacheEntry
from attnbias._client import Client
from attnbias._errors import *  # noqa: F403  # defines __all__
from attnbias._files import load, save
from attnbias._local_server import LocalServer
from attnbias._models import rotary_places as _rotary_places
from attnbias._models.config import from_config
from attnbias._models.rotary_places import *  # noqa: F403  # defines __all__
from attnbias._plot import plot
from attnbias._spec import encodings as _encodings
from attnbias._spec import presets as _presets
from attnbias._spec.encodings import *  # noqa: F403  # defines __all__
from attnbias._spec.fields import Encoding, LogitsTerm, TableInfo
from attnbias._spec.info import ServerInfo, ServerLimits, TensorInfo, TensorPart
from attnbias._spec.options import RequestOptions
from attnbias._spec.presets import *  # noqa: F403  # defines __all__
from attnbias._spec.request import LogitsOptions, Request
from attnbias._transport.credentials import Tls
from attnbias.transformers import attach

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'attnbias' has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415  # rarely needed

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
__all__ += _rotary_places.__all__
__all__ += _presets.__all__
