"""`number_loops`: give loops the shortest names that tell them apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import loops, names
from tensorlang.ir.visit import rebuild, rewriter
from tensorlang.scheduling.analysis.tree import stem
from tensorlang.scheduling.primitives import primitive


@primitive
def number_loops(func: ir.Function) -> ir.Function:
    """Number the loops of one name in the order of the text; a single one has none.

    Args:
        func: The function.

    Raises:
        Nothing: it is legal in every function.

    The last step of every registered schedule. Before, and after `number_loops()`:

        for i_1 in range(4):            for i_0 in range(4):
            for j_0 in range(2):            for j in range(2):
                for i_4 in range(8):            for i_1 in range(8):
                    ...                             ...
    """
    vars_of: dict[str, dict[ir.Var, None]] = {}
    for loop in loops(func.body):
        vars_of.setdefault(stem(loop.var.name), {})[loop.var] = None
    every = [var for group in vars_of.values() for var in group]
    taken = names(func) - {var.name for var in every}
    new: dict[ir.Var, ir.Var] = {}
    for root, group in vars_of.items():
        fitting = (f"{root}_{n}" for n in count())
        alone = len(group) == 1 and root not in taken
        free = iter([root]) if alone else (n for n in fitting if n not in taken)
        new |= {var: replace(var, name=next(free)) for var in group}
    return _renamed(func, {old: var for old, var in new.items() if old != var})


def _renamed(func: ir.Function, new: dict[ir.Var, ir.Var]) -> ir.Function:
    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Var):
            return new.get(node, node)
        if isinstance(node, (ir.Reducer, ir.IndexMap)):  # they have scopes of their own
            return node
        return rebuild(node, visit)

    return replace(func, body=visit(func.body)) if new else func
