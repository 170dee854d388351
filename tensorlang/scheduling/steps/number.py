"""`number_loops`: give loops and axes the shortest names that tell them apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import contents, loops, names
from tensorlang.ir.visit import nodes_of, rebuild, rewriter, substitute
from tensorlang.scheduling.analysis.tree import stem
from tensorlang.scheduling.primitives import primitive


@primitive
def number_loops(func: ir.Function) -> ir.Function:
    """Number the loops of one name in the order of the text; a single one has none.

    Raises:
        Nothing: it is legal in every function.

    The last step of every registered schedule. Loops over blocks and threads of a GPU
    say so, and the axes of each block are numbered apart. Before, and after
    `number_loops()`:

        for i_1 in bound(4, "block.x"):      for i_block in bound(4, "block.x"):
            for j_0 in range(2):                 for j in range(2):
                for i_4 in range(8):                 for i_0 in range(8):
                    ...                                  ...
                for i_5 in range(8):                 for i_1 in range(8):
                    with block("y",                      with block("y",
                        vi_2=spatial(32, ...)):              vi=spatial(32, ...)):
    """
    roots: dict[ir.Var, str] = {}
    for loop in loops(func.body):
        roots.setdefault(loop.var, _root(loop))
    blocks = nodes_of(func.body, ir.Block)
    axes = {axis.var.name for block in blocks for axis in block.axes}
    taken = names(func) - {var.name for var in roots}
    new = _numbered(roots, taken)
    taken = (taken - axes).union(new.get(var, var).name for var in roots)

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Var):
            return new.get(node, node)
        if isinstance(node, (ir.Reducer, ir.IndexMap)):  # they have scopes of their own
            return node
        made = rebuild(node, visit)
        return _with_short_axes(made, taken) if isinstance(made, ir.Block) else made

    body = visit(func.body)
    return func if body is func.body else replace(func, body=body)


def _root(loop: ir.For) -> str:
    """A loop's name without numbers, and with what it is bound to."""
    bound = f"_{loop.thread.partition('.')[0]}" if loop.thread else ""
    return f"{stem(loop.var.name).removesuffix(bound)}{bound}"


def _with_short_axes(block: ir.Block, taken: Collection[str]) -> ir.Block:
    inner = {var.name for part in (block.body, block.init) for var in _bound(part)}
    roots = {axis.var: stem(axis.var.name) for axis in block.axes}
    new = _numbered(roots, inner.union(taken))
    if not new:
        return block
    axes = (replace(axis, var=new.get(axis.var, axis.var)) for axis in block.axes)
    init = block.init and substitute(block.init, new)
    body = substitute(block.body, new)
    return replace(block, axes=tuple(axes), body=body, init=init)


def _bound(stmt: ir.Stmt | None) -> tuple[ir.Var, ...]:
    return contents(stmt).bound if stmt else ()


def _numbered(
    roots: Mapping[ir.Var, str], taken: Collection[str]
) -> dict[ir.Var, ir.Var]:
    """The variables that get another name, and what they become."""
    groups: dict[str, list[ir.Var]] = {}
    for var, root in roots.items():
        groups.setdefault(root, []).append(var)
    new: dict[ir.Var, ir.Var] = {}
    for root, group in groups.items():
        alone = len(group) == 1 and root not in taken
        fitting = (f"{root}_{n}" for n in count())
        free = iter([root]) if alone else (n for n in fitting if n not in taken)
        named = {var: replace(var, name=next(free)) for var in group}
        new |= {old: var for old, var in named.items() if old != var}
    return new
