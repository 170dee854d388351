"""`compute_at`: move a producer's nest under a loop of its consumers."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, free_vars, names, reads, writes
from tensorlang.ir.integers.indices import linear
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.guarding import read_indices
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.moving import (
    by_axes,
    goes_over_all,
    moved_nest,
    shared_loops,
)
from tensorlang.scheduling.analysis.places import loop_ranges, site, stored
from tensorlang.scheduling.analysis.regions import region
from tensorlang.scheduling.analysis.temporaries import only_written_by, users_of
from tensorlang.scheduling.analysis.tiles import (
    copy_over,
    need_known,
    retarget,
    tile_of,
)
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.cache import constant_tile, localized
from tensorlang.scheduling.steps.inline import sources_stay
from tensorlang.scheduling.steps.memory import outside_of_threads


@legality("all readers of a moved producer are under the loop")
def readers_inside(
    path: tree.Path, loop: tree.Path, readers: list[tree.Path]
) -> str | None:
    """What is computed under the loop is in scope only there."""
    for reader in readers:
        if loop[-1] not in reader:
            return (
                f"block {tree.block_of(reader).name!r} reads what "
                f"{tree.block_of(path).name!r} computes and is not under loop "
                f"{tree.loop_of(loop).var.name!r}; choose a loop around all readers"
            )
    return None


@legality("a moved producer computes each element once")
def made_once(
    path: tree.Path, indices: tuple[ir.Expr, ...], shared: frozenset[ir.Var]
) -> str | None:
    """Axes missing from its indices are reduced, or invariant at the new place."""
    block = tree.block_of(path)
    used = free_vars(block.body) | (free_vars(block.init) if block.init else set())
    for axis in block.axes:
        named = axis.var in indices or axis.kind == "reduction"
        if axis.var in used and not named and linear(axis.value).vars - shared:
            return (
                f"axis {axis.var.name!r} of block {block.name!r} names no element of "
                "what it writes: each of its values would write all again; move it "
                "before it is cached, or not as far out"
            )
    return None


@legality("a moved producer finds its operands at its new place")
def sources_there(path: tree.Path, loop: tree.Path, reader: tree.Path) -> str | None:
    """Its operands are in scope at the loop, and not overwritten under it."""
    func, block = tree.function_of(path), tree.block_of(path)
    used = reads(block) - writes(block)
    for buffer in used & set(allocations(func)):
        around = tree.find_alloc(func, buffer.name)[-2]
        if not _holds(loop, around):
            return (
                f"block {block.name!r} reads {buffer.name!r}, which is not alive at "
                f"loop {tree.loop_of(loop).var.name!r}; move it before it caches"
            )
    for stmt in _crossed(path, loop, reader):
        for buffer in used & writes(stmt):
            return (
                f"block {block.name!r} reads {buffer.name!r}, which "
                f"{tree.called(stmt)} writes under loop "
                f"{tree.loop_of(loop).var.name!r}; choose an inner loop"
            )
    return None


def _crossed(path: tree.Path, loop: tree.Path, reader: tree.Path) -> Iterator[ir.Stmt]:
    """The loop's statements from the first reader on, up to the block if inside.

    In the next iteration the block runs again, after all of the loop body.
    """
    body = tree.loop_of(loop).body
    parts = body.stmts if isinstance(body, ir.Seq) else (body,)
    starts = next((i for i, p in enumerate(parts) if _holds(reader, p)), len(parts))
    ends = next((i for i, p in enumerate(parts) if _holds(path, p)), len(parts))
    for part in parts[min(starts, ends) : ends + 1]:
        yield from (stmt for stmt in tree.acting(part) if stmt is not path[-1])


def _holds(path: tree.Path, node: ir.Node) -> bool:
    return any(node is other for other in path)


@legality("a moved producer computes the same in each iteration")
def same_iteration(path: tree.Path, readers: list[tree.Path]) -> str | None:
    """If its values depend on a loop around its readers, it always runs before them."""
    block = tree.block_of(path)
    loops = frozenset().union(*(shared_loops(path, reader) for reader in readers))
    indices = {i for update in stored(block) for i in update.indices}
    others = [axis for axis in block.axes if axis.var not in indices]
    used = free_vars(block.body)
    if not any(linear(a.value).vars & loops for a in others if a.var in used):
        return None
    order = [p[-1] for p in tree.actions(tree.function_of(path))]
    for reader in readers:
        if order.index(reader[-1]) < order.index(path[-1]):
            return (
                f"block {tree.block_of(reader).name!r} stands before {block.name!r}: "
                "what it reads was made an iteration before"
            )
        for node in tree.conditions_apart(path, reader):
            return (
                f"block {block.name!r} runs under {node.cond!r} only, and block "
                f"{tree.block_of(reader).name!r} reads what it made last"
            )
    return None


@primitive
def compute_at(func: ir.Function, block: str, loop: str) -> ir.Function:
    """Compute the part of a producer that a loop body needs right there.

    The producer's buffer shrinks to the region that the body reads.

    Args:
        block: A block that writes one temporary, indexed by its axes.
        loop: A loop around all its readers.

    Raises:
        ScheduleError: a reader is elsewhere, the buffer is a parameter or has other
            writers, or the producer's operands change before the loop.

    Before:

        t = alloc(f32[10])
        for i in range(10):
            with block("t", vi=spatial(10, i)):
                t[vi] = x[vi] * 2.0
        for j_0 in range(2):
            for j_1 in range(4):
                with block("y", vj=spatial(8, j_0 * 4 + j_1)):
                    y[vj] = t[vj] + t[vj + 2]

    After `compute_at("t", "j_0")`:

        for j_0 in range(2):
            t = alloc(f32[6])
            for i_1 in range(6):
                with block("t", vi_1=spatial(10, j_0 * 4 + i_1),
                           vi_1_in=spatial(6, i_1)):
                    t[vi_1_in] = x[vi_1] * 2.0
            for j_1 in range(4):
                with block("y", vj=spatial(8, j_0 * 4 + j_1), vj_in=spatial(4, j_1)):
                    y[vj] = t[vj_in] + t[vj_in + 2]
    """
    path, target = tree.find_block(func, block), tree.find_loop(func, loop)
    buffer, indices = _written(func, tree.block_of(path))
    by_axes(tree.block_of(path), indices)
    goes_over_all(path, indices)
    readers = [p for p in users_of(func, buffer) if p[-1] is not path[-1]]
    if not readers:
        raise ScheduleError(f"no other block reads {buffer.name!r}; there is no need")
    only_written_by([path], buffer)
    readers_inside(path, target, readers)
    made_once(path, indices, shared_loops(path, target))
    same_iteration(path, readers)
    sources_stay(path, readers)
    sources_there(path, target, readers[0])
    return _moved(path, target, (buffer, indices), readers)


def _written(
    func: ir.Function, block: ir.Block
) -> tuple[ir.Buffer, tuple[ir.Expr, ...]]:
    """The temporary a block writes, and the indices."""
    updates = stored(block)
    places = {update.indices for update in updates}
    held = writes(block) & set(allocations(func))
    if len(places) == 1 and len(writes(block)) == len(held) == 1:
        (buffer,) = held
        if not read_indices(block, buffer):
            return buffer, next(iter(places))
        raise ScheduleError(
            f"block {block.name!r} reads {buffer.name!r}, which it writes; such a scan "
            "stays where it is"
        )
    raise ScheduleError(
        f"block {block.name!r} must write one temporary at one place to be moved"
    )


def _moved(
    path: tree.Path,
    target: tree.Path,
    written: tuple[ir.Buffer, tuple[ir.Expr, ...]],
    readers: list[tree.Path],
) -> ir.Function:
    func, (buffer, indices) = tree.function_of(path), written
    loop, taken = tree.loop_of(target), names(func)
    part = need_known(
        region(loop.body, buffer, writes=False), f"{buffer.name!r} is not read there"
    )
    constant_tile(buffer, part, buffer.scope)
    tile = tile_of(buffer, part, buffer.name, buffer.scope)
    around = (*tree.enclosing_loops(target), loop)
    outside_of_threads(tile, around)
    copy = copy_over(buffer, part, loop_ranges(around), taken, indices)
    nest = moved_nest(
        path, indices, copy, buffer, shared=shared_loops(path, target), taken=taken
    )
    nest = retarget(
        nest, {buffer: tile}, lambda _: copy.local, reads=False, writes=True
    )
    func = tree.without_nest(func, tree.block_of(path).name)
    func = tree.replace(tree.find_alloc(func, buffer.name), None)
    inside = [reader for reader in readers if loop in reader]
    for reader in inside:
        place = site(func, tree.block_of(reader).name, loop.var.name)
        held = localized(place, place.block, {buffer: tile}, part, taken, reading=True)
        func = place.with_block(held).func
    first = site(func, tree.block_of(inside[0]).name, loop.var.name)
    return first.beside((ir.Alloc(tile), nest))
