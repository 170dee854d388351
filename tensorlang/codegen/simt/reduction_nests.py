"""Reductions across threads: recognise their nests, each around one block.

for r in bound(4, "thread.y"):                own: other threads and results
for t in bound(32, "thread.x"):           across: reduce one state together
for k in range(8):
for v in vectorized(4):           lanes: parts of one thread
with block("s", vr=spatial(4, r), vk=reduction(1024, ...)):
reduce(sum, s[vr], x[vr, vk])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensorlang.codegen.blocks import spatial_guard
from tensorlang.errors import CodegenError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars, loops
from tensorlang.ir.visit import substitute, walk

THREAD = "thread."


@frozen
class Fold:
    """A perfect nest around one block that threads reduce together."""

    chain: tuple[ir.For, ...]  # its loops, outermost first
    block: ir.Block
    across: ir.For  # loop over the threads that reduce together
    own: tuple[ir.For, ...]  # loops over other threads, and over a thread's results
    lanes: tuple[ir.For, ...]  # vectorized reduction loops

    @property
    def update(self) -> ir.Reduce:
        """The block's one reduction."""
        return next(n for n in walk(self.block.body) if isinstance(n, ir.Reduce))

    @property
    def threads(self) -> int:
        """Number of threads that reduce together."""
        assert isinstance(self.across.extent, ir.Const)
        return int(self.across.extent.value)

    @property
    def results(self) -> tuple[ir.For, ...]:
        """The loops that index partial results: threads first."""
        bound = [loop for loop in (self.across, *self.own) if loop.thread]
        bound.sort(key=lambda loop: loop.thread)
        return (*bound, *(x for x in self.own if not x.thread))

    @property
    def every(self) -> tuple[ir.For, ...]:
        """The loops over all participating threads, then over their results."""
        return (self.across, *sorted(self.own, key=lambda loop: not loop.thread))

    def state(self, values: tuple[ir.Expr, ...]) -> ir.Stmt:
        """Store the reduced values into the state."""
        update, block = self.update, self.block
        axes = {axis.var: axis.value for axis in block.axes}
        indices = tuple(substitute(index, axes) for index in update.indices)
        if block.init is None:
            stores = zip(update.buffers, values, strict=True)
            made = ir.seq(*(ir.Store(b, indices, v) for b, v in stores))
        else:
            folded = replace(update, indices=indices, values=values)
            made = ir.seq(substitute(block.init, axes), folded)
        guard = self._guard()
        return made if guard is None else ir.If(guard, made)

    def _guard(self) -> ir.Expr | None:
        """Guard of the result, if the nest has points without one."""
        others = [axis for axis in self.block.axes if axis.kind != "reduction"]
        kept = {loop.var for loop in self.own}
        folded = frozenset(x.var for x in self.chain if x.var not in kept)
        return spatial_guard(self.block, others, folded)

    def with_parts(
        self, parts: tuple[ir.Buffer, ...], at: tuple[ir.Expr, ...]
    ) -> ir.Stmt:
        """The nest, reducing into partial results."""
        values = {axis.var: axis.value for axis in self.block.axes}

        def visit(stmt: ir.Stmt) -> ir.Stmt:
            if isinstance(stmt, ir.Reduce):
                return replace(stmt, buffers=parts, indices=at)
            return stmt

        body = substitute(self.block.body, values)
        stmts = body.stmts if hasattr(body, "stmts") else (body,)
        made = ir.seq(*map(visit, stmts))
        where = self.block.where
        guarded = made if where is None else ir.If(substitute(where, values), made)
        return nest(self.chain, guarded)


def nest(around: Sequence[ir.For], body: ir.Stmt) -> ir.Stmt:
    """A body inside loops, given outermost first."""
    made = body
    for loop in reversed(around):
        made = replace(loop, body=made)
    return made


def fold_of(outermost: ir.For) -> Fold | None:
    """The cross-thread reduction of a nest; None if it has none.

    Raises:
        CodegenError: the reduction shares its loops with other statements, or runs
            along two thread indices.
    """
    chain: list[ir.For] = []
    inner: ir.Stmt = outermost
    while isinstance(inner, ir.For) and not inner.thread.startswith("block."):
        chain.append(inner)
        inner = inner.body
    folded = _folded(inner) if isinstance(inner, ir.Block) else []
    across = [x for x in chain if x.thread and _drives(x.var, folded)]
    if not across:
        _need_own_nest(outermost)
        return None
    assert isinstance(inner, ir.Block)
    if len(across) > 1:
        raise CodegenError(
            f"block {inner.name}: threads fold it along {across[0].thread} and "
            f"{across[1].thread}; fuse the two loops"
        )
    updates = [n for n in walk(inner.body) if isinstance(n, ir.Reduce | ir.Store)]
    if len(updates) != 1 or not isinstance(updates[0], ir.Reduce):
        raise CodegenError(
            f"block {inner.name}: a reduction across threads must be its only update"
        )
    rest = [x for x in chain if x is not across[0]]
    own = tuple(x for x in rest if not _drives(x.var, folded))
    lanes = tuple(x for x in rest if x.kind == "vectorized" and x not in own)
    return Fold(tuple(chain), inner, across[0], own, lanes)


def _folded(block: ir.Block) -> list[ir.Axis]:
    """The reduction axes of a block; none for atomic updates."""
    if not any(isinstance(n, ir.Reduce) for n in walk(block.body)):
        return []
    return [axis for axis in block.axes if axis.kind == "reduction"]


def _drives(var: ir.Var, axes: Iterable[ir.Axis]) -> bool:
    return any(var in free_vars(axis.value) for axis in axes)


def _need_own_nest(outermost: ir.For) -> None:
    """Reject a cross-thread reduction next to other statements in its loops."""
    if not outermost.thread.startswith(THREAD):
        return
    around = [x for x in loops(outermost) if x.thread.startswith(THREAD)]
    for block in blocks(outermost.body):
        for loop in around:
            if _drives(loop.var, _folded(block)):
                raise CodegenError(
                    f"block {block.name}: loop {loop.var.name} reduces it across "
                    "threads, but contains other statements"
                )
