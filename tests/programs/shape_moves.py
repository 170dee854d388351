"""Random steps that fuse axes and dimensions, share copies, and group updates."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import Draw
from tensorlang_test_programs.views import Arguments, View, pick, usually

from tensorlang.ir.contents import blocks, reads, writes
from tensorlang.ir.nodes import Alloc, Block, Buffer, Const, Expr, For, Let, Seq, Stmt
from tensorlang.ir.visit import walk, walk_statements


def fuse_axes(draw: Draw, view: View) -> Arguments | None:
    """Axes of one kind, in the order that they have, or now and then another one."""
    several = [b for b in view.blocks if len(b.axes) > 1]
    block = usually(draw, [b for b in several if b.where is None], several)
    if block is None:
        return None
    alike = [
        [axis.var.name for axis in block.axes if axis.kind == kind]
        for kind in ("spatial", "reduction")
    ]
    everything = [axis.var.name for axis in block.axes]
    chosen = usually(draw, [names for names in alike if len(names) > 1], [everything])
    return chosen and (block.name, _some(draw, chosen))


def _some(draw: Draw, items: list[object]) -> list[object]:
    """Two of the items or more: neighbours, or in any order."""
    if draw(st.booleans()):
        first = draw(st.integers(0, len(items) - 2))
        return items[first : first + draw(st.integers(2, len(items) - first))]
    order = draw(st.permutations(items))
    return list(order[: draw(st.integers(2, len(items)))])


def deep(view: View) -> list[Buffer]:
    """Temporaries of several dimensions, without a layout."""
    return [b for b in view.temporaries if b.ndim > 1 and b.layout is None]


def fuse_dims(draw: Draw, view: View) -> Arguments | None:
    plain = [b for b in deep(view) if _constant(b.shape[1:])]
    buffer = usually(draw, plain, deep(view))
    return buffer and (buffer.name, _some(draw, list(range(buffer.ndim))))


def _constant(extents: tuple[Expr, ...]) -> bool:
    return all(isinstance(extent, Const) for extent in extents)


def permute_dims(draw: Draw, view: View) -> Arguments | None:
    buffer = usually(draw, deep(view), view.temporaries)
    return buffer and (buffer.name, draw(st.permutations(range(buffer.ndim))))


def alike(view: View) -> list[tuple[str, str]]:
    """Temporaries of one sequence that are copied from the same, one by one."""
    found = []
    for stmt in walk_statements(view.func):
        stmts = stmt.stmts if isinstance(stmt, Seq) else ()
        held = {s.buffer for s in stmts if isinstance(s, Alloc)}
        makers = [s for s in stmts if isinstance(s, For) and len(writes(s) & held) == 1]
        found += [
            (_made(a), _made(b))
            for a, b in pairwise(makers)
            if reads(a) == reads(b) and len([*walk(a)]) == len([*walk(b)])
        ]
    return found


def _made(nest: Stmt) -> str:
    return min(buffer.name for buffer in writes(nest))


def share(draw: Draw, view: View) -> Arguments | None:
    anything = [(a.name, b.name) for a, b in pairwise(view.temporaries)]
    chosen: Arguments | None = usually(draw, alike(view), anything)
    return chosen


def in_order(view: View) -> list[Block]:
    """Blocks that go to places from data in the order of an axis."""
    return [
        block
        for block in blocks(view.func)
        if any(axis.kind == "ordered" for axis in block.axes)
        and any(isinstance(node, Let) for node in walk(block.body))
    ]


def by_target(draw: Draw, view: View) -> Arguments | None:
    block = usually(draw, in_order(view), view.blocks)
    return block and (block.name, pick(draw, [2, 1, 3, 7]))
