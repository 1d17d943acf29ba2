# SPDX-License-Identifier: Apache-2.0
"""``python -m attnbias``: fills a cache in advance, and lists, verifies and clears it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from attnbias._cache.cache import Cache
from attnbias._client import CACHE_VARIABLE, Client
from attnbias._errors import Error, escaped
from attnbias._models import export
from attnbias._spec.enums import DType
from attnbias._spec.request import key_of
from attnbias._transport.credentials import tls_from_environment

_EXPORT: Final = """\
Fetches the tensors for a transformers model into a cache, for Client(cache=DIR, offline=True).
Requests are looked up exactly as they were made, so only these are exported:

- each encoding of attnbias.from_config as client.get(encoding, positions=N) or
  client.get(encoding, query_length=N, key_length=N), with data_type= if --data-type is given.
  T5 is requested with values="buckets", and Rotary of type dynamic or longrope with
  sequence_length=N;
- what attnbias.attach(model, client, max_length=N) requests, if torch and transformers are
  installed. No weights are needed.

Encodings with a learned table cannot be requested without it and are left out.
"""


def main(arguments: Sequence[str] | None = None, prog: str = "python -m attnbias") -> int:
    """Runs a command and returns its exit status: 1 if it failed, 2 for invalid arguments."""
    parser = _Parser(prog=prog, description=__doc__)
    options = _with_commands(parser).parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Error, OSError, ValueError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("interrupted")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _with_commands(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    of_folder = argparse.ArgumentParser(add_help=False)
    default = os.environ.get(CACHE_VARIABLE) or None
    of_folder.add_argument(
        "--cache",
        metavar="DIR",
        default=default,
        required=default is None,
        help=f"the cache's folder; by default the value of {CACHE_VARIABLE}",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    export = commands.add_parser(
        "export",
        parents=[of_folder],
        help="fills a cache with what a model needs",
        description=_EXPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.add_argument(
        "--config", metavar="PATH", type=Path, required=True, help="config.json, or its folder"
    )
    export.add_argument(
        "--max-length", metavar="N", type=_length, required=True, help="maximum number of positions"
    )
    export.add_argument(
        "--server",
        metavar="TARGET",
        help="host, host:port, [IPv6]:port, unix:/path or another gRPC target; by default the "
        "value of ATTNBIAS_SERVER, else localhost",
    )
    _add_security(export)
    export.add_argument(
        "--data-type",
        choices=("f64", "f32", "f16", "bf16"),
        help="data type of from_config's encodings, except indices; attach chooses its own",
    )
    export.set_defaults(run=_export_all)

    cache = commands.add_parser("cache", help="shows, verifies or clears a cache")
    actions = cache.add_subparsers(metavar="ACTION", required=True)
    for name, what, run in (
        ("ls", "lists tensors, most recently used first", _ls),
        (
            "verify",
            "reads all tensors; lists and removes damaged ones; exits with 1 if there were any",
            _verify,
        ),
        ("clear", "removes all tensors", _clear),
    ):
        actions.add_parser(name, parents=[of_folder], help=what).set_defaults(run=run)
    return parser


def _add_security(export: argparse.ArgumentParser) -> None:
    """Adds the same security flags as the ``attnbias`` command-line tool has."""
    variable = "by default the value of ATTNBIAS_CLIENT_{}".format
    export.add_argument(
        "--tls",
        action="store_true",
        help="TLS with the CA certificates that the system trusts; " + variable("TLS"),
    )
    for name, kind, what in (
        ("ca", "FILE", "TLS with the CA certificates in a PEM file"),
        ("cert", "FILE", "TLS with the client certificate in a PEM file"),
        ("key", "FILE", "private key of the client certificate, in a PEM file"),
        (
            "server-name",
            "NAME",
            "name to expect in the server's certificate instead of the target's; enables TLS",
        ),
    ):
        default = variable(f"TLS_{name.upper().replace('-', '_')}")
        export.add_argument(f"--tls-{name}", metavar=kind, help=f"{what}; {default}")
    export.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="a file with a bearer token that identifies the caller; " + variable("TOKEN_FILE"),
    )


def _length(text: str) -> int:
    length = int(text) if text.isascii() and text.isdigit() else 0
    if length < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, want a positive integer")
    return length


def _export_all(options: argparse.Namespace) -> int:
    data_type: DType | None = options.data_type
    items = list(export.of_encodings(options.config, options.max_length, data_type))
    tls = tls_from_environment(
        on=options.tls,
        ca=options.tls_ca,
        cert=options.tls_cert,
        key=options.tls_key,
        server_name=options.tls_server_name,
    )
    with Client(options.server, tls=tls, token=options.token_file, cache=options.cache) as client:
        if export.can_attach():
            items += export.of_attach(options.config, options.max_length, client)
        else:
            _say(
                "torch and transformers are not installed: the tensors that attach() requests are "
                "left out"
            )
        return _fetch_all(export.merged(items), client, Cache(options.cache))


def _fetch_all(items: Iterable[export.ExportItem], client: Client, cache: Cache) -> int:
    there = {entry.info.fingerprint for entry in cache.entries()}
    count = 0
    for place, request, why in items:
        if request is None:
            print(f"{place}: left out: {why}", flush=True)
            continue
        client.get_many([request])
        kept = cache.find(key_of(request.to_spec()))
        if kept is None:
            raise OSError(f"{cache.folder}: cannot store what was fetched")
        fingerprint, nbytes = kept.info.fingerprint, kept.info.nbytes
        how = "there" if fingerprint in there else "fetched"
        there.add(fingerprint)
        print(f"{place}: {how} {fingerprint} {nbytes} bytes, {request.brief()}", flush=True)
        count += 1
    if count == 0:
        return _fail("config: nothing in it can be computed without a checkpoint")
    return 0


def _ls(options: argparse.Namespace) -> int:
    rows = [("fingerprint", "encoding", "shape", "dtype", "bytes", "last used")]
    for entry in _existing(options.cache).entries():
        parts = entry.info.parts
        shapes = " ".join(f"{part.name}[{','.join(map(str, part.shape))}]" for part in parts)
        rows.append(
            (
                entry.info.fingerprint,
                entry.info.resolved_spec.WhichOneof("encoding") or "",
                shapes,
                " ".join(sorted({str(part.dtype) for part in parts})),
                str(entry.nbytes),
                entry.last_used.isoformat(timespec="seconds"),
            )
        )
    shown = [tuple(map(escaped, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    return 0


def _verify(options: argparse.Namespace) -> int:
    cache = _existing(options.cache)
    damaged = cache.verify()
    for path in damaged:
        print(f"{path} was damaged and has been removed")
    print(f"{len(cache.entries())} tensors are intact")
    return 1 if damaged else 0


def _clear(options: argparse.Namespace) -> int:
    _existing(options.cache).clear()
    return 0


def _existing(folder: str) -> Cache:
    """Returns the cache in an existing folder: a misspelled name would look like an empty cache."""
    cache = Cache(folder)
    if not cache.folder.is_dir():
        raise FileNotFoundError(f"cache: got {folder!r}, want an existing folder")
    return cache


def _say(message: str) -> None:
    print(f"attnbias: {escaped(' '.join(message.split()))}", file=sys.stderr)


def _fail(message: str) -> int:
    _say(message)
    return 1


if __name__ == "__main__":
    sys.exit(main())
