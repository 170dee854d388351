"""Combine strided vector loads into contiguous loads and shuffles.

    u: f32x16 = x[ramp(b, 2, 16)]        ->  x_all: f32x32 = x[ramp(b, 1, 32)]
    v: f32x16 = x[ramp(b + 1, 2, 16)]        u: f32x16 = shuffle((x_all,), (0, 2, ...))
                                             v: f32x16 = shuffle((x_all,), (1, 3, ...))

Requires that nothing in the same sequence writes the buffer. A complete group reads
exactly the elements that were read before. A single load of stride 2, 3 or 4 becomes
as many adjacent loads that cover it from its first to its last element; concurrent
writes by other threads to the elements in between are not considered:

    u: f32x16 = x[ramp(b, 2, 16)]        ->  x_low: f32x16 = x[ramp(b, 1, 16)]
                                             x_high: f32x16 = x[ramp(b + 15, 1, 16)]
                                             u: f32x16 = shuffle((x_low, x_high), ...)

A load of stride -1 becomes a forward load, reversed:

    u: f32x16 = x[ramp(b, -1, 16)]       ->  x_back: f32x16 = x[ramp(b - 15, 1, 16)]
                                             u: f32x16 = shuffle((x_back,), (15, ...))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.codegen.names import Names
from tensorlang.codegen.vectors.interleave import split_base
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import writes
from tensorlang.ir.visit import holds, nodes_of, rebuild, rebuild_statements, rewriter

# buffer, variable part of the base, stride, lanes
_Key: TypeAlias = tuple[ir.Buffer, ir.Expr | None, int, int]
_MOST: int = 8
_NEAR: int = 4  # largest stride for which adjacent loads beat a gather


def deinterleave(function: ir.Function, names: Names) -> ir.Function:
    """The function with strided loads combined."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Seq():
                parts = [
                    item if isinstance(item, (ir.Let, ir.Store)) else visit(item)
                    for item in stmt.stmts
                ]
                return ir.seq(*_joined(parts, names))
            case ir.Let() | ir.Store():
                return ir.seq(*_joined([stmt], names))
            case _:
                return rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _joined(stmts: list[ir.Stmt], names: Names) -> Iterator[ir.Stmt]:
    """The statements, with each wide load right before its first use."""
    loads = [_sparse_loads(stmt) for stmt in stmts]
    if not any(loads):
        yield from stmts
        return
    written = {buffer for stmt in stmts for buffer in writes(stmt)}
    groups = _groups([load for found in loads for load in found], written)
    values: dict[ir.Load, ir.Expr] = {}
    for stmt, found in zip(stmts, loads, strict=True):
        for load in found:
            if _stride(load) > 0:
                continue
            if load.buffer not in written and load not in values:
                back = names.var(f"{load.buffer.name}_back", load.dtype)
                yield ir.Let(back, _forwards(load))
                lanes = load.dtype.lanes
                values[load] = ir.Shuffle((back,), tuple(reversed(range(lanes))))
        for load in found:
            if load in values or _stride(load) < 0:
                continue
            group = groups.get(load)
            if group is not None:
                var, whole = _wide(group, names)
                yield ir.Let(var, whole)
                values |= _parts(group, var)
            elif load.buffer not in written and _is_near(load):
                lets, values[load] = _side_by_side(load, names)
                yield from lets
        yield _replaced(stmt, values) if any(load in values for load in found) else stmt


def _parts(group: Mapping[int, ir.Load], var: ir.Var) -> dict[ir.Load, ir.Expr]:
    """Each load of a group as a shuffle of the wide one."""
    first = min(group)
    return {
        part: ir.Shuffle(
            (var,),
            tuple(offset - first + len(group) * n for n in range(part.dtype.lanes)),
        )
        for offset, part in group.items()
    }


def _forwards(load: ir.Load) -> ir.Load:
    """A load of stride -1 as a forward load of the same elements."""
    (index,) = load.indices
    assert isinstance(index, ir.Ramp)
    first = index.base - (index.lanes - 1)
    return replace(load, indices=(ir.ramp(first, index.lanes),))


