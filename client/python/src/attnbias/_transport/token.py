# SPDX-License-Identifier: Apache-2.0
"""The bearer token that says who calls."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attnbias._checks import require_instance
from attnbias._transport.watched import Watched, read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADER: Final = "authorization"
_VARIABLE: Final = "ATTNBIAS_CLIENT_TOKEN"
_FILE_VARIABLE: Final = f"{_VARIABLE}_FILE"
_TOKEN: Final = re.compile(r"[!-~]+")  # what ASCII has to see


class Token:
    """A token, or the file that holds it.

    Args:
        token: text is the token itself, a path the file.
        name: what errors call it.

    Raises:
        ValueError: the file cannot be read, or holds no token; or the text is none.
    """

    def __init__(self, token: str | os.PathLike[str], name: str) -> None:
        self.name = name
        if isinstance(token, str):
            self._held = Watched([], lambda: _checked(token, f"{name}: got text that is no token"))
        else:
            file = Path(token).expanduser()
            self._held = Watched([file], lambda: _in_file(file, name))

    def as_metadata(self) -> tuple[str, str]:
        """What a call carries; of a file what it holds now."""
        self._held.renew()
        return _HEADER, f"Bearer {self._held.value}"


def _in_file(file: Path, name: str) -> str:
    text = read_bytes(file, name).decode("ascii", "replace")
    return _checked(text.strip(), f"{name}: got {str(file)!r}, which does not hold a token")


def _checked(token: str, got: str) -> str:
    if _TOKEN.fullmatch(token):
        return token
    raise ValueError(f"{got}; want visible characters of ASCII, without spaces")


def token_from(
    token: str | os.PathLike[str] | None, metadata: Sequence[tuple[str, str | bytes]]
) -> Token | None:
    """What a client's ``token`` means; None is no token.

    Args:
        token: None is what the environment says, unless the metadata say who calls; "" is none.
        metadata: what each call carries besides.

    Raises:
        TypeError: it is neither text nor a path.
        ValueError: see ``Token``; or the metadata say who calls, too.
    """
    want = "the token as a str, or its file as a pathlib.Path"
    require_instance(token, (str, os.PathLike, type(None)), "token", want)
    is_said = any(key.lower() == _HEADER for key, _ in metadata)
    if token is None and not is_said:
        if file := os.environ.get(_FILE_VARIABLE):
            return Token(Path(file), _FILE_VARIABLE)
        if literal := os.environ.get(_VARIABLE):
            return Token(literal, _VARIABLE)
    if not token:
        return None
    if is_said:
        raise ValueError(f"token: got one beside {_HEADER!r} in metadata; want one of the two")
    return Token(token, "token")
