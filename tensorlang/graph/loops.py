"""Loops on memory, forward and back: the body's program runs once a turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

# a tensor's elements, or a key's words
Storage: TypeAlias = np.ndarray


def copies(to: Sequence[Storage], of: Sequence[Storage]) -> Callable[[], None]:
    """Copy arrays over others, as if all at once."""
    pairs = [(a, b) for a, b in zip(to, of, strict=True) if a is not b]
    mixed = any(np.shares_memory(a, b) for a in to for _, b in pairs)

    def run() -> None:
        held = [b.copy() for _, b in pairs] if mixed else [b for _, b in pairs]
        for (a, _), b in zip(pairs, held, strict=True):
            np.copyto(a, b)

    return run


def is_set(array: Storage) -> bool:
    """Whether the one element of an array is not 0."""
    return bool(array.reshape(-1)[0])


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """A loop on memory.

    Attributes:
        turn: Where the body reads the turn's number.
        carry: Where it reads what it carries.
        start: Copies the first carry there.
        step: Runs the body, and copies the next carry there.
        going: Whether there is another turn, from the number of those that were.
    """

    turn: Storage
    carry: Sequence[Storage]
    start: Callable[[], None]
    step: Callable[[], None]
    going: Callable[[int], bool]

    def __call__(self) -> None:
        """Run it."""
        for _ in self.turns():
            self.step()

    def turns(self) -> Iterator[int]:
        """The numbers of the turns; each is to be made before the next is asked for."""
        self.start()
        for n in itertools.count():
            self.turn[()] = n
            if not self.going(n):
                return
            yield n


@dataclass(frozen=True, slots=True, eq=False)
class Back:
    """The way back through a loop: it runs again, and what each turn was given is kept.

    Attributes:
        loop: The loop.
        step: From number and carry of a turn, and the gradients of what it gave, to the
            gradients of its carry and of what is around the loop.
        begin: Copies the gradients of what the loop gave to where the step reads them.
        handed: Copies the gradients of the carry there.
        around: Gradients of what is around the loop, of one turn.
        sums: The sums of these.
    """

    loop: Loop
    step: Callable[[], None]
    begin: Callable[[], None]
    handed: Callable[[], None]
    around: Sequence[Storage]
    sums: Sequence[Storage]

    def __call__(self) -> None:
        """Run it."""
        kept = []
        for n in self.loop.turns():
            kept.append((n, [array.copy() for array in self.loop.carry]))
            self.loop.step()
        for total in self.sums:
            total[...] = 0
        self.begin()
        for n, carry in reversed(kept):
            self.loop.turn[()] = n
            for place, array in zip(self.loop.carry, carry, strict=True):
                np.copyto(place, array)
            self.step()
            self.handed()
            for total, each in zip(self.sums, self.around, strict=True):
                np.add(total, each, out=total)
