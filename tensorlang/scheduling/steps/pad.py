"""`pad`: round extents up to multiples, so that tiles need no guards."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, free_vars, writes
from tensorlang.ir.integers.bounds import counted, prove
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.visit import holds, rebuild, rewriter, substitute, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import stored
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.inline import pointwise
from tensorlang.scheduling.steps.layout import with_buffer
from tensorlang.scheduling.steps.partials import FOLDED

Growth = Mapping[ir.Var, tuple[ir.Expr, ir.Expr]]  # axis -> old and new extent


@legality("padding adds nothing to a reduction")
def adds_nothing(block: ir.Block, grown: Growth) -> str | None:
    """Where a reduction axis is padded, the terms are the identity, 0."""
    folded = {a.var for a in block.axes if a.kind in FOLDED} & grown.keys()
    for update in stored(block):
        if not folded or not isinstance(update, ir.Reduce):
            continue
        zeros = all(
            isinstance(start, ir.Const) and start.value == 0
            for start in update.reducer.identity
        )
        plain = update.reducer.commutative and update.reducer.name in (
            "sum",
            "xor",
            "any",
        )
        for value in update.values:
            if not (zeros and plain and all(_is_zero(value, axis) for axis in folded)):
                return (
                    f"block {block.name!r} folds {value!r}, which is not the identity "
                    f"of {update.reducer.name!r} where its operands are padded with 0; "
                    "pad other axes only"
                )
    return None


def _is_zero(value: ir.Expr, axis: ir.Var) -> bool:
    """Whether a value is 0 if everything indexed by the axis is 0."""
    match value:
        case ir.Load(indices=indices):
            return axis in indices
        case ir.Const(value=number):
            return number == 0
        case ir.Binary(op="mul", a=a, b=b) if value.dtype.is_float:
            return _is_zero(a, axis) and _is_zero(b, axis)  # 0 * inf is not 0
        case ir.Binary(op="mul" | "and", a=a, b=b):
            return _is_zero(a, axis) or _is_zero(b, axis)
        case ir.Binary(op="add" | "sub" | "or" | "xor", a=a, b=b):
            return _is_zero(a, axis) and _is_zero(b, axis)
        case ir.Cast(a=a) | ir.Unary(op="neg" | "abs", a=a):
            return _is_zero(a, axis)
    return False


@legality("padded elements can be computed")
def harmless(block: ir.Block) -> str | None:
    """Nothing in the block faults on zero operands."""
    for node in walk(block.body):
        match node:
            case ir.Binary(op="floordiv" | "floormod", b=ir.Const()):
                continue
            case ir.Binary(op="floordiv" | "floormod"):
                return f"block {block.name!r} computes {node!r}: padding may fault"
            case ir.Call(name="check"):
                return f"block {block.name!r} checks its operands, padding included"
            case ir.Load(indices=indices) if any(
                holds(index, ir.Load) for index in indices
            ):
                return f"block {block.name!r} reads {node!r}, at a place from data"
    return None


@primitive
def pad(
    func: ir.Function, name: str, multiples: Sequence[int], *, discarded: bool = False
) -> ir.Function:
    """Round the extents of a temporary, or of a block's axes, up to multiples.

    A padded temporary is filled with 0 beyond its old shape. A padded block iterates
    over the rounded extents, with all its operands and results padded to match; these
    must be temporaries (made by cache_read and cache_write), and its loops not yet
    split.

    Args:
        name: A temporary that one block stores by its axes, or a block. If both have
            the name, the number of multiples decides, preferring the temporary.
        multiples: One for each dimension or axis; 1 leaves it unchanged.
        discarded: Of a block: whether its results in the padding may be any numbers.
            Along spatial axes, its operands are then 0 only where they would be read
            from outside of an array.

    Raises:
        ScheduleError: loops were split, a parameter would grow, or the padding would
            add to a reduction.

    Before:

        t = alloc(f32[10])
        for i in range(10):
            with block("t", vi=spatial(10, i)):
                t[vi] = x[vi]

    After `pad("t", [4])`:

        t = alloc(f32[12])
        for i in range(12):
            with block("t", vi=spatial(12, i)):
                t[vi] = select(vi < 10, x[min(vi, 9)], 0.0)
    """
    blocks = {tree.block_of(path).name for path in tree.paths_to(func, ir.Block)}
    held = [b for b in allocations(func) if b.name == name]
    if held and (name not in blocks or len(multiples) == held[0].ndim):
        buffer = held[0]
        _need_count(name, multiples, buffer.ndim)
        return _pad_buffer(func, name, tuple(map(_rounded, buffer.shape, multiples)))
    return _pad_block(func, name, multiples, discarded=discarded)


def _need_count(name: str, multiples: Sequence[int], count: int) -> None:
    if len(multiples) != count or any(m < 1 for m in multiples):
        raise ScheduleError(
            f"pad {name!r} takes {count} multiples of at least 1, not {list(multiples)}"
        )


def _rounded(extent: ir.Expr, multiple: int) -> ir.Expr:
    if isinstance(extent, ir.Const):
        return ir.Const(-(-int(extent.value) // multiple) * multiple, extent.dtype)
    if multiple == 1:
        return extent
    return (extent + (multiple - 1)) // multiple * multiple


def _pad_buffer(
    func: ir.Function,
    name: str,
    shape: tuple[ir.Expr, ...],
    free: Collection[int] = (),
) -> ir.Function:
    """The function with a temporary enlarged, 0 beyond its old shape.

    Along the dimensions in `free` that is so only where it is made from what would be
    outside of an array.
    """
    old = tree.find_buffer(func, name)
    if old in func.buffers:
        raise ScheduleError(
            f"{name!r} is a parameter and keeps its shape; cache_read or "
            "cache_write it and pad the copy"
        )
    if shape == old.shape:
        return func
    makers = [p for p in tree.paths_to(func, ir.Block) if old in writes(p[-1])]
    if len(makers) != 1:
        raise ScheduleError(f"{len(makers)} blocks write {name!r}; pad needs one")
    found = pointwise(tree.block_of(makers[0]))
    grown = _growth(found.block, found.store.indices, old.shape, shape)
    anything = grown.keys() & {found.store.indices[dim] for dim in free}
    block = _filled(found.block, found.lets, found.store, grown, anything)
    func = _replace_nest(makers[0], block, grown)
    return with_buffer(func, old, dataclasses.replace(old, shape=shape))


def _growth(
    block: ir.Block,
    indices: Sequence[ir.Expr],
    old: Sequence[ir.Expr],
    new: Sequence[ir.Expr],
) -> Growth:
    """The axes that grow because they index padded dimensions."""
    extents = {axis.var: axis.extent for axis in block.axes}
    grown: dict[ir.Var, tuple[ir.Expr, ir.Expr]] = {}
    for index, before, after in zip(indices, old, new, strict=True):
        if before == after:
            continue
        if not isinstance(index, ir.Var) or extents.get(index) != before:
            raise ScheduleError(
                f"block {block.name!r} stores at {index!r}, not by an axis over all of "
                "that dimension; reindex it first"
            )
        grown[index] = before, after
    return grown


def _filled(
    block: ir.Block,
    lets: Sequence[ir.Let],
    store: ir.Store,
    grown: Growth,
    free: Collection[ir.Var],
) -> ir.Block:
    """The block storing 0 beyond the old extents, reading operands within them.

    Along the axes in `free` it stores 0 where it would read outside of an array.
    """
    tests = [var < old for var, (old, _) in grown.items() if var not in free]
    held: dict[ir.Var, ir.Expr] = {
        var: ir.binary("min", var, old - 1)
        for var, (old, _) in grown.items()
        if var not in free
    }
    within = [dataclasses.replace(x, value=substitute(x.value, held)) for x in lets]
    value = substitute(store.value, held)
    ranges = {axis.var: counted(axis.extent) for axis in block.axes}
    ranges |= {var: counted(new) for var, (_, new) in grown.items()}
    ranges |= {let.var: (let.value, let.value) for let in within}

    @rewriter
    def bounded(node: ir.Node) -> ir.Node:
        node = node if isinstance(node, ir.Buffer) else rebuild(node, bounded)
        if not isinstance(node, ir.Load):
            return node
        indices = []
        for index, extent in zip(node.indices, node.buffer.shape, strict=True):
            if free and not prove(index < extent, ranges):
                tests.append(index < extent)
                indices.append(ir.binary("min", index, extent - 1))
            else:
                indices.append(index)
        return dataclasses.replace(node, indices=tuple(indices))

    within = [dataclasses.replace(x, value=bounded(x.value)) for x in within]
    value = bounded(value)
    inside = conjunction(dict.fromkeys(tests))
    if inside is not None:
        value = ir.Select(inside, value, ir.Const(0, store.value.dtype))
    body = ir.seq(*within, dataclasses.replace(store, value=value))
    return dataclasses.replace(block, body=_folded_constants(body))


def _folded_constants(stmt: ir.Stmt) -> ir.Stmt:
    """Fold constant differences: `10 - 1` to `9`."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        node = node if isinstance(node, ir.Buffer) else rebuild(node, visit)
        match node:
            case ir.Binary(op="sub", a=ir.Const(value=a), b=ir.Const(value=b)):
                return ir.Const(int(a) - int(b), node.dtype)
        return node

    return visit(stmt)


