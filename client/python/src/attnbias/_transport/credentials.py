# SPDX-License-Identifier: Apache-2.0
"""The client's certificates and bearer tokens.

The files that hold them are read again when they change.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import grpc

from attnbias._checks import require_instance

_Value = TypeVar("_Value")

_log: Final = logging.getLogger("attnbias")


class FileWatcher(Generic[_Value]):
    """The content of files, read again when one of them changes.

    A ValueError from ``read`` describes the fault. The first read raises it; later reads log it and
    keep the previous value.
    """

    def __init__(self, files: Sequence[Path], read: Callable[[], _Value]) -> None:
        self._files = files
        self._read = read
        self._seen = self._states()
        self.value = read()

    def renew(self) -> bool:
        """Rereads changed files; returns True if their content differs."""
        states = self._states()
        if states == self._seen:
            return False
        self._seen = states
        try:
            value = self._read()
        except ValueError as error:
            _log.warning("%s; keeping the previous content", error)
            return False
        changed = value != self.value
        self.value = value
        return changed

    def _states(self) -> list[object]:
        """Returns a value that changes with the files, computed before they are read."""

        def state(file: Path) -> object:
            try:
                status = os.stat(file)
            except OSError as error:
                return error.errno
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

        return [state(file) for file in self._files]


def read_bytes(file: Path, name: str) -> bytes:
    """Returns a file's bytes; raises ValueError naming ``name`` if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {str(file)!r}: {error.strerror}") from None


_ON: Final = "ATTNBIAS_CLIENT_TLS"
_FILES: Final = ("ca", "cert", "key")
_FIELDS: Final = (*_FILES, "server_name")
_ARGUMENTS: Final = {field: f"tls.{field}" for field in _FIELDS}
_VARIABLES: Final = {field: f"{_ON}_{field.upper()}" for field in _FIELDS}
_ROOTS_OF_GRPC: Final = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


