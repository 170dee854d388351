"""Reverse inlining: a consumer that runs on each value as soon as it is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from itertools import takewhile

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import Access, change_accesses
from tensorlang.ir.contents import allocations, free_vars, names, reads, touches, writes
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.visit import fresh, substitute, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import bounds_of, dense, guards_of
from tensorlang.scheduling.analysis.guarding import read_indices
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import extents, stored, whole_axes
from tensorlang.scheduling.analysis.temporaries import (
    dropped,
    only_written_by,
    users_of,
)


@legality("an epilogue runs once for each element")
def once_each(maker: tree.Path, reader: tree.Path, store: ir.Store) -> str | None:
    """Every element is computed once, and the epilogue has an instance for each."""
    block = tree.block_of(maker)
    loops = tree.enclosing_loops(maker)
    user = tree.block_of(reader)
    axes = {axis.var: axis for axis in block.axes}
    named = [
        axes[i].value for i in store.indices if isinstance(i, ir.Var) and i in axes
    ]
    used = frozenset().union(*(linear(value).vars for value in named))
    if (
        len(named) == store.buffer.ndim
        and dense([linear(value) for value in named], extents(loops))
        and used >= {loop.var for loop in loops if tree.constant(loop.extent) != 1}
        and all(axis.kind == "spatial" for axis in block.axes)
        and _visits_each(user, store.buffer)
        and whole_axes(reader, {axis.var for axis in user.axes})
    ):
        return None
    return (
        f"block {user.name!r} would not run exactly once for each element that block "
        f"{block.name!r} makes; both must go over all of {store.buffer.name!r} by "
        "their axes, without repeating loops"
    )


@legality("an epilogue of several blocks sees final values")
def final_values(
    makers: list[tree.Path], user: tree.Path, buffer: ir.Buffer
) -> str | None:
    """The stored values are never updated, and all elements but padding are visited.

    An element may then be stored more than once: its last value comes last, followed by
    the epilogue.
    """
    block = tree.block_of(user)
    for maker in makers:
        if buffer in reads(tree.block_of(maker)):
            return (
                f"block {tree.block_of(maker).name!r} goes on from what "
                f"{buffer.name!r} holds: it is not final there"
            )
    if reads(block.body) & writes(block):
        return f"block {block.name!r} updates in place, and might run twice"
    if _visits_each(block, buffer) and whole_axes(user, {a.var for a in block.axes}):
        return None
    return f"block {block.name!r} does not go over all of {buffer.name!r} by its axes"


def _visits_each(user: ir.Block, buffer: ir.Buffer) -> bool:
    """Like `_visits_all`, or for a padded buffer, only the unpadded elements."""
    ends = _beyond(user, buffer, read_indices(user, buffer, everywhere=True))
    return _visits_all(user, buffer) if ends == {} else ends is not None


def _beyond(
    user: ir.Block, buffer: ir.Buffer, found: Collection[tuple[ir.Expr, ...]]
) -> dict[ir.Expr, ir.Expr] | None:
    """The block's axes that end before the dimension of the buffer they index.

    None if the block does not read the buffer exactly once by all its axes.
    """
    sizes: dict[ir.Expr, ir.Expr] = {axis.var: axis.extent for axis in user.axes}
    if len(found) != 1 or any(axis.kind != "spatial" for axis in user.axes):
        return None
    (indices,) = found
    if sorted(map(repr, indices)) != sorted(map(repr, sizes)) or guards_of(user):
        return {} if guards_of(user) else None
    pairs = zip(indices, buffer.shape, strict=True)
    return {i: sizes[i] for i, n in pairs if linear(sizes[i]) != linear(n)}


def _visits_all(user: ir.Block, buffer: ir.Buffer) -> bool:
    """Whether a block has one instance per element, read at its axes."""
    found = read_indices(user, buffer, everywhere=True)
    sizes = {axis.var: linear(axis.extent) for axis in user.axes}
    for indices in found:
        given = [sizes.get(i) if isinstance(i, ir.Var) else None for i in indices]
        whole = given == [linear(extent) for extent in buffer.shape]
        ends = all(
            any(bound.limit == sizes[bound.axis] for bound in bounds_of(user, cond))
            for cond in guards_of(user)
        )
        spatial = all(axis.kind == "spatial" for axis in user.axes)
        return (
            len(found) == 1
            and whole
            and ends
            and spatial
            and set(indices) == set(sizes)
            and _stores_apart(user)
        )
    return False


def _stores_apart(user: ir.Block) -> bool:
    """Whether instances store to distinct elements, so that any order is valid.

    False for pipeline stages, which share the slots of a ring buffer.
    """
    moving = {axis.var for axis in user.axes if tree.constant(axis.extent) != 1}
    return all(
        moving <= frozenset().union(*map(free_vars, update.indices))
        for update in stored(user)
    )


@legality("an epilogue runs under the conditions of its block")
def unconditional(maker: tree.Path, user: tree.Path) -> str | None:
    """Every condition around the epilogue is around the block as well."""
    for node in tree.conditions_apart(user, maker):
        return (
            f"block {tree.block_of(user).name!r} runs under {node.cond!r} only, and "
            f"block {tree.block_of(maker).name!r} does not"
        )
    return None


@legality("a consumer uses no let after its producer")
def named_before(maker: tree.Path, user: tree.Path) -> str | None:
    """The lets it uses are in scope at the producer."""
    block, there = tree.block_of(user), tree.values_of(maker)
    for let in tree.values_of(user):
        used = let.var in free_vars(block)
        if used and all(let is not other for other in there):
            return (
                f"block {block.name!r} uses {let.var.name!r}, which is named behind "
                f"block {tree.block_of(maker).name!r}"
            )
    return None


@legality("a consumer leaves no loop that uses its results")
def left_for_good(user: tree.Path, around: tree.Path) -> str | None:
    """Nothing after it in the loop uses what it writes, or writes what it reads.

    Such a value would differ in the loop's next iteration.

    Args:
        user: The consumer.
        around: The path to its new place.
    """
    block = tree.block_of(user)
    left = [n for n in user if isinstance(n, (ir.For, ir.While))]
    left = [loop for loop in left if all(loop is not node for node in around)]
    if not left:
        return None
    behind = takewhile(
        lambda path: path[-1] is not user[-1],
        reversed(list(tree.actions(tree.function_of(user)))),
    )
    for path in behind:
        node = path[-1]
        inside = any(n is left[0] for n in path)
        if not inside or not isinstance(node, ir.Stmt) or isinstance(node, _AROUND):
            continue
        made, given = writes(block), reads(block)
        shared = ((reads(node) | writes(node)) & made) | (writes(node) & given)
        if shared:
            return (
                f"{tree.called(node)} uses {min(b.name for b in shared)!r} behind "
                f"block {block.name!r} in each iteration of {_loop_name(left[0])}, "
                "which it would leave"
            )
    return None


_AROUND = ir.For, ir.If, ir.While  # visited by their parts


def _loop_name(loop: ir.For | ir.While) -> str:
    if isinstance(loop, ir.For):
        return f"loop {loop.var.name!r}"
    return f"while {loop.cond!r}"


@legality("an epilogue can run as soon as its element is computed")
def early_enough(
    maker: tree.Path, user: tree.Path, ready: frozenset[ir.Buffer]
) -> str | None:
    """No conflicting access from the producer's nest up to the epilogue."""
    block = tree.block_of(user)
    sources, results = reads(block) - ready, writes(block)
    top = next(
        i for i, (a, b) in enumerate(zip(maker, user, strict=False)) if a is not b
    )
    order = [
        p
        for p in tree.actions(tree.function_of(maker))
        if not isinstance(p[-1], (ir.For, ir.If, ir.While))
    ]
    inside = [p for p in order if len(p) > top and p[top] is maker[top]]
    start, stop = order.index(inside[0]), order.index(user)
    if stop < order.index(maker):
        return (
            f"block {block.name!r} stands before {tree.block_of(maker).name!r}: what "
            "it reads was made an iteration before"
        )
    for other in order[start:stop]:
        node = other[-1]
        assert isinstance(node, ir.Stmt)
        late = sources & writes(node)
        clash = next((b for b in results if touches(node, b)), None)
        if late or clash is not None:
            name = next(iter(late)).name if late else clash and clash.name
            return (
                f"block {block.name!r} cannot run inside "
                f"{tree.block_of(maker).name!r}: {tree.called(node)} uses {name!r} "
                "before it"
            )
    return None


