"""Key states: keys are a linear resource, fresh, then folded or consumed.

Drawing or splitting consumes a key. `fold_in` marks it *folded*: it may be folded again
with other data, but not drawn from or split. A `Ledger` records the state of each
element of a batch and the use that caused it; views and copies of the batch share it.
`TENSORLANG_KEY_CHECK=0`, read at import, disables the check.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from sys import _getframe  # inspect.stack would read files
from threading import Lock
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tensorlang.errors import KeyReuseError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRESH: Final = 0
FOLDED: Final = 1
CONSUMED: Final = 2
STATES: Final = ("fresh", "folded", "consumed")

# location of a use: code and instruction, resolved to a line only for an error
Place: TypeAlias = tuple[CodeType, int] | str
# elements of a ledger: one, some, or all of them
Ids: TypeAlias = "int | NDArray[np.int64] | None"

_CHECKING = os.environ.get("TENSORLANG_KEY_CHECK", "1") != "0"
_LOCK = Lock()
_last_outside: dict[str, object] = {}
_OWN: Final = "tensorlang."
_EACH_APART: Final = 1024
_BEFORE: Final = "a place before it was pickled"


def _renew_lock() -> None:
    """Renew the lock in a forked child: its owner may not exist there."""
    global _LOCK  # noqa: PLW0603 - one per process
    _LOCK = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(slots=True)
class Intervals:
    """The integers used so far, as sorted runs [low, high) with the last use's place.

    A training loop that folds in 0, 1, 2, ... needs a single run.
    """

    lows: list[int] = field(default_factory=list)
    runs: list[tuple[int, Place]] = field(default_factory=list)

    def held(self, low: int, high: int) -> Place | None:
        """The place of a use of any number in [low, high); None if there is none."""
        at = bisect_right(self.lows, high - 1) - 1
        if at >= 0 and self.runs[at][0] > low:
            return self.runs[at][1]
        return None

    def add(self, low: int, high: int, place: Place) -> None:
        """Record [low, high), which must not overlap any run."""
        at = bisect_right(self.lows, low)
        if at and self.runs[at - 1][0] == low:
            self.runs[at - 1] = (high, place)
            return
        self.lows.insert(at, low)
        self.runs.insert(at, (high, place))


Folds: TypeAlias = "dict[int | bytes | None, Intervals]"
_NO_FOLDS: Final[Folds] = {}


class Ledger:
    """The states of the elements of a key batch, and the uses that caused them."""

    __slots__ = ("folds", "states", "uses")

    def __init__(self, states: bytearray) -> None:
        self.states = states
        self.uses: list[tuple[Ids, str, Place]] = []
        self.folds = _NO_FOLDS  # shared: most keys are never folded

    def own_folds(self) -> Folds:
        """The numbers folded in so far, as a mutable map of this ledger's own."""
        if self.folds is _NO_FOLDS:
            self.folds = {}
        return self.folds

    def view(self) -> NDArray[np.uint8]:
        """The states as an array over the same memory."""
        return np.frombuffer(self.states, np.uint8)

    def states_of(self, ids: Ids) -> NDArray[np.uint8]:
        """A copy of the states of some elements, as an array."""
        states = self.view()
        chosen = states if ids is None else states[np.atleast_1d(np.asarray(ids))]
        return np.array(chosen).reshape(-1)

    def last_use(self, element: int) -> tuple[str, Place]:
        """The latest use that covers the element."""
        for ids, verb, place in reversed(self.uses):
            if ids is None or np.any(np.equal(ids, element)):
                return verb, place
        return "used", "an unknown place"


def consume(ledger: Ledger, ids: Ids, verb: str, depth: int = 1) -> None:
    """Mark the elements consumed, all or none; `verb` describes the use.

    At least `depth` frames above this one are tensorlang's own.

    Raises:
        KeyReuseError: one of them was folded or consumed before; names both uses.
    """
    if not _CHECKING:
        return
    frame = _getframe(depth + 1)
    if frame.f_globals is not _last_outside:
        frame = _outside(frame)
        _remember(frame)
    place = frame.f_code, frame.f_lasti
    with _LOCK:
        if type(ids) is int:
            if ledger.states[ids]:
                raise _reuse(ledger, ids, verb, place)
            ledger.states[ids] = CONSUMED
        else:
            _mark_many(ledger, ids, CONSUMED, (verb, place))
        ledger.uses.append((ids, verb, place))


def fold(ledger: Ledger, ids: Ids, data: int | np.ndarray) -> None:
    """Mark the elements folded with each number of `data`, all or none.

    Raises:
        KeyReuseError: a key was consumed, or folded with one of these numbers before.
    """
    if not _CHECKING:
        return
    frame = _outside(_getframe(2))
    place = frame.f_code, frame.f_lasti
    parts = _parts(ledger, ids, data, place)
    with _LOCK:
        for group, runs in parts:
            for others in _overlapping(ledger, group):
                for low, high in runs:
                    earlier = others.held(low, high)
                    if earlier is not None:
                        raise KeyReuseError(_same_data(low, high, earlier, place))
        _mark_many(ledger, ids, FOLDED, ("folded", place))
        ledger.uses.append((ids, "folded", place))
        del ledger.uses[1024:-1]  # bounds the history of a long loop
        for group, runs in parts:
            known = ledger.own_folds().setdefault(_group(group), Intervals())
            for low, high in runs:
                known.add(low, high, place)


