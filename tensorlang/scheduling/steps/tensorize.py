"""`tensorize`: replace a loop nest by an intrinsic with the same semantics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars, names, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear, spread
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.visit import substitute, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import guards_of
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.intrinsics.operands import Operand, last_dims, placed
from tensorlang.scheduling.intrinsics.tensor import TensorIntrinsic, tensor_intrinsic
from tensorlang.scheduling.intrinsics.warps import WARP_NAMES, warp_intrinsic
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.collective import GROUPS, collective
from tensorlang.scheduling.steps.memory import THREAD
from tensorlang.scheduling.steps.warps import (
    lanes_of,
    same_places,
    warp_block,
    whole_warps,
)


@frozen
class _Nest:
    """Perfectly nested loops around one block."""

    loops: tuple[ir.For, ...]
    block: ir.Block

    def form(self, index: ir.Expr) -> Poly:
        """An index of the block in terms of the loops.

        Quotients and remainders of whole tiles are carried out: `(8 * i + l) // 8` is
        `i`, and `(8 * i + l) % 8` is `l`, if `l` counts to 8.
        """
        values = {a.var: a.value for a in self.block.axes}
        lengths = {loop.var: tree.constant(loop.extent) for loop in self.loops}
        return spread(substitute(index, values), lengths)

    def inner(self, form: Poly) -> Poly:
        """The terms of a form that the nest's loops drive."""
        own = {loop.var for loop in self.loops}
        return form.only(lambda atom: bool(free_vars(atom) & own))


@legality("an intrinsic computes what it replaces")
def same_computation(meaning: _Nest, target: _Nest, name: str) -> str | None:
    """The two bodies are the same tree, apart from buffers and indices."""
    started = [_starts(nest.block) for nest in (meaning, target)]
    same = _agree(meaning.block.body, target.block.body)
    if same and started[0] == started[1] and target.block.scope == meaning.block.scope:
        return None
    how = " (decompose its reduction first)" if started[1] else ""
    return (
        f"block {target.block.name!r} does not compute what {name!r} does{how}; it "
        f"computes\n{meaning.block.body!r}"
    )


def _starts(block: ir.Block) -> bool:
    """Whether a block initializes a reduction, rather than continuing one."""
    folds = any(axis.kind == "reduction" for axis in block.axes)
    return folds and block.init != ir.seq()


def _agree(a: object, b: object) -> bool:
    """Whether two trees compute the same from what they load, in order."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_agree, a, b))
    if isinstance(a, ir.Load) and isinstance(b, ir.Load):
        return a.dtype == b.dtype and a.mask is b.mask is None
    if isinstance(a, ir.Buffer) and isinstance(b, ir.Buffer):
        return a.dtype == b.dtype
    if type(a) is not type(b) or not isinstance(a, ir.Node) or isinstance(a, ir.Var):
        return bool(a == b)
    given = [f.name for f in fields(a) if f.init and f.name not in ("indices", "hints")]  # type: ignore[arg-type]
    return all(_agree(getattr(a, name), getattr(b, name)) for name in given)


@legality("a tensorized tile is whole")
def no_guard_inside(target: _Nest) -> str | None:
    """No condition excludes a part of the tile."""
    inner = {loop.var for loop in target.loops}
    for cond in guards_of(target.block):
        if free_vars(cond) & inner:
            return (
                f"block {target.block.name!r} runs only where {cond!r}: pad its axes, "
                "or partition the loop and tensorize the main part"
            )
    return None


@legality("operands of an instruction do not overlap")
def no_overlap(operands: Mapping[ir.Buffer, Operand], meaning: _Nest) -> str | None:
    """No operand overlaps the buffer that the intrinsic writes."""
    for written in writes(meaning.block.body):
        for other, place in operands.items():
            if other != written and place.buffer == operands[written].buffer:
                return (
                    f"{place.buffer.name!r} would be written and read by one "
                    "instruction; cache_read the operand first"
                )
    return None


@legality("an intrinsic does not reduce across threads")
def folded_by_one(tile: _Nest, around: Sequence[ir.For]) -> str | None:
    """No thread loop drives the tile's reduction: an intrinsic runs in one thread."""
    folded = [a.value for a in tile.block.axes if a.kind == "reduction"]
    driving = frozenset[ir.Var]().union(*map(free_vars, folded))
    for loop in around:
        if loop.thread.startswith(THREAD) and loop.var in driving:
            return (
                f"block {tile.block.name!r} is folded by the iterations of loop "
                f"{loop.var.name!r} together, as it is bound to {loop.thread}; bind "
                "loops of spatial axes only, or rfactor"
            )
    return None


