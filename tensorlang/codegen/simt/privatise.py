"""Privatise block scratch of which each thread accesses only its own part.

    t = alloc(f32[256 * 64], scope="shared")      for j in bound(256, "thread.x"):
    for j in bound(256, "thread.x"):                  t = alloc(f32[64], "register")
        t[j * 64 + a] = S                  ->         t[a] = S
    for j in bound(256, "thread.x"):                  y[.., j] = t[a]
        y[.., j] = t[j * 64 + a]

Accumulators that live across a loop over staged operands are declared as block memory,
as each loop over threads is a separate statement; this pass moves them to registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.codegen.simt.digits import rejoined
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import touches
from tensorlang.ir.integers.bounds import Range, bounds, counted
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import children, holds, nodes_of, rebuild, rewriter

_THREAD = "thread."
_Steps: TypeAlias = tuple[tuple[str, int], ...]  # index coefficient by thread index


def privatise(
    body: ir.Stmt, scratch: Iterable[ir.Buffer]
) -> tuple[ir.Stmt, tuple[ir.Buffer, ...]]:
    """The body with such scratch privatised, and the new register buffers."""
    made: list[ir.Buffer] = []
    for buffer in scratch:
        steps = _part(body, buffer)
        if steps is not None:
            size = min(step for _, step in steps)
            own = replace(buffer, scope="register", shape=(ir.as_expr(size),))
            body = _moved(body, buffer, own, dict(steps))
            made.append(own)
    return body, tuple(made)


def _part(body: ir.Stmt, buffer: ir.Buffer) -> _Steps | None:
    """Distances of the threads' parts; None if the parts overlap."""
    (size,) = buffer.shape or (ir.as_expr(1),)
    places = list(_places(body, buffer, (), False))
    if not isinstance(size, ir.Const) or not places:
        return None
    found = {_steps(index, around) for index, around in dict.fromkeys(places)}
    return found.pop() if len(found) == 1 else None


def _steps(index: ir.Expr | None, around: tuple[ir.For, ...]) -> _Steps | None:
    """Coefficients of the thread indices in one access; None if parts overlap."""
    threads = _threads(around)
    if index is None or not threads:
        return None
    index = rejoined(index, threads)
    terms = dict(linear(index).terms)
    steps = {loop: terms.get(loop.var, 0) for loop in threads}
    reach = smallest = min(steps.values())
    for loop, step in sorted(steps.items(), key=lambda item: item[1]):
        if step < max(reach, 1) or not isinstance(loop.extent, ir.Const):
            return None
        reach = step * int(loop.extent.value)
    low, high = bounds(_rest(index, steps), _ranges(around))
    if low is None or low < 0 or high is None or high >= smallest:
        return None
    return tuple(sorted((loop.thread, step) for loop, step in steps.items()))


def _threads(around: tuple[ir.For, ...]) -> tuple[ir.For, ...]:
    """The loops over threads with more than one thread."""
    bound = (loop for loop in around if loop.thread.startswith(_THREAD))
    return tuple(loop for loop in bound if loop.extent != ir.as_expr(1))


def _rest(index: ir.Expr, steps: Mapping[ir.For, int]) -> ir.Expr:
    index = rejoined(index, steps)
    for loop, step in steps.items():
        index = index - loop.var * step
    return simplify(index)


def _ranges(around: tuple[ir.For, ...]) -> dict[ir.Var, Range]:
    return {loop.var: counted(loop.extent) for loop in around}


def _places(
    node: ir.Stmt, buffer: ir.Buffer, around: tuple[ir.For, ...], inside: bool
) -> Iterable[tuple[ir.Expr | None, tuple[ir.For, ...]]]:
    """Each access of the buffer: its index, and the enclosing loops."""
    if not touches(node, buffer):
        return
    if isinstance(node, (ir.Store, ir.AtomicUpdate)) and node.buffer == buffer:
        plain = inside and not isinstance(node, ir.AtomicUpdate)
        yield (node.indices[0] if plain and node.indices else None), around
    if isinstance(node, ir.For):
        inside = inside or node.thread.startswith(_THREAD)
        around = (*around, node)
    for child in children(node):
        if isinstance(child, ir.Stmt):
            yield from _places(child, buffer, around, inside)
            continue
        for load in nodes_of(child, ir.Load):
            if load.buffer == buffer:
                yield (load.indices[0] if inside and load.indices else None), around


def _moved(
    body: ir.Stmt, old: ir.Buffer, new: ir.Buffer, steps: Mapping[str, int]
) -> ir.Stmt:
    """The body with accesses of a buffer redirected to the private one."""

    @rewriter
    def visit(node: ir.Node, around: tuple[ir.For, ...]) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Stmt) and not touches(node, old):
            return node
        if isinstance(node, ir.Expr) and not holds(node, ir.Load):
            return node
        inner = (*around, node) if isinstance(node, ir.For) else around
        made = rebuild(node, lambda child: visit(child, inner))
        if isinstance(made, (ir.Load, ir.Store)) and made.buffer == old:
            of = {loop: steps[loop.thread] for loop in _threads(around)}
            index = _rest(made.indices[0], of)
            return replace(made, buffer=new, indices=(index,))
        return made

    return visit(body, ())
