# SPDX-License-Identifier: Apache-2.0
"""TLS, tokens and the policy: authentication, authorization, and changes to the files."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
from typing import Any

import grpc
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.certificates import Authority, Pair
from tests.support.contract import REFLECTION, message, sinusoid, spec, with_large_table
from tests.support.server import (
    PATIENCE,
    Details,
    Server,
    Stub,
    eventually,
    no_call_is_open,
    refused,
    run_server,
)
from tests.support.traffic import Traffic

HERE = "DNS:localhost,IP:127.0.0.1"
ALIBI = spec(alibi={"num_heads": 8}, pair={"query_length": 64, "key_length": 64})
DENSE = spec(
    alibi={"num_heads": 8},
    pair={"query_length": 1024, "key_length": 1024},
    output={"form": "FORM_DENSE"},
)
DENSE_BYTES = 8 * 1024 * 1024 * 4


class Files:
    """Files for a server with TLS, tokens and a policy, and for its clients."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.certificate, self.key = folder / "tls.pem", folder / "tls.key"
        self.tokens, self.policy = folder / "tokens", folder / "policy.json"
        self.install(self.authority.sign("server", alternatives=HERE))

    def install(self, pair: Pair) -> None:
        replace(self.key, pair.key.read_text())
        replace(self.certificate, pair.certificate.read_text())

    def tls(self, *more: str) -> tuple[str, ...]:
        return (f"--tls-cert={self.certificate}", f"--tls-key={self.key}", *more)

    def write_tokens(self, **tokens: str) -> str:
        digests = {name: hashlib.sha256(token.encode()) for name, token in tokens.items()}
        lines = [f"{name} sha256:{digest.hexdigest()}\n" for name, digest in digests.items()]
        replace(self.tokens, "# of this test\n\n" + "".join(lines))
        return f"--tokens={self.tokens}"

    def write_policy(self, **callers: Any) -> str:
        replace(self.policy, json.dumps({"callers": callers}))
        return f"--policy={self.policy}"

    def credentials(
        self, token: str = "", client: Pair | None = None, authority: Authority | None = None
    ) -> grpc.ChannelCredentials:
        channel = grpc.ssl_channel_credentials(
            (authority or self.authority).certificate.read_bytes(),
            client and client.key.read_bytes(),
            client and client.certificate.read_bytes(),
        )
        if not token:
            return channel
        call = grpc.access_token_call_credentials(token)
        return grpc.composite_channel_credentials(channel, call)


