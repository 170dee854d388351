"""`partition` and `specialize`: duplicate a nest, one copy for each case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names
from tensorlang.ir.integers.bounds import counted, prove
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import children, rebuild, rewriter, substitute
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.extents import steady
from tensorlang.scheduling.analysis.facts import Ranges, nonnegative, ranges_at
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tidy import NOTHING, tidy
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.terms import Term, term


@legality("a reduction is initialized in one part")
def reductions_go_on(tail: ir.For, ranges: Ranges) -> str | None:
    """The tail never has the first term of a reduction driven by the loop."""
    for block, inside in _cut_reductions(tail, tail.var, ranges):
        if not _goes_on(block, inside):
            return (
                f"partition: block {block.name!r} may start its reduction in the tail "
                f"{tail.var.name!r}; cut at a constant, or decompose_reduction first"
            )
    return None


def _cut_reductions(
    stmt: ir.Stmt, var: ir.Var, ranges: Ranges
) -> Iterator[tuple[ir.Block, Ranges]]:
    """The blocks that initialize a reduction driven by `var`."""
    match stmt:
        case ir.For():
            inside = {**ranges, stmt.var: counted(stmt.extent)}
            yield from _cut_reductions(stmt.body, var, inside)
        case ir.Block(axes=axes, init=init) if init != NOTHING:
            folded = [axis.value for axis in axes if axis.kind == "reduction"]
            if any(var in free_vars(value) for value in folded):
                yield stmt, ranges
        case _:
            for child in children(stmt):
                if isinstance(child, ir.Stmt):
                    yield from _cut_reductions(child, var, ranges)


def _goes_on(block: ir.Block, ranges: Ranges) -> bool:
    """Whether no instance is the first of its reduction."""
    folded = [axis.value for axis in block.axes if axis.kind == "reduction"]
    return any(prove(value >= 1, ranges) for value in folded)


def _continued(stmt: ir.Stmt, var: ir.Var, ranges: Ranges) -> ir.Stmt:
    """The tail, its reductions continuing those of the main part: `init` is empty."""
    for block, inside in list(_cut_reductions(stmt, var, ranges)):
        if _goes_on(block, inside):
            stmt = tree.swap(stmt, block, with_fields(block, init=NOTHING))
    return stmt


@primitive
def partition(
    func: ir.Function, loop: str, at: Term
) -> tuple[ir.Function, tuple[str, str]]:
    """Split the range of a loop in two, a main part and a tail, scheduled separately.

    Args:
        loop: The loop's name.
        at: The number of iterations of the main part, clamped to 0 and to the extent: a
            number, an expression, or its text such as `"n // 32"`.

    Returns:
        The function, and the names of the main loop (unchanged) and the tail's loop.

    Raises:
        ScheduleError: a part would be empty, or `at` uses what is not in scope.

    Guards that always hold in a part are dropped there, and a guard that bounds one
    loop of constant extent shrinks that loop. All names in the tail get the suffix
    `_tail`. Reductions continue in the tail (an empty `init`), so the main part must
    have their first terms. `partition("i_0", 3)` after a split of 14 by 4:

        for i_0 in range(4):
            for i_1 in range(4):
                with block("y", vi=spatial(14, i_0*4 + i_1), where=i_0*4 + i_1 < 14):

        for i_0 in range(3):
            for i_1 in range(4):
                with block("y", vi=spatial(14, i_0 * 4 + i_1)):
        for i_0_tail in range(1):
            for i_1_tail in range(2):
                with block("y_tail", vi_tail=spatial(14, (3 + i_0_tail)*4 + i_1_tail)):
    """
    path = tree.find_loop(func, loop)
    old = tree.loop_of(path)
    steady([old], old.body)
    cut = _cut(old, term(at, path, "partition"), path)
    around = ranges_at(path)
    main = with_fields(old, extent=cut)
    shifted = substitute(old.body, {old.var: cut + old.var})
    rest = with_fields(old, extent=simplify(old.extent - cut, around), body=shifted)
    tail = tree.rename(rest, names(func), suffix="_tail")
    reductions_go_on(tail, around)
    parts = [tidy(main, around), _continued(tidy(tail, around), tail.var, around)]
    return tree.replace(path, ir.seq(*parts)), (old.var.name, tail.var.name)


def _cut(loop: ir.For, at: ir.Expr, path: tree.Path) -> ir.Expr:
    """`at`, clamped to 0 and to the loop's extent."""
    have, wanted = tree.constant(loop.extent), tree.constant(at)
    if wanted is not None and (wanted <= 0 or (have is not None and wanted >= have)):
        part = "main part" if wanted <= 0 else "tail"
        raise ScheduleError(
            f"partition: loop {loop.var.name!r} has {loop.extent!r} iterations, so "
            f"cutting at {wanted} leaves an empty {part}; leave the partition out"
        )
    if at.dtype != loop.var.dtype:
        raise ScheduleError(
            f"partition: loop {loop.var.name!r} counts in {loop.var.dtype}, the cut "
            f"is {at!r} of {at.dtype}"
        )
    if not _at_most(at, loop.extent, ranges_at(path)):
        at = ir.Binary("min", at, loop.extent)
    return nonnegative(at, path)


