"""A function in the making: what its stages read, their axes, their values.

Values stay small integers in every type, so that no order of summation rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Load,
    Param,
    Select,
    Stmt,
    Var,
    as_expr,
)

LARGEST = 1 << 22  # of any value, for sums that are exact in f32
INSTANCES = 200  # of one block


@dataclass(slots=True)
class Source:
    """A buffer that may be read, and how large its values can be."""

    buffer: Buffer
    largest: int = 4


@dataclass(slots=True)
class Draft:
    """A function in the making."""

    draw: Draw
    dtype: DType
    extents: list[Expr]
    scalars: tuple[Var, ...]
    sources: list[Source] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    stmts: list[Stmt] = field(default_factory=list)
    latest: Source | None = None

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in: int) -> bool:
        """True once in so many; shrinks to False."""
        return self.draw(st.integers(0, one_in - 1)) == one_in - 1

    def shape(self, most: int) -> tuple[Expr, ...]:
        return tuple(
            self.pick(self.extents) for _ in range(self.draw(st.integers(1, most)))
        )

    def param(self, name: str, role: str, shape: tuple[Expr, ...]) -> Source:
        made = Source(Buffer(name, self.dtype, shape))
        self.params.append(Param(made.buffer, role))
        return made

    def result(self, name: str, shape: tuple[Expr, ...], *, last: bool) -> Buffer:
        """Where a stage goes: a temporary, or an output."""
        buffer = Buffer(name, self.dtype, shape)
        if last or self.chance(3):
            self.params.append(Param(buffer, "out"))
        else:
            self.stmts.append(Alloc(buffer))
        return buffer


@dataclass(slots=True)
class Axes:
    """The axes of one stage, each with its loop."""

    draft: Draft
    tag: str
    axes: list[Axis] = field(default_factory=list)
    loops: list[tuple[Var, Expr]] = field(default_factory=list)

    def add(self, kind: str, extent: Expr, letter: str) -> Var:
        loop = Var(f"{letter}{self.tag}")
        var = Var(f"v{letter}{self.tag}")
        self.axes.append(Axis(var, kind, extent, loop))
        self.loops.append((loop, extent))
        return var

    def spatial(self, shape: tuple[Expr, ...]) -> tuple[Var, ...]:
        return tuple(
            self.add("spatial", extent, letter)
            for extent, letter in zip(shape, "ijl", strict=False)
        )

    def folded(self) -> list[Var]:
        """One or two reduction axes, where there is room for them."""
        room = INSTANCES // max(self.volume(), 1)
        small = [e for e in self.draft.extents if size(e) <= room]
        count = self.draft.pick([1, 1, 2]) if small else 0
        made = []
        for letter in "kq"[:count]:
            extent = self.draft.pick(small)
            if size(extent) * self.volume() <= INSTANCES:
                made.append(self.add("reduction", extent, letter))
        return made

    def volume(self) -> int:
        return math.prod(size(extent) for _, extent in self.loops)

    def nest(
        self,
        body: Stmt,
        where: Expr | None = None,
        init: Stmt | None = None,
    ) -> Stmt:
        """A block in its loops, in any order."""
        made: Stmt = Block(f"b{self.tag}", tuple(self.axes), body, where, init)
        for var, extent in self.draft.draw(st.permutations(self.loops)):
            made = For(var, extent, "serial", made)
        return made


def size(extent: Expr) -> int:
    """An extent as a number, sizes that vary taken as 5."""
    return int(extent.value) if isinstance(extent, Const) else 5


def _index(draft: Draft, axes: list[Axis], extent: Expr) -> Expr:
    """An index that stays in 0 .. extent-1, along one axis or two."""
    same = [axis.var for axis in axes if axis.extent == extent]
    options: list[Expr] = [var for var in same for _ in range(4)]
    options += [extent - 1 - var for var in same]
    if isinstance(extent, Const):
        options += _windows(axes, int(extent.value))
    if len(options) < 3:
        options += [draft.pick(axes).var % extent if axes else as_expr(0)]
    chosen: Expr = draft.pick(options)
    return chosen


def _windows(axes: list[Axis], room: int) -> list[Expr]:
    """Indices such as `v + 2`, `v * 2` and `v + w` that stay below `room`."""
    sizes = {a.var: int(a.extent.value) for a in axes if isinstance(a.extent, Const)}
    found: list[Expr] = [as_expr(room // 2)]
    for var, count in sizes.items():
        found += [var + (room - count)] if count < room else []
        found += [var * 2] if 2 * count - 1 <= room else []
        for other, more in sizes.items():
            if other.name < var.name and count + more - 1 <= room:
                found += [var + other] * 2
    return found


def _load(draft: Draft, axes: Axes, source: Source) -> Load:
    return Load(
        source.buffer,
        tuple(_index(draft, axes.axes, extent) for extent in source.buffer.shape),
    )


def _operand(draft: Draft, axes: Axes) -> tuple[Expr, int]:
    """A load, preferably of the latest result, and how large it can be."""
    readable = [source for source in draft.sources if source.largest <= LARGEST]
    fitting = [s for s in readable if s is draft.latest] * 3 + readable
    source = draft.pick(fitting)
    load = _load(draft, axes, source)
    return load.cast(draft.dtype), source.largest


def computed(draft: Draft, axes: Axes) -> tuple[Expr, int]:
    """An expression of one or two loads."""
    a, large = _operand(draft, axes)
    op = draft.pick(["none", "add", "sub", "mul", "min", "max", "scale", "select"])
    if op == "none" or (op == "scale" and large > LARGEST // 3):
        return a, large
    if op == "scale":
        return a * 3 + 1, large * 3 + 1
    b, other = _operand(draft, axes)
    if op == "select":
        return Select(a < b, a, b + 1), max(large, other + 1)
    if op == "mul" and large * other > LARGEST // 8:
        op = "min"
    bound = {"mul": large * other, "add": large + other, "sub": large + other}
    return Binary(op, a, b), bound.get(op, max(large, other))
