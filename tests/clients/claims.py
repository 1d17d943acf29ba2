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
    SMALL,
    TABLE_FILE,
    TABLE_TENSOR,
    Asked,
    Fails,
    Trial,
    alibi,
    corrupt,
    encoding,
    spoilt,
)
from tests.support.cases import Case
from tests.support.contract import message

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


def claims(*parts: dict[str, Any], heads: int | None = None) -> Fault:
    """A header with these parts, one after the other, and a resolved request of `heads`."""

    def change(owner: Any) -> None:
        owner.ClearField("parts")
        owner.total_bytes = 0
        for fields in parts:
            owner.parts.add(offset=owner.total_bytes, **fields)
            owner.total_bytes += fields["size_bytes"]
        if heads is not None:
            spec = owner.resolved_spec
            getattr(spec, spec.WhichOneof("encoding")).num_heads = heads

    return header(change)


def mismatch(
    says: str, *parts: dict[str, Any], asked: Asked = SMALL, heads: int | None = None
) -> Trial:
    """An answer of these parts where others were asked for."""
    return spoilt(claims(*parts, heads=heads), "header" + re.escape(says), asked)


def names(got: str, want: str, *parts: dict[str, Any], asked: Asked = SMALL) -> Trial:
    """Parts whose names are others."""
    return mismatch(f".parts: got [{got}], want [{want}]", *parts, asked=asked)


def other(field: str, got: Any, want: Any, part: dict[str, Any], asked: Asked = SMALL) -> Trial:
    """A part of which one field is another, the first that clients compare."""
    return mismatch(f": part {part['name']} has {field} {got}, want {want}", part, asked=asked)


def changed(field: str, value: Any) -> Fault:
    """A header with another value of a field."""
    return header(lambda owner: setattr(owner, field, value))


def _fingerprint(field: str, value: str) -> Trial:
    # How a value is quoted and escaped is each language's.
    said = re.escape(value) if value.isprintable() else ".*"
    return spoilt(
        changed(field, value),
        rf"header\.{field}: got [\"']{said}[\"'], want 64 lowercase hex digits",
        SMALL,
    )


def resolved(change: Callable[[Any], object], asked: Asked = SMALL) -> Trial:
    """Returns a trial whose answer is right, except that it resolves to another request."""
    says = "header.resolved_spec: got another request, want the one that was made"
    fault = header(lambda owner: change(owner.resolved_spec))
    return spoilt(fault, re.escape(says), asked)


def understood(asked: Asked, **pair: Any) -> Trial:
    """Returns a trial whose answer resolves to the request for another tensor."""

    def change(spec: Any) -> None:
        spec.CopyFrom(asked.spec())
        spec.pair.MergeFrom(message("PairExtent")(**pair))

    return resolved(change)


def masked(got: str, want: str, *rows: dict[str, int], asked: Asked) -> Trial:
    """Returns a trial whose answer claims that these rows see no key."""

    def change(owner: Any) -> None:
        owner.ClearField("fully_masked_rows")
        for row in rows:
            owner.fully_masked_rows.add(**row)

    says = f"header.fully_masked_rows: got {got}, want {want}"
    return spoilt(header(change), re.escape(says), asked)


def first_part(fault: Callable[[Any], object]) -> Fault:
    return part(fault, total=False)


