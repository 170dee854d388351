"""Expand `Reduce` into loads, the reducer's combination, and stores.

A reduction may contract a product: `reduce(sum, y[i], a * b)` becomes
`y[i] = fma(a, b, y[i])`, as does any addition marked `contract`; others are kept.
Nothing is contracted for processors without FMA.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.contraction import as_fma, combination
from tensorlang.ir.visit import nodes_of, rebuild, rebuild_statements, rewriter


def expand_reductions(
    function: ir.Function, names: Names, *, contract: bool = True
) -> ir.Function:
    """The function without `Reduce`, and with contracted additions as `fma`."""
    contracts = any(node.contract for node in nodes_of(function.body, ir.Binary))

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        match node:
            case ir.Expr() if not contracts:
                return node
            case ir.Reduce():
                return update(rebuild(node, visit), names, contract=contract)
            case ir.Seq():
                return rebuild_statements(node, visit)
            case ir.Expr() if not any(
                part.contract for part in nodes_of(node, ir.Binary)
            ):
                return node
            case ir.Binary() if contract:
                new = rebuild(node, visit)
                return _or(as_fma(new), new)
            case _:
                return rebuild(node, visit)

    return replace(function, body=visit(function.body))


def update(node: ir.Reduce, names: Names, *, contract: bool = True) -> ir.Stmt:
    """Expand one `Reduce`; a tuple is read completely before it is written."""
    if len(node.buffers) == 1:
        state: ir.Expr = node.buffers[0][node.indices]
        (value,) = combination(node.reducer, (state,), node.values, contract=contract)
        return ir.Store(node.buffers[0], node.indices, value)
    reads = [_let(f"{b.name}_old", b[node.indices], names) for b in node.buffers]
    given = [_let(f"{b.name}_new", v, names) for b, v in _pairs(node)]
    left = tuple(let.var for let in reads)
    right = tuple(let.var for let in given)
    results = combination(node.reducer, left, right, contract=contract)
    stores = [
        ir.Store(buffer, node.indices, result)
        for buffer, result in zip(node.buffers, results, strict=True)
    ]
    return ir.seq(*reads, *given, *stores)


def _pairs(node: ir.Reduce) -> list[tuple[ir.Buffer, ir.Expr]]:
    return list(zip(node.buffers, node.values, strict=True))


def _let(name: str, value: ir.Expr, names: Names) -> ir.Let:
    return ir.Let(names.var(name, value.dtype), value)


def _or(found: ir.Expr | None, other: ir.Expr) -> ir.Expr:
    return other if found is None else found
