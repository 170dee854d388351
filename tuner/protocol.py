"""What tuner and worker say to each other: one JSON object a line, plain data only.

The worker announces each stage before it enters it, so that when it dies or hangs the
tuner knows what the candidate was doing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tensorlang.errors import TuningError
from tensorlang.scheduling.knobs import Value

OK: Final = "ok"
ILLEGAL: Final = "illegal"  # the schedule or the machine's limits refuse the knobs
FAILED: Final = "failed"  # it did not build
WRONG: Final = "wrong"  # it computed something else
CRASHED: Final = "crashed"  # it took the worker down
HUNG: Final = "hung"  # it did not end in time
CHECKS: Final = 2  # their revision; what earlier ones let pass is tried again
STATUSES: Final = (OK, ILLEGAL, FAILED, WRONG, CRASHED, HUNG)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration to try: an algorithm and its knobs' values."""

    algorithm: str
    knobs: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The same for equal configurations."""
        return json.dumps([self.algorithm, dict(self.knobs)], sort_keys=True)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.knobs.items())
        return f"{self.algorithm}({settings})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate.

    Attributes:
        status: One of `STATUSES`.
        reason: Why it is not `ok`, in a sentence; empty where it is.
        seconds: Median time of a call.
        spread: Half the interquartile range over the median.
        error: Largest error, in units of what the algorithm is allowed.
        ir: Content hash of the scheduled IR.
        spent: Seconds by stage: `build`, `check`, `measure`.
    """

    status: str
    reason: str = ""
    seconds: float = 0.0
    spread: float = 0.0
    error: float = 0.0
    ir: str = ""
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it was right, and timed."""
        return self.status == OK

    def to_json(self) -> dict[str, object]:
        """Plain data; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote.

        Raises:
            TuningError: it is none.
        """
        try:
            outcome = cls(**{name: data[name] for name in cls.__dataclass_fields__})
        except (KeyError, TypeError) as problem:
            raise TuningError(f"{str(data)[:120]} is no outcome: {problem}") from None
        if outcome.status not in STATUSES:
            raise TuningError(f"{outcome.status!r} is not one of {STATUSES}")
        return outcome


def encode(message: Mapping[str, object]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


def read(line: str) -> dict[str, Any]:
    """The message of a line.

    Raises:
        TuningError: the line is no JSON object.
    """
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise TuningError(f"{line[:120]!r} is no message")
    return message
