# SPDX-License-Identifier: Apache-2.0
"""Servers whose answers are consistent, and not what was asked for; and what they do to a terminal
or to a loop that believes them.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.clients.faults import (
    Fault,
    Pause,
    Refusal,
    Step,
    header,
    in_turn,
    none,
    part,
    then,
)
from tests.clients.trial import (
    LARGE,
    SMALL,
    TABLE_FILE,
    TABLE_TENSOR,
    Asked,
    Fails,
    Trial,
    alibi,
    corrupt,
    encoding,
)
from tests.integration.cases import Case
from tests.integration.contract import message

ESCAPES = "\x1b]0;owned\x07\n\u202eline"
"""Renames a terminal's window, begins a line of its own, and turns it around."""
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "I32": 4}


def claimed(
    name: str, data_type: str, form: str, *shape: int, first: int | None = None
) -> dict[str, Any]:
    """A part of a header, and the size that fits."""
    first_position = {} if first is None else {"first_relative_position": first}
    return first_position | {
        "name": name,
        "data_type": f"DATA_TYPE_{data_type}",
        "form": f"FORM_{form}",
        "shape": shape,
        "size_bytes": WIDTHS[data_type] * math.prod(shape),
    }


def claims(*parts: dict[str, Any]) -> Fault:
    """A header with these parts, one after the other."""

    def change(owner: Any) -> None:
        owner.ClearField("parts")
        owner.total_bytes = 0
        for fields in parts:
            owner.parts.add(offset=owner.total_bytes, **fields)
            owner.total_bytes += fields["size_bytes"]

    return header(change)


def _shown(fields: dict[str, Any]) -> str:
    """A part, as errors have it."""
    data_type, form = (
        fields[name].removeprefix(prefix)
        for name, prefix in (("data_type", "DATA_TYPE_"), ("form", "FORM_"))
    )
    origin = f" from {fields.get('first_relative_position', 0)}" if form == "TOEPLITZ" else ""
    return f"{fields['name']} {data_type} {form} {list(fields['shape'])}{origin}"


def mismatch(want: str, *parts: dict[str, Any], asked: Asked = SMALL) -> Trial:
    """An answer of these parts where others were asked for."""
    got = ", ".join(map(_shown, parts))
    return Trial(asked, claims(*parts), fails=_got(got, want))


def _got(got: str, want: str) -> Fails:
    return corrupt(re.escape(f"header: got {got}, want {want}"))


def changed(field: str, value: Any) -> Fault:
    """A header with another value of a field."""
    return header(lambda owner: setattr(owner, field, value))


def _fingerprint(field: str, value: str) -> Trial:
    # How a value is escaped is each language's.
    said = re.escape(value) if value.isprintable() else ".*"
    return Trial(
        SMALL,
        changed(field, value),
        fails=corrupt(rf'header\.{field}: got "{said}", want 64 lowercase hex digits'),
    )


def first_part(fault: Callable[[Any], object]) -> Fault:
    return part(fault, total=False)


WANT = "diagonals F32 TOEPLITZ [8, 73] from -36"
DENSE = alibi(queries=5, keys=7, align="end", form="dense", dtype="f16")
ROTARY = Asked(Case("rotary", {"head_dim": 8, "layout": "HALF"}, "table"), {"positions": (7, 40)})
ROTARY_WANT = "cos F32 TABLE [33, 8], sin F32 TABLE [33, 8]"
# Its number of columns only the server knows.
NAMED = Asked(
    Case("learned_absolute", {"table": f"{TABLE_FILE}:{TABLE_TENSOR}"}, "table"),
    {"positions": (0, 8)},
)
GRID = Asked(
    Case(
        "beit",
        {
            "window_height": 2,
            "window_width": 3,
            "num_heads": 2,
            "table": np.zeros((18, 2), np.float32),
        },
        "grid",
    ),
    {},
)
GRID_WANT = "block F32 BLOCK_TOEPLITZ_2D [2, 3, 5], border F32 TABLE [2, 3]"
SHAW = Asked(
    Case("shaw", {"left": 1, "right": 1, "table": np.zeros((3, 4), np.float32)}, "pair"),
    {"queries": 6, "keys": 6},
)
BUCKETS = encoding("deberta", queries=20, keys=20, values="buckets")

