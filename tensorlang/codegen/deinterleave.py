"""Strided loads that together read a whole stretch become one contiguous load.

    u: f32x16 = x[ramp(b, 2, 16)]        ->  x_all: f32x32 = x[ramp(b, 1, 32)]
    v: f32x16 = x[ramp(b + 1, 2, 16)]        u: f32x16 = shuffle((x_all,), (0, 2, ...))
                                             v: f32x16 = shuffle((x_all,), (1, 3, ...))

Only where nothing in the same sequence writes the buffer. All elements of the stretch
were read before, so none is touched that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tensorlang.codegen.interleave import split_base
from tensorlang.codegen.names import Names
from tensorlang.ir.nodes import (
    Buffer,
    Const,
    Expr,
    Function,
    Let,
    Load,
    Ramp,
    Seq,
    Shuffle,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import rebuild, walk, writes

# buffer, variable part of the base, stride, lanes
_Key: TypeAlias = tuple[Buffer, Expr | None, int, int]
_MOST: int = 8


def deinterleave(function: Function, names: Names) -> Function:
    """The function with complete groups of strided loads joined."""

    def visit(node: Any) -> Any:
        match node:
            case Seq():
                return seq(*_joined([visit(stmt) for stmt in node.stmts], names))
            case Stmt():
                return rebuild(node, visit)
            case _:
                return node

    return replace(function, body=visit(function.body))


def _joined(stmts: list[Stmt], names: Names) -> Iterator[Stmt]:
    """The statements, each wide load made just before its first use."""
    groups = _groups(stmts)
    values: dict[Load, Expr] = {}
    for stmt in stmts:
        for load in _strided_loads(stmt):
            group = groups.get(_key(load), {})
            if load in values or load not in group.values():
                continue
            var, whole = _wide(group, names)
            yield Let(var, whole)
            first = min(group)
            for offset, part in group.items():
                lanes, stride = part.dtype.lanes, len(group)
                taken = tuple(offset - first + stride * n for n in range(lanes))
                values[part] = Shuffle((var,), taken)
        yield _replaced(stmt, values) if values else stmt


def _groups(stmts: list[Stmt]) -> dict[_Key, dict[int, Load]]:
    """The complete groups: every offset of a stride once, side by side."""
    written = {buffer for stmt in stmts for buffer in writes(stmt)}
    found: dict[_Key, dict[int, Load]] = {}
    for stmt in stmts:
        for load in _strided_loads(stmt):
            if load.buffer not in written:
                found.setdefault(_key(load), {})[_offset(load)] = load
    return {
        key: group
        for key, group in found.items()
        if len(group) == key[2] and max(group) - min(group) == key[2] - 1
    }


def _strided_loads(stmt: Stmt) -> Iterable[Load]:
    """The unmasked loads with gaps in a let or a store."""
    if not isinstance(stmt, (Let, Store)):
        return
    for node in walk(stmt.value):
        match node:
            case Load(mask=None, indices=(Ramp(stride=Const(value=stride)),)) if (
                2 <= stride <= _MOST
            ):
                yield node


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
    def visit(node: Any) -> Any:
        if isinstance(node, Load) and node in values:
            return values[node]
        return rebuild(node, visit)

    return visit(stmt)  # type: ignore[no-any-return]
