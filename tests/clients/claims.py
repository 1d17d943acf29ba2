# SPDX-License-Identifier: Apache-2.0
"""Servers that send inconsistent headers, terminal escapes or endless pages."""

import math
import re
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.clients.faults import Fault, Pause, Refusal, Step, header, in_turn, none, part, then
from tests.clients.trial import SMALL, Asked, Fails, Trial, corrupt, spoilt
from tests.support.cases import Case
from tests.support.contract import message

ESCAPES = "\x1b]0;owned\x07\n\u202eline"
"""Renames a terminal's window, starts a new line, and reverses the text direction."""


def claimed(name: str, form: str, *shape: int) -> dict[str, Any]:
    """Returns a header part with a consistent size."""
    return {
        "name": name,
        "data_type": "DATA_TYPE_F32",
        "form": f"FORM_{form}",
        "shape": shape,
        "size_bytes": 4 * math.prod(shape),
        "first_relative_position": -36,
    }


def claims(*parts: dict[str, Any]) -> Fault:
    """Returns a fault whose header has these parts, one after another."""

    def change(owner: Any) -> None:
        owner.ClearField("parts")
        owner.total_bytes = 0
        for fields in parts:
            owner.parts.add(offset=owner.total_bytes, **fields)
            owner.total_bytes += fields["size_bytes"]

    return header(change)


def contradicts(says: str, *parts: dict[str, Any]) -> Trial:
    """Returns a trial whose answer has parts that no real server sends."""
    return spoilt(claims(*parts), "header" + says, SMALL)


def changed(field: str, value: Any) -> Fault:
    """Returns a fault that changes one field of the header."""
    return header(lambda owner: setattr(owner, field, value))


def _fingerprint(field: str, value: str) -> Trial:
    # Quoting and escaping differ by language.
    said = re.escape(value) if value.isprintable() else ".*"
    return spoilt(
        changed(field, value),
        rf"header\.{field}: got [\"']{said}[\"'], want 64 lowercase hex digits",
        SMALL,
    )


def masked(got: str, *rows: dict[str, int]) -> Trial:
    """Returns a trial whose answer claims that these rows (of 37) see no key."""

    def change(owner: Any) -> None:
        for row in rows:
            owner.fully_masked_rows.add(**row)

    says = f"header.fully_masked_rows: got {got}, want ascending ranges in [0, 37)"
    return spoilt(header(change), re.escape(says), SMALL)


AXES = {"dim": 8, "axes": [{"scale": 2.0}, {"offset": 0.5}]}
GRID_OF_AXES = Asked(Case("sinusoidal", AXES), {"grid": [2, 3], "grid_offset": [5, -1]})
SHAW = {"left": 1, "right": 1, "vectors": np.zeros((3, 4), np.float32)}
VECTORS = Asked(Case("learned_relative", SHAW), {"query_length": 6, "key_length": 6})


def diagonals(*shape: int) -> dict[str, Any]:
    return claimed("diagonals", "TOEPLITZ", *shape)


def columns(*axes: int) -> Trial:
    """Returns a trial whose answer is correct, except for the axes of its columns."""
    says = "header.column_axes: got columns that differ from those of the parts"

    def change(owner: Any) -> None:
        owner.column_axes[:] = axes

    return spoilt(header(change), re.escape(says), GRID_OF_AXES)


SAME_NAME = r"\.parts: got \[diagonals, diagonals\], want distinct names"
CLAIMS = {
    "`[0, 2^62]`": contradicts(".* does not add up", diagonals(0, 1 << 62)),
    "no axis": contradicts(".* does not add up", diagonals()),
    "a part twice": contradicts(SAME_NAME, diagonals(8, 73), diagonals(8, 73)),
    "an empty name": contradicts(
        r"\.parts: got the name ['\"]{2}, want", claimed("", "TOEPLITZ", 8, 73)
    ),
    "a table with a first relative position": contradicts(
        ": part positions has first_relative_position -36, want 0",
        claimed("positions", "TABLE", 8, 73),
    ),
    "more columns on an axis than its part has": columns(0, 0, 0, 0, 0, 1, 1, 1),
    "a column on an axis without a part": columns(0, 0, 0, 0, 1, 1, 1, 2),
    "one column too many": columns(0, 0, 0, 0, 1, 1, 1, 1, 1),
    "masked queries beyond the window": masked("[36, 38)", {"begin": 36, "end": 38}),
    "masked queries before the window": masked("[-1, 2)", {"begin": -1, "end": 2}),
    "masked queries twice": masked("[1, 3)", {"end": 2}, {"begin": 1, "end": 3}),
    "an empty fingerprint": _fingerprint("fingerprint", ""),
    "a fingerprint in upper case": _fingerprint("fingerprint", "A" * 64),
    "a fingerprint of 63 digits": _fingerprint("fingerprint", "a" * 63),
    "a fingerprint and a new line": _fingerprint("fingerprint", "a" * 64 + "\n"),
    "an empty encoding fingerprint": _fingerprint("encoding_fingerprint", ""),
    "an encoding fingerprint in upper case": _fingerprint("encoding_fingerprint", "A" * 64),
}


