"""Placement of temporaries: on the stack or in the caller's workspace.

`register` and `private` buffers of a small constant size are on the thread's stack. All
others are 64-byte aligned pieces of one workspace: one for the whole team if allocated
outside of parallel loops, one per thread if inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tensorlang.codegen.folding import add, make, maximum, mul
from tensorlang.codegen.storage import on_stack
from tensorlang.codegen.team import shares, useful
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.visit import children

_LINE = 64


@dataclass(frozen=True)
class Piece:
    """A buffer's place: bytes into the workspace, and its size, maybe per thread."""

    buffer: ir.Buffer
    offset: ir.Expr
    size: ir.Expr
    per_thread: bool


def _rounded(buffer: ir.Buffer) -> ir.Expr:
    """The size of a buffer in bytes, rounded up to whole cache lines."""
    extent = buffer.shape[0] if buffer.shape else ir.as_expr(1)
    size = mul(maximum(extent, ir.as_expr(1)), ir.as_expr(buffer.dtype.bytes))
    lines = make("floordiv", add(size, ir.as_expr(_LINE - 1)), ir.as_expr(_LINE))
    return mul(lines, ir.as_expr(_LINE))


def layout(function: ir.Function) -> tuple[tuple[Piece, ...], ir.Expr]:
    """The pieces of a lowered function's workspace, and its size in bytes.

    Raises:
        CodegenError: a temporary's size depends on more than the scalars.
    """
    pieces: list[Piece] = []
    sizes: Counter[ir.Expr] = Counter()
    parts = shares(function)
    for buffer, per_thread in _temporaries(function.body, parts, shared=False):
        if on_stack(buffer):
            continue
        size = _rounded(buffer)
        known = set(function.scalars)
        if not free_vars(size) <= known:
            raise CodegenError(
                f"{buffer.name}: a temporary's size may depend on the function's "
                "scalars only"
            )
        pieces.append(Piece(buffer, _total(sizes), size, per_thread))
        sizes[mul(size, useful(function)) if per_thread else size] += 1
    return tuple(pieces), _total(sizes)


def _total(sizes: Counter[ir.Expr]) -> ir.Expr:
    """The sum of sizes, equal ones multiplied: many temporaries share few sizes."""
    return _sum([mul(size, ir.as_expr(count)) for size, count in sizes.items()])


def _sum(terms: Sequence[ir.Expr]) -> ir.Expr:
    """The sum of terms, by halves: a chain of many would be too deep to emit."""
    if len(terms) < 2:
        return terms[0] if terms else ir.as_expr(0)
    middle = (len(terms) + 1) // 2
    return add(_sum(terms[:middle]), _sum(terms[middle:]))


def _temporaries(
    stmt: ir.Stmt, parts: frozenset[ir.Var], *, shared: bool
) -> list[tuple[ir.Buffer, bool]]:
    """Every allocation, and whether it is inside a parallel loop."""
    if isinstance(stmt, ir.Alloc):
        return [(stmt.buffer, shared)]
    inside = shared or (isinstance(stmt, ir.For) and stmt.extent in parts)
    found: list[tuple[ir.Buffer, bool]] = []
    for child in children(stmt):
        if isinstance(child, ir.Stmt):
            found += _temporaries(child, parts, shared=inside)
    return found
