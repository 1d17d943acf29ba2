# SPDX-License-Identifier: Apache-2.0
"""A case: a tensor in the words of every client, a fault, and what has to come of it."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.clients.faults import Fault, none
from tests.clients.fronts import Front, plain
from tests.support.cases import Case, Fields, Options, case_of

LONG = 60  # seconds, where nothing waits for a timeout
PATIENCE = 120  # seconds, for what takes as long as the machine takes


class Asked(NamedTuple):
    """A tensor, in the words of every client."""

    case: Case
    options: Options

    def spec(self) -> Any:
        return self.case.asked(self.options)

    def in_python(self) -> dict[str, Any]:
        """Returns the JSON form, with arrays as their bytes."""
        fields = {
            name: (
                {"dtype": value.dtype.name, "shape": value.shape, "hex": value.tobytes().hex()}
                if isinstance(value, np.ndarray)
                else value
            )
            for name, value in self.case.fields.items()
        }
        return {"encoding": self.case.encoding, "fields": fields, "options": self.options}


@dataclass(frozen=True)
class Fails:
    """The expected failure of a client."""

    status: str
    says: str = ""
    """A pattern that the message of every client matches."""
    reason: str | None = ""
    """None where any will do."""
    field: str = ""
    """That the server blames, by its path in the contract."""


@dataclass(frozen=True)
class Trial:
    """A request under a fault."""

    asked: Asked | None
    """None for the list of tables."""
    fault: Fault = none
    settings: dict[str, Any] = field(default_factory=dict)
    fails: Fails | None = None
    """None where the right bytes have to come."""
    tables: list[str] | None = None
    """Their names, where these have to come."""
    calls: int | None = 1
    """That the server sees; None where that is a matter of time."""
    guarded: bool = False
    """Whether the server asks who calls."""
    gap: float = 0
    """Seconds between two calls, at least."""
    front: Front = plain
    """What stands at the client's target."""
    on_localhost: bool = False
    """Whether the target is localhost with two addresses, which not all machines have."""

    def outcome(self) -> str:
        """Describes the outcome in words."""
        if self.tables is not None:
            return "the tables"
        if self.fails is None:
            return "the tensor" + (f", by {self._calls()}" if self._calls() else "")
        return self.fails.status + (f" after {self._calls()}" if self._calls() else "")

    def _calls(self) -> str:
        """Empty for one call, for none, and where the number depends on time."""
        if self.calls in (0, 1, None):
            return ""
        return f"{self.calls} calls" + (f", {self.gap} s apart" if self.gap else "")


def alibi(fields: Fields | None = None, **options: Any) -> Asked:
    return Asked(Case("alibi", {"num_heads": 8} | (fields or {})), options)


def sinusoid(**options: Any) -> Asked:
    return Asked(Case("sinusoidal", {"dim": 256, "columns": "INTERLEAVED"}), options)


def t5(table: Any) -> Asked:
    fields = {"num_heads": 2, "bidirectional": True, "table": table}
    return Asked(Case("t5", fields), {"query_length": 5, "key_length": 7, "alignment": "end"})


def encoding(name: str, **options: Any) -> Asked:
    return Asked(case_of(name, 1), options)


TABLE = np.arange(64, dtype=np.float32).reshape(32, 2)
# A mounted one, whose name is that of its file and its tensor.
TABLE_FILE, TABLE_TENSOR = "it's 100%2F", 'layer.0/"relative" bias=[a,b]:@c '
# 5 MiB, in chunks of 1 MiB.
LARGE = sinusoid(positions=(0, 5120))

# 2 KB, in one message.
SMALL = alibi(query_length=37, key_length=37)


def corrupt(says: str) -> Fails:
    return Fails("DATA_LOSS", says)


def spoilt(fault: Fault, says: str, asked: Asked = LARGE, **more: Any) -> Trial:
    """Returns a trial whose answer no client accepts."""
    return Trial(asked, fault, fails=corrupt(says), **more)
