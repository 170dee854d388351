"""Writes that can be taken back, for loops that are batched on trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array


class Undo:
    """A stack of trials; each keeps the arrays it changed as they were before."""

    __slots__ = ("_trials",)

    def __init__(self) -> None:
        self._trials: list[dict[int, tuple[Array, Array]]] = []

    @property
    def active(self) -> bool:
        """Whether anything may have to be taken back."""
        return bool(self._trials)

    def put(self, array: Array, at: object, values: object) -> None:
        """`array[at] = values`, remembered."""
        self.save(array)
        array[at] = values

    def save(self, array: Array) -> None:
        """Remember `array` as it is, once a trial; to be called before a change."""
        if self._trials and id(array) not in self._trials[-1]:
            self._trials[-1][id(array)] = (array, array.copy())

    def begin(self) -> None:
        """Start a trial inside the current one."""
        self._trials.append({})

    def keep(self) -> None:
        """End the trial; what it changed stays, unless the enclosing one fails."""
        done = self._trials.pop()
        if self._trials:
            for key, saved in done.items():
                self._trials[-1].setdefault(key, saved)

    def revert(self) -> None:
        """End the trial and put everything back as it was at its start."""
        for array, before in self._trials.pop().values():
            array[...] = before
