"""An undo log of writes, for speculative batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array


class Undo:
    """A stack of transactions; each saves the previous contents of modified arrays."""

    __slots__ = ("_trials",)

    def __init__(self) -> None:
        self._trials: list[dict[int, tuple[Array, Array]]] = []

    @property
    def active(self) -> bool:
        """Whether there is a transaction."""
        return bool(self._trials)

    def put(self, array: Array, at: object, values: object) -> None:
        """`array[at] = values`, logged."""
        self.save(array)
        array[at] = values

    def save(self, array: Array) -> None:
        """Save `array`, once per transaction; call before modifying it."""
        if self._trials and id(array) not in self._trials[-1]:
            self._trials[-1][id(array)] = (array, array.copy())

    def begin(self) -> None:
        """Start a nested transaction."""
        self._trials.append({})

    def keep(self) -> None:
        """Commit the transaction; changes stay unless an enclosing one is reverted."""
        done = self._trials.pop()
        if self._trials:
            for key, saved in done.items():
                self._trials[-1].setdefault(key, saved)

    def revert(self) -> None:
        """Roll back the transaction."""
        for array, before in self._trials.pop().values():
            array[...] = before
