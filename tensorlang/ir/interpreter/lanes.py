"""Lanes: iterations executed side by side, one array element each.

Entering a parallel, vectorized or bound loop multiplies the lanes; an `if`, a `where`
or a loop whose extent differs between lanes continues with the active ones only, so all
evaluation is in active lanes. A uniform value is an array of length 1; a vector has its
lanes in a second dimension.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.nodes import For

Array: TypeAlias = Any  # a NumPy array, as in `tensorlang.ir.numeric`


def spread(values: Array, shape: tuple[int, ...]) -> Array:
    """`np.broadcast_to`, which takes longer than most arrays here."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


class Frame:
    """One execution of a lane loop: its lanes and the lanes that forked them.

    Attributes:
        parent: The enclosing frame; None for the root, the function's single lane.
        parent_flat: For each lane, the number of its parent lane in `parent`.
        kind: The loop's kind, or `batched` for a serial loop run as lanes.
        thread: The index of a bound loop, such as `thread.x`.
        position: For each lane, its iteration.
        folds: Buffers of states that these lanes reduce together.
        base: The number of the first lane among all lanes since the root (`Races`).
    """

    __slots__ = (
        "base",
        "extent",
        "folds",
        "kind",
        "parent",
        "parent_flat",
        "position",
        "thread",
    )

    def __init__(
        self,
        parent: Frame | None,
        parent_flat: Array,
        position: Array,
        kind: str = "root",
        thread: str = "",
    ) -> None:
        self.parent = parent
        self.parent_flat = parent_flat
        self.position = position
        self.kind = kind
        self.thread = thread
        self.extent = int(position.max()) + 1 if position.size else 0
        self.folds: frozenset[str] = frozenset()
        self.base = 0

    @property
    def count(self) -> int:
        """The total number of lanes of the loop."""
        return len(self.position)


class Lanes:
    """The active lanes, the values of variables in them, and their origin."""

    __slots__ = (
        "_path",
        "count",
        "flat",
        "frame",
        "index",
        "loops",
        "parent",
        "values",
    )

    def __init__(
        self,
        count: int,
        frame: Frame,
        flat: Array,
        *,
        loops: tuple[str, ...] = (),
        parent: Lanes | None = None,
        index: Array | None = None,
    ) -> None:
        self.count = count
        self.frame = frame
        self.flat = flat  # number of each lane in `frame`
        self.loops = loops  # loop variables in scope, for messages
        self.parent = parent
        self.index = index  # number of each lane in `parent`
        self.values: dict[str, Array] = {}
        self._path: list[tuple[Frame, Array]] | None = None

    @classmethod
    def root(cls) -> Lanes:
        """The single lane in which a function starts."""
        zero = np.zeros(1, np.int64)
        return cls(1, Frame(None, zero, zero), zero)

    def lookup(self, name: str) -> Array:
        """The value of a variable: one element, or one per lane.

        Raises:
            InterpreterError: the name is not bound in scope.
        """
        found = self.values.get(name)
        if found is None:
            if self.parent is None:
                raise InterpreterError(f"{name} has no value here")
            found = self.parent.lookup(name)
            if self.index is not None and found.shape[0] != 1:
                found = found[self.index]
            self.values[name] = found
        return found

    def bind(self, name: str, value: Array) -> None:
        """Bind a variable in these lanes."""
        self.values[name] = value

    def take(self, index: Array) -> Lanes:
        """Only the lanes with the given numbers."""
        flat = self.flat[index]
        return Lanes(
            index.size, self.frame, flat, loops=self.loops, parent=self, index=index
        )

    def where(self, condition: Array) -> Lanes | None:
        """The lanes in which `condition` holds; None if there are none."""
        if condition.all():
            return self
        index = np.flatnonzero(condition)
        return self.take(index) if index.size else None

    def fork(self, loop: For, first: int, extents: Array, kind: str) -> Lanes | None:
        """One lane for each iteration `first + 0 .. extents-1` of each of these lanes.

        Lanes are ordered by parent lane, then iteration, like the serial loop.
        """
        extents = np.maximum(extents, 0)
        if extents.size == 1:
            index = np.repeat(np.arange(self.count), int(extents[0]))
            position = np.tile(np.arange(int(extents[0])), self.count)
        else:
            index = np.repeat(np.arange(self.count), extents)
            starts = np.cumsum(extents) - extents
            position = np.arange(index.size) - starts[index]
        if not index.size:
            return None
        frame = Frame(self.frame, self.flat[index], position, kind, loop.thread)
        loops = (*self.loops, loop.var.name)
        flat = np.arange(index.size)
        child = Lanes(index.size, frame, flat, loops=loops, parent=self, index=index)
        value = (position + first).astype(loop.var.dtype.numpy, copy=False)
        child.bind(loop.var.name, value)
        return child

    def path(self) -> list[tuple[Frame, Array]]:
        """The frames from the innermost to the root, with these lanes' numbers."""
        if self._path is None:
            frame, flat = self.frame, self.flat
            self._path = [(frame, flat)]
            while frame.parent is not None:
                flat, frame = frame.parent_flat[flat], frame.parent
                self._path.append((frame, flat))
        return self._path

    def forget_path(self) -> None:
        """Invalidate the cached path, after frames were inserted."""
        self._path = None
        if self.parent is not None:
            self.parent.forget_path()

    def describe(self, lane: int) -> str:
        """The loop values of one lane, such as `i=3, j=0`."""
        found = ((name, self.lookup(name)) for name in self.loops)
        return ", ".join(f"{name}={v[lane if v.size > 1 else 0]}" for name, v in found)