def _at_most(a: ir.Expr, b: ir.Expr, ranges: Ranges) -> bool:
    """Whether `a <= b`; `n // 4 <= (n + 3) // 4` because `n <= n + 3`."""
    match a, b:
        case ir.Binary("floordiv", x, ir.Const(value=c)), ir.Binary(
            "floordiv", y, d
        ) if c > 0 and tree.constant(d) == c:
            a, b = x, y
    return bool(prove(a <= b, ranges))


@primitive
def specialize(
    func: ir.Function, loop: str, condition: Term
) -> tuple[ir.Function, str]:
    """Duplicate a nest under a condition, so that one copy can assume that it holds.

    Args:
        loop: The name of the nest's outermost loop; empty for the whole function.
        condition: A bool over sizes and outer loops, or its text such as `"n % 32 ==
            0"`. If it equates a size with a constant, the constant replaces the size in
            the first copy.

    Returns:
        The function, and the name of the second copy's loop, if any. The first copy
        keeps its names; all names in the second get the suffix `_else`.

    Raises:
        ScheduleError: the condition is no bool, reads memory, or is not in scope.

    `specialize("i", "n == 64")`:

                                        if n == 64:
        for i in range(n):                  for i in range(64):
            ...                 ->              ...
                                        else:
                                            for i_else in range(n):
                                                ...
    """
    path = tree.find_loop(func, loop) if loop else (func, func.body)
    old = path[-1]
    assert isinstance(old, ir.Stmt)
    cond = term(condition, path, "specialize")
    if not cond.dtype.is_bool:
        raise ScheduleError(f"specialize: {cond!r} is {cond.dtype}, not a condition")
    other = tree.rename(old, names(func), suffix="_else")
    choice = ir.If(cond, _assuming(old, cond, ranges_at(path)), other)
    return tree.replace(path, choice), other.var.name if isinstance(
        other, ir.For
    ) else ""


def _assuming(stmt: ir.Stmt, condition: ir.Expr, around: Ranges) -> ir.Stmt:
    """The nest under a condition: sizes equal to a constant are substituted."""
    values = {
        part.a: part.b
        for part in conjuncts(condition)
        if isinstance(part, ir.Compare) and part.op == "eq"
        if isinstance(part.a, ir.Var) and isinstance(part.b, ir.Const)
    }

    @rewriter
    def visit(current: ir.Node) -> ir.Node:
        if isinstance(current, ir.Buffer):
            return current
        return values[current] if current in values else rebuild(current, visit)

    return tidy(visit(stmt), around)
