"""Finals: the best candidates against the current configuration, interleaved.

Times taken minutes apart are not comparable on a shared machine. A candidate that
replaces the default or the current record must beat it round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Final

from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.tuner.measurement.rounds import Ratio, paired_ratio
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.process import Died, Silent
from tensorlang.tuner.workers.protocol import (
    CRASHED,
    HUNG,
    LOST,
    WRONG,
    Candidate,
    Outcome,
)

MOST_ROUNDS: Final = 25
FEWEST_ROUNDS: Final = 6  # the minimum for a 95 % interval
_SAMPLE: Final = 0.004  # minimum seconds per sample
_WARM_UP: Final = 0.03
_EARLY_ROUNDS: Final = 7  # of a comparison during the search
_MORE_WINS: Final = 5  # beside other programs: by chance, one of 32 ties has them all

Samples = dict[str, list[float]]
Left = Callable[[], float]


@frozen
class Entrant:
    """A candidate of the finals and its known time."""

    candidate: Candidate
    seconds: float

    @property
    def key(self) -> str:
        """The candidate's key."""
        return self.candidate.key


@dataclass(slots=True)
class Finals:
    """Samples of those who finished, and outcomes of those who did not."""

    # seconds per call and round, by candidate
    samples: Samples = field(default_factory=dict)
    # outcomes of candidates that turned out wrong
    failed: list[tuple[Candidate, Outcome]] = field(default_factory=list)
    measured: str = ""  # on a GPU, a readable description of device and clocks
    disturbed: bool = False  # whether other programs kept processors busy meanwhile


def seconds_for(entrants: Sequence[Entrant], rounds: int) -> float:
    """Estimated seconds for timing them."""
    once = sum(max(entrant.seconds * 1.2, _SAMPLE) for entrant in entrants)
    return once * (rounds + 1) + _WARM_UP * len(entrants)


def rounds_within(entrants: Sequence[Entrant], left: float) -> int:
    """The number of rounds that fit into the remaining time; 0 if too few."""
    if left == inf:
        return MOST_ROUNDS
    fitting = [n for n in range(1, MOST_ROUNDS + 1) if seconds_for(entrants, n) < left]
    rounds = max(fitting, default=0)
    return rounds if rounds >= FEWEST_ROUNDS else 0


def run(
    worker: Worker,
    base: Sequence[Entrant],
    others: Sequence[Entrant],
    left: Left,
    *,
    checked: bool = False,
) -> Finals:
    """Time all entrants; if that kills the worker, add one after the other.

    Args:
        base: The configurations in use, the default first, which always take part: but
            a record that kills the worker does not, so that no challenger is blamed;
            nor is the record where the default alone kills it too.
        others: Challengers, the most promising first; the last ones are left out where
            there is no time for all.
        left: Remaining seconds.
        checked: Whether a process of this run has already checked them again.
    """
    finals = Finals()

    def heat(entrants: Sequence[Entrant], into: Finals = finals) -> Outcome | None:
        return _heat(worker, entrants, left, into, checked=checked)

    while others and not rounds_within([*base, *others], left()):
        others = others[:-1]
    if others and heat([*base, *others]) is None:
        return finals
    held = list(base[:1])
    for entrant in (*base[1:], *others):
        lost = heat([*held, entrant])
        if lost is None and entrant in others:
            return finals
        if lost is None:
            held.append(entrant)
        elif lost.status == LOST:
            break
        elif entrant in base and (alone := heat(held, Finals())):
            if alone.status != LOST:
                finals.failed.append((base[0].candidate, alone))
            break
        else:
            finals.failed.append((entrant.candidate, lost))
    return finals


