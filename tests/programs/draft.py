"""A function in the making: what its stages read, their axes, their nests.

Values of floats stay small whole numbers, so that no order of summation rounds, or are
such that it does not matter: an infinity, a NaN. Integers may be any.
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
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Param,
    Seq,
    Stmt,
    Var,
)

INSTANCES = 200  # of one block
ANY = 1 << 64  # of integers: nothing is known
# how large whole numbers may be that are added up, for sums that are exact
_EXACT = {"bf16": 1 << 6, "f16": 1 << 9, "f32": 1 << 22, "f64": 1 << 50}


@dataclass(slots=True)
class Source:
    """A buffer that may be read, and how large its values can be."""

    buffer: Buffer
    largest: int = 4


@dataclass(slots=True)
class Draft:
    """A function in the making.

    Attributes:
        draw: What draws.
        dtype: The type that the stage at hand computes in.
        extents: What dimensions and loops are made of.
        scalars: The sizes that vary.
        values: The kind of the numbers that it will be given: see `inputs`.
        sources: What can be read.
        params: What it is given.
        stmts: The stages so far.
        latest: What the last stage made.
        loose: Whether its results are rounded differently from order to order.
    """

    draw: Draw
    dtype: DType
    extents: list[Expr]
    scalars: tuple[Var, ...]
    values: str
    sources: list[Source] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    stmts: list[Stmt] = field(default_factory=list)
    latest: Source | None = None
    loose: bool = False

    @property
    def limit(self) -> int:
        """How large numbers may get, where floats are added up."""
        return _EXACT.get(self.dtype.name, ANY << 64)

    def rounds(self, large: int) -> bool:
        """Whether a sum of floats of this size depends on the order."""
        whole = self.values != "fractions"
        return self.dtype.is_float and not (whole and large <= self.limit)

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def chance(self, one_in: int) -> bool:
        """True once in so many; shrinks to False."""
        return bool(self.draw(st.integers(0, one_in - 1)) == one_in - 1)

    def shape(self, most: int) -> tuple[Expr, ...]:
        return tuple(
            self.pick(self.extents) for _ in range(self.draw(st.integers(1, most)))
        )

    def param(self, name: str, role: str, shape: tuple[Expr, ...]) -> Source:
        extreme = self.values == "special" and not self.dtype.is_float
        unsigned = self.dtype.kind == "uint"
        buffer = Buffer(name, self.dtype, shape)
        made = Source(buffer, ANY if extreme or unsigned else 4)
        self.params.append(Param(buffer, role))
        return made

    def result(self, name: str, shape: tuple[Expr, ...], *, last: bool) -> Buffer:
        """Where a stage goes: a temporary, or an output."""
        buffer = Buffer(name, self.dtype, shape)
        if last or self.chance(3):
            self.params.append(Param(buffer, "out"))
        else:
            self.stmts.append(Alloc(buffer))
        return buffer

    def done(self, nest: Stmt, out: Buffer, large: int) -> None:
        """A stage that made `out` by `nest`."""
        if nest != Seq(()):
            self.stmts.append(nest)
        self.latest = Source(out, large)
        self.sources.append(self.latest)


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