DENSE = alibi(query_length=5, key_length=7, alignment="end", form="dense", data_type="f16")
ROTARY = Asked(Case("rotary", {"head_dim": 8, "layout": "HALF"}), {"positions": (7, 40)})
# Their numbers of columns, and whether there are heads, only the server knows.
NAMED = {"table": f"{TABLE_FILE}:{TABLE_TENSOR}"}
NAMED_TABLE = Asked(Case("learned_absolute", NAMED), {"positions": (0, 8)})
PAIRS = {"query_length": 6, "key_length": 6}
REACH = {"left": 15, "right": 16}
NAMED_VECTORS = Asked(Case("learned_relative", REACH | {"vectors": NAMED["table"]}), PAIRS)
GRID = {"window": [2, 3], "num_heads": 2, "class_token": True}
BORDERED = Asked(Case("grid_relative", GRID | {"table": np.zeros((18, 2), np.float32)}), {})
NAMED_GRID = {"window": [1, 15], "class_token": True} | NAMED
NAMED_BORDERED = Asked(Case("grid_relative", NAMED_GRID), {})
# The request leaves num_heads out: what it has two of gives the number.
TURNED = {"table": np.zeros((2, 32), np.float32), "table_layout": "HEADS_BUCKETS"}
MLP = {"hidden": (5, 1), "output": (2, 5)}
WEIGHTS = {f"{name}_weight": np.zeros(shape, np.float32) for name, shape in MLP.items()}
HEADS_OF_COLUMNS = Asked(Case("t5", {"bidirectional": True} | TURNED), PAIRS)
HEADS_OF_OUTPUTS = Asked(Case("fire", WEIGHTS), PAIRS)
HEADS_OF_LIST = Asked(Case("alibi", {"slopes": [0.5, 0.25]}), PAIRS)
LISTED = alibi(query_positions=[9, 0, 1, 4], key_positions=[7, 3])
AXES = {"dim": 8, "axes": [{"scale": 2.0}, {"offset": 0.5}]}
TWO_AXES = Asked(Case("sinusoidal", AXES), {"position_ids": [[1, 5, 2], [3, 4, 9]]})
# Either axis may have the stride: queries and block are the same.
STRIDED = Asked(
    Case("grid_relative", {"window": [3, 3], "num_heads": 2, "table": np.zeros((25, 2), "f4")}),
    {"query_stride": [2, 1]},
)
GRID_OF_AXES = Asked(Case("sinusoidal", AXES), {"grid": [2, 3], "grid_offset": [5, -1]})
# The first two of 7 queries see no key.
MASKED = alibi(query_length=7, queries=(0, 7), key_length=7, keys=(2, 7), causal=True)
SHAW = {"left": 1, "right": 1, "vectors": np.zeros((3, 4), np.float32)}
VECTORS = Asked(Case("learned_relative", SHAW), PAIRS)
BUCKETS = encoding("deberta", query_length=20, key_length=20, values="buckets")


def diagonals(*shape: int, data_type: str = "F32", first: int = -36) -> dict[str, Any]:
    return claimed("diagonals", data_type, "TOEPLITZ", *shape, first=first)


def columns(*axes: int) -> Trial:
    """Returns a trial whose answer is right, except for the axes of its columns."""
    says = "header.column_axes: got other columns, want those of the parts"

    def change(owner: Any) -> None:
        owner.column_axes[:] = axes

    return spoilt(header(change), re.escape(says), GRID_OF_AXES)


