"""`inline`: substitute a block's value where it is read, or fuse it as an epilogue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names, reads, writes
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import (
    fresh,
    rebuild,
    rewriter,
    substitute,
    transform_statements,
    walk,
)
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.temporaries import (
    dropped,
    only_written_by,
    users_of,
    without_body,
)
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.epilogue import fuse_epilogue


@frozen
class Pointwise:
    """A block that computes one element at a time: lets, then one store."""

    block: ir.Block
    lets: tuple[ir.Let, ...]
    store: ir.Store

    def at(
        self, indices: tuple[ir.Expr, ...], taken: set[str]
    ) -> tuple[list[ir.Let], ir.Expr]:
        """The value it stores at these indices, with fresh names for its lets."""
        values: dict[ir.Var, ir.Expr] = {}
        for own, given in zip(self.store.indices, indices, strict=True):
            form = linear(own)
            if form.terms:
                axis = form.terms[0][0]
                assert isinstance(axis, ir.Var)
                shifted = linear(given).shifted(-form.constant)
                values[axis] = shifted.expr() if form.constant else given
        made = []
        for let in self.lets:
            var = ir.Var(fresh(let.var.name, taken), let.var.dtype)
            made.append(ir.Let(var, substitute(let.value, values)))
            values[let.var] = var
        return made, substitute(self.store.value, values)


def pointwise(block: ir.Block) -> Pointwise:
    """A block as lets and a store at its axes; ScheduleError with other statements."""
    stmts = block.body.stmts if isinstance(block.body, ir.Seq) else (block.body,)
    *before, last = stmts or (block.body,)
    lets = tuple(stmt for stmt in before if isinstance(stmt, ir.Let))
    plain = (
        isinstance(last, ir.Store) and last.mask is None and len(lets) == len(before)
    )
    if not plain or block.init is not None:
        raise ScheduleError(
            f"block {block.name!r} does more than store one value; only a block of "
            "lets and one store can be inlined"
        )
    assert isinstance(last, ir.Store)
    return Pointwise(block, lets, last)


@legality("an inlined value is determined by its indices")
def named_by_indices(found: Pointwise) -> str | None:
    """Its value depends only on the axes it stores by, each used once as an index."""
    axes = {axis.var for axis in found.block.axes}
    if found.store.buffer in reads(found.block.body):
        return _not_named(found, "its value goes on from others of the same buffer")
    used: list[ir.Var] = []
    for index in found.store.indices:
        terms = linear(index).terms
        if terms and not (len(terms) == 1 and terms[0][0] in axes and terms[0][1] == 1):
            return _not_named(found, f"stores at {index!r}")
        used += [term for term, _ in terms if isinstance(term, ir.Var)]
    values = [let.value for let in found.lets] + [found.store.value]
    needed = frozenset().union(*(free_vars(value) for value in values)) & axes
    if len(set(used)) < len(used) or needed - set(used):
        return _not_named(found, "its value needs axes that its indices do not give")
    return None


def _not_named(found: Pointwise, why: str) -> str:
    return (
        f"block {found.block.name!r} cannot be inlined: {why}; it must store at its "
        "axes, each one once"
    )


@legality("the operands of a moved block do not change in between")
def sources_stay(path: tree.Path, users: list[tree.Path]) -> str | None:
    """Nothing between the block and its last user writes its operands."""
    func, used = tree.function_of(path), reads(tree.block_of(path).body)
    for place in tree.paths_to(func, ir.Alloc):
        if tree.alloc_of(place).buffer in used and any(
            place[-2] not in u for u in users
        ):
            name, block = tree.alloc_of(place).buffer.name, tree.block_of(path).name
            return f"{name!r} is not alive where block {block!r} is used"
    order = list(tree.actions(func))
    places = [next(i for i, p in enumerate(order) if p[-1] is u[-1]) for u in users]
    start = next(i for i, p in enumerate(order) if p[-1] is path[-1])
    between = order[start + 1 : max(places, default=start) + 1]
    again = [p for p in order if any(_shared_loop(path, user, p) for user in users)]
    for other in (*between, *again):
        for buffer in used & writes(without_body(other[-1])):
            return (
                f"block {tree.block_of(path).name!r} reads {buffer.name!r}, which is "
                "written before its value is used; cache_read it first"
            )
    for other in order[:start]:
        for buffer in used & writes(without_body(other[-1])):
            if any(_made_again(path, user, other, buffer) for user in users):
                return (
                    f"block {tree.block_of(path).name!r} reads {buffer.name!r} as it "
                    "is in each iteration of a loop that it would leave; cache_read it "
                    "first"
                )
    return None


def _made_again(
    path: tree.Path, user: tree.Path, other: tree.Path, buffer: ir.Buffer
) -> bool:
    """Whether a loop around the block but not its user rewrites a buffer."""
    left = [n for n in path if isinstance(n, (ir.For, ir.While))]
    left = [loop for loop in left if all(loop is not node for node in user)]
    node = other[-1]
    axes = {a.var: a.value for a in node.axes} if isinstance(node, ir.Block) else {}
    written = [
        n.indices
        for n in walk(node)
        if (isinstance(n, ir.Store) and n.buffer == buffer)
        or (isinstance(n, ir.Reduce) and buffer in n.buffers)
    ]
    places = [substitute(index, axes) for indices in written for index in indices]
    driving = frozenset[ir.Var]().union(*(linear(place).vars for place in places))
    return any(
        any(loop is around for around in other)
        and not (isinstance(loop, ir.For) and loop.var in driving)
        for loop in left
    )


def _shared_loop(path: tree.Path, user: tree.Path, other: tree.Path) -> bool:
    """Whether a loop around block and user, in the buffer's scope, holds `other`."""
    block = tree.block_of(path)
    for depth, (mine, theirs) in enumerate(zip(path, user, strict=False)):
        if mine is not theirs:
            return False
        if isinstance(mine, ir.For) and not _allocates(mine, block):
            return len(other) > depth and other[depth] is mine
    return False


