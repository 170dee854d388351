"""`split`, `fuse` and `reorder` of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from itertools import pairwise
from math import prod
from typing import TypeAlias

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Const, Expr, For, Function, Stmt, Var
from tensorlang.ir.visit import substitute
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.dependence import dependences
from tensorlang.scheduling.analysis.extents import steady
from tensorlang.scheduling.analysis.facts import ceil_div, divides, nonnegative, product
from tensorlang.scheduling.analysis.guards import guarded
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.arguments import LARGEST
from tensorlang.scheduling.primitives import primitive

Factors: TypeAlias = int | Sequence[int | None]

# -------------------------------------------------------------------------- split


@legality("split factors cover the loop")
def factors_cover(loop: For, sizes: Sequence[Expr]) -> str | None:
    """The new loops have at least as many iterations as the old one."""
    have, need = tree.constant(product(sizes)), tree.constant(loop.extent)
    if have is None or (need is not None and have >= need):
        return None
    return (
        f"split: loop {loop.var.name!r} runs {loop.extent!r} times, the factors make "
        f"{have}; leave one factor None to have it inferred"
    )


@primitive
def split(
    func: Function, loop: str, factors: Factors
) -> tuple[Function, tuple[str, ...]]:
    """Split a loop into nested loops, outermost first.

    Args:
        loop: The loop's name.
        factors: The new extents; one of them may be `None`, inferred by division,
            rounded up unless an `If` around says that it is exact. A single number `n`
            stands for `[None, n]`.

    Returns:
        The function, and the names of the new loops: `i_0`, `i_1`, ..., with the next
        numbers if there are such loops already.

    Raises:
        ScheduleError: a factor is not positive, two are `None`, or they do not cover
            the loop.

    The first new loop keeps the kind of the old one, the others are serial. If the
    factors overshoot, the blocks inside get a guard. `split("i", [None, 4])`:

        for i in range(10):
            with block("y", vi=spatial(10, i)):
                y[vi] = x[vi]

        for i_0 in range(3):
            for i_1 in range(4):
                with block("y", vi=spatial(10, i_0*4 + i_1), where=i_0*4 + i_1 < 10):
                    y[vi] = x[vi]
    """
    path = tree.find_loop(func, loop)
    old = tree.loop_of(path)
    sizes = _sizes(old, [None, factors] if isinstance(factors, int) else factors, path)
    factors_cover(old, sizes)
    steady([old], old.body)
    names = tree.numbered(func, old.var.name, len(sizes))
    new = [Var(name, old.var.dtype) for name in names]
    value: Expr = new[0]
    for var, size in zip(new[1:], sizes[1:], strict=True):
        value = value * size + var
    body = substitute(old.body, {old.var: value})
    if not _exact(old.extent, sizes, path):
        body = guarded(body, value < old.extent)
    for var, size in zip(reversed(new[1:]), reversed(sizes[1:]), strict=True):
        body = For(var, size, "serial", body)
    outer = with_fields(old, var=new[0], extent=sizes[0], body=body)
    return tree.replace(path, outer), names


def _exact(extent: Expr, sizes: Sequence[Expr], path: tree.Path) -> bool:
    """Whether loops of these sizes have exactly `extent` iterations together."""
    known = [value for size in sizes if (value := tree.constant(size)) is not None]
    if len(known) == len(sizes):
        return prod(known) == tree.constant(extent)
    return divides(prod(known), extent, path)


def _sizes(loop: For, factors: Sequence[int | None], path: tree.Path) -> list[Expr]:
    """The new extents, the missing one inferred."""
    name = loop.var.name
    given = [factor for factor in factors if factor is not None]
    if len(given) < len(factors) - 1 or len(factors) < 2:
        raise ScheduleError(
            f"split: loop {name!r} needs two factors or more, at most one of them "
            f"None, not {list(factors)}"
        )
    for factor in given:
        if factor < 1:
            raise ScheduleError(
                f"split: loop {name!r}: a factor is at least 1, not {factor}"
            )
    if prod(given) > LARGEST:
        raise ScheduleError(
            f"split: loop {name!r}: {list(factors)} make more than 2^48 iterations"
        )
    inferred = _quotient(loop.extent, prod(given), path)
    return [
        inferred if factor is None else Const(factor, loop.var.dtype)
        for factor in factors
    ]


def _quotient(extent: Expr, size: int, path: tree.Path) -> Expr:
    """`extent / size`, rounded up where that is needed."""
    made = ceil_div(extent, size)
    if made == extent or isinstance(made, Const) or not divides(size, extent, path):
        return made
    return extent // size


# --------------------------------------------------------------------------- fuse


@legality("fused loops are perfectly nested")
def nothing_between(outer: For, inner: For) -> str | None:
    """The outer loop's body is just the inner loop."""
    if outer.body is inner:
        return None
    return (
        f"fuse: loop {inner.var.name!r} is not all that loop {outer.var.name!r} runs; "
        "fuse loops that are nested directly"
    )


@legality("fused extents are independent")
def inner_extent_fixed(outer: For, inner: For) -> str | None:
    """The inner trip count does not depend on the outer loop."""
    if outer.var not in free_vars(inner.extent):
        return None
    return (
        f"fuse: the extent of loop {inner.var.name!r} is {inner.extent!r}, which "
        f"depends on {outer.var.name!r}; only a rectangular nest fuses"
    )