def _is_near(load: ir.Load) -> bool:
    """Whether adjacent loads replace a strided load: small stride, even lanes."""
    (index,) = load.indices
    assert isinstance(index, ir.Ramp)
    assert isinstance(index.stride, ir.Const)
    return index.stride.value <= _NEAR and index.lanes >= 4 and index.lanes % 2 == 0


def _side_by_side(load: ir.Load, names: Names) -> tuple[list[ir.Let], ir.Expr]:
    """Adjacent loads from the first element on; the last load ends at the last one."""
    (index,) = load.indices
    assert isinstance(index, ir.Ramp)
    assert isinstance(index.stride, ir.Const)
    lanes, stride = index.lanes, int(index.stride.value)
    reach = (lanes - 1) * stride + 1
    starts = [*range(0, (stride - 1) * lanes, lanes), reach - lanes]
    made, taken = [], []
    for start in starts:
        end = "low" if not start else "high" if start == starts[-1] else "mid"
        first = index.base + start if start else index.base
        part = replace(load, indices=(ir.ramp(first, lanes),))
        made.append(ir.Let(names.var(f"{load.buffer.name}_{end}", part.dtype), part))
    for place in range(0, reach, stride):
        of = stride - 1 if place >= starts[-1] else place // lanes
        taken.append(of * lanes + place - starts[of])
    return made, ir.Shuffle(tuple(let.var for let in made), tuple(taken))


def _groups(
    sparse: list[ir.Load], written: set[ir.Buffer]
) -> dict[ir.Load, dict[int, ir.Load]]:
    """The complete groups: loads at every offset of a stride."""
    found: dict[_Key, dict[int, ir.Load]] = {}
    for load in sparse:
        if _stride(load) > 0 and load.buffer not in written:
            found.setdefault(_key(load), {})[_offset(load)] = load
    groups: dict[ir.Load, dict[int, ir.Load]] = {}
    for key, loads in found.items():
        for run in _runs(sorted(loads), key[2]):
            group = {offset: loads[offset] for offset in run}
            groups |= dict.fromkeys(group.values(), group)
    return groups


def _runs(offsets: list[int], length: int) -> Iterator[list[int]]:
    """Runs of `length` consecutive offsets, greedily from the first."""
    at = 0
    while at + length <= len(offsets):
        run = offsets[at : at + length]
        if run[-1] - run[0] == length - 1:
            yield run
            at += length
        else:
            at += 1


def _sparse_loads(stmt: ir.Stmt) -> list[ir.Load]:
    """The unmasked loads of stride -1 or 2 to `_MOST` in a let or a store."""
    if not isinstance(stmt, (ir.Let, ir.Store)):
        return []
    loads = nodes_of(stmt.value, ir.Load)
    return [load for load in loads if load.mask is None and _stride(load)]


def _stride(load: ir.Load) -> int:
    """The stride of a vector load if it is -1 or 2 to `_MOST`, else 0."""
    match load.indices:
        case (ir.Ramp(stride=ir.Const(value=stride)),) if (
            stride == -1 or 2 <= stride <= _MOST
        ):
            return int(stride)
    return 0


def _key(load: ir.Load) -> _Key:
    (index,) = load.indices
    assert isinstance(index, ir.Ramp)
    assert isinstance(index.stride, ir.Const)
    rest, _ = split_base(index.base)
    return load.buffer, rest, int(index.stride.value), index.lanes


def _offset(load: ir.Load) -> int:
    (index,) = load.indices
    assert isinstance(index, ir.Ramp)
    return split_base(index.base)[1]


def _wide(group: Mapping[int, ir.Load], names: Names) -> tuple[ir.Var, ir.Load]:
    first = group[min(group)]
    (index,) = first.indices
    assert isinstance(index, ir.Ramp)
    whole = ir.ramp(index.base, index.lanes * len(group))
    load = replace(first, indices=(whole,))
    return names.var(f"{first.buffer.name}_all", load.dtype), load


def _replaced(stmt: ir.Stmt, values: Mapping[ir.Load, ir.Expr]) -> ir.Stmt:
    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Load) and node in values:
            return values[node]
        if isinstance(node, ir.Expr) and not holds(node, ir.Load):
            return node
        return rebuild(node, visit)

    return visit(stmt)