def _allocates(loop: ir.For, block: ir.Block) -> bool:
    held = writes(block)
    return any(
        isinstance(node, ir.Alloc) and node.buffer in held for node in walk(loop)
    )


@primitive
def inline(func: ir.Function, block: str, *, reverse: bool = False) -> ir.Function:
    """Substitute what `block` computes where it is read, and drop its buffer.

    Args:
        block: A block that stores one value by its axes into a temporary.
        reverse: Instead, make the block an epilogue: fuse it into the block that stores
            its only temporary, to run on each value as it is computed.

    Raises:
        ScheduleError: the block has other statements, its buffer is a parameter or has
            other writers, or its operands change in between.

    Before:

        t = alloc(f32[8])
        for i in range(8):
            with block("t", vi=spatial(8, i)):
                t[vi] = x[vi] * 2.0
        for j in range(8):
            with block("y", vj=spatial(8, j)):
                y[vj] = t[vj] + 1.0

    After `inline("t")`:

        for j in range(8):
            with block("y", vj=spatial(8, j)):
                y[vj] = x[vj] * 2.0 + 1.0

    After `inline("y", reverse=True)`:

        for i in range(8):
            with block("t", vi=spatial(8, i)):
                t_1: f32 = x[vi] * 2.0
                y[vi] = t_1 + 1.0
    """
    if reverse:
        return fuse_epilogue(func, block)
    path = tree.find_block(func, block)
    found = pointwise(tree.block_of(path))
    buffer = found.store.buffer
    tree.find_alloc(func, buffer.name)
    users = users_of(func, buffer)
    named_by_indices(found)
    only_written_by([path], buffer)
    sources_stay(path, users)
    taken = names(func)
    bodies = {user[-1]: _use(tree.block_of(user), found, taken) for user in users}
    return dropped(_swapped(func, bodies), block, buffer)


def _swapped(func: ir.Function, new: Mapping[ir.Node, ir.Block]) -> ir.Function:
    def change(stmt: ir.Stmt) -> ir.Stmt:
        return new.get(stmt, stmt) if isinstance(stmt, ir.Block) else stmt

    return transform_statements(func, change)


def _use(user: ir.Block, found: Pointwise, taken: set[str]) -> ir.Block:
    """A reader with the value substituted for its loads."""
    body = _inlined(user.body, found, taken)
    init = None if user.init is None else _inlined(user.init, found, taken)
    return dataclasses.replace(user, body=body, init=init)


def _inlined(stmt: ir.Stmt, found: Pointwise, taken: set[str]) -> ir.Stmt:
    if isinstance(stmt, ir.Seq):
        return ir.seq(*(_inlined(part, found, taken) for part in stmt.stmts))
    before: list[ir.Let] = []
    done: dict[tuple[ir.Expr, ...], ir.Expr] = {}

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Stmt):
            return _inlined(node, found, taken)
        if isinstance(node, ir.Buffer):
            return node
        node = rebuild(node, visit)
        if not isinstance(node, ir.Load) or node.buffer != found.store.buffer:
            return node
        if node.indices not in done:
            done[node.indices] = _value(node, stmt, found, before, taken)
        return done[node.indices]

    changed = rebuild(stmt, visit)
    return ir.seq(*before, changed)


def _value(
    load: ir.Load,
    stmt: ir.Stmt,
    found: Pointwise,
    before: list[ir.Let],
    taken: set[str],
) -> ir.Expr:
    """The value at a load; lets it needs are appended to `before`."""
    if load.mask is not None or load.dtype.lanes > 1:
        raise ScheduleError(
            f"{load!r} is a masked or vector load; inline before vectorizing"
        )
    lets, value = found.at(load.indices, taken)
    if isinstance(stmt, ir.While) and lets:
        raise ScheduleError(
            f"{load!r} stands in the condition of a while; its block has lets and "
            "cannot be inlined there"
        )
    before += lets
    uses = sum(1 for n in walk(stmt) if n == load)
    if uses > 1 and any(True for _ in _operators(value)):
        var = ir.Var(fresh(found.store.buffer.name, taken), value.dtype)
        before.append(ir.Let(var, value))
        return var
    return value


def _operators(value: ir.Expr) -> Iterator[ir.Node]:
    return (
        n for n in walk(value) if isinstance(n, ir.Expr) and not isinstance(n, ir.Var)
    )