@primitive
def tensorize(func: ir.Function, target: str, intrinsic: str) -> ir.Function:
    """Replace a tile's loops by an intrinsic with the semantics of that loop nest.

    Args:
        target: The outermost loop of the tile, or the block in it.
        intrinsic: A name of `tensor_intrinsics.NAMES`, such as `fma_16xf32`, or of
            `warp_intrinsics.WARP_NAMES`: the tile's loops are then inside one bound to
            `thread.x`, whose threads reduce their own elements. Or `warpgroup`: the
            target is then a loop whose iterations are each for one warpgroup, below.

    Raises:
        ScheduleError: the nest does not match the intrinsic's semantics, or the tile
            contains a guard.

    Before:

        for k in range(8):
            for j in range(16):
                with block("c", vj=spatial(16, j), vk=reduction(8, k)):
                    with init():
                        pass
                    reduce(sum, c[vj], a[vk] * b[vk, vj])

    After `tensorize("j", "fma_16xf32")`:

        for k in range(8):
            with block("c", vk=reduction(8, k)):
                with init():
                    pass
                c[ramp(0, 1, 16)] = fma(
                    splat(a[vk], 16), b[vk, ramp(0, 1, 16)], c[ramp(0, 1, 16)]
                )

    Before:

        for g in range(2):
            for i in range(64):
                for q in range(64):
                    with block("y", vi=spatial(128, g * 64 + i),
                               vk=reduction(256, k * 64 + q)):
                        reduce(sum, y[vi], x[vi, vk])

    After `tensorize("g", "warpgroup")`, where lowering finds the instruction:

        for g_thread in bound(256, "thread.x"):
            with block("y_warpgroup", v_k=reduction(4, k),
                       v_g=spatial(2, g_thread // 128), scope="warpgroup"):
                with init():
                    for i_1 in range(64):
                        with block("y_init", vi=spatial(128, v_g * 64 + i_1)):
                            y[vi] = 0.0
                for i in range(64):
                    for q in range(64):
                        with block("y", vi=spatial(128, v_g * 64 + i),
                                   vk=reduction(256, v_k * 64 + q)):
                            with init():
                                pass
                            reduce(sum, y[vi], x[vi, vk])
    """
    if intrinsic in GROUPS:
        return collective(func, target, intrinsic)
    if intrinsic in WARP_NAMES:
        return _tensorize_warp(func, target, intrinsic)
    entry = tensor_intrinsic(intrinsic)
    meaning = _nest(entry.meaning.body, intrinsic)
    path = _tile_path(func, target, len(meaning.loops))
    _not_in_lanes(path)
    tile = _nest(path[-1], target)
    _same_loops(meaning, tile, intrinsic)
    tile = _in_order(meaning, tile)
    same_computation(meaning, tile, intrinsic)
    no_guard_inside(tile)
    folded_by_one(tile, tree.enclosing_loops(path))
    operands = _operands(meaning, tile)
    no_overlap(operands, meaning)
    return tree.replace(path, _instruction(entry, tile, operands, names(func)))


def _tensorize_warp(func: ir.Function, target: str, name: str) -> ir.Function:
    """The function with a tile multiplied by the lanes of each warp together."""
    entry = warp_intrinsic(name)
    wanted = _nest(entry.meaning.body, name)
    meaning = lanes_of(wanted.block, wanted.loops[1:], wanted.loops[:1])
    path = _tile_path(func, target, len(meaning.loops))
    nest, around = _nest(path[-1], target), tree.enclosing_loops(path)
    tile = lanes_of(nest.block, nest.loops, around)
    _same_loops(dataclasses.replace(wanted, loops=meaning.loops), nest, name)
    same_computation(wanted, nest, name)
    folded_by_one(nest, around)
    whole_warps(tile, around)
    places: dict[ir.Buffer, Operand] = {}
    pairs = zip(_accesses(wanted.block), _accesses(nest.block), strict=True)
    for (own, indices), (buffer, found) in pairs:
        _need_matrix(nest.block, buffer)
        first = (ir.Const(0, i64),) * (buffer.ndim - len(indices))
        for index, given in zip(found, (*first, *indices), strict=True):
            same_places(meaning, tile, index, given)
        dims = last_dims(buffer, len(indices))
        places[own] = Operand(buffer, found, dims)
    return tree.replace(path, warp_block(entry, tile, places, names(func)))


def _need_matrix(block: ir.Block, buffer: ir.Buffer) -> None:
    """Refuse buffers of fewer than two dimensions."""
    if buffer.ndim < 2:
        raise ScheduleError(
            f"block {block.name!r} goes to {buffer.name!r}, which has one dimension; "
            "an instruction of a warp is on matrices: cache_read a tile"
        )


def _tile_path(func: ir.Function, target: str, depth: int) -> tree.Path:
    """The path to the tile's outermost loop."""
    if all(block.name != target for block in blocks(func)):
        return tree.find_loop(func, target)
    path = tree.find_block(func, target)
    return path[: len(path) - depth]


def _not_in_lanes(path: tree.Path) -> None:
    for loop in tree.enclosing_loops(path):
        if loop.kind == "vectorized":
            raise ScheduleError(
                f"tensorize: loop {loop.var.name!r} around the tile is vectorized, and "
                "an instruction is on vectors itself; tensorize first"
            )


