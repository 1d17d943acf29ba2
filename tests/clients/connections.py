# SPDX-License-Identifier: Apache-2.0
"""Targets that cannot be reached, at least not immediately.

Each fails long before its timeout, which is longer than the suite could wait.
"""

from tests.clients.faults import Away, in_turn, none, then
from tests.clients.fronts import (
    Front,
    addresses,
    http,
    late,
    localhost,
    nothing,
    over_tls,
    plain,
    silent,
    unknown_host,
)
from tests.clients.trial import PATIENCE, SMALL, Fails, Trial

AUTHORITIES = ("ca", "stranger")
CERTIFICATES = {"here": "DNS:localhost,IP:127.0.0.1,IP:::1", "elsewhere": "DNS:elsewhere.test"}
"""Signed by the first authority, for these names."""


def unreached(front: Front, says: str, ca: str = "", *, on_localhost: bool = False) -> Trial:
    """Returns a trial for a client with a two-second connect timeout."""
    settings = {"connect_timeout": 2, "timeout": 5 * PATIENCE}
    return Trial(
        SMALL,
        settings=settings | ({"ca": ca} if ca else {}),
        fails=Fails("UNAVAILABLE", says),
        calls=0,
        front=front,
        on_localhost=on_localhost,
    )


IPV4, IPV6 = r"127\.0\.0\.1:\d+: ", r"\[::1\]:\d+: "
REFUSED = "[^;]*[Rr]efused[^;]*"
NO_TLS = "answers, but not over TLS"
NEEDS_TLS = "answers, but does not speak gRPC in plaintext: does it need TLS"
CONNECTIONS = {
    "nothing": unreached(
        nothing, r"nothing is answering at 127\.0\.0\.1:\d+: is the server running"
    ),
    "an unknown host": unreached(unknown_host, r"nowhere\.invalid:50051 cannot be resolved"),
    "an HTTP/1.1 server": unreached(
        http, "answers, but does not speak gRPC: is this the right port"
    ),
    "a server that never sends a byte": unreached(silent, r"127\.0\.0\.1:\d+"),
    "a server that never sends a byte, called over TLS": unreached(
        silent, r"127\.0\.0\.1:\d+", "ca"
    ),
    "a server with TLS, called in plaintext": unreached(over_tls("here"), NEEDS_TLS),
    "a server without TLS, called over TLS": unreached(plain, NO_TLS, "ca"),
    "a certificate for another name": unreached(
        over_tls("elsewhere"), "has a certificate for another name", "ca"
    ),
    "a certificate of an unknown authority": unreached(
        over_tls("here"), "has a certificate that is not trusted here", "stranger"
    ),
    "two addresses: nothing, and a server with TLS": unreached(
        addresses(nothing, over_tls("here")), f"{NEEDS_TLS}.*{IPV4}{REFUSED}; {IPV4}[^;]+"
    ),
    "two addresses: a server with TLS, and nothing": unreached(
        addresses(over_tls("here"), nothing), f"{NEEDS_TLS}.*{IPV4}[^;]+; {IPV4}{REFUSED}"
    ),
    "two addresses: a server without TLS, called over TLS, and nothing": unreached(
        addresses(plain, nothing), f"{NO_TLS}.*{IPV4}[^;]+; {IPV4}{REFUSED}", "ca"
    ),
    "`localhost`: nothing, and a server with TLS": unreached(
        localhost(nothing, over_tls("here")),
        f"^(?=.*{IPV6}{REFUSED})(?=.*{IPV4}[^;]+).*localhost:[0-9]+ {NEEDS_TLS}",
        on_localhost=True,
    ),
    "`localhost`: a server with TLS, and nothing": unreached(
        localhost(over_tls("here"), nothing),
        f"^(?=.*{IPV6}[^;]+)(?=.*{IPV4}{REFUSED}).*localhost:[0-9]+ {NEEDS_TLS}",
        on_localhost=True,
    ),
    "a server with TLS": Trial(SMALL, settings={"ca": "ca"}, front=over_tls("here")),
    "nothing, and a server 3 s later": Trial(
        SMALL, settings={"connect_timeout": 30}, front=late(3)
    ),
    "a server that goes away for 4 s after the first call": Trial(
        SMALL,
        in_turn(none, then(Away(4), after=0), none),
        settings={"connect_timeout": 2, "times": 2},
        calls=3,
    ),
}