def fuse_epilogue(func: ir.Function, block: str) -> ir.Function:
    """`inline(block, reverse=True)`: see there."""
    user = tree.find_block(func, block)
    temporaries = set(allocations(func)) & reads(tree.block_of(user).body)
    for buffer in sorted(temporaries, key=lambda b: b.name):
        makers = _makers(func, buffer)
        if not makers or any(maker[-1] is user[-1] for maker in makers):
            continue
        _need_sole_reader(func, block, buffer)
        stores = [_only_store(tree.block_of(maker), buffer) for maker in makers]
        only_written_by(makers, buffer)
        if len(makers) == 1:
            once_each(makers[0], user, stores[0])
        else:
            final_values(makers, user, buffer)
        for maker in makers:
            unconditional(maker, user)
            named_before(maker, user)
            left_for_good(user, maker)
            early_enough(maker, user, frozenset({buffer}))
        for maker, store in zip(makers, stores, strict=True):
            made = _with_epilogue(
                tree.block_of(maker), store, tree.block_of(user), names(func)
            )
            func = tree.replace(tree.find_block(func, tree.block_of(maker).name), made)
        func = _alive_from(func, writes(tree.block_of(user)), buffer)
        return dropped(func, block, buffer)
    raise ScheduleError(
        f"block {block!r} reads no temporary that one store makes; there is nothing to "
        "be an epilogue of"
    )


