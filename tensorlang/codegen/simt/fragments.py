"""Load fragments that several products of a warp use only once.

    for i in unrolled(4):                     b_held: bf16[32]
        for j in unrolled(4):                 for j in unrolled(4):
            a: bf16x8 = ldmatrix_x4(f(i))         b_held[j * 8 ..] = ldmatrix_x4(g(j))
            b: bf16x8 = ldmatrix_x4(g(j)) ->  for i in unrolled(4):
            .. mma(a, b, ..)                      a: bf16x8 = ldmatrix_x4(f(i))
                                                  for j in unrolled(4):
                                                      .. mma(a, b_held[j * 8 ..], ..)

A fragment is hoisted to the outermost loop where its operands are available; if it
depends on inner loop variables, an array holds one for each of their values. The
device's compiler cannot do this, as the instructions are opaque (inline assembly).
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.folding import add, mul
from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import is_collective
from tensorlang.ir.contents import free_vars, reads, writes
from tensorlang.ir.visit import rebuild_statements, substitute, walk


def hoist_fragments(function: ir.Function, names: Names) -> ir.Function:
    """The function with fragment loads hoisted out of loops."""
    if not any(map(is_collective, walk(function.body))):
        return function

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Seq):
            return rebuild_statements(stmt, visit)
        chain, inner = _chain(stmt)
        if chain and any(map(_is_fragment, inner)):
            return _Nest(chain, names).made(inner)
        return rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _chain(stmt: ir.Stmt) -> tuple[tuple[ir.For, ...], tuple[ir.Stmt, ...]]:
    """Perfectly nested unrolled loops, and the statements of the innermost one."""
    chain: list[ir.For] = []
    while isinstance(stmt, ir.For) and stmt.kind == "unrolled":
        if not isinstance(stmt.extent, ir.Const):
            break
        chain.append(stmt)
        stmt = stmt.body
    return tuple(chain), stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)


def _is_fragment(stmt: ir.Stmt) -> bool:
    """Whether a statement binds a fragment load."""
    return (
        isinstance(stmt, ir.Let)
        and is_collective(stmt.value)
        and isinstance(stmt.value.args[0], ir.Load)  # type: ignore[attr-defined]
    )


class _Nest:
    """Loops around products, and the statements hoisted to each level."""

    def __init__(self, chain: tuple[ir.For, ...], names: Names) -> None:
        self.chain = chain
        self.names = names
        self.ahead: list[list[ir.Stmt]] = [[] for _ in range(len(chain) + 1)]

    def made(self, inner: tuple[ir.Stmt, ...]) -> ir.Stmt:
        """The loops with their fragment loads hoisted."""
        body: list[ir.Stmt] = []
        written = frozenset().union(*map(writes, inner))
        instead: dict[ir.Var, ir.Expr] = {}
        for stmt in inner:
            if (
                isinstance(stmt, ir.Let)
                and _is_fragment(stmt)
                and not reads(stmt.value) & written
            ):
                held = self.held(stmt)
                if held is not None:
                    instead[stmt.var] = held
            else:
                body.append(substitute(stmt, instead) if instead else stmt)
        whole = ir.seq(*self.ahead[-1], *body)
        for loop, ahead in zip(reversed(self.chain), self.ahead[-2::-1], strict=True):
            whole = ir.seq(*ahead, replace(loop, body=whole))
        return whole

    def held(self, let: ir.Let) -> ir.Expr | None:
        """Hoist a fragment load; returns its array element if one is needed."""
        used = free_vars(let.value)
        needed = [loop for loop in self.chain if loop.var in used]
        level = next(
            (n for n, loop in enumerate(self.chain) if loop not in needed),
            len(self.chain),
        )
        inner = [loop for loop in self.chain[level:] if loop in needed]
        if not inner:
            self.ahead[level].append(let)
            return None
        return self.array(let, level, inner)

    def array(self, let: ir.Let, level: int, inner: list[ir.For]) -> ir.Expr:
        """An array of fragments, indexed by inner loops; returns its element."""
        lanes = let.var.dtype.lanes
        place: ir.Expr = ir.as_expr(0)
        count = lanes
        for loop in inner:
            place = add(mul(place, loop.extent), loop.var)
            count *= int(loop.extent.value) if isinstance(loop.extent, ir.Const) else 1
        name = self.names.fresh(f"{let.var.name}_held")
        array = ir.Buffer(name, let.var.dtype.scalar, (ir.as_expr(count),), "register")
        first = mul(place, ir.as_expr(lanes))
        index = ir.ramp(first, lanes)
        fill: ir.Stmt = ir.Store(array, (index,), let.value)
        for loop in reversed(inner):
            fill = replace(loop, body=fill)
        self.ahead[level] += [ir.Alloc(array), fill]
        return ir.Load(array, (index,))