def replace(path: pathlib.Path, text: str) -> None:
    """Replaces a file atomically by renaming the new one over the old one."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> Files:
    return Files(tmp_path)


def handshake(address: str, credentials: grpc.ChannelCredentials) -> bool:
    """Reports whether a new connection can be made."""
    with Stub(address, credentials) as stub:
        try:
            return stub.check("liveness") == "SERVING"
        except grpc.RpcError as refusal:
            return refusal.code() != grpc.StatusCode.UNAVAILABLE


def rejected(server: Server, reason: str) -> float:
    return server.metrics()[f'attnbias_rejected_total{{reason="{reason}"}}']


def test_only_tls_connections_are_accepted(start_server: Any, files: Files) -> None:
    server = start_server(*files.tls())
    with server.connect(files.credentials()) as stub:
        assert len(stub.payload(DENSE)) == DENSE_BYTES
    with server.connect() as stub:
        assert refused(lambda: stub.tensor(ALIBI)).code() == grpc.StatusCode.UNAVAILABLE
    stranger = Authority(files.folder, "stranger")
    assert not handshake(server.address, files.credentials(authority=stranger))


def test_certificate_reload_under_load_fails_no_call(start_server: Any, files: Files) -> None:
    server = start_server(*files.tls(), log_level="info")
    other = Authority(files.folder, "other")
    expiry = server.metrics()["attnbias_tls_certificate_expiry_seconds"]
    assert expiry == pytest.approx(time.time() + 2 * 86400, abs=3600)

    def call() -> None:
        assert len(old.payload(DENSE)) == DENSE_BYTES

    with server.connect(files.credentials()) as old, Traffic(call, threads=1) as traffic:
        for garbage in ("garbage", "", files.key.read_text()):
            replace(files.certificate, garbage)
            eventually(lambda: server.metrics()["attnbias_tls_reload_failed"] == 1, "noticed")
            assert handshake(server.address, files.credentials())
        expired = files.authority.sign("expired", alternatives=HERE, days=-1)
        files.install(expired)
        eventually(lambda: "the certificate expired on" in server.log(), "expiry noticed")
        files.install(other.sign("new", alternatives=HERE))
        eventually(lambda: server.metrics()["attnbias_tls_reload_failed"] == 0, "mended")
        eventually(
            lambda: handshake(server.address, files.credentials(authority=other)), "the new one"
        )
        assert not handshake(server.address, files.credentials())
        traffic.wait_for(2)  # on the old connection
    assert traffic.failures == []
    errors = [line for line in server.log().splitlines() if " error " in line]
    assert all(
        "certificates: reload failed, keeping the previous content" in line for line in errors
    )
    assert "certificates: reloaded" in server.log()


def test_probes_are_answered_in_plaintext(start_server: Any, files: Files) -> None:
    flags = ("--probe-listen=127.0.0.1:0", "--shutdown-delay=5s")
    server = start_server(*files.tls(*flags), files.write_tokens(a="t"))
    with Stub(server.probe_address) as probe:
        eventually(lambda: probe.check("readiness") == "SERVING", "ready")
        assert probe.check("liveness") == "SERVING"
        assert refused(lambda: probe.tensor(ALIBI)).code() == grpc.StatusCode.UNIMPLEMENTED
        reflect = probe.channel.stream_stream(REFLECTION)
        assert refused(lambda: reflect(iter([b""]))).code() == grpc.StatusCode.UNIMPLEMENTED
        server.terminate()
        eventually(lambda: probe.check("readiness") == "NOT_SERVING", "draining is seen")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "NO_CREDENTIALS"),
        ((("authorization", "Bearer t0ken"),), "UNKNOWN_TOKEN"),
        ((("authorization", "Bearer "),), "UNKNOWN_TOKEN"),
        ((("authorization", "Basic dDpw"),), "NOT_A_BEARER_TOKEN"),
    ],
)
def test_missing_or_wrong_token_is_unauthenticated(
    start_server: Any, files: Files, metadata: Any, reason: str
) -> None:
    server = start_server(*files.tls(), files.write_tokens(trainer="secret"))
    request = message("GetTensorRequest")(spec=ALIBI)
    with server.connect(files.credentials()) as stub:
        error = refused(lambda: stub.get(request, metadata=metadata))
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED
        assert Details(error).reason == reason
        assert Details(error).retry_seconds is None
        for call in (stub.header, stub.payload):
            assert refused(lambda call=call: call(ALIBI)).code() == error.code()
        assert refused(lambda: stub.logits([])).code() == error.code()
        assert stub.check("readiness") == "SERVING"
    assert rejected(server, "unauthenticated") == 4
    assert "t0ken" not in server.log()


def test_token_file_is_reloaded(start_server: Any, files: Files) -> None:
    server = start_server(*files.tls(), files.write_tokens(trainer="0ld"))
    with (
        server.connect(files.credentials("0ld")) as first,
        server.connect(files.credentials("n3w")) as second,
    ):
        assert first.tensor(ALIBI)
        refused(lambda: second.tensor(ALIBI))
        replace(files.tokens, "trainer n3w\n")
        eventually(lambda: server.metrics()["attnbias_access_reload_failed"] == 1, "noticed")
        assert first.tensor(ALIBI)
        assert "n3w" not in server.log()
        files.write_tokens(trainer="n3w")
        eventually(lambda: server.metrics()["attnbias_access_reload_failed"] == 0, "mended")
        assert second.tensor(ALIBI)
        assert refused(lambda: first.tensor(ALIBI)).code() == grpc.StatusCode.UNAUTHENTICATED


def test_client_certificate_identifies_caller(start_server: Any, files: Files) -> None:
    named = files.authority.sign("node-1", alternatives="URI:spiffe://here/trainer,DNS:node-1")
    plain = files.authority.sign("reader")
    unknown = files.authority.sign("nobody")
    strange = Authority(files.folder, "stranger").sign("trainer")
    policy = files.write_policy(
        **{"spiffe://here/trainer": {"methods": ["*"]}, "reader": {"methods": ["DescribeTensor"]}}
    )
    server = start_server(*files.tls(f"--tls-client-ca={files.authority.certificate}"), policy)
    assert not handshake(server.address, files.credentials())
    assert not handshake(server.address, files.credentials(client=strange))
    with server.connect(files.credentials(client=named)) as stub:
        assert stub.tensor(ALIBI)
    with server.connect(files.credentials(client=plain)) as stub:
        assert stub.header(ALIBI)
        error = refused(lambda: stub.tensor(ALIBI))
        assert (error.code(), Details(error).reason) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "METHOD_NOT_ALLOWED",
        )
        assert error.details() == "reader may not call GetTensor"
    with server.connect(files.credentials(client=unknown)) as stub:
        error = refused(lambda: stub.header(ALIBI))
        assert Details(error).reason == "CALLER_WITHOUT_RIGHTS"
    eventually(lambda: no_call_is_open(server.metrics()), "every call ended")
    named = {
        ("spiffe://here/trainer", "OK"),
        ("reader", "OK"),
        ("reader", "PERMISSION_DENIED"),
        ("", "PERMISSION_DENIED"),
    }
    # The line is logged shortly after the caller has the answer.
    eventually(
        lambda: set(re.findall(r"identity=(\S*) code=(\w+)", server.log())) == named,
        "the log names the callers",
    )
    assert rejected(server, "permission_denied") == 2


@pytest.mark.parametrize(
    ("alternatives", "name"),
    [
        ("", "team-a"),
        ("DNS:node", "node"),
        ("URI:spiffe://here/x", "spiffe://here/x"),
        ("DNS:node,URI:spiffe://here/x", "spiffe://here/x"),
        ("email:admin@here", "team-a"),
        ("email:admin", "team-a"),
        ("IP:10.0.0.1", "team-a"),
        ("RID:1.2.3.4", "team-a"),
        ("email:admin,IP:10.0.0.1,DNS:node", "node"),
    ],
)
def test_caller_is_identified_by_uri_and_dns_names_only(
    start_server: Any, files: Files, alternatives: str, name: str
) -> None:
    policy = files.write_policy(**{"*": {"methods": ["*"]}})
    server = start_server(
        *files.tls(f"--tls-client-ca={files.authority.certificate}"), policy, "--log-format=json"
    )
    client = files.authority.sign("team-a", alternatives=alternatives)
    with server.connect(files.credentials(client=client)) as stub:
        assert stub.tensor(ALIBI)
    eventually(lambda: '"message":"call"' in server.log(), "the call's line")
    (line,) = [line for line in server.json_log() if line["message"] == "call"]
    assert line["identity"] == name


LOCKING_OUT = {
    "tokens": ["", "\n", " \n\t\n", "# none\n\n"],
    "policy": [
        '{"callers": null}',
        "{}",
        '{"callers": {}}',
        '{"callers": {"trainer": {}}}',
        '{"callers": {"trainer": {"methods": []}, "*": {"tables": [""]}}}',
        "",
        "null",
    ],
}
CASES = [(kind, text) for kind, texts in LOCKING_OUT.items() for text in texts]


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_reload_locking_out_all_callers_is_rejected(
    start_server: Any, files: Files, kind: str, text: str
) -> None:
    flags = (
        *files.tls(),
        files.write_tokens(trainer="secret"),
        files.write_policy(trainer={"methods": ["*"]}),
    )
    server = start_server(*flags)
    with server.connect(files.credentials("secret")) as stub:
        assert stub.tensor(ALIBI)
        replace(getattr(files, kind), text)
        eventually(lambda: server.metrics()["attnbias_access_reload_failed"] == 1, "noticed")
        assert stub.tensor(ALIBI)
        assert (
            f"{kind}: reload failed, keeping the previous content: {files.folder}" in server.log()
        )
    ended = run_server("--check-config", *flags)
    assert ended.returncode == 2
    assert f"--{kind}: {files.folder}" in ended.stderr


def test_failed_handshakes_are_counted_and_logged(start_server: Any, files: Files) -> None:
    server = start_server(*files.tls(f"--tls-client-ca={files.authority.certificate}"))
    stranger = Authority(files.folder, "stranger")

    def failures() -> float:
        return server.metrics()["attnbias_tls_handshake_failures"]

    for credentials in (files.credentials(), files.credentials(client=stranger.sign("other"))):
        before = failures()
        assert not handshake(server.address, credentials)
        eventually(lambda before=before: failures() > before, "a failure more")
    host, port = server.address.rsplit(":", 1)
    before = failures()
    with socket.create_connection((host, int(port))) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        assert plain.recv(1000)[:1] in (b"", b"\x15")  # an alert, then the end
    eventually(lambda: failures() > before, "a client without TLS")
    assert server.log().count("Handshake failed") == failures()
    before = failures()
    with server.connect(files.credentials(client=files.authority.sign("own"))) as stub:
        assert stub.tensor(ALIBI)
    assert failures() == before


def test_token_or_client_certificate_authenticates(start_server: Any, files: Files) -> None:
    authority = f"--tls-client-ca={files.authority.certificate}"
    server = start_server(*files.tls(authority), files.write_tokens(trainer="secret"))
    with server.connect(files.credentials("secret")) as stub:
        assert stub.tensor(ALIBI)
    with server.connect(files.credentials(client=files.authority.sign("node"))) as stub:
        assert stub.tensor(ALIBI)
    with server.connect(files.credentials()) as stub:
        assert refused(lambda: stub.tensor(ALIBI)).code() == grpc.StatusCode.UNAUTHENTICATED


def test_tables_are_authorized_by_name_prefix(start_server: Any, files: Files) -> None:
    tables = files.folder / "tables"
    tables.mkdir()
    for name in ("ours", "theirs"):
        table = np.full((32, 2), len(name), "f4")
        save_file({"bias": table}, tables / f"{name}.safetensors")
    policy = files.write_policy(
        trainer={"methods": ["*"], "tables": ["ours:"]},
        reader={"methods": ["*"]},
        root={"methods": ["*"], "tables": [""]},
    )
    tokens = files.write_tokens(trainer="t", reader="r", root="a")
    server = start_server(*files.tls(f"--tables={tables}"), tokens, policy)

    def t5(**table: Any) -> Any:
        fields = {"num_heads": 2, "bidirectional": True, "table": table}
        return spec(t5=fields, pair={"query_length": 4, "key_length": 4})

    def names(stub: Stub) -> list[str]:
        return [table.name for table in stub.tables(message("ListTablesRequest")()).tables]

    with (
        server.connect(files.credentials("t")) as trainer,
        server.connect(files.credentials("r")) as reader,
        server.connect(files.credentials("a")) as root,
    ):
        assert names(root) == ["ours:bias", "theirs:bias"]
        assert names(trainer) == ["ours:bias"]
        assert names(reader) == []
        digest = root.header(t5(name="theirs:bias")).resolved_spec.t5.table.sha256
        # Called twice, since the second answer to `root` comes from the plan memo, keyed by the
        # request's bytes.
        for _ in range(2):
            assert root.tensor(t5(name="theirs:bias")).data
            assert trainer.tensor(t5(name="ours:bias")).data
            error = refused(lambda: trainer.tensor(t5(name="theirs:bias")))
            assert error.code() == grpc.StatusCode.PERMISSION_DENIED
            assert Details(error).fields == ["spec.t5.table.name"]
            # The answer does not reveal whether the table exists.
            assert refused(lambda: trainer.tensor(t5(name="none"))).code() == error.code()
        missing = refused(lambda: trainer.tensor(t5(sha256=digest)))
        assert missing.code() == grpc.StatusCode.NOT_FOUND
        inline = {"data_type": 2, "shape": [32, 2], "data": bytes(256)}
        assert reader.tensor(t5(inline_table=inline)).data


def test_concurrent_calls_of_caller_are_limited(start_server: Any, files: Files) -> None:
    policy = files.write_policy(
        few={"methods": ["*"], "concurrent_calls": 2}, many={"methods": ["*"]}
    )
    server = start_server(*files.tls(), files.write_tokens(few="f", many="m"), policy)
    with (
        server.connect(files.credentials("f")) as few,
        server.connect(files.credentials("f")) as again,
        server.connect(files.credentials("m")) as many,
    ):
        held = [few.stream(DENSE, max_chunk_bytes=4096) for _ in range(2)]
        for stream in held:
            next(stream)
        error = refused(lambda: again.tensor(ALIBI))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert Details(error).reason == "CALLER_LIMIT"
        assert Details(error).retry_seconds == 1
        assert (rejected(server, "caller_limit"), rejected(server, "overload")) == (1, 0)
        assert many.tensor(ALIBI)
        held[0].cancel()

        def admitted() -> bool:
            try:
                return bool(again.tensor(ALIBI).data)
            except grpc.RpcError:
                return False

        eventually(admitted, "room for another call")


def test_caller_memory_is_limited_to_its_share(start_server: Any, files: Files) -> None:
    policy = files.write_policy(
        small={"methods": ["*"], "memory_share": 0.125}, large={"methods": ["*"]}
    )
    tokens = files.write_tokens(small="s", large="l")
    server = start_server(*files.tls("--memory-budget=64MiB"), tokens, policy)

    with (
        server.connect(files.credentials("s")) as small,
        server.connect(files.credentials("l")) as large,
    ):
        # 4 MiB: an eighth of the budget, larger than any of `small`'s tensors.
        kept = sinusoid(1024, 1024)
        assert large.payload(kept)
        # `small`'s tensors are computed in pieces and do not evict other callers'.
        for seed in range(40):
            request = sinusoid(512, 256)
            request.sinusoidal.ladder.base = 100 + seed
            assert len(small.payload(request)) == 512 * 256 * 4
            assert server.metrics()["attnbias_memory_used_bytes"] < (4 + 8 + 2) * 2**20
        misses = server.metrics()["attnbias_cache_misses_total"]
        assert large.payload(kept)
        assert server.metrics()["attnbias_cache_misses_total"] == misses
        assert server.metrics()["attnbias_cache_evictions_total"] > 0
        # A request that needs more memory at once than its caller may ever use.
        network = with_large_table()
        error = refused(lambda: small.tensor(network))
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "this caller's limit" in error.details()
        assert large.tensor(network).data


def test_bytes_per_second_limits_send_rate(start_server: Any, files: Files) -> None:
    policy = files.write_policy(
        slow={"methods": ["*"], "bytes_per_second": 8 * 2**20}, quick={"methods": ["*"]}
    )
    server = start_server(*files.tls(), files.write_tokens(slow="s", quick="q"), policy)
    with (
        server.connect(files.credentials("s")) as slow,
        server.connect(files.credentials("q")) as quick,
    ):
        begin = time.monotonic()
        assert len(slow.payload(DENSE)) == DENSE_BYTES  # 32 MiB
        assert time.monotonic() - begin > 3
        # A canceled call does not wait in the queue.
        stream = slow.stream(DENSE)
        next(stream)
        stream.cancel()
        assert len(quick.payload(DENSE)) == DENSE_BYTES
        small = spec(alibi={"num_heads": 8}, pair={"query_length": 2**15, "key_length": 2**15})
        # The calls arrive together, so all are admitted; later ones are not.
        answers = [slow.get.future(message("GetTensorRequest")(spec=small)) for _ in range(16)]
        for answer in answers:
            answer.exception()
        assert Details(refused(lambda: slow.tensor(small))).reason == "CALLER_LIMIT"
        assert quick.tensor(small).data
        server.terminate()
        assert server.process.wait(PATIENCE) == 0


def test_unix_socket_identifies_caller(start_server: Any, files: Files) -> None:
    socket = files.folder / "a.sock"
    policy = files.write_policy(unix={"methods": ["DescribeTensor"]}, t={"methods": ["*"]})
    flags = (f"--listen=unix:{socket},127.0.0.1:0", "--socket-mode=0600")
    start_server(*flags, *files.tls(), files.write_tokens(t="t"), policy)
    assert socket.stat().st_mode & 0o777 == 0o600
    request = message("GetTensorRequest")(spec=ALIBI)
    with Stub(f"unix:{socket}") as stub:
        assert stub.header(ALIBI)
        assert refused(lambda: stub.tensor(ALIBI)).code() == grpc.StatusCode.PERMISSION_DENIED
        assert stub.get(request, metadata=(("authorization", "bearer t"),)).data


def test_policy_reload_applies_to_next_call(start_server: Any, files: Files) -> None:
    tokens = files.write_tokens(trainer="t")
    server = start_server(*files.tls(), tokens, files.write_policy(trainer={"methods": ["*"]}))
    with server.connect(files.credentials("t")) as stub:
        assert stub.tensor(ALIBI)
        replace(files.policy, '{"callers": {"trainer": {"methods": ["GetTensors"]}}}')
        eventually(lambda: server.metrics()["attnbias_access_reload_failed"] == 1, "noticed")
        assert "callers.trainer: methods: got 'GetTensors'" in server.log()
        assert stub.tensor(ALIBI)
        files.write_policy(trainer={"methods": ["DescribeTensor"]})
        eventually(lambda: server.metrics()["attnbias_access_reload_failed"] == 0, "mended")
        assert refused(lambda: stub.tensor(ALIBI)).code() == grpc.StatusCode.PERMISSION_DENIED


def say(*flags: str) -> str:
    """Returns a server's output when it is given flags that it cannot use."""
    done = run_server("--check-config", *flags)
    assert done.returncode == 2
    return done.stderr


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ("", "policy.json: "),
        ("[]", "policy.json: "),
        # Protobuf's wording, which varies by version.
        ('{"caller": {}}', "Cannot find field|no such field: 'caller'"),
        (
            '{"callers": {"a": {}, "b": {"method": []}}}',
            "callers.b: (method: Cannot find field|.*no such field: 'method')",
        ),
        ('{"callers": ["a"]}', "policy.json: "),
        ('{"callers": {"a": ' + 200 * "[" + 200 * "]" + "}}", "policy.json: "),
        (
            '{"callers": {"a": {"methods": ["get"]}}}',
            "callers.a: methods: got 'get', want a method",
        ),
        (
            '{"callers": {"a": {"memory_share": 0}}}',
            "callers.a: memory_share: got 0, want a number",
        ),
        ('{"callers": {"a": {"memory_share": 1.5}}}', "memory_share: got 1.5"),
        ('{"callers": {"a": {"memory_share": "NaN"}}}', "memory_share: got nan"),
        ('{"callers": {"a": {"concurrent_calls": 0}}}', "concurrent_calls: got 0, want at least 1"),
        ('{"callers": {"a": {"bytes_per_second": -1}}}', "bytes_per_second: got -1"),
        ('{"callers": {"a b": {}}}', "got an invalid caller name"),
        ('{"callers": {"a": {}, "a": {}}}', "a"),
    ],
)
def test_error_names_invalid_policy(files: Files, policy: str, complaint: str) -> None:
    files.policy.write_text(policy)
    said = say(files.write_tokens(a="t"), f"--policy={files.policy}")
    assert said.startswith(f"--policy: {files.policy}: ") or "--policy: " in said
    assert re.search(complaint, said)