@primitive
def fuse(func: Function, outer: str, inner: str) -> tuple[Function, str]:
    """Fuse two perfectly nested loops into one.

    Args:
        outer: The name of the outer loop.
        inner: The name of the loop directly inside it, of the same kind.

    Returns:
        The function, and the name of the new loop: `i_j`, also for parts `i_0` and
        `j_1` of loops that were split.

    Raises:
        ScheduleError: the nest is not perfect, the inner extent depends on the outer
            loop, or their kinds differ.

    `fuse("i", "j")`:

        for i in range(8):              for i_j in range(40):
            for j in range(5):     ->       ... (i_j // 5, i_j % 5)
                ... (i, j)
    """
    path = tree.find_loop(func, outer)
    first = tree.loop_of(path)
    inside = tree.find_loop(func, inner)
    if not any(node is first for node in inside):
        raise ScheduleError(f"fuse: loop {inner!r} is not inside loop {outer!r}")
    second = tree.loop_of(inside)
    if first.kind != second.kind or first.kind == "bound":
        raise ScheduleError(
            f"fuse: loop {outer!r} is {first.kind} and loop {inner!r} is "
            f"{second.kind}; fuse loops of one kind, before they are bound"
        )
    nothing_between(first, second)
    inner_extent_fixed(first, second)
    steady([first, second], first.body)
    roots = map(tree.stem, (first.var.name, second.var.name))
    words = dict.fromkeys(word for root in roots for word in root.split("_"))
    (name,) = tree.new_names(func, "_".join(words))
    var = Var(name, first.var.dtype)
    values = {first.var: var // second.extent, second.var: var % second.extent}
    if tree.constant(first.extent) == 1:  # nothing to divide
        values = {first.var: Const(0, var.dtype), second.var: var}
    elif tree.constant(second.extent) in (0, 1):
        values = {first.var: var, second.var: Const(0, var.dtype)}
    extents = [nonnegative(first.extent, path), second.extent]
    body = substitute(tree.swap(first.body, second, second.body), values)
    return tree.replace(path, For(var, product(extents), first.kind, body)), name


# ------------------------------------------------------------------------ reorder


@legality("reordered loops are perfectly nested")
def perfectly_nested(chain: Sequence[For]) -> str | None:
    """The body of each loop but the last is just the next loop."""
    for outer, inner in pairwise(chain):
        if outer.body is not inner:
            return (
                f"reorder: loop {outer.var.name!r} runs more than loop "
                f"{inner.var.name!r}; split the nest into two first, or reorder "
                "only loops that are nested directly"
            )
    return None


@legality("extents are defined outside")
def extents_known(chain: Sequence[For]) -> str | None:
    """No loop moves outside a loop that its extent depends on."""
    for depth, loop in enumerate(chain):
        inside = {inner.var for inner in chain[depth:]}
        late = inside & free_vars(loop.extent)
        if late:
            return (
                f"reorder: the extent of loop {loop.var.name!r} is {loop.extent!r}, "
                f"so it cannot be outside of loop {min(v.name for v in late)!r}"
            )
    return None


@legality("dependences keep their order")
def dependences_kept(
    path: tree.Path, old: Sequence[For], new: Sequence[For]
) -> str | None:
    """Loops that carry one dependence keep their order, except for reductions."""
    for found in dependences(path, old):
        before = [loop.var for loop in old if loop.var in found.loops]
        after = [loop.var for loop in new if loop.var in found.loops]
        if before != after and not found.reduction:
            names = ", ".join(repr(var.name) for var in before)
            return (
                f"reorder: loops {names} must keep this order: {found.why}; only "
                "loops that drive spatial axes or a commutative reduction may pass"
            )
    return None


@primitive
def reorder(func: Function, *loops: str) -> Function:
    """Reorder perfectly nested loops, outermost first.

    Args:
        loops: The names of the loops. Loops between them that are not named stay in
            place.

    Raises:
        ScheduleError: the nest is not perfect, an extent would be undefined, or a
            dependence would be reversed.

    `reorder("k", "j")`:

        for i in range(4):              for i in range(4):
            for j in range(8):              for k in range(16):
                for k in range(16):   ->        for j in range(8):
                    ...                             ...
    """
    places = [tree.find_loop(func, loop) for loop in loops]
    chain = _chain(places)
    wanted = [tree.loop_of(place) for place in places]
    listed = iter(wanted)
    order = [next(listed) if loop in wanted else loop for loop in chain]
    perfectly_nested(chain)
    extents_known(order)
    steady(chain, chain[-1].body)
    top = min(places, key=len)
    dependences_kept(top, chain, order)
    body: Stmt = chain[-1].body
    for depth in range(len(chain) - 1, -1, -1):
        body = with_fields(order[depth], body=body)
        if depth:
            body = tree.swap(chain[depth - 1].body, chain[depth], body)
    return tree.replace(top, body)


def _chain(places: Sequence[tree.Path]) -> list[For]:
    """All loops from the outermost to the innermost of the places."""
    if len(places) < 2:
        raise ScheduleError("reorder: name two loops or more")
    deepest, top = max(places, key=len), min(places, key=len)
    for place in places:
        if deepest[len(place) - 1] is not place[-1]:
            raise ScheduleError(
                f"reorder: loop {tree.loop_of(place).var.name!r} is not around loop "
                f"{tree.loop_of(deepest).var.name!r}; reorder the loops of one nest"
            )
    if len({len(place) for place in places}) < len(places):
        raise ScheduleError("reorder: a loop is named twice")
    return [node for node in deepest[len(top) - 1 :] if isinstance(node, For)]
