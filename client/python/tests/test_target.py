# SPDX-License-Identifier: Apache-2.0
"""Targets as users write them and as gRPC receives them."""

from __future__ import annotations

import pytest

import attnbias
from attnbias._transport.channel import target_from


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("localhost", "localhost:50051"),
        ("localhost:1234", "localhost:1234"),
        ("10.0.0.7", "10.0.0.7:50051"),
        ("attnbias.svc.cluster.local", "attnbias.svc.cluster.local:50051"),
        ("::1", "[::1]:50051"),
        ("[::1]", "[::1]:50051"),
        ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
        ("dns:///host", "dns:///host:50051"),
        ("dns:host:5", "dns:host:5"),
        ("dns://8.8.8.8/host", "dns://8.8.8.8/host:50051"),
        ("ipv4:10.0.0.1,10.0.0.2:7", "ipv4:10.0.0.1:50051,10.0.0.2:7"),
        ("ipv6:[::1]:5,::2", "ipv6:[::1]:5,[::2]:50051"),
        ("unix:/run/attnbias.sock", "unix:/run/attnbias.sock"),
        ("unix:relative", "unix:relative"),
        ("unix:///run/attnbias.sock", "unix:///run/attnbias.sock"),
        ("unix-abstract:name", "unix-abstract:name"),
        ("xds:///attnbias", "xds:///attnbias"),
    ],
)
def test_target_defaults_to_service_port(given: str, want: str) -> None:
    assert target_from(given) == want


@pytest.mark.parametrize(
    "target",
    [
        "",
        " localhost",
        "host:",
        "host:port",
        "host:0",
        "host:65536",
        "a:1,b:2",
        "[::1",
        "http://localhost:50051",
        "https://localhost",
        "localhost/path",
        "dns:///",
        "ipv4:10.0.0.1,",
        "unix:",
    ],
)
def test_invalid_targets_are_rejected(target: str) -> None:
    with pytest.raises(ValueError, match=r"^target: got ") as caught:
        attnbias.Client(target)
    assert repr(target) in str(caught.value)
    assert "want host, host:port" in str(caught.value)


def test_default_target_comes_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNBIAS_SERVER", raising=False)
    assert target_from(None) == "localhost:50051"
    monkeypatch.setenv("ATTNBIAS_SERVER", "")
    assert target_from(None) == "localhost:50051"
    monkeypatch.setenv("ATTNBIAS_SERVER", "elsewhere")
    assert target_from(None) == "elsewhere:50051"
    assert target_from("here") == "here:50051"
    monkeypatch.setenv("ATTNBIAS_SERVER", "http://elsewhere")
    with pytest.raises(ValueError, match=r"^ATTNBIAS_SERVER: got 'http"):
        attnbias.Client()
