"""Why knobs have their values: what cost models compared, and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Candidate, Value

if TYPE_CHECKING:
    from tensorlang.scheduling.knobs import Knobs

_MOST: Final = 8  # candidates shown
_APART: Final = 1.005  # times of a term that are told apart


@frozen
class Comparison:
    """Candidates of a cost model."""

    # one with the values of the page's knobs; None if it is not among them
    own: Candidate | None
    others: Sequence[Candidate]  # fastest of the others, the first one next
    count: int  # how many were compared

    @property
    def terms(self) -> list[str]:
        """The names of what times are made of; those that are always 0 are left out."""
        shown = [self.own, *self.others] if self.own else self.others
        times = [_times(each) for each in shown]
        names = dict.fromkeys(n for each in times for n in each)
        return [n for n in names if any(each.get(n) for each in times)]

    @property
    def rows(self) -> list[tuple[str, float, list[float | None]]]:
        """Each candidate's knobs, cycles and terms, that of the page first."""
        shown = [*([self.own] if self.own else []), *self.others]
        return [
            (settings(each.knobs), each.cycles, list(map(_times(each).get, self.terms)))
            for each in shown
        ]

    @property
    def said(self) -> str:
        """The comparison in a sentence."""
        if self.own is None:
            return f"none of the {self.count:,} candidates that the model compares"
        text = f"{self.own.cycles:,.0f} cycles predicted{_parts(self.own)}"
        if not self.others:
            return f"{text}, the only candidate"
        return f"{text}; next of {self.count:,}: {self._next(self.own, self.others[0])}"

    def _next(self, own: Candidate, other: Candidate) -> str:
        apart = {
            n: v
            for n, v in other.knobs.items()
            if n not in own.knobs or own.knobs[n] != v
        }
        ratio = other.cycles / own.cycles
        old, new = _times(own), _times(other)
        worst = max(self.terms, key=lambda n: new.get(n, 0) - old.get(n, 0))
        before, after = old.get(worst, 0.0), new.get(worst, 0.0)
        text = f"{settings(apart)}, {ratio:.2f}\N{MULTIPLICATION SIGN} its time"
        if after > before * _APART:
            text += f", {worst} {after:,.0f}"
        return text


def _times(candidate: Candidate) -> dict[str, float]:
    return {**candidate.sizes, **candidate.terms}


def _parts(candidate: Candidate) -> str:
    """What the time of a candidate is made of."""
    terms = [f"{n} {time:,.0f}" for n, time in candidate.terms.items() if time]
    told = f"{'in part at the same time: ' * (len(terms) > 1)}{', '.join(terms)}"
    if not candidate.sizes:
        return f" ({told})"
    sizes = [f"{time:,.0f} for {n}" for n, time in candidate.sizes.items()]
    text = f", the geometric mean of {' and '.join(sizes)}"
    last = [*candidate.sizes][-1]
    return f"{text} (of {last}, {told})" if terms else text


def settings(knobs: Mapping[str, Value]) -> str:
    """Values of knobs as text."""
    return ", ".join(f"{name}={value!r}" for name, value in knobs.items())


def comparisons(knobs: Knobs) -> list[Comparison]:
    """What cost models compared for the defaults of knobs."""
    return [_comparison(list(each()), knobs.values) for each in knobs.compared]


def _comparison(
    candidates: Sequence[Candidate], values: Mapping[str, Value]
) -> Comparison:
    """The candidates; they leave out knobs that do not apply to them."""
    ordered = sorted(candidates, key=lambda each: each.cycles)
    own = next((each for each in ordered if _has(values, each)), None)
    others = islice((each for each in ordered if each is not own), _MOST - 1)
    return Comparison(own, list(others), len(ordered))


def _has(values: Mapping[str, Value], candidate: Candidate) -> bool:
    given = candidate.knobs.items() & values.items()
    return bool(given) and all(
        values[name] == value
        for name, value in candidate.knobs.items()
        if name in values
    )


def reasons(knobs: Knobs) -> Iterator[str]:
    """Why knobs with their defaults have them, by rules; one reason for equal ones."""
    names: dict[str, list[str]] = {}
    for name, why in knobs.reasons.items():
        if knobs.values[name] == knobs.defaults[name]:
            names.setdefault(why, []).append(f"{name}={knobs.values[name]!r}")
    for why, given in names.items():
        yield f"{', '.join(given)}: {why}"
