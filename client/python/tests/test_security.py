# SPDX-License-Identifier: Apache-2.0
"""TLS, certificates and tokens, against servers that require them."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import numpy as np
import pytest
from fake_server import PAYLOAD, FakeServer, abort, sequence
from tests.support.certificates import Authority, Pair

import attnbias
from attnbias import Tls, aio
from attnbias.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from either_client import Connect
    from fake_server import Context, Request

SINUSOIDAL = attnbias.Sinusoidal(dim=1)
ALIBI = attnbias.ALiBi(num_heads=2)
HERE = "DNS:localhost,IP:127.0.0.1"
VARIABLES = ("TLS", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_SERVER_NAME", "TOKEN", "TOKEN_FILE")


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"ATTNBIAS_CLIENT_{name}", raising=False)


class Pki(NamedTuple):
    """Certificate authorities and the certificates that they sign."""

    authority: Authority
    """Signs the servers' certificates."""
    clients: Authority
    """Signs the clients' certificates."""
    other: Authority
    """Not trusted by servers or clients."""
    server: Pair
    trainer: Pair


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    authority, clients, other = (Authority(folder, n) for n in ("servers", "clients", "other"))
    server = authority.sign("server", alternatives=HERE)
    return Pki(authority, clients, other, server, clients.sign("trainer"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def replace(path: Path, new: bytes) -> None:
    """Replaces a file atomically, as renewals do."""
    draft = path.with_name("draft")
    draft.write_bytes(new)
    draft.replace(path)


def of_server(identity: Pair, clients: Path | None = None) -> grpc.ServerCredentials:
    """Returns a server's credentials; the CA ``clients``, if given, signs client certificates."""
    return grpc.ssl_server_credentials(
        [(identity.key.read_bytes(), identity.certificate.read_bytes())],
        root_certificates=clients.read_bytes() if clients else None,
        require_client_auth=clients is not None,
    )


def serving(identity: Pair | None = None, clients: Authority | None = None) -> FakeServer:
    credentials = identity and of_server(identity, clients.certificate if clients else None)
    return FakeServer(credentials=credentials)


def compute_logits(client: attnbias.Client) -> None:
    term = attnbias.ShawKeys(table=np.ones((3, 2)), left=1, right=1)
    with pytest.raises(attnbias.InvalidArgumentError):
        client.logits(term, np.ones((1, 4, 2)), key_length=4, direction="bidirectional")


CALLS: list[Callable[[attnbias.Client], object]] = [
    lambda client: client.get(SINUSOIDAL, positions=5000),
    lambda client: client.describe(ALIBI, query_length=5, key_length=5),
    lambda client: client.info(),
    lambda client: client.list_tables(),
    lambda client: client.health(),
    compute_logits,
]


def test_every_call_sends_client_identity(pki: Pki, token_file: Path, connect: Connect) -> None:
    tls = Tls(ca=str(pki.authority.certificate), cert=pki.trainer.certificate, key=pki.trainer.key)
    with (
        serving(pki.server, pki.clients) as server,
        connect(server.target, tls=tls, token=token_file) as client,
    ):
        for number, call in enumerate(CALLS, 1):
            call(client)
            assert len(server.callers) >= number  # some calls may be retried
    assert {caller[:2] for caller in server.callers} == {("Bearer first", "trainer")}


def test_system_authorities_are_the_default(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.authority.certificate))
    with serving(pki.server) as server, connect(server.target, tls=True) as client:
        assert client.health()


def test_server_name_can_be_overridden(
    pki: Pki, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    misnamed = pki.authority.sign("misnamed", alternatives="DNS:attnbias.example")
    tls = Tls(ca=pki.authority.certificate, server_name="attnbias.example")
    with serving(misnamed) as server:
        with connect(server.target, tls=tls) as client:
            assert client.health()
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_CA", str(pki.authority.certificate))
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_SERVER_NAME", "attnbias.example")
        with connect(server.target) as client:
            assert client.health()


def test_environment_supplies_missing_arguments(
    pki: Pki, token_file: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    def authorization(**options: Any) -> str | None:
        with connect(server.target, **options) as client:
            assert client.health()
        return server.callers[-1].authorization

    with serving(pki.server, pki.clients) as server:
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_CA", str(pki.authority.certificate))
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_CERT", str(pki.trainer.certificate))
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_KEY", str(pki.trainer.key))
        assert authorization() is None
        monkeypatch.setenv("ATTNBIAS_CLIENT_TOKEN", "abc")
        assert authorization() == "Bearer abc"
        monkeypatch.setenv("ATTNBIAS_CLIENT_TOKEN_FILE", str(token_file))
        assert authorization() == "Bearer first"
        assert authorization(token="mine") == "Bearer mine"
        assert authorization(token="") is None
        assert authorization(metadata=[("authorization", "Basic me")]) == "Basic me"
    with serving() as server:
        assert authorization(tls=False) == "Bearer first"
        monkeypatch.setenv("ATTNBIAS_CLIENT_TLS", "0")
        assert authorization() == "Bearer first"


@pytest.mark.parametrize(
    ("pair", "want"),
    [
        (("Tenant", "a"), "metadata: got the key 'Tenant', want lowercase letters"),
        (("", "a"), "metadata: got the key '', want lowercase letters"),
        (("authorization", "Bearer a\n"), "metadata: got a value for 'authorization' that is not"),
        (
            ("tenant", "ä"),
            "metadata: got a value for 'tenant' that is not printable ASCII, want p",
        ),
        (("tenant", b"a"), "metadata: got bytes for 'tenant', want str"),
        (("tenant-bin", "a"), "metadata: got str for 'tenant-bin', want bytes"),
    ],
)
def test_error_names_invalid_metadata(pair: tuple[str, str | bytes], want: str) -> None:
    with pytest.raises((TypeError, ValueError), match=want):
        attnbias.Client(metadata=[("team", "a"), pair])


def test_changed_token_file_is_reread(
    token_file: Path, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    def authorization() -> str | None:
        assert client.health()
        return server.callers[-1].authorization

    with serving() as server, connect(server.target, token=token_file) as client:
        assert authorization() == "Bearer first"
        replace(token_file, b"later")
        assert authorization() == "Bearer later"
        assert not caplog.records
        replace(token_file, b"\n")
        assert authorization() == "Bearer later"
        token_file.unlink()
        assert authorization() == "Bearer later"
        assert authorization() == "Bearer later"
        one, two = (record.getMessage() for record in caplog.records)
        assert one.startswith(f"token: got '{token_file}', which does not hold a token; want vis")
        assert two.startswith(f"token: cannot read '{token_file}': No such file or directory; k")
        replace(token_file, b"last")
        assert authorization() == "Bearer last"
    assert len({caller.peer for caller in server.callers}) == 1


def test_next_call_uses_the_new_certificate(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """Open calls continue, and an incomplete certificate pair is not used."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(request: Request, context: Context) -> Iterator[bytes]:
        yield from PAYLOAD.messages(request.read_offset, 8000)
        begun.set()
        go_on.wait(20)
        yield from list(PAYLOAD.messages(8000))[1:]

    own = Pair(tmp_path / "cert", tmp_path / "key")
    for source, file in zip(pki.trainer, own, strict=True):
        shutil.copy(source, file)
    renewed = pki.clients.sign("renewed")
    tls = Tls(ca=pki.authority.certificate, cert=own.certificate, key=own.key)
    with (
        serving(pki.server, pki.clients) as server,
        connect(server.target, tls=tls, timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        server.script = [slow, PAYLOAD.serve]
        under_way = pool.submit(client.get, SINUSOIDAL, positions=5000)
        assert begun.wait(20)
        replace(own.certificate, renewed.certificate.read_bytes())
        assert client.health()
        assert server.callers[-1].certificate_name == "trainer"
        (record,) = caplog.records
        assert record.getMessage().startswith(f"tls.key: got '{own.key}', want an unencrypted PEM")
        replace(own.key, renewed.key.read_bytes())
        assert client.health()
        assert server.callers[-1].certificate_name == "renewed"
        go_on.set()
        np.testing.assert_array_equal(under_way.result(20), sequence())
        assert client.health()
        assert len({caller.peer for caller in server.callers}) == 2


def test_replaced_authority_is_trusted(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    ca = tmp_path / "ca"
    shutil.copy(pki.other.certificate, ca)
    with (
        serving(pki.server) as server,
        connect(server.target, tls=Tls(ca=ca), timeout=60) as client,
        ThreadPoolExecutor() as pool,
    ):
        waiting = pool.submit(client.info)
        while not caplog.records and not waiting.done():
            pass
        assert "has a certificate that is not trusted here" in caplog.text
        replace(ca, pki.authority.certificate.read_bytes())
        assert waiting.result(30).version == "1.2.3"


def serve_as(wire: Connection, identity: Pair, clients_ca: Path) -> None:
    """Serves in a separate process, and reports callers on request."""
    with FakeServer(credentials=of_server(identity, clients_ca)) as server:
        wire.send(server.target)
        wire.recv()
        wire.send([caller[:2] for caller in server.callers])


def check(client: attnbias.Client) -> bool:
    return client.health()


@pytest.mark.parametrize("way", multiprocessing.get_all_start_methods())
def test_workers_use_the_client(pki: Pki, token_file: Path, way: str) -> None:
    tls = Tls(ca=pki.authority.certificate, cert=pki.trainer.certificate, key=pki.trainer.key)
    wire, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve_as, args=(theirs, pki.server, pki.clients.certificate), daemon=True
    )
    process.start()
    with attnbias.Client(wire.recv(), tls=tls, token=token_file) as client:
        assert client.health()
        with multiprocessing.get_context(way).Pool(2) as pool:
            assert pool.map(check, [client] * 4) == [True] * 4
        assert client.health()
    wire.send("who has called?")
    assert wire.recv() == [("Bearer first", "trainer")] * 6
    process.join()


def test_tokens_are_not_pickled(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (attnbias.Client, aio.Client):
        with pytest.raises(TypeError, match=r"cannot pickle a Client with a token, which anyone"):
            pickle.dumps(kind("localhost", token="secret"))
        monkeypatch.setenv("ATTNBIAS_CLIENT_TOKEN", "secret")
        assert b"secret" not in pickle.dumps(kind("localhost"))
        again = pickle.loads(pickle.dumps(kind("localhost", token=token_file)))
        assert again._endpoint.call_metadata() == (("authorization", "Bearer first"),)


def failure(connect: Connect, target: str, **options: Any) -> str:
    """Returns the error from a call without retries."""
    with (
        connect(target, max_attempts=1, timeout=20, **options) as client,
        pytest.raises(attnbias.UnavailableError) as caught,
    ):
        client.info()
    assert "\n" not in str(caught.value)
    return caught.value.message


def test_connection_errors_state_the_cause(pki: Pki, connect: Connect) -> None:
    trusting = Tls(ca=pki.authority.certificate)
    unknown = pki.other.sign("unknown")
    misnamed = pki.authority.sign("misnamed", alternatives="DNS:attnbias.example")
    expired = pki.authority.sign("expired", alternatives=HERE, days=-1)
    with (
        serving() as plain,
        serving(pki.server) as tls,
        serving(pki.server, pki.clients) as mutual,
        serving(misnamed) as elsewhere,
        serving(expired) as late,
    ):
        for server, options, what in [
            (plain, trusting, "answers, but not over TLS: leave out tls, or credentials"),
            (
                tls,
                False,
                "answers, but does not speak gRPC in plaintext: does it need TLS? Pass tls=True, "
                "or tls=attnbias.Tls(ca=FILE)",
            ),
            (
                tls,
                Tls(ca=pki.other.certificate),
                "has a certificate that is not trusted here: pass its CA's "
                "certificate as tls=attnbias.Tls(ca=FILE)",
            ),
            (
                elsewhere,
                trusting,
                "has a certificate for another name: connect using one of its names, or pass one "
                "as tls=attnbias.Tls(server_name=NAME)",
            ),
            (late, trusting, "has a certificate that has expired"),
            (
                mutual,
                trusting,
                "answers, but does not speak gRPC over TLS: is it starting or stopping, or does it "
                "require a certificate? Pass tls=attnbias.Tls(cert=FILE, key=FILE)",
            ),
            (
                mutual,
                Tls(ca=pki.authority.certificate, cert=unknown.certificate, key=unknown.key),
                "answers, but does not speak gRPC over TLS: is it starting or stopping, or does it "
                "not trust the certificate in tls.cert?",
            ),
        ]:
            assert failure(connect, server.target, tls=options).startswith(
                f"{server.target} {what} ("
            )


@pytest.mark.parametrize(
    ("code", "kind", "token", "what"),
    [
        (
            grpc.StatusCode.UNAUTHENTICATED,
            attnbias.UnauthenticatedError,
            "",
            "requires authentication: pass token=pathlib.Path(FILE), or tls=attnbias.Tls(cert=FIL"
            "E, key=FILE) (as planned)",
        ),
        (
            grpc.StatusCode.UNAUTHENTICATED,
            attnbias.UnauthenticatedError,
            "abc",
            "rejected this token: is it for this server, and still valid? (as planned)",
        ),
        (
            grpc.StatusCode.PERMISSION_DENIED,
            attnbias.PermissionDeniedError,
            "abc",
            "denied permission: ask its operator, or use another token or certificate (as planned)",
        ),
    ],
)
def test_authentication_errors_suggest_a_fix(
    code: grpc.StatusCode, kind: type[attnbias.Error], token: str, what: str, connect: Connect
) -> None:
    with serving() as server, connect(server.target, token=token) as client:
        server.describe = [lambda _, context: abort(context, code, "as planned")]
        with pytest.raises(kind) as caught:
            client.describe(ALIBI, query_length=5, key_length=5)
        assert caught.value.message == f"{server.target} {what}"
        assert server.describe_calls == 1


def test_token_requires_tls_beyond_loopback(
    pki: Pki, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = "^token: got a token but no TLS, and host:50051 is not on this machine, .* tls=True"
    with pytest.raises(ValueError, match=want):
        attnbias.Client("host", token="abc")
    attnbias.Client("host", token="abc", tls=Tls(ca=pki.authority.certificate))
    attnbias.Client("host", token="abc", credentials=grpc.ssl_channel_credentials())
    monkeypatch.setenv("ATTNBIAS_CLIENT_TOKEN_FILE", str(token_file))
    with pytest.raises(
        ValueError, match=r"^ATTNBIAS_CLIENT_TOKEN_FILE: got a token but no TLS, and host:50051"
    ):
        attnbias.Client("host")


def test_error_names_unusable_credentials(pki: Pki, tmp_path: Path, connect: Connect) -> None:
    text, folder = tmp_path / "text", tmp_path / "folder"
    text.write_text("two words")
    folder.mkdir()
    cert, key = pki.trainer
    locked = tmp_path / "locked"
    lock = f"openssl pkey -in {key} -aes128 -passout pass:abcd -out {locked}"
    subprocess.run(lock.split(), check=True)
    stranger = pki.other.sign("stranger").key
    certificates, fits = "a PEM file with certificates", "an unencrypted PEM file with the key"
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"tls": 1}, TypeError, "tls: got an object of type int; want True, False or attnbias.Tls"),
        ({"tls": Tls(ca=5)}, TypeError, "tls.ca: got an object of type int; want a PEM file"),  # type: ignore[arg-type]
        ({"tls": Tls(server_name=b"a")}, TypeError, "tls.server_name: got an object of type bytes"),  # type: ignore[arg-type]
        ({"tls": Tls(ca="/no")}, ValueError, "tls.ca: cannot read '/no': No such file"),
        ({"tls": Tls(ca=folder)}, ValueError, f"tls.ca: cannot read '{folder}': Is a directory"),
        ({"tls": Tls(ca=text)}, ValueError, f"tls.ca: got '{text}', want {certificates} ("),
        (
            {"tls": Tls(cert=text, key=key)},
            ValueError,
            f"tls.cert: got '{text}', want {certificates} (",
        ),
        *(
            (
                {"tls": Tls(cert=cert, key=wrong)},
                ValueError,
                f"tls.key: got '{wrong}', want {fits} for '{cert}' (",
            )
            for wrong in (text, stranger, locked, cert)
        ),
        (
            {"tls": Tls(cert=cert)},
            ValueError,
            f"tls.cert: got '{cert}' without tls.key; want both, or neither",
        ),
        (
            {"tls": Tls(key=key)},
            ValueError,
            f"tls.key: got '{key}' without tls.cert; want both, or neither",
        ),
        (
            {"tls": True, "credentials": grpc.ssl_channel_credentials()},
            ValueError,
            "tls: got True and credentials; want one of the two",
        ),
        ({"token": 5}, TypeError, "token: got an object of type int; want the token as a str, or"),
        (
            {"token": "two words"},
            ValueError,
            "token: got text that is not a token; want visible ASCII",
        ),
        (
            {"token": text},
            ValueError,
            f"token: got '{text}', which does not hold a token; want visible ASCII characters",
        ),
        ({"token": Path("/no")}, ValueError, "token: cannot read '/no': No such file or directory"),
        (
            {"token": "abc", "metadata": [("Authorization", "Bearer abc")]},
            ValueError,
            "token: given together with 'authorization' in metadata; want one of the two",
        ),
    ]
    for options, kind, says in cases:
        with pytest.raises(kind) as caught:
            connect("localhost", **options)
        assert str(caught.value).startswith(says)
        assert "two words" not in str(caught.value)


def test_error_names_invalid_environment_variable(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables, says in [
        ({"TLS": "yes"}, "ATTNBIAS_CLIENT_TLS: got 'yes', want 1 or 0"),
        ({"TLS_CA": "/no"}, "ATTNBIAS_CLIENT_TLS_CA: cannot read '/no': No such file"),
        (
            {"TLS_KEY": str(pki.trainer.key)},
            f"ATTNBIAS_CLIENT_TLS_KEY: got '{pki.trainer.key}' without ATTNBIAS_CLIENT_TLS_CERT",
        ),
        ({"TOKEN_FILE": "/no"}, "ATTNBIAS_CLIENT_TOKEN_FILE: cannot read '/no': No such file"),
        ({"TOKEN": "two words"}, "ATTNBIAS_CLIENT_TOKEN: got text that is not a token; want"),
    ]:
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(f"ATTNBIAS_CLIENT_{name}", value)
            with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
                attnbias.Client("localhost")


def test_command_reads_flags_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bloom", "n_head": 6}')
    given: dict[str, Any] = {}

    def client(_target: str, **options: Any) -> None:
        given.update(options)
        raise ValueError

    monkeypatch.setattr("attnbias.__main__.Client", client)

    def export(*flags: str) -> tuple[Any, Any]:
        config = ["--config", str(tmp_path), "--max-length", "4", "--cache", str(tmp_path / "c")]
        assert main(["export", *config, "--server", "host", *flags]) == 1
        return given["tls"], given["token"]

    assert export() == (False, None)
    assert export("--tls") == (Tls(), None)
    assert export("--tls-ca", "a", "--token-file", "t") == (Tls(ca="a"), Path("t"))
    monkeypatch.setenv("ATTNBIAS_CLIENT_TLS_KEY", "k")
    assert export("--tls-cert", "c") == (Tls(cert="c", key="k"), None)
    monkeypatch.setenv("ATTNBIAS_CLIENT_TLS", "0")
    assert export() == (False, None)
    assert export("--tls-ca", "a") == (Tls(ca="a", key="k"), None)
    assert export("--tls-server-name", "n") == (Tls(key="k", server_name="n"), None)