diagonals, cos, sin = (
    claimed("diagonals", "F32", "TOEPLITZ", 8, 73, first=-36),
    claimed("cos", "F32", "TABLE", 33, 8),
    claimed("sin", "F32", "TABLE", 33, 8),
)
CLAIMS = {
    "fewer diagonals": mismatch(WANT, claimed("diagonals", "F32", "TOEPLITZ", 8, 72, first=-36)),
    "a dense `[1]`": mismatch(WANT, claimed("dense", "F32", "DENSE", 1)),
    "`[0, 2^62]`": mismatch(WANT, claimed("diagonals", "F32", "TOEPLITZ", 0, 1 << 62, first=-36)),
    "`[0, 2^62]`, by the second call": Trial(
        SMALL,
        in_turn(none, claims(claimed("diagonals", "F32", "TOEPLITZ", 0, 1 << 62, first=-36))),
        settings={"times": 2},
        fails=_got("diagonals F32 TOEPLITZ [0, 4611686018427387904] from -36", WANT),
        calls=2,
    ),
    "another number of heads": mismatch(
        WANT, claimed("diagonals", "F32", "TOEPLITZ", 7, 73, first=-36)
    ),
    "one axis more": mismatch(WANT, claimed("diagonals", "F32", "TOEPLITZ", 8, 73, 1, first=-36)),
    "another name": mismatch(WANT, claimed("bias", "F32", "TOEPLITZ", 8, 73, first=-36)),
    "another element type": mismatch(
        WANT, claimed("diagonals", "F16", "TOEPLITZ", 8, 73, first=-36)
    ),
    "another element type of the same size": mismatch(
        WANT, claimed("diagonals", "I32", "TOEPLITZ", 8, 73, first=-36)
    ),
    "another first relative position": mismatch(
        WANT, claimed("diagonals", "F32", "TOEPLITZ", 8, 73, first=-35)
    ),
    "the dense form, unasked": mismatch(WANT, claimed("dense", "F32", "DENSE", 8, 37, 37)),
    "another form of the same shape": mismatch(WANT, claimed("diagonals", "F32", "TABLE", 8, 73)),
    "a part twice": mismatch(WANT, diagonals, diagonals),
    "a part besides": mismatch(WANT, diagonals, claimed("border", "F32", "TABLE", 8, 3)),
    "diagonals for a dense tensor": mismatch(
        "dense F16 DENSE [8, 5, 7]",
        claimed("diagonals", "F16", "TOEPLITZ", 8, 11, first=-4),
        asked=DENSE,
    ),
    "queries for keys": mismatch(
        "dense F16 DENSE [8, 5, 7]", claimed("dense", "F16", "DENSE", 8, 7, 5), asked=DENSE
    ),
    "one of two parts": mismatch(ROTARY_WANT, cos, asked=ROTARY),
    "two parts in another order": mismatch(ROTARY_WANT, sin, cos, asked=ROTARY),
    "two parts of one name": mismatch(ROTARY_WANT, cos, cos, asked=ROTARY),
    "a table without columns": mismatch(
        "positions F32 TABLE [8, ?]", claimed("positions", "F32", "TABLE", 8, 0), asked=NAMED
    ),
    "a table of other positions": mismatch(
        "positions F32 TABLE [8, ?]", claimed("positions", "F32", "TABLE", 2, 8), asked=NAMED
    ),
    "no border": mismatch(
        GRID_WANT, claimed("block", "F32", "BLOCK_TOEPLITZ_2D", 2, 3, 5), asked=GRID
    ),
    "numbers for vectors": mismatch(
        "diagonals F32 TOEPLITZ [11, 4] from -5",
        claimed("diagonals", "F32", "TOEPLITZ", 11, first=-5),
        asked=SHAW,
    ),
    "numbers for indices": mismatch(
        "diagonals I32 TOEPLITZ [39] from -19",
        claimed("diagonals", "F32", "TOEPLITZ", 39, first=-19),
        asked=BUCKETS,
    ),
    "an empty fingerprint": _fingerprint("fingerprint", ""),
    "a fingerprint in upper case": _fingerprint("fingerprint", "A" * 64),
    "a fingerprint of 63 digits": _fingerprint("fingerprint", "a" * 63),
    "a fingerprint and a new line": _fingerprint("fingerprint", "a" * 64 + "\n"),
    "an empty encoding fingerprint": _fingerprint("encoding_fingerprint", ""),
    "an encoding fingerprint in upper case": _fingerprint("encoding_fingerprint", "A" * 64),
}


def _refusal() -> Refusal:
    """Whose every text is hostile."""
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


# Messages and logs of all clients are free of control characters: each test looks.
OWNED = "owned"
TEXTS = {
    "a status with terminal escapes": Trial(
        SMALL,
        then(_refusal(), after=0),
        fails=Fails("INVALID_ARGUMENT", OWNED, reason=None),
    ),
    "`UNAVAILABLE` with terminal escapes, at first": Trial(
        SMALL, in_turn(then(Refusal(grpc.StatusCode.UNAVAILABLE, ESCAPES), after=0), none), calls=2
    ),
    "a part's name with terminal escapes": Trial(
        SMALL,
        first_part(lambda owner: setattr(owner, "name", ESCAPES)),
        fails=corrupt("header: got .*owned.*, want diagonals"),
    ),
    "a part's name that is long": Trial(
        SMALL,
        first_part(lambda owner: setattr(owner, "name", "x" * (1 << 20))),
        fails=corrupt("^.{,100}header: got x{100}.{,900}, want diagonals.{,100}$"),
    ),
    "a part's name with terminal escapes, whose size is wrong": Trial(
        SMALL,
        first_part(lambda owner: (setattr(owner, "name", ESCAPES), setattr(owner, "offset", 8))),
        fails=corrupt("header: part .*owned.* does not add up"),
    ),
    "a fingerprint with terminal escapes": _fingerprint("fingerprint", ESCAPES),
    "another fingerprint with terminal escapes, to a resume": Trial(
        LARGE,
        in_turn(
            then(Refusal(grpc.StatusCode.UNAVAILABLE, "not now"), after=3),
            changed("fingerprint", ESCAPES),
        ),
        fails=corrupt("owned"),
        calls=2,
    ),
}


def pages(page: Callable[[int], tuple[list[str], str]], *first: Step) -> Fault:
    """An answer to ListTables for the number of its call: names, and the token of the next."""

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
    "pages without end, each empty": Trial(
        None,
        pages(lambda call: ([], str(call))),
        fails=corrupt("tables: got an empty page before the last"),
    ),
    "pages without end, all the same": Trial(
        None,
        pages(lambda _: (["b"], "b")),
        fails=corrupt('tables: got "b" after "b", want names in ascending order'),
        calls=2,
    ),
    "pages without end, in order": Trial(
        None,
        pages(lambda call: ([f"{call:04}"], f"{call:04}")),
        fails=corrupt("tables: got more than 1000 pages, want at most 1000"),
        calls=1000,
    ),
    "pages without end, one a second": Trial(
        None,
        pages(lambda call: ([f"{call:04}"], f"{call:04}"), Pause(1)),
        settings={"timeout": 3},
        fails=Fails("DEADLINE_EXCEEDED"),
        calls=None,
    ),
}
