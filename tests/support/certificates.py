# SPDX-License-Identifier: Apache-2.0
"""Certificates created for a test with the `openssl` tool."""

import pathlib
import subprocess
from typing import NamedTuple


def _openssl(*arguments: str | pathlib.Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Pair(NamedTuple):
    """Paths to a certificate and its private key, in PEM."""

    certificate: pathlib.Path
    key: pathlib.Path


class Authority:
    """Signs certificates; all files are in `folder`."""

    def __init__(self, folder: pathlib.Path, name: str = "ca") -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-days", "2"),
            *("-keyout", self._key, "-out", self.certificate),
        )

    def sign(self, name: str, *, alternatives: str = "", days: int = 2) -> Pair:
        """Issues a certificate, which may already have expired, for the common name `name`.

        Args:
            alternatives: its other names, such as "DNS:localhost,IP:127.0.0.1".
        """
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        _openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", pair.key, "-out", request),
        )
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        _openssl(
            *("x509", "-req", "-in", request, "-days", str(days), "-extfile", extensions),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-out", pair.certificate),
        )
        return pair
