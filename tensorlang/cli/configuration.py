"""The configuration that a call would run, with a verdict on each candidate record."""

from __future__ import annotations

from dataclasses import field, replace

from tensorlang import records
from tensorlang.frozen import frozen
from tensorlang.ops import Operator, pins
from tensorlang.ops.kernels import building
from tensorlang.record_files import Record
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.targets import Target
from tensorlang.workload import Workload


@frozen
class Verdict:
    """A candidate record, how close a match it is, and the outcome."""

    record: Record
    near: str
    said: str


@frozen
class Chosen:
    """The selected schedule with its algorithm and knobs, and the reason."""

    schedule: Schedule
    algorithm: str
    knobs: Knobs
    why: str
    record: Record | None = None
    verdicts: list[Verdict] = field(default_factory=list)


def choose(op: Operator, workload: Workload, target: Target) -> Chosen:
    """Select what `op` would run for a workload, as `ops.building` does.

    Raises:
        ArgumentError: a pinned knob is unknown to the schedule or out of its domain.
    """
    verdicts: list[Verdict] = []
    chosen: Chosen | None = None
    for choice in records.lookup(workload, target):
        result: tuple[Schedule, Knobs] | str = "not needed"
        if pins.pinned(op):
            result = "there are pins"
        elif chosen is None:
            result = building.replayed(op, choice.record, workload, target)
        if not isinstance(result, str):
            record = choice.record
            chosen = Chosen(
                result[0], record.algorithm, result[1], choice.reason, record
            )
        said = result if isinstance(result, str) else "chosen"
        verdicts.append(Verdict(choice.record, choice.reason, said))
    return replace(chosen or _default(op, workload, target), verdicts=verdicts)


def _default(op: Operator, workload: Workload, target: Target) -> Chosen:
    fixed = pins.pinned(op)
    made, knobs = building.default(op, workload, target, fixed)
    algorithm = str(
        fixed.get(pins.ALGORITHM) or building.preferred(op, workload, target)
    )
    found = building.schedules(op, algorithm, target)
    named = f"schedule {found[0]}, " if found else ""
    why = f"the default: {named}knobs chosen by shape and machine"
    if fixed:
        why = f"{pins.sources(op)[0]} fixes {', '.join(fixed)}"
    return Chosen(made, algorithm, knobs, why)


def measured(record: Record | None, workload: Workload, target: Target) -> float:
    """The time of a record if it was measured for this very call; else 0."""
    wanted = replace(workload, threads=workload.threads or target.threads)
    if record is None or record.static or record.unverified:
        return 0.0
    own = record.workload == wanted and record.target == target.fingerprint
    return record.seconds if own else 0.0
