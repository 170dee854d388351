"""`store_at` and `store_in`: reduce the memory of temporaries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as with_fields
from itertools import pairwise

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import ACCESSES, Access, buffers_of, change_accesses, moved
from tensorlang.ir.contents import free_vars, reads, touches
from tensorlang.ir.integers.digits import fixed
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import children, holds, nodes_of, replace_buffers, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import dense
from tensorlang.scheduling.analysis.dependence import accesses
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.moving import by_axes, goes_over_all, shared_loops
from tensorlang.scheduling.analysis.places import extents
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.memory import outside_of_threads


@legality("each iteration has its own part of a temporary")
def own_part(path: tree.Path, place: tree.Path) -> str | None:
    """Some dimensions have one index per iteration, distinct between iterations."""
    buffer, loop = tree.alloc_of(path).buffer, tree.loop_of(place)
    if place[: len(path) - 1] != path[:-1]:
        return (
            f"store_at: {buffer.name!r} lives inside of loop {loop.var.name!r} "
            "already; choose a loop further in"
        )
    loops = [n.var for n in place[len(path) - 1 :] if isinstance(n, ir.For)]
    found = list(_own_indices(path, place).values())
    _, extents = accesses(tree.function_of(path), buffer)
    agreed = fixed([(index, index) for index in found], extents)
    if agreed is not None and agreed.issuperset(loops):
        return None
    return (
        f"store_at: iterations of loop {loop.var.name!r} share what {buffer.name!r} "
        "holds, or go on with it later; choose another loop, or one further out"
    )


def _own_indices(path: tree.Path, place: tree.Path) -> dict[int, ir.Expr]:
    """The dimensions with the same index in all accesses of an iteration, and that."""
    buffer = tree.alloc_of(path).buffer
    found, extents = accesses(tree.function_of(path), buffer)
    around = {loop.var for loop in (*tree.enclosing_loops(place), tree.loop_of(place))}
    inside = extents.keys() - around
    return {
        d: index
        for d, index in enumerate(found[0].indices if found else ())
        if all(touch.indices[d] == index for touch in found)
        and not free_vars(index) & inside
        and not holds(index, ir.Load)
    }


@primitive
def store_at(func: ir.Function, buffer: str, loop: str) -> ir.Function:
    """Allocate a temporary per iteration of a loop, with only the elements it needs.

    Args:
        buffer: The name of a temporary.
        loop: A loop around all of its uses.

    Raises:
        ScheduleError: it is used outside the loop, or shared between iterations.

    `store_at("t", "i")`:

        t = alloc(f32[8, 5])            for i in range(8):
        for i in range(8):                  t = alloc(f32[1, 5])
            for j in range(5):    ->        for j in range(5):
                t[i, j] = x[i, j]               t[0, j] = x[i, j]
            ...                             ...
    """
    path, place = tree.find_alloc(func, buffer), tree.find_loop(func, loop)
    old, target = _of_plain_layout(path), tree.loop_of(place)
    if _is_used_outside(place, old):
        raise ScheduleError(
            f"store_at: {buffer!r} is used outside of loop {loop!r} too; merge the "
            "loops first"
        )
    _not_beside_others(target, old)
    if any(isinstance(node, ir.While) for node in place[len(path) - 1 :]):
        raise ScheduleError(f"store_at: {buffer!r} lives on from round to round")
    own_part(path, place)
    dims = _own_indices(path, place)
    shape = tuple(ir.as_expr(1) if d in dims else n for d, n in enumerate(old.shape))
    new = with_fields(old, shape=shape)
    outside_of_threads(new, [target])
    inside = tree.find_loop(tree.replace(path, None), loop)
    body = _at_zero(tree.loop_of(inside).body, old, new, dims)
    return tree.replace(
        inside, with_fields(tree.loop_of(inside), body=ir.seq(ir.Alloc(new), body))
    )


def _of_plain_layout(path: tree.Path) -> ir.Buffer:
    buffer = tree.alloc_of(path).buffer
    if buffer.layout is not None:
        raise ScheduleError(
            f"{buffer.name!r} has a layout already; decide where it is stored first"
        )
    return buffer


def _not_beside_others(loop: ir.For, buffer: ir.Buffer) -> None:
    """Refuse a component of a tuple state: all of them have the same indices."""
    for node in nodes_of(loop, ir.Reduce):
        if buffer in node.buffers:
            others = [b.name for b in node.buffers if b != buffer]
            if others:
                raise ScheduleError(
                    f"store_at: {buffer.name!r} is reduced together with "
                    f"{', '.join(others)}, at the same indices; it stays as it is"
                )


def _is_used_outside(place: tree.Path, buffer: ir.Buffer) -> bool:
    """Whether something outside a loop's body reads or writes a buffer."""
    return any(
        touches(child, buffer)
        for node, below in pairwise((*place, tree.loop_of(place).body))
        for child in children(node)
        if child is not below
    )


def _is_used_beside_blocks(node: ir.Node, buffer: ir.Buffer) -> bool:
    """Whether something outside of blocks reads or writes a buffer."""
    if isinstance(node, ir.Block) or not touches(node, buffer):
        return False
    return _is_use(node, buffer) or any(
        _is_used_beside_blocks(child, buffer)
        if isinstance(child, ir.Stmt)
        else touches(child, buffer)
        for child in children(node)
    )


def _is_use(node: ir.Node, buffer: ir.Buffer) -> bool:
    return isinstance(node, ACCESSES) and buffer in buffers_of(node)


