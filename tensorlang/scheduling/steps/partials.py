"""Partial reductions: some reduction loops index separate results instead.

`vk = reduction(64, k_0*16 + k_1)` with `k_0` pinned becomes `vk_0 = spatial(4, k_0)`
and `vk_in = reduction(16, k_1)`: one partial result for each value of `k_0`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import gcd
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import divided, linear, multiples
from tensorlang.ir.integers.polynomials import Poly, term
from tensorlang.ir.nodes import Axis, Block, Const, Expr, For, Stmt, Var
from tensorlang.ir.visit import fresh, substitute
from tensorlang.scheduling.analysis.coverage import Bound, bounds_of, guards_of
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.regions import Ranges, relax

FOLDED: Final = ("reduction", "ordered")
_NONE: Final[frozenset[Var]] = frozenset()


def partial(
    block: Block, pinned: Sequence[For], ranges: Ranges, taken: set[str]
) -> Block:
    """The block with a spatial axis for each pinned loop, reducing over the others.

    Args:
        block: A block with reduction axes.
        pinned: The loops that now index results.
        ranges: The range of every loop around the block.
        taken: Names in use; new ones are added.

    Raises:
        ScheduleError: an axis mixes a pinned loop with another one inseparably.
    """
    pins = {loop.var: loop_axis(loop, "spatial", taken) for loop in pinned}
    names = frozenset(pins)
    axes: list[Axis] = []
    values: dict[Var, Expr] = {}
    for axis in block.axes:
        fixed, rest = _parted(block, axis, names if axis.kind in FOLDED else _NONE)
        if fixed == Poly():
            axes.append(axis)
            continue
        step = gcd(*(c for _, c in rest.terms)) or 1
        kept = _rest_axis(axis, rest, step, ranges, taken)
        axes += [kept] if kept else []
        outer = linear(substitute(fixed.expr(), {v: a.var for v, a in pins.items()}))
        inner = term(kept.var, step).shifted(rest.constant) if kept else rest
        values[axis.var] = (outer + inner).expr()
    if not any(axis.kind in FOLDED for axis in axes):
        only = Var(fresh("v_once", taken), i64)
        axes.append(Axis(only, "reduction", Const(1, i64), Const(0, i64)))
    return dataclasses.replace(
        block,
        axes=(*axes, *pins.values()),
        body=substitute(block.body, values),
        init=block.init and substitute(block.init, values),
    )


def loop_axis(loop: For, kind: str, taken: set[str]) -> Axis:
    """A new axis that a loop drives alone."""
    var = Var(fresh(f"v{loop.var.name}", taken), i64)
    return Axis(var, kind, loop.extent, loop.var)


@legality("a factored loop belongs to the reduction alone")
def only_reduces(block: Block, loop: For) -> str | None:
    """The loop drives reduction or ordered axes, and no others."""
    driven = {a.kind for a in block.axes if loop.var in linear(a.value).vars}
    if driven and driven <= set(FOLDED):
        return None
    return (
        f"loop {loop.var.name!r} drives {', '.join(sorted(driven)) or 'no'} axes of "
        f"block {block.name!r}; parts need a loop of the reduction, split from it"
    )


@legality("no partial result is empty")
def none_empty(block: Block, pinned: Sequence[For], ranges: Ranges) -> str | None:
    """For each value of the pinned loops there is something to reduce."""
    held = {loop.var for loop in pinned}
    for cond in guards_of(block):
        ends = [b for b in bounds_of(block, cond) if _folded(block, b.axis)]
        if not free_vars(cond) & held:
            continue
        if not any(starts_below(block, end, pinned, ranges) for end in ends):
            return (
                f"some values of loop {pinned[0].var.name!r} may have nothing to "
                f"reduce in block {block.name!r}, because {cond!r} guards it; "
                "partition the loop"
            )
    return None


def _folded(block: Block, var: Var) -> bool:
    return any(axis.var == var and axis.kind in FOLDED for axis in block.axes)


def starts_below(
    block: Block, bound: Bound, pinned: Sequence[For], ranges: Ranges
) -> bool:
    """Whether the axis starts below its limit for all values of the pinned loops."""
    axis = next(axis for axis in block.axes if axis.var == bound.axis)
    held = {loop.var for loop in pinned}
    others = {var: found for var, found in ranges.items() if var not in held}
    start = relax(axis.value, others)
    if start is None:
        return False
    if len(start.low.terms) == 1:
        ((atom, step),) = start.low.terms
        for loop in pinned:
            last = divided(bound.limit.shifted(step - 1), step) if step > 0 else None
            if loop.var == atom and linear(loop.extent) == last:
                return True  # the trip count is rounded up from the limit
    latest = relax((bound.limit - start.low).expr(), ranges)
    if latest is None:
        return False
    room = latest.low
    return room.is_constant and room.constant > 0


def _parted(block: Block, axis: Axis, pinned: frozenset[Var]) -> tuple[Poly, Poly]:
    """The part of an axis driven by pinned loops, and the rest."""
    form = linear(axis.value)
    fixed = form.only(lambda atom: bool(free_vars(atom) & pinned))
    for atom, _ in fixed.terms:
        if free_vars(atom) - pinned:
            raise ScheduleError(
                f"axis {axis.var.name!r} of block {block.name!r} mixes loops in "
                f"{atom!r}; split before fusing"
            )
    return fixed, form - fixed


def _rest_axis(
    axis: Axis, rest: Poly, step: int, ranges: Ranges, taken: set[str]
) -> Axis | None:
    """An axis that counts the rest of another one in units of `step`."""
    if rest.is_constant:
        return None
    rest, _ = multiples(rest.shifted(-rest.constant), step)
    found = relax(rest.expr(), ranges)
    extent = found.extent.expr() if found else axis.extent
    var = Var(fresh(f"{axis.var.name}_in", taken), i64)
    return dataclasses.replace(axis, var=var, extent=extent, value=rest.expr())


def moved_init(
    block: Block, indices: Sequence[Expr], homes: Sequence[Expr]
) -> Stmt | None:
    """The block's init, in terms of the axes of the block that finishes its results.

    Args:
        block: The block; the result is None if its state starts from the identity.
        indices: Where it stores, each an axis (plus a constant) or a constant.
        homes: The finishing block's expressions for these indices.
    """
    if block.init is None:
        return None
    values: dict[Var, Expr] = {}
    for index, home in zip(indices, homes, strict=True):
        form = linear(index)
        if len(form.terms) == 1 and isinstance(form.terms[0][0], Var):
            values[form.terms[0][0]] = linear(home).shifted(-form.constant).expr()
    init = substitute(block.init, values)
    left = free_vars(init) & {axis.var for axis in block.axes}
    if left:
        lost = ", ".join(sorted(var.name for var in left))
        raise ScheduleError(
            f"the init of block {block.name!r} depends on {lost}, which its results "
            "do not name"
        )
    return init
