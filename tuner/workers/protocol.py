"""The protocol of tuner and worker: one JSON object per line.

The worker announces each stage before entering it, so that the tuner knows what a
candidate was doing when it died or hung. While it runs a schedule function it asks the
tuner for the value of each knob.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from math import isfinite
from typing import Any, Final

from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Choice, Domain, Integer, Value

OK: Final = "ok"
ILLEGAL: Final = "illegal"  # rejected by the schedule or by machine limits
FAILED: Final = "failed"  # did not build
WRONG: Final = "wrong"  # wrong result
CRASHED: Final = "crashed"  # killed the worker
HUNG: Final = "hung"  # timed out
LOST: Final = "lost"  # not judged, for reasons of the surroundings; tried again later
# stages that say nothing about a candidate: waiting for the device, and computing what
# is expected of all candidates
WAIT: Final = "wait"
EXPECT: Final = "expect"
UNCOUNTED: Final = (WAIT, EXPECT)
CHECKS: Final = 4  # revision of the checks; outcomes of earlier revisions are retried
STATUSES: Final = (OK, ILLEGAL, FAILED, WRONG, CRASHED, HUNG, LOST)


class Disturbed(TuningError):  # noqa: N818 - an event, told as an outcome
    """The worker lacks memory or a disk, and is replaced."""


@frozen
class Candidate:
    """A configuration: an algorithm and knob values."""

    algorithm: str
    knobs: Mapping[str, Value] = field(default_factory=dict)
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Equal for equal configurations."""
        if not self._key:
            made = json.dumps([self.algorithm, dict(self.knobs)], sort_keys=True)
            object.__setattr__(self, "_key", made)
        return self._key

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.knobs.items())
        return f"{self.algorithm}({settings})"


@frozen
class Outcome:
    """The outcome of a candidate."""

    status: str  # one of `STATUSES`
    reason: str = ""  # why it is not `ok`, in a sentence; else empty
    seconds: float = 0.0  # median time of a call
    spread: float = 0.0  # half the interquartile range over the median
    error: float = 0.0  # largest error relative to the permitted one
    ir: str = ""  # content hash of the scheduled IR
    # seconds by stage: `build`, `check`, `wait`, `measure`
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether it was correct and timed."""
        return self.status == OK

    def to_json(self) -> dict[str, object]:
        """Plain data, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Read the result of `to_json`; TuningError if malformed."""
        try:
            outcome = cls(
                status=str(data["status"]),
                reason=str(data["reason"]),
                seconds=float(data["seconds"]),
                spread=float(data["spread"]),
                error=float(data["error"]),
                ir=str(data["ir"]),
                spent={stage: float(took) for stage, took in data["spent"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as why:
            raise TuningError(f"{str(data)[:120]} is not an outcome: {why}") from None
        if outcome.status not in STATUSES:
            raise TuningError(f"{outcome.status!r} is not one of {STATUSES}")
        if not isfinite(outcome.seconds):
            raise TuningError(f"{outcome.seconds} is no number of seconds")
        return outcome


def domain_to_json(domain: Domain) -> list[object]:
    """Plain data, for `domain_from_json`."""
    if isinstance(domain, Choice):
        return ["choice", *domain.options]
    return ["integer", domain.low, domain.high, domain.step, domain.log]


def domain_from_json(data: list[Any]) -> Domain:
    """Read the result of `domain_to_json`."""
    kind, *values = data
    return Choice(tuple(values)) if kind == "choice" else Integer(*values)


def encode(message: Mapping[str, object]) -> bytes:
    """A message as a line."""
    return json.dumps(message).encode() + b"\n"


def read(line: str) -> dict[str, Any]:
    """Parse a line; TuningError if not a JSON object."""
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise TuningError(f"{line[:120]!r} is not a message")
    return message
