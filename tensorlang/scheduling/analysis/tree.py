"""Navigation in a function: places by name, replacement, fresh names.

A place is a `Path`: the nodes from the function (first) to the node in question (last).
Nothing is modified in place; `replace` returns a new function.

A loop is named by its variable. If sibling nests share a name, `"block/loop"` means the
loop around that block.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias, TypeVar

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, contains, names, structure
from tensorlang.ir.text.syntax import name_fault
from tensorlang.ir.visit import (
    children,
    fresh,
    holds,
    rebuild,
    rebuild_statements,
    rewriter,
    statements,
    walk,
)

Path: TypeAlias = tuple[ir.Node, ...]
N = TypeVar("N", bound=ir.Node)


def paths(func: ir.Function, until: type[ir.Node] | None = None) -> Iterator[Path]:
    """The path to every statement not below `until`, in order, parents first."""
    stack: list[Path] = [(func, func.body)]
    while stack:
        path = stack.pop()
        yield path
        if type(path[-1]) is not until:
            stack.extend([(*path, child) for child in statements(path[-1])[::-1]])


def paths_to(func: ir.Function, kind: type[ir.Node]) -> Iterator[Path]:
    """The paths to all statements of one node class, in program order."""
    stack: list[Path] = [(func, func.body)]
    while stack:
        path = stack.pop()
        if type(path[-1]) is kind:
            yield path
        below = statements(path[-1])[::-1]
        stack.extend([(*path, child) for child in below if holds(child, kind)])


def find_block(func: ir.Function, name: str) -> Path:
    """The path to the block called `name`.

    Raises:
        ScheduleError: there is none; the message lists the blocks.
    """
    everything = structure(func).blocks
    for block in everything:
        if block.name == name:
            return _path_to(func, block)
    known = _listed(block.name for block in everything)
    raise ScheduleError(f"{func.name} has no block {name!r}; its blocks: {known}")


def find_loop(func: ir.Function, name: str) -> Path:
    """The path to the loop over the variable `name`, or `"block/name"`.

    Raises:
        ScheduleError: there is no such loop, or more than one.
    """
    block, _, var = name.rpartition("/")
    if block:
        return _loop_around(find_block(func, block), var)
    everything = structure(func).loops
    found = [loop for loop in everything if loop.var.name == var]
    if len(found) == 1:
        return _path_to(func, found[0])
    if found:
        ways = _listed(_qualified(loop, var) for loop in found)
        raise ScheduleError(
            f"{func.name} has {len(found)} loops {var!r}; name one by a block: {ways}"
        )
    known = _listed(loop.var.name for loop in everything)
    raise ScheduleError(f"{func.name} has no loop {var!r}; its loops: {known}")


def _loop_around(path: Path, var: str) -> Path:
    for depth in range(len(path) - 1, 0, -1):
        outer = path[depth]
        if isinstance(outer, ir.For) and outer.var.name == var:
            return path[: depth + 1]
    block = block_of(path).name
    known = _listed(loop.var.name for loop in enclosing_loops(path))
    raise ScheduleError(
        f"no loop {var!r} is around block {block!r}; these are: {known}"
    )


def _path_to(func: ir.Function, stmt: ir.For | ir.Block | ir.Alloc) -> Path:
    """The path to the first occurrence of a loop, block or allocation."""
    path: list[ir.Node] = [func]
    while path[-1] is not stmt:
        below = statements(path[-1])
        path.append(next(child for child in below if contains(child, stmt)))
    return tuple(path)


def _qualified(loop: ir.For, var: str) -> str:
    inside = next(blocks_under(loop), None)
    return f"{inside.name}/{var}" if inside else f"{var} (around no block)"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(items)) or "none"


def find_buffer(func: ir.Function, name: str) -> ir.Buffer:
    """The parameter or temporary called `name`.

    Raises:
        ScheduleError: there is none; the message lists the buffers.
    """
    everything = [*func.buffers, *allocations(func)]
    for buffer in everything:
        if buffer.name == name:
            return buffer
    known = _listed(buffer.name for buffer in everything)
    raise ScheduleError(f"{func.name} has no buffer {name!r}; its buffers: {known}")


def find_alloc(func: ir.Function, name: str) -> Path:
    """The path to a temporary's allocation; ScheduleError if there is none."""
    everything = structure(func).allocations
    for alloc in everything:
        if alloc.buffer.name == name:
            return _path_to(func, alloc)
    known = _listed(alloc.buffer.name for alloc in everything)
    raise ScheduleError(f"{func.name} allocates no {name!r}; its temporaries: {known}")


def function_of(path: Path) -> ir.Function:
    """The function a path starts from."""
    return _last(path[:1], ir.Function)


def loop_of(path: Path) -> ir.For:
    """The loop a path leads to."""
    return _last(path, ir.For)


def block_of(path: Path) -> ir.Block:
    """The block a path leads to."""
    return _last(path, ir.Block)


def alloc_of(path: Path) -> ir.Alloc:
    """The allocation a path leads to."""
    return _last(path, ir.Alloc)


def _last(path: Path, kind: type[N]) -> N:
    node = path[-1]
    if not isinstance(node, kind):
        raise ScheduleError(f"a path to a {kind.__name__} leads to {node!r}")
    return node


def enclosing_loops(path: Path) -> tuple[ir.For, ...]:
    """The loops around the node a path leads to, outermost first."""
    return tuple(node for node in path[:-1] if isinstance(node, ir.For))