def confirm(
    worker: Worker,
    base: Sequence[Entrant],
    others: Sequence[Entrant],
    first: Finals,
    left: Left,
) -> str:
    """Time winners again in a process of their own; drop those that do not win there.

    Where memory lies, how code is aligned and what its threads do changes from process
    to process, and with it the time, by more than it varies within one. Beside other
    programs, which favour one side for a while, the rounds of a process are not
    independent; processes are: a winner has to be ahead in several more, and beyond
    noise in all rounds together. A winner for which there is no time to win again is no
    winner.

    Args:
        worker: The worker, which is replaced.
        base: The configurations in use, the default first.
        others: The challengers.
        first: The finals; what was timed again gets all samples.
        left: Remaining seconds.

    Returns:
        Why a faster challenger is not trusted; empty if there is none.
    """
    default, incumbent = base[0].key, base[-1].key
    known, doubt = {other.key: other for other in others}, ""
    while (key := champion(first.samples, default, incumbent)) in known:
        samples, wins = first.samples, 0
        while wins < wins_needed(disturbed=first.disturbed):
            worker.stop()
            again = run(worker, base, [known[key]], left, checked=wins > 0)
            first.disturbed |= again.disturbed
            if not _wins(key, again, default, incumbent):
                break
            both = samples.keys() & again.samples.keys()
            samples = {k: [*samples[k], *again.samples[k]] for k in both}
            wins += 1
        else:
            if champion(samples, default, incumbent) == key:
                first.samples = samples
                return doubt
        first.failed += again.failed
        if key in again.samples:
            doubt = f"{known[key].candidate} was faster in one process, not in another"
            del first.samples[key]
        elif any(candidate.key == key for candidate, _ in again.failed):
            del first.samples[key]
        else:
            first.samples = {k: v for k, v in first.samples.items() if k not in known}
            return (
                f"{known[key].candidate} was faster in one process, and there was no "
                "time to confirm it in another: run it again"
            )
    return doubt


def wins_needed(*, disturbed: bool) -> int:
    """In how many more processes a winner has to win."""
    return _MORE_WINS if disturbed else 1


def _wins(key: str, finals: Finals, default: str, incumbent: str) -> bool:
    """Whether a challenger wins in a process; beside other programs, in most rounds."""
    samples = finals.samples
    if not (finals.disturbed and {default, key} <= samples.keys()):
        return champion(samples, default, incumbent) == key
    return all(
        paired_ratio(samples[held], samples[key]).median > 1
        for held in {default, incumbent} & samples.keys()
    )


def beside(worker: Worker, default: Entrant, best: Entrant, left: float) -> Samples:
    """Samples of the default and the best so far, side by side, during a search.

    Empty if anything goes wrong, which is for the finals to judge.
    """
    pair = [default, best]
    if seconds_for(pair, _EARLY_ROUNDS) > left / 2:
        return {}
    try:
        candidates = [entrant.candidate for entrant in pair]
        samples, _ = worker.finals(candidates, _EARLY_ROUNDS, left, left)
    except (Died, Silent, TuningError):
        return {}
    return samples


def _heat(
    worker: Worker,
    entrants: Sequence[Entrant],
    left: Left,
    finals: Finals,
    *,
    checked: bool,
) -> Outcome | None:
    """Time these together if there is time; return how the worker was lost, if so."""
    rounds = rounds_within(entrants, left())
    if not rounds:
        return None
    limit = 60 + 10 * seconds_for(entrants, rounds)
    candidates = [entrant.candidate for entrant in entrants]
    try:
        samples, failed = worker.finals(
            candidates, rounds, limit, left(), checked=checked
        )
    except Died as death:
        status = LOST if death.outside else CRASHED
        return Outcome(status, f"{death}, in the finals")
    except TuningError as problem:
        return Outcome(LOST, str(problem))
    except Silent:
        return None if left() <= 0 else Outcome(HUNG, "hung in the finals")
    finals.samples.update(samples)
    finals.measured = worker.measured
    finals.disturbed |= worker.disturbed
    finals.failed += [
        (entrant.candidate, Outcome(WRONG, failed[entrant.key]))
        for entrant in entrants
        if entrant.key in failed
    ]
    return None


def champion(
    samples: Mapping[str, Sequence[float]], default: str, incumbent: str | None
) -> str:
    """The key of the configuration to use from now on.

    The current configuration is replaced only by a significant win, or by the default
    if it is not at least as fast as that.
    """
    held = incumbent if incumbent in samples else default
    assert held is not None
    if held not in samples:  # it is no longer right
        return held
    for key in sorted(samples, key=lambda key: median(samples[key])):
        if key != held and paired_ratio(samples[held], samples[key]).low > 1:
            held = key
    if held == default:
        return default
    ratio: Ratio = paired_ratio(samples[default], samples[held])
    least = ratio.median if held == incumbent else ratio.low
    fast_enough = least >= 1 if held == incumbent else least > 1
    return held if fast_enough else default