def test_error_names_unusable_file(files: Files) -> None:
    cert, key = f"--tls-cert={files.certificate}", f"--tls-key={files.key}"
    missing = files.folder / "missing"
    assert "--tls-cert: needs --tls-key" in say(cert)
    assert "--tls-key: needs --tls-cert" in say(key)
    assert "--tls-client-ca: needs --tls-cert" in say(f"--tls-client-ca={files.certificate}")
    assert "--policy: needs --tokens or --tls-client-ca" in say(files.write_policy())
    assert f"{missing}: no such file" in say(f"--tls-cert={missing}", key)
    assert "want a private key in PEM" in say(cert, f"--tls-key={files.certificate}")
    assert "want certificates in PEM" in say(f"--tls-cert={files.key}", key)
    other = files.authority.sign("other")
    assert "the key does not match the certificate in" in say(cert, f"--tls-key={other.key}")
    locked = files.folder / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", files.key, "-out", locked],
        check=True,
        capture_output=True,
    )
    assert "got an encrypted key, want an unencrypted key" in say(cert, f"--tls-key={locked}")
    files.install(files.authority.sign("old", days=-1))
    assert re.search(r"the certificate expired on \d{4}-\d\d-\d\d", say(cert, key))
    for line, complaint in {
        "trainer secret": "line 2: the token of trainer is not a digest",
        "trainer": "line 2: got 1 words, want NAME sha256:DIGEST",
        "tr\x01iner sha256:" + 64 * "0": "line 2: got the name 'tr\\001iner'",
        f"a sha256:{64 * '0'}\nb sha256:{64 * '0'}": "line 3: b has the same token as a",
    }.items():
        files.tokens.write_text(f"\n{line}\n")
        said = say(f"--tokens={files.tokens}")
        assert complaint in said
        assert "secret" not in said