def _nest(stmt: ir.Node, what: str) -> _Nest:
    loops = []
    while isinstance(stmt, ir.For):
        loops.append(stmt)
        stmt = stmt.body
    if not isinstance(stmt, ir.Block):
        raise ScheduleError(f"{what!r} is not a nest of loops around one block")
    return _Nest(tuple(loops), stmt)


def _same_loops(meaning: _Nest, tile: _Nest, name: str) -> None:
    wanted = [loop.extent for loop in meaning.loops]
    found = [loop.extent for loop in tile.loops]
    if wanted != found:
        raise ScheduleError(
            f"{name!r} is for loops of {wanted}, and block {tile.block.name!r} has "
            f"loops of {found} there; split and reorder to these"
        )


def _accesses(block: ir.Block) -> Iterator[tuple[ir.Buffer, tuple[ir.Expr, ...]]]:
    """The accesses of a block's body, in tree order."""
    for node in walk(block.body):
        if isinstance(node, (ir.Load, ir.Store)):
            yield node.buffer, node.indices
        elif isinstance(node, ir.Reduce):
            yield from ((buffer, node.indices) for buffer in node.buffers)


def _in_order(meaning: _Nest, tile: _Nest) -> _Nest:
    """The tile with the factors of its product in the meaning's order, if that fits."""
    match tile.block.body:
        case ir.Reduce(values=(ir.Binary(op="mul", a=a, b=b) as value,)) as body:
            values = (dataclasses.replace(value, a=b, b=a),)
        case _:
            return tile
    block = dataclasses.replace(
        tile.block, body=dataclasses.replace(body, values=values)
    )
    turned = _Nest(tile.loops, block)
    return turned if not _fits(meaning, tile) and _fits(meaning, turned) else tile


def _fits(meaning: _Nest, tile: _Nest) -> bool:
    """Whether a tile's body and accesses are those of the meaning."""
    if not _agree(meaning.block.body, tile.block.body):
        return False
    try:
        _operands(meaning, tile)
    except ScheduleError:
        return False
    return True


def _operands(meaning: _Nest, tile: _Nest) -> dict[ir.Buffer, Operand]:
    """Match each operand with a part of a buffer."""
    loops = {a.var: b.var for a, b in zip(meaning.loops, tile.loops, strict=True)}
    found: dict[ir.Buffer, Operand] = {}
    pairs = zip(_accesses(meaning.block), _accesses(tile.block), strict=False)
    for (own, wanted), (buffer, indices) in pairs:
        forms = [meaning.form(index) for index in wanted]
        steps = [linear(substitute(f.expr(), loops)) for f in forms]
        dims = _dims(steps, [tile.inner(tile.form(i)) for i in indices])
        if dims is None:
            shown = ", ".join(map(repr, indices))
            raise ScheduleError(
                f"block {tile.block.name!r} goes to {buffer.name!r} at [{shown}], "
                f"which does not run through the tile like operand {own.name!r}"
            )
        made = Operand(buffer, _origin(tile, indices), dims)
        if found.setdefault(own, made) != made:
            raise ScheduleError(
                f"operand {own.name!r} would be two places of {buffer.name!r} in block "
                f"{tile.block.name!r}"
            )
    return found


def _dims(
    wanted: Sequence[Poly], found: Sequence[Poly]
) -> tuple[int | None, ...] | None:
    """The wanted dimension along each found one; None if they do not match."""
    left = [d for d, form in enumerate(wanted) if form != Poly()]
    dims: list[int | None] = []
    for form in found:
        if form == Poly():
            dims.append(None)
        elif left and wanted[left[0]] == form:
            dims.append(left.pop(0))
        else:
            return None
    return None if left else tuple(dims)


def _origin(tile: _Nest, indices: Sequence[ir.Expr]) -> tuple[ir.Expr, ...]:
    """The indices of the tile's first element, in terms of the remaining axes."""
    gone = {
        axis.var: ir.Const(0, axis.var.dtype)
        for axis in tile.block.axes
        if _outer_part(tile, axis) == Poly()
    }
    return tuple(
        index
        if isinstance(index, ir.Var) and index not in gone
        else linear(substitute(index, gone)).expr()
        for index in indices
    )


def _outer_part(tile: _Nest, axis: ir.Axis) -> Poly:
    """An axis's value at the tile's first element; 0 if the tile drives all of it."""
    form = linear(axis.value)
    return form - tile.inner(form)


def _instruction(
    entry: TensorIntrinsic,
    tile: _Nest,
    operands: Mapping[ir.Buffer, Operand],
    taken: set[str],
) -> ir.Stmt:
    """The block with the intrinsic, run once per tile."""
    axes = tuple(
        dataclasses.replace(axis, value=outer.expr())
        for axis in tile.block.axes
        if (outer := _outer_part(tile, axis)) != Poly()
    )
    body = placed(entry.implementation.body, operands, {}, taken)
    folds = any(axis.kind == "reduction" for axis in axes)
    init = tile.block.init if folds else None
    return dataclasses.replace(tile.block, axes=axes, body=body, init=init)
