"""What a tuning run tells while it runs, and what it found in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tensorlang.tuner.protocol import Candidate, Outcome
from tensorlang.tuner.rounds import Ratio
from tensorlang.workload import Workload


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands after a trial.

    Attributes:
        operator: The operator's id.
        member: Which of the operators to tune this is, from 1; `members` how many.
        workload: What is tuned.
        trials: Configurations tried so far, those of earlier runs included.
        trials_wanted: How many will be tried, where a number was asked for.
        elapsed: Seconds since the run began; `budget` how many it may take.
        best_seconds: The best time of a right candidate so far.
        default_seconds: The default's time.
        last: The candidate just tried, and what became of it.
        counts: Outcomes by status.
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


Listener: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What was found for an operator and workload.

    Attributes:
        operator: The operator's id.
        workload: What was tuned.
        target: The fingerprint of the machine.
        default_seconds: The default configuration's time, in the finals.
        best: The configuration that won; the default where nothing beat it, or nothing
            was compared. In a run that was interrupted before its finals, the fastest
            so far.
        seconds: Its time in the finals; without them, when it was tried.
        spread: Half the interquartile range of its samples over their median.
        ratio: Default over best, paired by round; None where the default won, or
            where there were no finals.
        trials: Configurations tried, those of earlier runs included.
        counts: Outcomes by status.
        reasons: An example of each kind of failure, and how many candidates met it.
        record: The file that the winner was recorded in; None where it was not.
        interrupted: Whether the run was stopped before its end.
        spent: Seconds by stage, the tuner's own `bookkeeping` among them.
        exhausted: Whether every configuration of the space was tried.
        note: What else there is to say, in a sentence; empty where nothing is.
        compared: Whether there were finals, or there was nothing to compare with.
        static: Whether all times are estimates, and nothing was run.
    """

    operator: str
    workload: Workload
    target: str
    default_seconds: float
    best: Candidate
    seconds: float
    spread: float
    ratio: Ratio | None
    trials: int
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    record: Path | None = None
    interrupted: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)
    exhausted: bool = False
    note: str = ""
    compared: bool = True
    static: bool = False