COS, SIN = (claimed(name, "F32", "TABLE", 33, 8) for name in ("cos", "sin"))
CLAIMS = {
    "fewer diagonals": other("shape", [8, 72], [8, 73], diagonals(8, 72)),
    "a dense `[1]`": names("dense", "diagonals", claimed("dense", "F32", "DENSE", 1)),
    "`[0, 2^62]`": other("shape", [0, 1 << 62], [8, 73], diagonals(0, 1 << 62)),
    "another number of heads": other("shape", [7, 73], [8, 73], diagonals(7, 73)),
    "one axis more": other("shape", [8, 73, 1], [8, 73], diagonals(8, 73, 1)),
    "one axis less": other("shape", [584], [8, 73], diagonals(584)),
    "no axis": other("shape", [], [8, 73], diagonals()),
    "another name": names("bias", "diagonals", claimed("bias", "F32", "TOEPLITZ", 8, 73)),
    "an empty name": names("", "diagonals", claimed("", "F32", "TOEPLITZ", 8, 73)),
    "another element type": other("data_type", "F16", "F32", diagonals(8, 73, data_type="F16")),
    "another element type of the same size": other(
        "data_type", "I32", "F32", diagonals(8, 73, data_type="I32")
    ),
    "another first relative position": other(
        "first_relative_position", -35, -36, diagonals(8, 73, first=-35)
    ),
    "the dense form, unasked": names(
        "dense", "diagonals", claimed("dense", "F32", "DENSE", 8, 37, 37)
    ),
    "another form of the same shape": other(
        "form", "TABLE", "TOEPLITZ", claimed("diagonals", "F32", "TABLE", 8, 73, first=-36)
    ),
    "a part twice": names("diagonals, diagonals", "diagonals", diagonals(8, 73), diagonals(8, 73)),
    "a part besides": names(
        "diagonals, border", "diagonals", diagonals(8, 73), claimed("border", "F32", "TABLE", 8, 3)
    ),
    "diagonals for a dense tensor": names(
        "diagonals", "dense", diagonals(8, 11, data_type="F16", first=-4), asked=DENSE
    ),
    "queries for keys": other(
        "shape", [8, 7, 5], [8, 5, 7], claimed("dense", "F16", "DENSE", 8, 7, 5), DENSE
    ),
    "one of two parts": names("cos", "cos, sin", COS, asked=ROTARY),
    "two parts in another order": names("sin, cos", "cos, sin", SIN, COS, asked=ROTARY),
    "two parts of one name": names("cos, cos", "cos, sin", COS, COS, asked=ROTARY),
    "a table without columns": other(
        "shape", [8, 0], "[8, any]", claimed("positions", "F32", "TABLE", 8, 0), NAMED_TABLE
    ),
    "a table of other positions": other(
        "shape", [2, 8], "[8, any]", claimed("positions", "F32", "TABLE", 2, 8), NAMED_TABLE
    ),
    "vectors of no heads": other(
        "shape",
        [0, 11, 2],
        "[11, any], perhaps after an axis of heads",
        diagonals(0, 11, 2, first=-5),
        NAMED_VECTORS,
    ),
    "no border": names(
        "block",
        "block, border",
        claimed("block", "F32", "BLOCK_TOEPLITZ", 2, 3, 5),
        asked=BORDERED,
    ),
    "a border of fewer heads": mismatch(
        ": part border has shape [1, 3], want [2, 3]",
        claimed("block", "F32", "BLOCK_TOEPLITZ", 2, 1, 29),
        claimed("border", "F32", "TABLE", 1, 3),
        asked=NAMED_BORDERED,
    ),
    "more heads than the table has, and a request for them": mismatch(
        ": part diagonals has shape [3, 11], want [2, 11]",
        diagonals(3, 11, first=-5),
        asked=HEADS_OF_COLUMNS,
        heads=3,
    ),
    "more heads than the weight has, and a request for them": mismatch(
        ": part dense has shape [3, 6, 6], want [2, 6, 6]",
        claimed("dense", "F32", "DENSE", 3, 6, 6),
        asked=HEADS_OF_OUTPUTS,
        heads=3,
    ),
    "more heads than slopes, and a request for them": mismatch(
        ": part diagonals has shape [3, 11], want [2, 11]",
        diagonals(3, 11, first=-5),
        asked=HEADS_OF_LIST,
        heads=3,
    ),
    "numbers for vectors": other("shape", [11], [11, 4], diagonals(11, first=-5), VECTORS),
    "numbers for indices": other("data_type", "F32", "I32", diagonals(39, first=-19), BUCKETS),
    "no resolved request": resolved(lambda spec: spec.Clear()),
    "another encoding as the resolved request": understood(
        Asked(Case("kerple", {"num_heads": 8}), {"query_length": 37, "key_length": 37})
    ),
    # Has as many diagonals, from the same one on.
    "one query and 73 keys as the resolved request": understood(
        alibi(query_length=37, key_length=73),
        query_offset=0,
        queries={"begin": 36, "end": 37},
        keys={"end": 73},
    ),
    "other positions as the resolved request": understood(
        alibi(query_length=47, key_length=47),
        query_offset=0,
        queries={"begin": 10, "end": 47},
        keys={"begin": 10, "end": 47},
    ),
    "another listed position in the resolved request": resolved(
        lambda spec: spec.pair.query_positions.positions.__setitem__(1, 2), LISTED
    ),
    "another position on the second axis in the resolved request": resolved(
        lambda spec: spec.table.position_ids[1].positions.__setitem__(1, 2), TWO_AXES
    ),
    "another offset of the grid in the resolved request": resolved(
        lambda spec: spec.table.grid_offset.__setitem__(1, 0), GRID_OF_AXES
    ),
    "another stride of queries in the resolved request": resolved(
        lambda spec: spec.grid.query_stride.__setitem__(slice(None), [1, 2]), STRIDED
    ),
    "a part of a grid without columns": mismatch(
        ": part positions.axis1 has shape [3, 0], want [3, any]",
        claimed("positions.axis0", "F32", "TABLE", 2, 8),
        claimed("positions.axis1", "F32", "TABLE", 3, 0),
        asked=GRID_OF_AXES,
    ),
    "a whole table for a grid": names(
        "positions",
        "positions.axis0, positions.axis1",
        claimed("positions", "F32", "TABLE", 6, 8),
        asked=GRID_OF_AXES,
    ),
    "no axes of columns": columns(),
    "more columns on an axis than its part has": columns(0, 0, 0, 0, 0, 1, 1, 1),
    "a column on an axis without a part": columns(0, 0, 0, 0, 1, 1, 1, 2),
    "one column too many": columns(0, 0, 0, 0, 1, 1, 1, 1, 1),
    "masked queries without a mask": masked("[[0, 2]]", "[]", {"end": 2}, asked=SMALL),
    "other masked queries": masked("[[1, 3]]", "[[0, 2]]", {"begin": 1, "end": 3}, asked=MASKED),
    "no masked queries": masked("[]", "[[0, 2]]", asked=MASKED),
    "an empty fingerprint": _fingerprint("fingerprint", ""),
    "a fingerprint in upper case": _fingerprint("fingerprint", "A" * 64),
    "a fingerprint of 63 digits": _fingerprint("fingerprint", "a" * 63),
    "a fingerprint and a new line": _fingerprint("fingerprint", "a" * 64 + "\n"),
    "an empty encoding fingerprint": _fingerprint("encoding_fingerprint", ""),
    "an encoding fingerprint in upper case": _fingerprint("encoding_fingerprint", "A" * 64),
}