def _parts(
    ledger: Ledger, ids: Ids, data: int | np.ndarray, place: Place
) -> list[tuple[Ids, list[tuple[int, int]]]]:
    """The numbers of each group of elements: one each, or all for all.

    For a long batch with one number each, the numbers count for the whole batch.
    """
    if isinstance(data, int):
        return [(ids, [(data, data + 1)])]
    if type(ids) is int or data.size == 1:
        return [(ids, _runs(data, place))]
    if data.size > _EACH_APART:
        return [(ids, _runs(np.unique(data), place))]
    members = _members(_group(ids), len(ledger.states))
    pairs = zip(members.tolist(), data.reshape(-1).tolist(), strict=True)
    return [(element, [(number, number + 1)]) for element, number in pairs]


def _group(ids: Ids) -> int | bytes | None:
    """The key of a group of elements in `Ledger.folds`."""
    return ids.tobytes() if isinstance(ids, np.ndarray) else ids


def _members(group: int | bytes | None, size: int) -> NDArray[np.int64]:
    """The elements of a group, in a ledger of `size` elements."""
    if group is None:
        return np.arange(size)
    if isinstance(group, bytes):
        return np.frombuffer(group, np.int64)
    return np.array([group])


def _overlapping(ledger: Ledger, ids: Ids) -> list[Intervals]:
    """The numbers folded into any of the elements, individually or as a group."""
    folds = ledger.folds
    if len(folds) == 1 and _group(ids) in folds:
        return list(folds.values())
    if type(ids) is int:  # skip all other single elements
        shared = [g for g in folds if type(g) is not int or g == ids]
    else:
        shared = list(folds)
    size = len(ledger.states)
    wanted = _members(_group(ids), size)
    return [folds[g] for g in shared if np.isin(wanted, _members(g, size)).any()]


Folded: TypeAlias = "list[tuple[list[int], list[tuple[int, int]]]]"


def folded(ledger: Ledger, ids: Ids) -> Folded:
    """The numbers folded into the elements, as positions in `ids` and runs."""
    size = len(ledger.states)
    wanted = _members(_group(ids), size)
    found = []
    with _LOCK:
        for group, numbers in ledger.folds.items():
            at = np.flatnonzero(np.isin(wanted, _members(group, size)))
            if at.size and numbers.lows:
                highs = (high for high, _ in numbers.runs)
                found.append((at.tolist(), list(zip(numbers.lows, highs, strict=True))))
    return found


def restore(ledger: Ledger, held: bytes, numbers: Folded) -> None:
    """Restore the states and folded numbers of a pickled ledger in a new one."""
    ledger.states[:] = held
    ledger.uses.append((None, "used", _BEFORE))
    for positions, runs in numbers:
        whole = len(positions) == len(ledger.states) and len(positions) > 1
        many = np.asarray(positions, np.int64).tobytes()
        group = None if whole else positions[0] if len(positions) == 1 else many
        known = ledger.own_folds().setdefault(group, Intervals())
        for low, high in runs:
            if known.held(low, high) is None:
                known.add(low, high, _BEFORE)


def _mark_many(ledger: Ledger, ids: Ids, state: int, use: tuple[str, Place]) -> None:
    elements = None if ids is None else np.atleast_1d(np.asarray(ids)).reshape(-1)
    states = ledger.view()
    current = states if elements is None else states[elements]
    taken = np.flatnonzero(current >= (CONSUMED if state == FOLDED else FOLDED))
    if taken.size:
        first = int(taken[0] if elements is None else elements[taken[0]])
        raise _reuse(ledger, first, *use)
    if elements is None:
        states[:] = state
        return
    if elements.size > 1 and np.unique(elements).size < elements.size:
        raise KeyReuseError(
            f"a key stands more than once in the batch {use[0]} at {written(use[1])}; "
            "index each element of a key batch at most once"
        )
    states[elements] = state


def _runs(data: np.ndarray, place: Place) -> list[tuple[int, int]]:
    """The numbers as runs [low, high) of consecutive integers."""
    numbers = np.sort(data.reshape(-1).astype(np.uint64))
    steps = np.diff(numbers)
    if np.any(steps == 0):
        raise KeyReuseError(
            f"fold_in at {written(place)} has the same number twice in its data, which "
            "would make two equal keys"
        )
    ends = np.flatnonzero(steps != 1)
    firsts = numbers[np.concatenate(([0], ends + 1))] if numbers.size else numbers
    lasts = numbers[np.concatenate((ends, [-1]))] if numbers.size else numbers
    pairs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    return [(low, high + 1) for low, high in pairs]


def _same_data(low: int, high: int, earlier: Place, place: Place) -> str:
    what = str(low) if high == low + 1 else f"a number in {low}..{high - 1}"
    return (
        f"fold_in at {written(place)} folds {what} into a key again, first done at "
        f"{written(earlier)}: that would make two equal keys; fold in another number"
    )


def _reuse(ledger: Ledger, element: int, verb: str, place: Place) -> KeyReuseError:
    before, earlier = ledger.last_use(element)
    which = f"element {element} of the key batch" if len(ledger.states) > 1 else "key"
    return KeyReuseError(
        f"{which} was {before} at {written(earlier)} and is {verb} again at "
        f"{written(place)}; split the key and use each child once (key.clone() is the "
        "explicit way to use one twice)"
    )


def _remember(frame: FrameType) -> None:
    """Cache the module of the last use: the next is mostly by the same one."""
    global _last_outside  # noqa: PLW0603 - a single reference, replaced atomically
    if frame.f_globals.get("__name__", "")[:11] != _OWN:
        _last_outside = frame.f_globals


def _outside(frame: FrameType) -> FrameType:
    """The innermost frame, from `frame` outwards, that is not tensorlang's."""
    while frame.f_globals.get("__name__", "")[:11] == _OWN:
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame


def written(place: Place) -> str:
    """The place as `file:line`."""
    if isinstance(place, str):
        return place
    code, instruction = place
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"