@dataclass(frozen=True)
class Tls:
    """TLS settings: ``Client(target, tls=Tls(ca="/etc/attnbias/ca.pem"))``.

    Files are in PEM format. A changed file is read again, and its new content is used from the next
    call on if it is complete and the certificate matches the key.

    Args:
        ca: certificates of the authorities trusted to sign the server's certificate. None selects
            those that the system trusts.
        cert: the client's own certificate, for a server that requests one, followed by its
            intermediate certificates.
        key: the private key of ``cert``, not encrypted.
        server_name: a name that the server's certificate must have. None means the name in the
            target.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None


class Certificates:
    """The contents of the files that a ``Tls`` names; errors refer to its fields by ``names``.

    Raises TypeError for a field of the wrong type, and ValueError for a file that cannot be read or
    has the wrong content.
    """

    def __init__(self, tls: Tls, names: Mapping[str, str]) -> None:
        self.server_name = name = tls.server_name
        require_instance(name, (str, type(None)), names["server_name"], "a name, or None")
        self._names = names
        self.has_own = tls.cert is not None
        self._files: dict[str, Path] = {}
        for field in _FILES:
            path = getattr(tls, field)
            require_instance(path, (str, os.PathLike, type(None)), names[field], "a PEM file")
            if path is not None:
                self._files[field] = Path(path).expanduser()
        for one, other in (("cert", "key"), ("key", "cert")):
            if one in self._files and other not in self._files:
                got = f"{names[one]}: got {str(self._files[one])!r}"
                raise ValueError(f"{got} without {names[other]}; want both, or neither")
        self._held = FileWatcher(list(self._files.values()), self._read)

    def renew(self) -> bool:
        """Rereads changed files; returns True if credentials made earlier are outdated."""
        return self._held.renew()

    def credentials(self) -> grpc.ChannelCredentials:
        held = self._held.value
        roots = held["ca"] if "ca" in held else _system_roots()
        return grpc.ssl_channel_credentials(roots, held.get("key"), held.get("cert"))

    def _read(self) -> dict[str, bytes]:
        held = {field: read_bytes(file, self._names[field]) for field, file in self._files.items()}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for field in ("ca", "cert"):
            if field in held:
                with self._refusing(field, "a PEM file with certificates"):
                    context.load_verify_locations(self._files[field])
        if "key" in held:
            cert, key = self._files["cert"], self._files["key"]
            want = f"an unencrypted PEM file with the key for {str(cert)!r}"
            with self._refusing("key", want):
                # Without this password, OpenSSL would prompt for one on the terminal.
                context.load_cert_chain(cert, key, password="")
        return held

    @contextlib.contextmanager
    def _refusing(self, field: str, want: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            got = f"{self._names[field]}: got {str(self._files[field])!r}"
            why = getattr(error, "reason", None) or error
            raise ValueError(f"{got}, want {want} ({why})") from None


def certificates_from(tls: bool | Tls | None) -> Certificates | None:
    """Returns the certificates for a client's ``tls`` argument; None for plaintext.

    If ``tls`` is None, reads the environment.
    """
    names = _ARGUMENTS
    if tls is None:
        tls, names = tls_from_environment(), _VARIABLES
    require_instance(tls, (bool, Tls), "tls", "True, False or attnbias.Tls(ca=...)")
    if not tls:
        return None
    return Certificates(Tls() if tls is True else tls, names)


def tls_from_environment(*, on: bool = False, **given: str | None) -> bool | Tls:
    """Returns the ``tls`` that the environment variables describe.

    ``on`` enables TLS in any case; the ``given`` fields replace those from the environment.
    """
    named = {field: given.get(field) or os.environ.get(_VARIABLES[field]) for field in _FIELDS}
    fields = {field: value for field, value in named.items() if value}
    said = os.environ.get(_ON, "")
    if said not in ("", "0", "1"):
        raise ValueError(f"{_ON}: got {said!r}, want 1 or 0")
    on = on or any(given.values()) or said == "1" or (not said and bool(fields))
    return Tls(**fields) if on else False


def _system_roots() -> bytes | None:
    """Returns the authorities that the system trusts, or None for gRPC's default (Mozilla's)."""
    if os.environ.get(_ROOTS_OF_GRPC):
        return None
    paths = ssl.get_default_verify_paths()
    files = [paths.cafile, paths.capath and os.path.join(paths.capath, "ca-certificates.crt")]
    for file in filter(None, files):
        with contextlib.suppress(OSError):
            return Path(file).read_bytes()
    return None


_HEADER: Final = "authorization"
_VARIABLE: Final = "ATTNBIAS_CLIENT_TOKEN"
_FILE_VARIABLE: Final = f"{_VARIABLE}_FILE"
_TOKEN: Final = re.compile(r"[!-~]+")  # visible ASCII


class Token:
    """A token, given as text or as the path of a file; errors refer to it as ``name``.

    Raises ValueError for a file that cannot be read, or for an invalid token.
    """

    def __init__(self, token: str | os.PathLike[str], name: str) -> None:
        self.name = name
        if isinstance(token, str):
            self._held = FileWatcher(
                [], lambda: _checked(token, f"{name}: got text that is not a token")
            )
        else:
            file = Path(token).expanduser()
            got = f"{name}: got {str(file)!r}, which does not hold a token"
            self._held = FileWatcher(
                [file],
                lambda: _checked(read_bytes(file, name).decode("ascii", "replace").strip(), got),
            )

    def as_metadata(self) -> tuple[str, str]:
        self._held.renew()
        return _HEADER, f"Bearer {self._held.value}"


def _checked(token: str, got: str) -> str:
    if _TOKEN.fullmatch(token):
        return token
    raise ValueError(f"{got}; want visible ASCII characters, without spaces")


def token_from(
    token: str | os.PathLike[str] | None, metadata: Sequence[tuple[str, str | bytes]]
) -> Token | None:
    """Returns the token for a client's ``token`` argument; None if there is none.

    If ``token`` is None, reads the environment, unless the metadata identifies the caller; "" means
    no token.
    """
    want = "the token as a str, or its file as a pathlib.Path"
    require_instance(token, (str, os.PathLike, type(None)), "token", want)
    is_said = any(str(key).lower() == _HEADER for key, _ in metadata)
    if token is None and not is_said:
        if file := os.environ.get(_FILE_VARIABLE):
            return Token(Path(file), _FILE_VARIABLE)
        if literal := os.environ.get(_VARIABLE):
            return Token(literal, _VARIABLE)
    if not token:
        return None
    if is_said:
        raise ValueError(f"token: given together with {_HEADER!r} in metadata; want one of the two")
    return Token(token, "token")
