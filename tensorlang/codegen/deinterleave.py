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

from tensorlang.codegen.interleave import split_base
from tensorlang.codegen.names import Names
from tensorlang.ir.contents import writes
from tensorlang.ir.nodes import (
    Buffer,
    Const,
    Expr,
    Function,
    Let,
    Load,
    Node,
    Ramp,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import holds, nodes_of, rebuild, rebuild_statements, rewriter

# buffer, variable part of the base, stride, lanes
_Key: TypeAlias = tuple[Buffer, Expr | None, int, int]
_MOST: int = 8
_NEAR: int = 4  # largest stride for which adjacent loads beat a gather


def deinterleave(function: Function, names: Names) -> Function:
    """The function with strided loads combined."""

    def visit(stmt: Stmt) -> Stmt:
        match stmt:
            case Seq():
                parts = [
                    item if isinstance(item, (Let, Store)) else visit(item)
                    for item in stmt.stmts
                ]
                return seq(*_joined(parts, names))
            case Let() | Store():
                return seq(*_joined([stmt], names))
            case _:
                return rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _joined(stmts: list[Stmt], names: Names) -> Iterator[Stmt]:
    """The statements, with each wide load right before its first use."""
    loads = [_sparse_loads(stmt) for stmt in stmts]
    if not any(loads):
        yield from stmts
        return
    written = {buffer for stmt in stmts for buffer in writes(stmt)}
    groups = _groups([load for found in loads for load in found], written)
    values: dict[Load, Expr] = {}
    for stmt, found in zip(stmts, loads, strict=True):
        for load in found:
            if _stride(load) > 0:
                continue
            if load.buffer not in written and load not in values:
                back = names.var(f"{load.buffer.name}_back", load.dtype)
                yield Let(back, _forwards(load))
                lanes = load.dtype.lanes
                values[load] = Shuffle((back,), tuple(reversed(range(lanes))))
        for load in found:
            if load in values or _stride(load) < 0:
                continue
            group = groups.get(load)
            if group is not None:
                var, whole = _wide(group, names)
                yield Let(var, whole)
                values |= _parts(group, var)
            elif load.buffer not in written and _is_near(load):
                lets, values[load] = _side_by_side(load, names)
                yield from lets
        yield _replaced(stmt, values) if any(load in values for load in found) else stmt


def _parts(group: Mapping[int, Load], var: Var) -> dict[Load, Expr]:
    """Each load of a group as a shuffle of the wide one."""
    first = min(group)
    return {
        part: Shuffle(
            (var,),
            tuple(offset - first + len(group) * n for n in range(part.dtype.lanes)),
        )
        for offset, part in group.items()
    }


def _forwards(load: Load) -> Load:
    """A load of stride -1 as a forward load of the same elements."""
    (index,) = load.indices
    assert isinstance(index, Ramp)
    first = index.base - (index.lanes - 1)
    return replace(load, indices=(Ramp(first, as_expr(1), index.lanes),))


def _is_near(load: Load) -> bool:
    """Whether adjacent loads replace a strided load: small stride, even lanes."""
    (index,) = load.indices
    assert isinstance(index, Ramp)
    assert isinstance(index.stride, Const)
    return index.stride.value <= _NEAR and index.lanes >= 4 and index.lanes % 2 == 0


def _side_by_side(load: Load, names: Names) -> tuple[list[Let], Expr]:
    """Adjacent loads from the first element on; the last load ends at the last one."""
    (index,) = load.indices
    assert isinstance(index, Ramp)
    assert isinstance(index.stride, Const)
    lanes, stride = index.lanes, int(index.stride.value)
    reach = (lanes - 1) * stride + 1
    starts = [*range(0, (stride - 1) * lanes, lanes), reach - lanes]
    made, taken = [], []
    for start in starts:
        end = "low" if not start else "high" if start == starts[-1] else "mid"
        first = index.base + start if start else index.base
        part = replace(load, indices=(Ramp(first, as_expr(1), lanes),))
        made.append(Let(names.var(f"{load.buffer.name}_{end}", part.dtype), part))
    for place in range(0, reach, stride):
        of = stride - 1 if place >= starts[-1] else place // lanes
        taken.append(of * lanes + place - starts[of])
    return made, Shuffle(tuple(let.var for let in made), tuple(taken))


def _groups(sparse: list[Load], written: set[Buffer]) -> dict[Load, dict[int, Load]]:
    """The complete groups: loads at every offset of a stride."""
    found: dict[_Key, dict[int, Load]] = {}
    for load in sparse:
        if _stride(load) > 0 and load.buffer not in written:
            found.setdefault(_key(load), {})[_offset(load)] = load
    groups: dict[Load, dict[int, Load]] = {}
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


def _sparse_loads(stmt: Stmt) -> list[Load]:
    """The unmasked loads of stride -1 or 2 to `_MOST` in a let or a store."""
    if not isinstance(stmt, (Let, Store)):
        return []
    loads = nodes_of(stmt.value, Load)
    return [load for load in loads if load.mask is None and _stride(load)]


def _stride(load: Load) -> int:
    """The stride of a vector load if it is -1 or 2 to `_MOST`, else 0."""
    match load.indices:
        case (Ramp(stride=Const(value=stride)),) if (
            stride == -1 or 2 <= stride <= _MOST
        ):
            return int(stride)
    return 0


def _key(load: Load) -> _Key:
    (index,) = load.indices
    assert isinstance(index, Ramp)
    assert isinstance(index.stride, Const)
    rest, _ = split_base(index.base)
    return load.buffer, rest, int(index.stride.value), index.lanes


def _offset(load: Load) -> int:
    (index,) = load.indices
    assert isinstance(index, Ramp)
    return split_base(index.base)[1]


def _wide(group: Mapping[int, Load], names: Names) -> tuple[Var, Load]:
    first = group[min(group)]
    (index,) = first.indices
    assert isinstance(index, Ramp)
    whole = Ramp(index.base, as_expr(1), index.lanes * len(group))
    load = replace(first, indices=(whole,))
    return names.var(f"{first.buffer.name}_all", load.dtype), load


def _replaced(stmt: Stmt, values: Mapping[Load, Expr]) -> Stmt:
    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Load) and node in values:
            return values[node]
        if isinstance(node, Expr) and not holds(node, Load):
            return node
        return rebuild(node, visit)

    return visit(stmt)
