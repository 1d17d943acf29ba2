# SPDX-License-Identifier: Apache-2.0
"""A test case: a tensor in each client's terms, a fault, and the expected outcome."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.clients.faults import Fault, none
from tests.clients.fronts import Front, plain
from tests.support.cases import Case, Fields, Options, case_of

LONG = 60  # seconds, for cases that do not wait for a timeout
PATIENCE = 120  # seconds, for steps that depend on the machine's speed


class Asked(NamedTuple):
    """A tensor, in each client's terms."""

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
    """A client's expected failure."""

    status: str
    says: str = ""
    """Pattern that every client's message matches."""
    reason: str | None = ""
    """None accepts any reason."""
    field: str = ""
    """Path of the field that the server reports."""


@dataclass(frozen=True)
class Trial:
    """A request, the fault injected into its answers, and the expected outcome."""

    asked: Asked | None
    """None for the list of tables."""
    fault: Fault = none
    settings: dict[str, Any] = field(default_factory=dict)
    fails: Fails | None = None
    """None if the correct bytes must arrive."""
    tables: list[str] | None = None
    """Names expected in the list of tables."""
    calls: int | None = 1
    """Number of calls that the server receives; None if it depends on timing."""
    guarded: bool = False
    """True if the server authenticates callers."""
    gap: float = 0
    """Minimum seconds between two calls."""
    front: Front = plain
    """What listens at the client's target."""
    on_localhost: bool = False
    """True if the target is localhost with two addresses, which some machines lack."""

    def outcome(self) -> str:
        """Describes the outcome in words."""
        if self.tables is not None:
            return "the tables"
        if self.fails is None:
            return "the tensor" + (f", by {self._calls()}" if self._calls() else "")
        return self.fails.status + (f" after {self._calls()}" if self._calls() else "")

    def _calls(self) -> str:
        """Returns the number of calls in words; empty if it is 0 or 1, or depends on timing."""
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
# A mounted table, named after its file and tensor.
TABLE_FILE, TABLE_TENSOR = "it's 100%2F", 'layer.0/"relative" bias=[a,b]:@c '
# 5 MiB, in chunks of 1 MiB.
LARGE = sinusoid(positions=(0, 5120))

# 2 KB, in one message.
SMALL = alibi(query_length=37, key_length=37)


def corrupt(says: str) -> Fails:
    return Fails("DATA_LOSS", says)


def spoilt(fault: Fault, says: str, asked: Asked = LARGE, **more: Any) -> Trial:
    """Returns a trial whose answer every client rejects."""
    return Trial(asked, fault, fails=corrupt(says), **more)
