# SPDX-License-Identifier: Apache-2.0
"""What every client is asked for, and what has to come of it: the same for all of them."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tests.clients import faults
from tests.clients.faults import Fault
from tests.integration.cases import Case, Options

LONG = 60  # seconds, where nothing waits for a timeout


class Asked(NamedTuple):
    """A tensor, in the words of every client."""

    case: Case
    options: Options

    def spec(self) -> Any:
        return self.case.asked(self.options)

    def in_python(self) -> dict[str, Any]:
        """For JSON; arrays as their bytes."""
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
    """How a client has to fail."""

    status: str
    says: str = ""
    """In the message, of any client."""
    reason: str = ""
    field: str = ""
    """That the server blames, by its path in the contract."""


@dataclass(frozen=True)
class Trial:
    """A request under a fault."""

    asked: Asked
    fault: Fault = faults.none
    settings: dict[str, Any] = field(default_factory=dict)
    fails: Fails | None = None
    """None where the right bytes have to come."""
    calls: int | None = 1
    """That the server sees; None where that is a matter of time."""
    gap: float = 0
    """Seconds between two calls, at least."""

    def outcome(self) -> str:
        """In words."""
        if self.fails is None:
            return "the tensor" if self.calls == 1 else f"the tensor, after {self.calls} calls"
        times = "" if self.calls in (1, None) else f" after {self.calls} calls"
        return f"`{self.fails.status}`{times}"


def _alibi(**options: Any) -> Asked:
    return Asked(Case("alibi", {"num_heads": 8}, "pair"), options)


def _sinusoid(**options: Any) -> Asked:
    return Asked(Case("sinusoidal", {"dim": 256, "layout": "INTERLEAVED"}, "table"), options)


# 5 MiB: more than a GetTensor takes, in chunks of 1 MiB.
LARGE = _sinusoid(positions=(0, 5120))

TRIALS: dict[str, Trial] = {
    "diagonals": Trial(_alibi(queries=37, keys=37)),
    "payload flipped": Trial(
        LARGE, faults.flipped_byte, fails=Fails("DATA_LOSS", r"1048576 bytes at offset 0 have CRC")
    ),
}
