"""The finals: the best so far against what is used now, side by side.

Times that were taken minutes apart cannot be compared on a shared machine. What would
replace the default, or the record that is used now, must beat it round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Final

from tensorlang.tuner.process import Died, Silent, Worker
from tensorlang.tuner.protocol import CRASHED, HUNG, WRONG, Candidate, Outcome
from tensorlang.tuner.rounds import Ratio, paired_ratio

MOST_ROUNDS: Final = 25
FEWEST_ROUNDS: Final = 6  # fewer give no 95 % interval
_SAMPLE: Final = 0.004  # seconds that a sample takes at least
_WARM_UP: Final = 0.03

Samples = dict[str, list[float]]
Left = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A candidate of the finals, and the time that is known of it."""

    candidate: Candidate
    seconds: float

    @property
    def key(self) -> str:
        """The candidate's."""
        return self.candidate.key


@dataclass(slots=True)
class Finals:
    """Times of those who finished, and what became of those who did not.

    Attributes:
        samples: Seconds a call, round by round, by candidate.
        failed: Outcomes of candidates that seemed right and are not.
        measured: On a GPU, where and under which clocks; for people.
    """

    samples: Samples = field(default_factory=dict)
    failed: list[tuple[Candidate, Outcome]] = field(default_factory=list)
    measured: str = ""


def seconds_for(entrants: Sequence[Entrant], rounds: int) -> float:
    """What timing them takes, about."""
    once = sum(max(entrant.seconds * 1.2, _SAMPLE) for entrant in entrants)
    return once * (rounds + 1) + _WARM_UP * len(entrants)


def rounds_within(entrants: Sequence[Entrant], left: float) -> int:
    """How many rounds fit into the time that is left; 0 where too few do."""
    if left == inf:
        return MOST_ROUNDS
    fitting = [n for n in range(1, MOST_ROUNDS + 1) if seconds_for(entrants, n) < left]
    rounds = max(fitting, default=0)
    return rounds if rounds >= FEWEST_ROUNDS else 0


def run(
    worker: Worker, base: Sequence[Entrant], others: Sequence[Entrant], left: Left
) -> Finals:
    """Time all entrants; when that takes the worker down, the others one by one.

    Args:
        worker: Where.
        base: What is used now; they take part in any case.
        others: Challengers, the most promising first.
        left: Seconds that may still be used.
    """
    finals = Finals()
    if others and _heat(worker, [*base, *others], left, finals) is None:
        return finals
    for other in others:
        lost = _heat(worker, [*base, other], left, finals)
        if lost is None:
            return finals
        finals.failed.append((other.candidate, lost))
    if len(base) > 1:
        _heat(worker, base, left, finals)
    return finals


def _heat(
    worker: Worker, entrants: Sequence[Entrant], left: Left, finals: Finals
) -> Outcome | None:
    """Time these together, if there is time; how the worker was lost, if it was."""
    rounds = rounds_within(entrants, left())
    if not rounds:
        return None
    limit = min(left(), 60 + 10 * seconds_for(entrants, rounds))
    try:
        samples, failed = worker.finals([e.candidate for e in entrants], rounds, limit)
    except Died as death:
        return Outcome(CRASHED, f"{death}, in the finals")
    except Silent:
        return None if left() <= 0 else Outcome(HUNG, "hung in the finals")
    finals.samples.update(samples)
    finals.measured = worker.measured
    finals.failed += [
        (entrant.candidate, Outcome(WRONG, failed[entrant.key]))
        for entrant in entrants
        if entrant.key in failed
    ]
    return None


def champion(
    samples: Mapping[str, Sequence[float]], default: str, incumbent: str | None
) -> str:
    """The key of what is to be used from now on.

    It starts with what is used now. Only a real win changes that; and what is not at
    least as fast as the default gives way to it.
    """
    held = incumbent if incumbent in samples else default
    assert held is not None
    for key in sorted(samples, key=lambda key: median(samples[key])):
        if key != held and paired_ratio(samples[held], samples[key]).low > 1:
            held = key
    if held == default:
        return default
    ratio: Ratio = paired_ratio(samples[default], samples[held])
    least = ratio.median if held == incumbent else ratio.low
    fast_enough = least >= 1 if held == incumbent else least > 1
    return held if fast_enough else default
