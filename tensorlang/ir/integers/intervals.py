"""Interval arithmetic on integers: a table from operation to a function of intervals.

An interval is `(low, high)`, both inclusive, None where unbounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

Interval: TypeAlias = tuple[int | None, int | None]
UNKNOWN: Final[Interval] = (None, None)


def within(inner: Interval, outer: Interval) -> bool:
    """Whether `inner` is contained in the bounded interval `outer`."""
    low, high = inner
    if low is None or high is None or outer[0] is None or outer[1] is None:
        return False
    return outer[0] <= low and high <= outer[1]


def wrapped(exact: Interval, limits: Interval) -> Interval:
    """The interval if within the type's limits, otherwise these, as it may wrap."""
    return exact if within(exact, limits) else limits


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval containing both."""
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return low, high


def meet(a: Interval, b: Interval) -> Interval:
    """The intersection."""
    lows = [x for x in (a[0], b[0]) if x is not None]
    highs = [x for x in (a[1], b[1]) if x is not None]
    return max(lows, default=None), min(highs, default=None)


def negative(a: Interval) -> Interval:
    """The interval of `-x`."""
    return (None if a[1] is None else -a[1]), (None if a[0] is None else -a[0])


def absolute(a: Interval) -> Interval:
    """The interval of `|x|`."""
    if a[0] is not None and a[0] >= 0:
        return a
    if a[1] is not None and a[1] <= 0:
        return negative(a)
    ends = [abs(x) for x in a if x is not None]
    return 0, (max(ends) if len(ends) == 2 else None)


def _add(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def _sub(a: Interval, b: Interval) -> Interval:
    return _add(a, negative(b))


def _mul(a: Interval, b: Interval) -> Interval:
    if a[0] is not None and a[1] is not None and b[0] is not None and b[1] is not None:
        corners = [x * y for x in (a[0], a[1]) for y in (b[0], b[1])]
        return min(corners), max(corners)
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None
    return UNKNOWN


def _divisors(b: Interval) -> Interval | None:
    """The divisors without 0, which faults; None if some are negative."""
    if b[0] is None or b[0] < 0 or b[1] == 0:
        return None
    return max(b[0], 1), b[1]


def _floordiv(a: Interval, b: Interval) -> Interval:
    if (b := _divisors(b) or UNKNOWN)[0] is None:
        return UNKNOWN
    low, high = a
    divisors = [b[0], b[1]]
    if low is not None:
        low = min((low // d if d is not None else min(0, low)) for d in divisors)
    if high is not None:
        high = max((high // d if d is not None else max(-1, 0)) for d in divisors)
    return low, high


def _floormod(a: Interval, b: Interval) -> Interval:
    if (b := _divisors(b) or UNKNOWN)[0] is None:
        return UNKNOWN
    if a[0] is not None and a[1] is not None:
        if a[0] >= 0 and a[1] < b[0]:
            return a
        if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
            return a[0] % b[0], a[1] % b[0]
    highs = [] if b[1] is None else [b[1] - 1]
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        highs.append(a[1])
    return 0, min(highs, default=None)


def _min(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return low, min((x for x in (a[1], b[1]) if x is not None), default=None)


def _max(a: Interval, b: Interval) -> Interval:
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return max((x for x in (a[0], b[0]) if x is not None), default=None), high


def _and(a: Interval, b: Interval) -> Interval:
    tops = [x[1] for x in (a, b) if x[0] is not None and x[0] >= 0]
    if not tops:
        return UNKNOWN
    return 0, min((top for top in tops if top is not None), default=None)


def _or(a: Interval, b: Interval) -> Interval:
    if a[0] is None or b[0] is None or a[0] < 0 or b[0] < 0:
        return UNKNOWN
    low = max(a[0], b[0])
    if a[1] is None or b[1] is None:
        return low, None
    return low, (1 << max(a[1].bit_length(), b[1].bit_length())) - 1


def _xor(a: Interval, b: Interval) -> Interval:
    low, high = _or(a, b)
    return (None if low is None else 0), high


def _shl(a: Interval, b: Interval) -> Interval:
    if b[0] is None or b[0] < 0 or b[1] is None or b[1] > 64:
        return UNKNOWN
    return _mul(a, (1 << b[0], 1 << b[1]))


def _shr(a: Interval, b: Interval) -> Interval:
    if b[0] is None or b[0] < 0 or b[1] is None or b[1] > 64:
        return UNKNOWN
    return _floordiv(a, (1 << b[0], 1 << b[1]))


BINARY: Final[dict[str, Callable[[Interval, Interval], Interval]]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "min": _min,
    "max": _max,
    "and": _and,
    "or": _or,
    "xor": _xor,
    "shl": _shl,
    "shr": _shr,
}
