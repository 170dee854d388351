"""Wide accesses: contiguous elements of several lanes, accessed at once by a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tensorlang.codegen.copies import ASYNC, is_zero
from tensorlang.codegen.multiples import Multiples, multiple
from tensorlang.codegen.simt.lane_analysis import LaneAnalysis
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import Known
from tensorlang.ir.visit import walk

_WIDEST: Final = 16  # lanes of a vector type


class WideAccesses(LaneAnalysis):
    """Analysis of which accesses of a loop's lanes are wide."""

    def __init__(
        self,
        loop: ir.For,
        multiples: Multiples,
        known: Known,
        *,
        access_bytes: int,
        sizes: frozenset[ir.Var],
    ) -> None:
        super().__init__(loop, multiples, known)
        self.access_bytes = access_bytes  # maximum size of an access
        self.sizes = sizes  # sizes whose divisibility may be tested at run time
        # (size, divisor) tests that are needed; None if none are permitted
        self.even: set[tuple[ir.Var, int]] | None = None

    def parts(
        self, buffer: ir.Buffer, index: ir.Expr, *, own: bool = False
    ) -> list[ir.Expr] | None:
        """The first indices of wide accesses; None if the access is not wide.

        `own` permits registers, for copies from or to memory.
        """
        width = min(self.count, self.access_bytes // buffer.dtype.bytes, _WIDEST)
        while width > 1 and (self.count % width or width & (width - 1)):
            width -= 1
        if (is_own(buffer) and not own) or free_vars(index) & self.varying != {
            self.lane
        }:
            return None
        steps = self.neighbours(index)
        while width > 1 and not _in_runs(steps, width):
            width //= 2
        firsts = [self.at(index, n) for n in range(0, self.count, max(width, 1))]
        return firsts if width > 1 and self.are_even(firsts, width) else None

    def are_even(self, firsts: list[ir.Expr], width: int) -> bool:
        """Whether indices are multiples of `width`, if the requested tests hold."""
        asked = dict.fromkeys(self.sizes, width) if self.even is not None else {}
        known = {**self.multiples, **asked}
        if all(multiple(first, self.multiples) % width == 0 for first in firsts):
            return True
        if any(multiple(first, known) % width for first in firsts):
            return False
        for size in list(asked):
            fewer = {var: asked[var] for var in asked if var != size}
            known = {**self.multiples, **fewer}
            if not any(multiple(first, known) % width for first in firsts):
                asked = fewer
        self.even = {*(self.even or ()), *asked.items()}
        return True

    def has_wide(self, stmt: ir.Stmt) -> bool:
        """Whether a statement has wide accesses, supposing all lanes run it."""
        if free_vars(stmt) & self.varying != {self.lane}:
            return False
        outer, self.even = self.even, set()
        found = any(
            bool(node.indices) and self.parts(node.buffer, node.indices[0]) is not None
            for node in walk(stmt)
            if isinstance(node, (ir.Load, ir.Store))
        )
        self.even = outer
        return found

    def ramps(self, parts: list[ir.Expr]) -> list[tuple[ir.Ramp, ir.Ramp]]:
        """Indices of each wide access: in an array of lanes, and in memory."""
        width = self.count // len(parts)
        return [
            (ir.ramp(ir.Const(n * width, i64), width), ir.ramp(first, width))
            for n, first in enumerate(parts)
        ]

    def copies(self, stmt: ir.Store) -> list[ir.Stmt] | None:
        """Wide copies, possibly zero-filled; None if the two sides do not match."""
        value = stmt.value
        source = value.a if isinstance(value, ir.Select) else value
        if (
            not isinstance(source, ir.Load)
            or source.mask is not None
            or not source.indices
        ):
            return None
        if not stmt.indices or (is_own(stmt.buffer) and is_own(source.buffer)):
            return None
        parts = self.parts(stmt.buffer, stmt.indices[0], own=True)
        sources = self.parts(source.buffer, source.indices[0], own=True)
        if parts is None or sources is None or len(sources) != len(parts):
            return None
        if isinstance(value, ir.Select) and (
            ASYNC not in stmt.hints or self.varies(value.cond) or not is_zero(value.b)
        ):
            return None
        made: list[ir.Stmt] = []
        width = self.count // len(parts)
        for to, first in zip(parts, sources, strict=True):
            whole: ir.Expr = replace(source, indices=(ir.ramp(first, width),))
            if isinstance(value, ir.Select):
                whole = ir.Select(value.cond, whole, ir.Splat(value.b, width))
            made.append(replace(stmt, indices=(ir.ramp(to, width),), value=whole))
        return made


def _in_runs(steps: Sequence[bool], width: int) -> bool:
    """Whether every group of `width` lanes is contiguous."""
    return all(step or not lane % width for lane, step in enumerate(steps, 1))


def is_own(buffer: ir.Buffer) -> bool:
    """Whether a buffer is in the thread's registers."""
    return buffer.scope in ("register", "private")