def _replace_nest(path: tree.Path, block: ir.Block, grown: Growth) -> ir.Function:
    """The function with a nest's block replaced and its loops grown as well.

    Raises:
        ScheduleError: a grown axis is not driven by exactly one loop.
    """
    loops = {loop.var: loop for loop in tree.enclosing_loops(path)}
    longer: dict[ir.Var, ir.Expr] = {}
    for axis in block.axes:
        if axis.var not in grown:
            continue
        loop = loops.get(axis.value) if isinstance(axis.value, ir.Var) else None
        others = [a.value for a in block.axes if a is not axis]
        others += [x.extent for x in loops.values()]
        alone = not any(axis.value in free_vars(other) for other in others)
        whole = loop is not None and loop.extent == grown[axis.var][0]
        if not (whole and alone) or block.where is not None:
            raise ScheduleError(
                f"axis {axis.var.name!r} of block {block.name!r} is not one whole "
                "loop; pad before splitting"
            )
        longer[axis.value] = grown[axis.var][1]  # type: ignore[index]
    axes = tuple(
        dataclasses.replace(a, extent=grown[a.var][1]) if a.var in grown else a
        for a in block.axes
    )
    new: ir.Stmt = dataclasses.replace(block, axes=axes)
    depth = len(path) - 1
    while isinstance(path[depth - 1], ir.For):
        depth -= 1
        loop = path[depth]  # type: ignore[assignment]
        assert isinstance(loop, ir.For)
        extent = longer.pop(loop.var, loop.extent)
        new = dataclasses.replace(loop, extent=extent, body=new)
    if longer:
        left = ", ".join(var.name for var in longer)
        raise ScheduleError(f"other statements are under loop {left}; it cannot grow")
    return tree.replace(path[: depth + 1], new)