def first_part(fault: Callable[[Any], object]) -> Fault:
    return part(fault, total=False)


def _refusal() -> Refusal:
    """Returns an error in which every string is hostile."""
    status = status_pb2.Status(code=grpc.StatusCode.INVALID_ARGUMENT.value[0], message=ESCAPES)
    for detail in (
        error_details_pb2.ErrorInfo(reason=ESCAPES, domain=ESCAPES),
        error_details_pb2.RequestInfo(request_id=ESCAPES),
        error_details_pb2.BadRequest(field_violations=[{"field": ESCAPES, "description": ESCAPES}]),
    ):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    trailers = (("grpc-status-details-bin", status.SerializeToString()),)
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, ESCAPES, trailers=trailers)


# Every test checks messages and logs for control characters.
OWNED = "owned"
TEXTS = {
    "a status with terminal escapes": Trial(
        SMALL, then(_refusal(), after=0), fails=Fails("INVALID_ARGUMENT", OWNED, reason=None)
    ),
    "`UNAVAILABLE` with terminal escapes, at first": Trial(
        SMALL, in_turn(then(Refusal(grpc.StatusCode.UNAVAILABLE, ESCAPES), after=0), none), calls=2
    ),
    "a part's name with terminal escapes": spoilt(
        first_part(lambda owner: setattr(owner, "name", ESCAPES)),
        r"header\.parts: got the name .*owned",
        SMALL,
    ),
    "a long part name": spoilt(
        first_part(lambda owner: setattr(owner, "name", "x" * (1 << 20))),
        r"^.{,100}header\.parts: got the name ['\"]x{50}.{,950}, want .{,100}$",
        SMALL,
    ),
    "a fingerprint with terminal escapes": _fingerprint("fingerprint", ESCAPES),
    "another fingerprint with terminal escapes, when resuming": spoilt(
        in_turn(
            then(Refusal(grpc.StatusCode.UNAVAILABLE, "not now"), after=3),
            changed("fingerprint", ESCAPES),
        ),
        "owned",
        calls=2,
    ),
}


def pages(page: Callable[[int], tuple[list[str], str]], *first: Step) -> Fault:
    """Answers ListTables: `page` maps each call to its names and the next page's token."""

    def fault(attempt: int, _messages: list[bytes]) -> list[Step]:
        names, token = page(attempt)
        answer = message("ListTablesResponse")(
            tables=[
                {"name": name, "sha256": "0" * 64, "data_type": "DATA_TYPE_F32", "shape": [1]}
                for name in names
            ],
            next_page_token=token,
        )
        return [*first, answer.SerializeToString()]

    return fault


TABLES = {
    "a table's name with terminal escapes": Trial(
        None, pages(lambda _: ([ESCAPES], "")), tables=[ESCAPES]
    ),
    "two pages": Trial(
        None, pages(lambda call: (["ab"[call]], "" if call else "a")), tables=["a", "b"], calls=2
    ),
    "endless pages, all empty": Trial(
        None,
        pages(lambda call: ([], str(call))),
        fails=corrupt("tables: got an empty page before the last"),
    ),
    "endless pages, all the same": Trial(
        None,
        pages(lambda _: (["b"], "b")),
        fails=corrupt('tables: got "b" after "b", want names in ascending order'),
        calls=2,
    ),
    "endless pages, in order": Trial(
        None,
        pages(lambda call: ([f"{call:04}"], f"{call:04}")),
        fails=corrupt("tables: got more than 100 pages, want at most 100"),
        calls=100,
    ),
    "endless pages, one per second": Trial(
        None,
        pages(lambda call: ([f"{call:04}"], f"{call:04}"), Pause(1)),
        settings={"timeout": 3},
        fails=Fails("DEADLINE_EXCEEDED"),
        calls=None,
    ),
}
