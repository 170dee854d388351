"""What a search found: its history, what each knob did, and why candidates failed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.tuner.landscapes.landscape import Landscape
    from tensorlang.tuner.storage.rows import Row

_WIDTH: Final = 300  # of the plot
_HEIGHT: Final = 160
_MOST_DOTS: Final = 1500
_MOST_VALUES: Final = 24  # of a knob
_MOST_REASONS: Final = 40
_MOST_TOLD: Final = 3  # knobs, of the reasons why the best won


@frozen
class History:
    """A plot of the time of each trial, logarithmic, and of the best so far."""

    dots: Sequence[tuple[float, float]]  # timed trials, in the picture's coordinates
    best: Sequence[tuple[float, float]]  # best so far, as a line
    failures: Sequence[float]  # where candidates failed
    ends: tuple[float, float]  # greatest and the least time, in seconds
    count: int  # number of trials
    width: int = _WIDTH
    height: int = _HEIGHT


@frozen
class Effect:
    """What a knob did: for each value the best time with it over the best of all."""

    knob: str  # its name
    # its share in what makes a configuration fast; None if unknown
    importance: float | None
    # values with that ratio and the number of timed trials, the best first
    values: Sequence[tuple[str, float, int]]
    left_out: int = 0  # how many more values were tried


@frozen
class Search:
    """A search, for a page."""

    title: str  # what was searched, and where
    trials: Mapping[str, int]  # outcomes by kind
    history: History  # plot
    best: tuple[str, float]  # fastest configuration, and its time in seconds
    # what the next one has instead, and its time; None if there is none
    second: tuple[str, float] | None
    effects: Sequence[Effect]  # of the knobs of its algorithm, the most important first
    # reasons, with the number of candidates and an example
    failures: Sequence[tuple[str, int, str]]

    @property
    def reasons(self) -> Iterator[str]:
        """Why the best won: how far the next is, and what other knobs would cost."""
        yield f"fastest of {self.trials['ok']} timed: {self.best[0]}"
        if self.second:
            ratio = self.second[1] / self.best[1]
            yield f"second: {self.second[0]}, {ratio:.2f}× its time"
        for effect in self.effects[:_MOST_TOLD]:
            (value, *_), (other, ratio, _), *_ = effect.values
            yield f"with {effect.knob}={other} instead of {value} at best {ratio:.2f}×"


def search_of(landscape: Landscape, importances: Mapping[str, float]) -> Search:
    """What a search found."""
    rows = landscape.rows
    best = landscape.best
    others = [row for row in landscape.rows if row.outcome.ok and row is not best]
    second = min(others, key=lambda row: row.outcome.seconds, default=None)
    on = f" on {landscape.device}" if landscape.device else ""
    return Search(
        f"{landscape.name}{on}",
        Counter(row.outcome.status for row in rows),
        _history([row.outcome.seconds if row.outcome.ok else None for row in rows]),
        (str(best.candidate), best.outcome.seconds),
        (_apart(second, best), second.outcome.seconds) if second else None,
        _effects(landscape, importances),
        _failures(landscape),
    )


def _apart(row: Row, best: Row) -> str:
    """A configuration, by the knobs that the best one of its algorithm has not."""
    own, other = row.candidate, best.candidate
    if own.algorithm != other.algorithm:
        return str(own)
    apart = own.knobs.items() - other.knobs.items()
    return ", ".join(f"{name}={value}" for name, value in sorted(apart))


def _history(times: Sequence[float | None]) -> History:
    timed = [(at, seconds) for at, seconds in enumerate(times) if seconds]
    low, high = (pick(seconds for _, seconds in timed) for pick in (min, max))
    span = math.log(high / low) or 1.0

    def place(at: int, seconds: float) -> tuple[float, float]:
        x = _WIDTH * at / max(len(times) - 1, 1)
        return round(x, 1), round(_HEIGHT * (1 - math.log(seconds / low) / span), 1)

    so_far = accumulate((seconds for _, seconds in timed), min)
    line = [place(at, least) for (at, _), least in zip(timed, so_far, strict=True)]
    corners = [at for n, at in enumerate(line) if not n or at[1] != line[n - 1][1]]
    stride = -(-len(timed) // _MOST_DOTS)
    failed = [place(at, high)[0] for at, seconds in enumerate(times) if not seconds]
    return History(
        [place(*each) for each in timed[::stride]],
        [*corners, (_WIDTH, line[-1][1])],
        failed[:: -(-len(failed) // _MOST_DOTS) or 1],
        (high, low),
        len(times),
    )


def _effects(landscape: Landscape, importances: Mapping[str, float]) -> list[Effect]:
    """The knobs of the best algorithm of which several values were timed."""
    rows = [row for row in landscape.of_best().rows if row.outcome.ok]
    least = landscape.best.outcome.seconds
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for knob, value in row.candidate.knobs.items():
            times[knob][str(value)].append(row.outcome.seconds / least)
    found = []
    for knob, by_value in times.items():
        ordered = sorted(
            (min(ratios), v, len(ratios)) for v, ratios in by_value.items()
        )
        values = [(value, ratio, count) for ratio, value, count in ordered]
        if len(values) > 1:
            more = max(len(values) - _MOST_VALUES, 0)
            known = importances.get(knob)
            found.append(Effect(knob, known, values[:_MOST_VALUES], more))
    return sorted(found, key=lambda effect: -(effect.importance or 0))


def _failures(landscape: Landscape) -> list[tuple[str, int, str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in landscape.rows:
        if not row.outcome.ok:
            said = f"{row.outcome.status}: {row.outcome.reason}".rstrip(": ")
            reasons[said].append(str(row.candidate))
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    return [(said, len(which), which[0]) for said, which in ordered[:_MOST_REASONS]]