def _pad_block(
    func: ir.Function, name: str, multiples: Sequence[int], *, discarded: bool
) -> ir.Function:
    """The function with a block over rounded axes, and its buffers padded to match."""
    block = tree.block_of(tree.find_block(func, name))
    _need_count(name, multiples, len(block.axes))
    grown = {
        axis.var: (axis.extent, _rounded(axis.extent, multiple))
        for axis, multiple in zip(block.axes, multiples, strict=True)
        if _rounded(axis.extent, multiple) != axis.extent
    }
    adds_nothing(block, grown)
    harmless(block)
    func = _replace_nest(tree.find_block(func, name), block, grown)
    used = [
        (n.buffer, n.indices)
        for n in walk(block.body)
        if isinstance(n, (ir.Load, ir.Store))
    ] + [
        (b, n.indices)
        for n in stored(block)
        if isinstance(n, ir.Reduce)
        for b in n.buffers
    ]
    for old, indices in used:
        shape = _matching(block, old, indices, grown)
        now = tree.find_buffer(func, old.name)
        if old in writes(block) and now.shape != shape:
            func = _enlarged(func, now, shape)
        elif now.shape != shape:
            own = {axis.var for axis in block.axes if axis.kind == "spatial"}
            along = [dim for dim, index in enumerate(indices) if index in own]
            func = _pad_buffer(func, old.name, shape, along if discarded else ())
    return func


def _matching(
    block: ir.Block, buffer: ir.Buffer, indices: Sequence[ir.Expr], grown: Growth
) -> tuple[ir.Expr, ...]:
    """The shape of a buffer indexed by rounded axes."""
    shape = []
    for index, extent in zip(indices, buffer.shape, strict=True):
        if isinstance(index, ir.Var) and index in grown and grown[index][0] == extent:
            shape.append(grown[index][1])
        elif free_vars(index) & grown.keys():
            raise ScheduleError(
                f"block {block.name!r} goes to {buffer.name!r} at {index!r}, not by a "
                "padded axis over all of that dimension; reindex it first"
            )
        else:
            shape.append(extent)
    return tuple(shape)


def _enlarged(
    func: ir.Function, buffer: ir.Buffer, shape: tuple[ir.Expr, ...]
) -> ir.Function:
    """The function with a temporary written by the padded block enlarged."""
    if buffer in func.buffers:
        raise ScheduleError(
            f"{buffer.name!r} is a parameter and keeps its shape; cache_write it first"
        )
    return with_buffer(func, buffer, dataclasses.replace(buffer, shape=shape))