def _refusal() -> Refusal:
    """A refusal whose every text is hostile."""
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


# Each test looks for control characters in messages and logs.
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
    "a part's name with terminal escapes": spoilt(
        first_part(lambda owner: setattr(owner, "name", ESCAPES)),
        r"header\.parts: got \[.*owned.*\], want \[diagonals\]",
        SMALL,
    ),
    "a part's name that is long": spoilt(
        first_part(lambda owner: setattr(owner, "name", "x" * (1 << 20))),
        r"^.{,100}header\.parts: got \[x{50}.{,950}\], want \[diagonals\].{,100}$",
        SMALL,
    ),
    "a part's name with terminal escapes, whose size is wrong": spoilt(
        first_part(lambda owner: (setattr(owner, "name", ESCAPES), setattr(owner, "offset", 8))),
        "header: part .*owned.* does not add up",
        SMALL,
    ),
    "a fingerprint with terminal escapes": _fingerprint("fingerprint", ESCAPES),
    "another fingerprint with terminal escapes, to a resume": spoilt(
        in_turn(
            then(Refusal(grpc.StatusCode.UNAVAILABLE, "not now"), after=3),
            changed("fingerprint", ESCAPES),
        ),
        "owned",
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
        fails=corrupt("tables: got more than 100 pages, want at most 100"),
        calls=100,
    ),
    "pages without end, one a second": Trial(
        None,
        pages(lambda call: ([f"{call:04}"], f"{call:04}"), Pause(1)),
        settings={"timeout": 3},
        fails=Fails("DEADLINE_EXCEEDED"),
        calls=None,
    ),
}
