# SPDX-License-Identifier: Apache-2.0
"""Authorities and certificates, made for one test by the program openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final, NamedTuple

import grpc

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG: Final = "[req]\ndistinguished_name = name\n[name]\n"
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Identity(NamedTuple):
    """A certificate and its private key, PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates.

    Args:
        folder: where the files go.
        name: its own.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._name = name
        self._made = 0
        (folder / "openssl.cnf").write_text(_CONFIG)
        self._own = self._new_identity()
        extension = "basicConstraints=critical,CA:TRUE"
        self._request(name, extension, self._own.key, "-x509", "-out", self._own.cert)
        self.ca = self._own.cert

    def sign(
        self, name: str, names: str = "DNS:localhost,IP:127.0.0.1", *, days: int = 1
    ) -> Identity:
        """A certificate of the common name ``name``, good for the hosts ``names``."""
        made = self._new_identity()
        request = made.cert.with_suffix(".request")
        self._request(name, f"subjectAltName={names}", made.key, "-new", "-out", request)
        signer = ("-CA", self._own.cert, "-CAkey", self._own.key, "-copy_extensions", "copy")
        _openssl("x509", "-req", "-in", request, *signer, "-days", str(days), "-out", made.cert)
        return made

    def _new_identity(self) -> Identity:
        self._made += 1
        stem = self._folder / f"{self._name}-{self._made}"
        return Identity(stem.with_suffix(".pem"), stem.with_suffix(".key"))

    def _request(self, name: str, extension: str, key: Path, *options: str | Path) -> None:
        what = ("-config", self._folder / "openssl.cnf", "-subj", f"/CN={name}")
        _openssl("req", *_NEW_KEY, *what, "-addext", extension, "-keyout", key, *options)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def of_server(identity: Identity, clients: Authority | None = None) -> grpc.ServerCredentials:
    """TLS of a server that wants certificates of its clients where ``clients`` may sign them."""
    return grpc.ssl_server_credentials(
        [(identity.key.read_bytes(), identity.cert.read_bytes())],
        root_certificates=clients.ca.read_bytes() if clients else None,
        require_client_auth=clients is not None,
    )