def _at_zero(
    stmt: ir.Stmt, old: ir.Buffer, new: ir.Buffer, dims: Collection[int]
) -> ir.Stmt:
    """The statement using the small buffer, whose dropped dimensions have extent 1."""

    def change(access: Access) -> Access:
        if old not in buffers_of(access):
            return access
        own = enumerate(access.indices)
        at = tuple(ir.as_expr(0) if d in dims else index for d, index in own)
        return moved(access, {old: new}, at)

    return change_accesses(stmt, change)


# ----------------------------------------------------------------------- store_in


@legality("a result holds a temporary until it overwrites it")
def made_in_place(maker: tree.Path, buffer: ir.Buffer, store: ir.Store) -> str | None:
    """Each element of the result is written last, from the temporary's same element."""
    block = tree.block_of(maker)
    axes = {a.var: a.value for a in tree.block_of(maker).axes}
    if any(
        isinstance(node, ir.Load)
        and node.buffer == buffer
        and node.indices != store.indices
        for node in walk(block.body)
    ):
        return (
            f"store_in: block {block.name!r} reads {buffer.name!r} at another place "
            "than it stores at, which it would have overwritten"
        )
    stmts = block.body.stmts if isinstance(block.body, ir.Seq) else (block.body,)
    if store not in stmts or buffer in reads(ir.seq(*stmts[stmts.index(store) + 1 :])):
        return (
            f"store_in: block {block.name!r} may read {buffer.name!r} after it has "
            "overwritten it"
        )
    loops = {loop.var for loop in tree.enclosing_loops(maker)}
    values = [linear(axes[i]) for i in store.indices]  # type: ignore[index]
    driving = frozenset().union(*(value.vars for value in values))
    if driving != loops or not dense(values, extents(tree.enclosing_loops(maker))):
        return f"store_in: block {block.name!r} makes an element more than once"
    return _used_later(maker, buffer, store)


def _used_later(maker: tree.Path, buffer: ir.Buffer, store: ir.Store) -> str | None:
    """A use of the temporary after its memory was overwritten."""
    func, block = tree.function_of(maker), tree.block_of(maker)
    found, sizes = accesses(func, buffer)
    made = next(t for t in accesses(func, store.buffer)[0] if t.writes)
    users = {tree.block_of(path).name: path for path in tree.paths_to(func, ir.Block)}
    order = list(users)
    for touch in found:
        if touch.block == block.name:
            continue
        around = shared_loops(users[touch.block], maker)
        pairs = zip(touch.indices, made.indices, strict=True)
        agreed = fixed(pairs, sizes)
        apart = agreed is not None and not agreed.issuperset(around)
        if apart or order.index(touch.block) > order.index(block.name):
            return (
                f"store_in: block {touch.block!r} uses {buffer.name!r} after block "
                f"{block.name!r} has overwritten it"
            )
    return None


@primitive
def store_in(func: ir.Function, buffer: str, result: str) -> ir.Function:
    """Store a temporary in the memory of the result computed from it.

    Args:
        buffer: The name of a temporary.
        result: The name of an `out` parameter of its shape and dtype, written by one
            block, each element from the temporary's same element.

    Raises:
        ScheduleError: the temporary is used afterwards, or they do not match.

    `store_in("t", "y")`:

        t = alloc(f32[8])
        for i in range(8):              for i in range(8):
            t[i] = exp(x[i])      ->        y[i] = exp(x[i])
        ... (the sum of t)              ... (the sum of y)
        for i in range(8):              for i in range(8):
            y[i] = t[i] / s[0]              y[i] = y[i] / s[0]
    """
    path = tree.find_alloc(func, buffer)
    old = _of_plain_layout(path)
    new = _result(func, old, result)
    _only_in_blocks(path, old)
    maker, store = _maker(func, new)
    made_in_place(maker, old, store)
    return replace_buffers(tree.replace(path, None), {old: new})


def _result(func: ir.Function, old: ir.Buffer, name: str) -> ir.Buffer:
    """The result that can hold a temporary, by shape and dtype."""
    for param in func.params:
        fits = (param.buffer.dtype, param.buffer.shape) == (old.dtype, old.shape)
        if param.buffer.name == name and param.role == "out" and fits:
            return param.buffer
    raise ScheduleError(
        f"store_in: {func.name} has no result {name!r} of the shape and type of "
        f"{old.name!r}"
    )


def _only_in_blocks(path: tree.Path, buffer: ir.Buffer) -> None:
    """Refuse a temporary allocated in a loop, and uses outside of blocks."""
    body = tree.function_of(path).body
    if tree.enclosing_loops(path) or _is_used_beside_blocks(body, buffer):
        raise ScheduleError(
            f"store_in: {buffer.name!r} is allocated in a loop, or used outside of "
            "blocks; choose its memory before it is moved"
        )


def _maker(func: ir.Function, result: ir.Buffer) -> tuple[tree.Path, ir.Store]:
    """The block that stores the whole result, and its store, which is the only use."""
    makers = [p for p in tree.paths_to(func, ir.Block) if touches(p[-1], result)]
    uses = [node for p in makers for node in walk(p[-1]) if _is_use(node, result)]
    stores = [node for node in uses if isinstance(node, ir.Store)]
    beside = _is_used_beside_blocks(func.body, result)
    if len(makers) == len(stores) == len(uses) == 1 and not beside:
        (maker,), (store,) = makers, stores
        by_axes(tree.block_of(maker), store.indices)
        goes_over_all(maker, store.indices)
        named = all(free_vars(index) for index in store.indices)
        if named and tree.block_of(maker).where is None and store.mask is None:
            return maker, store
    raise ScheduleError(
        f"store_in: {result.name!r} is not stored by one block, at its axes and "
        "without conditions, or is read somewhere"
    )
