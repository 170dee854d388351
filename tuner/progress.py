"""Progress and reports of tuning runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from tensorlang.frozen import frozen
from tensorlang.notebooks import card
from tensorlang.tuner.measurement.rounds import Ratio
from tensorlang.tuner.workers.protocol import Candidate, Outcome
from tensorlang.workload import Workload


@frozen
class Progress:
    """Status of a run after a trial.

    Attributes:
        operator: The operator's id.
        member: Its index among the operators to tune, from 1; `members` is their
            number.
        workload: The workload.
        trials: Configurations tried, including earlier runs.
        trials_wanted: The requested number of trials, if any.
        elapsed: Seconds since the start of the run; `budget` is the limit.
        best_seconds: The best time of a correct candidate so far.
        default_seconds: The default's time.
        last: The last candidate and its outcome.
        counts: Outcomes by status.
        space: An upper bound of the number of configurations, if known.
    """

    operator: str
    member: int
    members: int
    workload: Workload
    trials: int
    trials_wanted: int | None
    elapsed: float
    budget: float | None
    best_seconds: float | None
    default_seconds: float | None
    last: tuple[Candidate, Outcome] | None
    counts: Mapping[str, int]
    space: int | None = None


Listener: TypeAlias = Callable[[Progress], None]


@frozen
class Report:
    """The result for an operator and workload.

    Attributes:
        operator: The operator's id.
        workload: The workload.
        target: The fingerprint of the machine.
        default_seconds: The default configuration's time in the finals; None if it was
            not checked within the budget, nor within a candidate's limit.
        best: The winning configuration; the default if nothing beat it or nothing was
            compared. If the run was interrupted before its finals, the fastest so far.
        seconds: Its time in the finals; without finals, in its trial, if it had one.
        spread: Half the interquartile range of its samples over their median.
        ratio: Default over best, paired by round; None if the default won or there were
            no finals.
        trials: Configurations tried, including earlier runs.
        earlier: Those of earlier runs.
        counts: Outcomes by status.
        reasons: An example of each kind of failure, with the number of candidates.
        record: The file in which the winner was recorded; None if it was not.
        interrupted: Whether the run was stopped early.
        spent: Seconds by stage, including the tuner's `bookkeeping`.
        exhausted: Whether every configuration of the space was tried.
        note: A remark in one sentence, or empty.
        compared: Whether there were finals, or nothing to compare.
        static: Whether all times are estimates.
        disturbed: What other programs did meanwhile that makes the times less certain.
    """

    operator: str
    workload: Workload
    target: str
    default_seconds: float | None
    best: Candidate
    seconds: float | None
    spread: float
    ratio: Ratio | None
    trials: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    earlier: int = 0
    record: Path | None = None
    interrupted: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)
    exhausted: bool = False
    note: str = ""
    compared: bool = True
    static: bool = False
    disturbed: str = ""

    def _repr_html_(self) -> str:
        """What a notebook shows: the times, the winner, and why candidates failed."""
        won = self.ratio or "the default stands"
        facts = {
            "machine": self.target,
            "default": _microseconds(self.default_seconds),
            "best": f"{_microseconds(self.seconds)}, {won}",
            "configuration": self.best,
            "trials": ", ".join(f"{n} {kind}" for kind, n in self.counts.items()),
        }
        failed = "\n".join(f"{count} x {why}" for why, count in self.reasons.items())
        said = [("failures", "text", failed)] if failed else []
        return card(f"search of {self.workload}", facts, said)


def _microseconds(seconds: float | None) -> str:
    return "not timed" if seconds is None else f"{seconds * 1e6:,.2f} µs"
