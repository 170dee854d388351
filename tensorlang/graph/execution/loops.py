"""Execution of loops, forward and backward: the body's program runs once per turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from tensorlang.frozen import frozen

# a tensor's elements, or a key's words
Storage: TypeAlias = np.ndarray


def copies(to: Sequence[Storage], of: Sequence[Storage]) -> Callable[[], None]:
    """Copy arrays onto others as if simultaneously."""
    pairs = [(a, b) for a, b in zip(to, of, strict=True) if a is not b]
    mixed = any(np.shares_memory(a, b) for a in to for _, b in pairs)

    def run() -> None:
        held = [b.copy() for _, b in pairs] if mixed else [b for _, b in pairs]
        for (a, _), b in zip(pairs, held, strict=True):
            np.copyto(a, b)

    return run


def is_set(array: Storage) -> bool:
    """Whether the single element of an array is not 0."""
    return bool(array.reshape(-1)[0])


@frozen(eq=False)
class Loop:
    """A loop bound to memory."""

    turn: Storage  # where the body reads the turn's number
    carry: Sequence[Storage]  # where it reads the carry
    start: Callable[[], None]  # copies the initial carry there
    step: Callable[[], None]  # runs the body and copies the next carry there
    # whether there is another turn after a number of turns
    going: Callable[[int], bool]

    def __call__(self) -> None:
        """Run the loop."""
        for _ in self.turns():
            self.step()

    def turns(self) -> Iterator[int]:
        """The turn numbers; run each turn before requesting the next number."""
        self.start()
        for n in itertools.count():
            self.turn[()] = n
            if not self.going(n):
                return
            yield n


@frozen(eq=False)
class Back:
    """The backward pass of a loop, which reruns it and saves the input of each turn."""

    loop: Loop
    # maps a turn's number, carry and result gradients to the gradients of its carry and
    # of captured values
    step: Callable[[], None]
    # copies the gradients of the loop's results to the step's inputs
    begin: Callable[[], None]
    handed: Callable[[], None]  # copies the gradients of the carry there
    around: Sequence[Storage]  # gradients of captured values for one turn
    sums: Sequence[Storage]  # their sums over all turns

    def __call__(self) -> None:
        """Run the backward pass."""
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
