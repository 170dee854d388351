"""Combine strided vector stores that fill each other's gaps into one contiguous store.

    y[ramp(b, 2, 16)] = u        ->  y[ramp(b, 1, 32)] = shuffle((u, v), (0, 16, ...))
    y[ramp(b + 1, 2, 16)] = v

The combined store replaces the last of them. Only lets that do not read the buffer may
be in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import reads
from tensorlang.ir.visit import transform_statements


def interleave(function: ir.Function) -> ir.Function:
    """The function with complete groups of strided stores combined."""
    return transform_statements(function, _joined)


def _joined(stmt: ir.Stmt) -> ir.Stmt:
    """A sequence with its groups combined; other statements are unchanged."""
    if not isinstance(stmt, ir.Seq):
        return stmt
    out = list(stmt.stmts)
    at = 0
    while at < len(out):
        group = _group(out, at)
        if group:
            stores = [out[n] for n in group]
            out[group[-1]] = _together(stores)
            for n in reversed(group[:-1]):
                del out[n]
        at += 1
    return ir.seq(*out)


def _group(stmts: list[ir.Stmt], at: int) -> list[int]:
    """Positions of a complete group that starts at `at`; empty if there is none."""
    first = stmts[at]
    parts = _strided(first)
    if parts is None:
        return []
    assert isinstance(first, ir.Store)
    stride = parts[2]
    found: dict[int, int] = {}
    for n in range(at, len(stmts)):
        stmt = stmts[n]
        other = _strided(stmt)
        if isinstance(stmt, ir.Let) and first.buffer not in reads(stmt):
            continue
        if (
            not isinstance(stmt, ir.Store)
            or other is None
            or first.buffer in reads(stmt)
        ):
            break
        offset = other[1] - parts[1]
        same = (other[0], stride, stmt.value.dtype, stmt.buffer, stmt.hints)
        if same != (parts[0], other[2], first.value.dtype, first.buffer, first.hints):
            break
        if not -stride < offset < stride or offset in found:
            break
        found[offset] = n
        if len(found) == stride:
            whole = max(found) - min(found) == stride - 1
            return sorted(found.values()) if whole else []
    return []


def _strided(stmt: ir.Stmt) -> tuple[ir.Expr | None, int, int] | None:
    """Variable base, constant offset and stride of a strided vector store."""
    match stmt:
        case ir.Store(
            mask=None, indices=(ir.Ramp(base=base, stride=ir.Const(value=stride)),)
        ) if 2 <= stride <= 8:
            return *split_base(base), int(stride)
    return None


def split_base(base: ir.Expr) -> tuple[ir.Expr | None, int]:
    """Split an index into a variable part (None if there is none) and a constant."""
    match base:
        case ir.Binary(op="add", a=rest, b=ir.Const(value=offset)):
            return rest, int(offset)
        case ir.Const(value=offset):
            return None, int(offset)
    return base, 0


def _together(stores: Sequence[ir.Stmt]) -> ir.Stmt:
    """One contiguous store of all lanes."""
    ordered = sorted(stores, key=lambda stmt: (_strided(stmt) or (None, 0, 0))[1])
    first = ordered[0]
    assert isinstance(first, ir.Store)
    values = tuple(stmt.value for stmt in ordered if isinstance(stmt, ir.Store))
    lanes, count = first.value.dtype.lanes, len(values)
    taken = tuple(n * lanes + lane for lane in range(lanes) for n in range(count))
    (index,) = first.indices
    assert isinstance(index, ir.Ramp)
    whole = ir.ramp(index.base, lanes * count)
    return replace(first, indices=(whole,), value=ir.Shuffle(values, taken))