def blocks_under(node: ir.Node) -> Iterator[ir.Block]:
    """The outermost blocks at or below `node`, in program order."""
    if isinstance(node, ir.Block):
        yield node
        return
    for child in statements(node):
        yield from blocks_under(child)


def nest_of(path: Path) -> Path:
    """The path to the outermost loop that is around nothing else."""
    depth = len(path) - 1
    while isinstance(path[depth - 1], ir.For):
        depth -= 1
    return path[: depth + 1]


def conditions_apart(path: Path, other: Path) -> Iterator[ir.If | ir.While]:
    """The conditions around one place but not another, or in the other branch."""
    for node, below in pairwise(path):
        if isinstance(node, (ir.If, ir.While)) and all(
            below is not part for part in other
        ):
            yield node


def values_of(path: Path) -> list[ir.Let]:
    """The lets in scope at a place."""
    found: list[ir.Let] = []
    for node, below in pairwise(path):
        for stmt in node.stmts if isinstance(node, ir.Seq) else ():
            if stmt is below:
                break
            if isinstance(stmt, ir.Let):
                found.append(stmt)
    return found


def actions(func: ir.Function) -> Iterator[Path]:
    """The paths to blocks, and to all but sequences and allocations outside of them."""
    for path in paths(func, until=ir.Block):
        if not isinstance(path[-1], (ir.Seq, ir.Alloc)):
            yield path


def acting(node: ir.Node) -> Iterator[ir.Stmt]:
    """The outermost blocks and the single statements at or below `node`, in order."""
    if isinstance(node, (ir.Seq, ir.For, ir.While, ir.If)):
        for child in children(node):
            yield from acting(child)
    elif isinstance(node, ir.Stmt) and not isinstance(node, ir.Alloc):
        yield node


def called(stmt: ir.Stmt) -> str:
    """A block by its name, for messages; any other statement as such."""
    return f"block {stmt.name!r}" if isinstance(stmt, ir.Block) else "a statement"


def replace(path: Path, new: ir.Stmt | None) -> ir.Function:
    """The function with the statement at `path` replaced, or removed if `new` is None.

    A `Seq` inserted into a `Seq` is spliced.
    """
    old, changed = path[-1], ir.seq() if new is None else new
    for parent in reversed(path[1:-1]):
        assert isinstance(parent, ir.Stmt)
        changed, old = _with_child(parent, old, changed), parent
    return dataclasses.replace(function_of(path), body=changed)


def _with_child(parent: ir.Stmt, old: ir.Node, new: ir.Stmt) -> ir.Stmt:
    return rebuild_statements(parent, lambda child: new if child is old else child)


def without_nest(func: ir.Function, block: str) -> ir.Function:
    """The function without a block and the loops around only it."""
    return replace(nest_of(find_block(func, block)), None)


def swap(stmt: ir.Stmt, old: ir.Stmt, new: ir.Stmt) -> ir.Stmt:
    """A statement with one at or below it, found by identity, replaced."""
    return _Swap(old, new)(stmt)


@frozen
class _Swap:
    """Replaces a statement; an object, as a function that calls itself is garbage."""

    old: ir.Stmt
    new: ir.Stmt

    def __call__(self, stmt: ir.Stmt) -> ir.Stmt:
        return self.new if stmt is self.old else rebuild_statements(stmt, self)


def rename(node: N, taken: set[str], suffix: str = "") -> N:
    """A copy of `node` with new names for loops, axes, lets, temporaries and blocks.

    The names get the suffix and, if then still in use, a number; they are added to
    `taken`, so that both copies can be in one function.
    """
    new: dict[ir.Node, ir.Node] = {}
    for current in walk(node):
        if isinstance(current, (ir.For, ir.Let, ir.Axis)):
            new[current.var] = ir.Var(
                fresh(current.var.name + suffix, taken), current.var.dtype
            )
        elif isinstance(current, ir.Alloc):
            name = fresh(current.buffer.name + suffix, taken)
            new[current.buffer] = dataclasses.replace(current.buffer, name=name)

    @rewriter
    def visit(current: ir.Node) -> ir.Node:
        if isinstance(current, (ir.Reducer, ir.IndexMap)):
            return current
        if isinstance(current, ir.Var):
            return new.get(current, current)
        changed = rebuild(new.get(current, current), visit)
        if isinstance(changed, ir.Block):
            return dataclasses.replace(
                changed, name=fresh(changed.name + suffix, taken)
            )
        return changed

    return visit(node)  # type: ignore[return-value]


def new_names(func: ir.Function, *wanted: str) -> tuple[str, ...]:
    """The wanted names, each numbered if the function already uses it."""
    taken = names(func)
    return tuple(fresh(name, taken) for name in wanted)


def numbered(func: ir.Function, name: str, count: int) -> tuple[str, ...]:
    """`i_0`, `i_1`, ... for `i` or a part `i_2` of it, after those that are in use."""
    root = stem(name)
    parts = (found.removeprefix(f"{root}_") for found in names(func))
    first = 1 + max((int(part) for part in parts if part.isdecimal()), default=-1)
    return tuple(f"{root}_{n}" for n in range(first, first + count))


def stem(name: str) -> str:
    """A loop's name without the numbers of its parts, if that is one: of `i_0`, `i`."""
    found = re.sub(r"_\d+(?=_|$)", "", name)
    return found if name_fault(found) is None else name


def constant(expr: ir.Expr) -> int | None:
    """The value of an integer constant; None for anything else."""
    if isinstance(expr, ir.Const) and expr.dtype.is_integer:
        return int(expr.value)
    return None
