# SPDX-License-Identifier: Apache-2.0
"""Programs in languages that have no client here can use the service with stubs generated from
proto/: over TLS, with a token, and with the retry delays that errors request.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess

import grpc
import pytest

from tests.support.certificates import Authority
from tests.support.contract import spec
from tests.support.server import Server, eventually

HERE = pathlib.Path(__file__).parent
REPOSITORY = os.environ["MAVEN_REPOSITORY"]
MAVEN = ("mvn", "-B", "-q", "-o", f"-Dmaven.repo.local={REPOSITORY}", f"--file={HERE / 'java'}")
PROGRAMS = {
    "javascript": HERE / "javascript" / "smoke.js",
    "java": HERE / "java" / "src" / "main" / "java" / "Smoke.java",
}
PAGE = HERE.parents[2] / "docs" / "other-languages.md"
# A payload larger than a connection can buffer.
LONG = spec(
    alibi={"num_heads": 32},
    pair={"query_length": 4096, "key_length": 4096},
    output={"form": "FORM_DENSE"},
)


def prepare(language: str) -> None:
    """Generates the stubs for languages whose programs do not do so themselves."""
    if language == "java":
        subprocess.run([*MAVEN, "compile"], check=True)


def start(language: str, *arguments: str) -> subprocess.Popen[bytes]:
    if language == "java":
        return subprocess.Popen([*MAVEN, "exec:java", f"-Dexec.args={' '.join(arguments)}"])
    return subprocess.Popen(["node", PROGRAMS[language], *arguments])


@pytest.mark.parametrize("language", PROGRAMS)
def test_program_generated_from_contract_works(language: str, tmp_path: pathlib.Path) -> None:
    prepare(language)
    authority = Authority(tmp_path)
    pair = authority.sign("server", alternatives="IP:127.0.0.1")
    token, tokens, policy = (tmp_path / name for name in ("token", "tokens", "policy.json"))
    token.write_text("secret\n")
    tokens.write_text(f"smoke sha256:{hashlib.sha256(b'secret').hexdigest()}\n")
    rights = {"methods": ["*"], "concurrent_calls": 2}
    policy.write_text(json.dumps({"callers": {"smoke": rights}}))
    flags = (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.certificate.read_bytes()),
        grpc.access_token_call_credentials("secret"),
    )
    with (
        Server(*flags, f"--tokens={tokens}", f"--policy={policy}") as server,
        server.connect(credentials) as stub,
    ):
        # As many calls as the caller may have open, so that the program's first call is rejected.
        held = [stub.stream(LONG) for _ in range(2)]
        for stream in held:
            next(stream)
        with start(language, server.address, str(authority.certificate), str(token)) as program:

            def is_refused() -> bool:
                assert program.poll() is None, "it ended before it was refused"
                return server.metrics()['attnbias_rejected_total{reason="caller_limit"}'] > 0

            eventually(is_refused, "a call of the program is refused")
            for stream in held:
                stream.cancel()
            assert program.wait(60) == 0


@pytest.mark.parametrize(("mark", "language"), [("js", "javascript"), ("java", "java")])
def test_page_snippets_are_from_the_program(mark: str, language: str) -> None:
    pieces = re.findall(rf"^```{mark}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert pieces
    for piece in pieces:
        assert piece in PROGRAMS[language].read_text()