def test_old_connection_closes_between_calls(start_server: Any) -> None:
    server = start_server("--max-connection-age=1s")
    with server.connect() as stub:
        stream = stub.stream(DENSE, max_chunk_bytes=2**18)
        got = 0
        for reply in stream:
            got += len(reply.data)
            time.sleep(0.02)  # older than the age limit
        assert got == DENSE_BYTES
        peers: set[str] = set()

        def reconnected() -> bool:
            context = stub.get.with_call(message("GetTensorRequest")(spec=ALIBI))[1]
            peers.add(context.peer() if hasattr(context, "peer") else "")
            log = server.log()
            return len(set(re.findall(r"peer=(\S+)", log))) > 1

        eventually(reconnected, "a second connection")


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root")
def test_wildcard_address_without_ipv6_listens_on_ipv4() -> None:
    script = 'sysctl -qw net.ipv6.conf.all.disable_ipv6=1 && ip link set lo up && exec "$0" "$@"'
    network = ("unshare", "--net", "sh", "-c", script)
    with Server("--listen=[::]:0", "--metrics-listen=[::]:0", prefix=network):
        pass


EXPOSURE = "vulnerabilities and no longer receives fixes; any client that reaches"


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("admitted", ["anyone", "tokens", "certificates"])
def test_outdated_grpc_warns_beyond_loopback(
    start_server: Any, files: Files, admitted: str
) -> None:
    """Runs in a network namespace that no other machine can reach."""
    ca = f"--tls-client-ca={files.authority.certificate}"
    flags = {
        "anyone": (),
        "tokens": files.tls(ca, files.write_tokens(one="a token of thirty-two letters.....")),
        "certificates": files.tls(ca),
    }
    network = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')
    server = start_server("--listen=0.0.0.0:0", *flags[admitted], prefix=network)
    warns = admitted != "certificates" and not server.grpc_gets_fixes()
    assert (EXPOSURE in server.log()) == warns


def test_no_exposure_warning_on_loopback(start_server: Any) -> None:
    assert EXPOSURE not in start_server().log()
