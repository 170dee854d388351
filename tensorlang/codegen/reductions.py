"""Expand `Reduce` into loads, the reducer's combination, and stores.

A reduction may contract a product: `reduce(sum, y[i], a * b)` becomes
`y[i] = fma(a, b, y[i])`, as does any addition marked `contract`; others are kept.
Nothing is contracted for processors without FMA.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.names import Names
from tensorlang.ir.contraction import as_fma, combination
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Expr,
    Function,
    Let,
    Node,
    Reduce,
    Seq,
    Stmt,
    Store,
    seq,
)
from tensorlang.ir.visit import nodes_of, rebuild, rebuild_statements, rewriter


def expand_reductions(
    function: Function, names: Names, *, contract: bool = True
) -> Function:
    """The function without `Reduce`, and with contracted additions as `fma`."""
    contracts = any(node.contract for node in nodes_of(function.body, Binary))

    @rewriter
    def visit(node: Node) -> Node:
        match node:
            case Expr() if not contracts:
                return node
            case Reduce():
                return update(rebuild(node, visit), names, contract=contract)
            case Seq():
                return rebuild_statements(node, visit)
            case Expr() if not any(part.contract for part in nodes_of(node, Binary)):
                return node
            case Binary() if contract:
                new = rebuild(node, visit)
                return _or(as_fma(new), new)
            case _:
                return rebuild(node, visit)

    return replace(function, body=visit(function.body))


def update(node: Reduce, names: Names, *, contract: bool = True) -> Stmt:
    """Expand one `Reduce`; a tuple is read completely before it is written."""
    if len(node.buffers) == 1:
        state: Expr = node.buffers[0][node.indices]
        (value,) = combination(node.reducer, (state,), node.values, contract=contract)
        return Store(node.buffers[0], node.indices, value)
    reads = [_let(f"{b.name}_old", b[node.indices], names) for b in node.buffers]
    given = [_let(f"{b.name}_new", v, names) for b, v in _pairs(node)]
    left = tuple(let.var for let in reads)
    right = tuple(let.var for let in given)
    results = combination(node.reducer, left, right, contract=contract)
    stores = [
        Store(buffer, node.indices, result)
        for buffer, result in zip(node.buffers, results, strict=True)
    ]
    return seq(*reads, *given, *stores)


def _pairs(node: Reduce) -> list[tuple[Buffer, Expr]]:
    return list(zip(node.buffers, node.values, strict=True))


def _let(name: str, value: Expr, names: Names) -> Let:
    return Let(names.var(name, value.dtype), value)


def _or(found: Expr | None, other: Expr) -> Expr:
    return other if found is None else found