def _makers(func: ir.Function, buffer: ir.Buffer) -> list[tree.Path]:
    """The blocks that store (and do not reduce into) a buffer."""
    return [
        path
        for path in tree.paths_to(func, ir.Block)
        if any(
            isinstance(n, ir.Store) and n.buffer == buffer
            for n in walk(tree.block_of(path))
        )
    ]


def _only_store(block: ir.Block, buffer: ir.Buffer) -> ir.Store:
    found = [
        n for n in walk(block.body) if isinstance(n, ir.Store) and n.buffer == buffer
    ]
    if len(found) == 1 and found[0].mask is None:
        return found[0]
    raise ScheduleError(
        f"block {block.name!r} stores {buffer.name!r} in {len(found)} places; an "
        "epilogue needs one"
    )


def _need_sole_reader(func: ir.Function, block: str, buffer: ir.Buffer) -> None:
    for path in users_of(func, buffer):
        other = tree.block_of(path)
        if other.name != block:
            raise ScheduleError(
                f"block {other.name!r} reads {buffer.name!r} too; it has to stay"
            )


def _with_epilogue(
    maker: ir.Block, store: ir.Store, user: ir.Block, taken: set[str]
) -> ir.Block:
    """The producer with the epilogue in place of its store."""
    var = ir.Var(fresh(store.buffer.name, taken), store.value.dtype)
    ((*indices,),) = read_indices(user, store.buffer)
    places = dict(zip(indices, store.indices, strict=True))
    body = substitute(tree.rename(user.body, taken), places)  # type: ignore[arg-type]
    ends = _beyond(user, store.buffer, read_indices(user, store.buffer)) or {}
    inside = conjunction(places[i] < end for i, end in ends.items())

    def use(access: Access) -> ir.Node:
        read = isinstance(access, ir.Load) and access.buffer == store.buffer
        return var if read else access

    made = ir.seq(ir.Let(var, store.value), change_accesses(body, use))
    new = made if inside is None else ir.If(inside, made)
    return dataclasses.replace(maker, body=tree.swap(maker.body, store, new))


def _alive_from(
    func: ir.Function, results: frozenset[ir.Buffer], buffer: ir.Buffer
) -> ir.Function:
    """The function with temporaries among `results` allocated along with `buffer`."""
    held = sorted(results & set(allocations(func)), key=lambda b: b.name)
    for result in held:
        func = tree.replace(tree.find_alloc(func, result.name), None)
    return tree.replace(
        tree.find_alloc(func, buffer.name),
        ir.seq(*map(ir.Alloc, held), ir.Alloc(buffer)),
    )
