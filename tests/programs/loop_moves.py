"""Random steps on loops: each gives the arguments of the primitive of its name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.views import Arguments, Place, View, pick, usually

from tensorlang.ir.nodes import Alloc, For, Seq
from tensorlang.ir.visit import walk_statements


def split(draw: Draw, view: View) -> Arguments | None:
    place = usually(
        draw,
        [p for p in view.loops if p.extent != 1 and p.loop.kind != "vectorized"],
        view.loops,
    )
    if place is None:
        return None
    size = draw(st.integers(1, 4))
    forms = [size, size, [None, size], [size, None], [None, 2, 2], [2, None, 2], [2, 2]]
    return place.name, pick(draw, forms)


def pairs(view: View) -> list[tuple[Place, Place]]:
    """Loops that are nested directly."""
    return [
        (outer, inner)
        for outer in view.loops
        for inner in view.loops
        if outer.loop.body is inner.loop
    ]


def fuse(draw: Draw, view: View) -> Arguments | None:
    alike = [pair for pair in pairs(view) if pair[0].loop.kind == pair[1].loop.kind]
    pair = usually(draw, alike, pairs(view))
    return pair and (pair[0].name, pair[1].name)


def number_loops(draw: Draw, view: View) -> Arguments | None:
    del draw, view
    return ()


def reorder(draw: Draw, view: View) -> Arguments | None:
    chains = [list(pair) for pair in pairs(view)]
    for chain in list(chains):
        while following := [b for a, b in pairs(view) if a.loop is chain[-1].loop]:
            chain = [*chain, following[0]]  # noqa: PLW2901 - the chain grows
            chains.append(chain)
    if not chains:
        return None
    chain = pick(draw, chains)
    order = draw(st.permutations([place.name for place in chain]))
    return tuple(order[: draw(st.integers(2, len(order)))])


def partition(draw: Draw, view: View) -> Arguments | None:
    large = [p for p in view.loops if p.extent is None or p.extent > 1]
    place = usually(draw, large, view.loops)
    if place is None:
        return None
    if place.extent is not None:
        return place.name, draw(st.integers(1, max(place.extent - 1, 1)))
    return place.name, pick(draw, [1, 2, "n // 2", "n // 4", "n - 1"])


def specialize(draw: Draw, view: View) -> Arguments | None:
    if not view.loops:
        return None
    place = pick(draw, view.loops)
    conditions = [f"{loop.var.name} < 2" for loop in place.around]
    if view.func.scalars:
        conditions += ["n == 4", "n % 4 == 0", "n > 3"]
    return place.name, pick(draw, conditions or ["True"])


def neighbours(view: View) -> list[tuple[str, str]]:
    """Loops of one extent, one behind the other, where the second uses the first's."""
    found = []
    for stmt in walk_statements(view.func):
        stmts = stmt.stmts if isinstance(stmt, Seq) else ()
        loops = [s for s in stmts if not isinstance(s, Alloc)]
        found += [
            (a.var.name, b.var.name)
            for a, b in pairwise(loops)
            if isinstance(a, For) and isinstance(b, For) and a.extent == b.extent
        ]
    return found


def merge(draw: Draw, view: View) -> Arguments | None:
    found = neighbours(view)
    return pick(draw, found) if found else None


def _threads(draw: Draw, view: View, kind: str) -> Any:
    """A loop whose iterations look independent, where none is of the kind already."""
    free = [p for p in view.loops if p.loop.kind == "serial"]
    good = [
        p
        for p in free
        if p.kinds and p.kinds <= {"spatial", "disjoint"}
        if not any(loop.kind == kind for loop in p.nest)
    ]
    return usually(draw, good, free)


def parallel(draw: Draw, view: View) -> Arguments | None:
    place = _threads(draw, view, "parallel")
    return place and (place.name,)


def bind(draw: Draw, view: View) -> Arguments | None:
    place = _threads(draw, view, "bound")
    return place and (place.name, pick(draw, ["block.x", "thread.x", "thread.y"]))


def vectorize(draw: Draw, view: View) -> Arguments | None:
    good = [
        p
        for p in view.loops
        if p.loop.kind == "serial" and p.extent is not None
        if p.kinds in ({"spatial"}, {"reduction"})
        if not any(loop.kind == "vectorized" for loop in p.nest)
    ]
    place = usually(draw, good, view.loops)
    return place and (place.name,)


def unroll(draw: Draw, view: View) -> Arguments | None:
    serial = [p for p in view.loops if p.loop.kind == "serial" and p.extent is not None]
    place = usually(draw, serial, view.loops)
    return place and (place.name,)
