"""Lower reductions across the threads of a block: partial results, then all of them.

    for t in bound(64, "thread.x"):        for t in bound(64, "thread.x"):
        for k in range(4):                     part[t] = 0.0
            with block("s", ...):          for t in bound(64, "thread.x"):
                reduce(sum, s[0],              for k in range(4):
                       x[k * 64 + t])  ->          reduce(sum, part[t], x[k * 64 + t])
                                           ...                        # parts combined
                                           for t in bound(64, "thread.x"):
                                               s[t, 0] = ...

Partial results are in registers, as no other thread accesses them. A temporary that
only threads of this block read is replicated per thread, so that no barrier is needed
for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.reduction_nests import Fold, fold_of, nest
from tensorlang.codegen.simt.reduction_steps import (
    in_warps,
    lane_steps,
    state_buffers,
    tree_steps,
    warp_steps,
)
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import allocations, loops
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import children, rebuild, rebuild_statements, rewriter


def lower_cross_thread_reductions(
    function: ir.Function, names: Names, features: Collection[str] = ()
) -> ir.Function:
    """The function without reductions across threads.

    Args:
        function: The function, its loops over threads perfectly nested.
        names: Names in use.
        features: The target's features: `shuffle` for warp shuffles.

    Raises:
        CodegenError: such a reduction shares its loops with other statements.
    """
    folding = _Folding(names, "shuffle" in features)

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.For) and stmt.thread.startswith("block."):
            outer, folding.around = folding.around, stmt
            made = _own_states(replace(stmt, body=visit(stmt.body)), folding)
            folding.around = outer
            return made
        if isinstance(stmt, ir.For) and (found := fold_of(stmt)):
            steps = ir.seq(*folding.lowered(found))
            return steps if folding.around else _one_block(steps, names)
        return rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _one_block(steps: ir.Stmt, names: Names) -> ir.For:
    """The steps of a reduction outside any loop over blocks, as one block."""
    return ir.For(names.var("block", i64), ir.as_expr(1), "bound", steps, "block.x")


class _Folding:
    """Lowers reductions across threads."""

    def __init__(self, names: Names, shuffle: bool) -> None:
        self.names = names
        self.shuffle = shuffle
        self.around: ir.For | None = None  # enclosing loop over blocks
        # temporaries to replicate per thread, with the loop over threads
        self.states: dict[ir.Buffer, ir.For] = {}

    def lowered(self, fold: Fold) -> Iterator[ir.Stmt]:
        """The statements of one reduction."""
        dims = (*fold.results, *fold.lanes)
        parts = state_buffers(fold, self.names, "part", dims)
        at = tuple(loop.var for loop in dims)
        identity = fold.update.reducer.identity
        start = (ir.Store(b, at, e) for b, e in zip(parts, identity, strict=True))
        yield from map(ir.Alloc, parts)
        yield nest(dims, ir.seq(*start))
        yield fold.with_parts(parts, at)
        yield from lane_steps(fold, parts)
        alike = all(self.each_has(fold, buffer) for buffer in fold.update.buffers)
        if alike:
            self.states |= dict.fromkeys(fold.update.buffers, fold.across)
        first = (*at[: len(fold.results)], *(ir.as_expr(0) for _ in fold.lanes))
        mine = tuple(ir.Load(part, first) for part in parts)
        if fold.threads == 1:
            yield nest(fold.every, fold.state(mine))
            return
        steps = warp_steps if self.by_warps(fold) else tree_steps
        yield from steps(fold, self.names, mine, alike=alike)

    def by_warps(self, fold: Fold) -> bool:
        """Whether warps shuffle their parts; requires whole warps in the block."""
        if not (self.shuffle and in_warps(fold)):
            return False
        around = self.around or fold.chain[0]
        counts = [x.extent for x in loops(around) if x.thread == "thread.x"]
        return all(isinstance(n, ir.Const) and not int(n.value) % WARP for n in counts)

    def each_has(self, fold: Fold, state: ir.Buffer) -> bool:
        """Whether a state can be replicated: only threads of this block read it."""
        around = self.around
        if around is None or fold.block.init is not None or state.layout is not None:
            return False
        return state in set(allocations(around)) and _read_alike(around, fold, state)


def _read_alike(around: ir.For, fold: Fold, state: ir.Buffer) -> bool:
    """Whether all other uses are loads by as many threads along the same index."""

    def visit(node: ir.Node, alike: bool) -> bool:
        if node is fold.block:
            return True
        match node:
            case ir.Load(buffer=buffer) if buffer == state and not alike:
                return False
            case ir.Store(buffer=buffer) | ir.AtomicUpdate(buffer=buffer) if (
                buffer == state
            ):
                return False
            case ir.Reduce(buffers=buffers) if state in buffers:
                return False
            case ir.For(thread=fold.across.thread):
                alike = node.extent == fold.across.extent
        inner = (child for child in children(node) if not isinstance(child, ir.Buffer))
        return all(visit(child, alike) for child in inner)

    return visit(around, False)


def _own_states(around: ir.For, folding: _Folding) -> ir.Stmt:
    """The loop over blocks with these states replicated per thread."""
    states, folding.states = folding.states, {}
    moved = {
        b: replace(b, shape=(loop.extent, *b.shape), scope="shared")
        for b, loop in states.items()
    }

    @rewriter
    def visit(node: ir.Node, threads: dict[str, ir.For]) -> ir.Node:
        if isinstance(node, ir.Alloc) and node.buffer in moved:
            return ir.Alloc(moved[node.buffer])
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.For) and node.thread:
            threads = threads | {node.thread: node}
        new = rebuild(node, lambda child: visit(child, threads))
        if isinstance(new, ir.Load | ir.Store) and new.buffer in moved:
            thread = threads[states[new.buffer].thread].var
            indices = (thread, *new.indices)
            return replace(new, buffer=moved[new.buffer], indices=indices)
        return new

    return visit(around, {}) if moved else around
