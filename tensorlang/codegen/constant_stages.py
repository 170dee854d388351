"""Split off the stages of a function that read constant parameters alone.

    def f(x, w, y):                     def f_constants(w, packed: Out): packed = ...
        packed = alloc(...)
        packed = ... w ...        ->    def f(x, w, y, packed):
        y = ... x ... packed ...            y = ... x ... packed ...

The first function is run once, the second for each `x`. Temporaries that both use
become parameters, in the memory order of their layouts. An outermost loop that packs
for each of its iterations is distributed first: the packed data get its index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tensorlang.codegen.flatten import physical_indices, physical_shape
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, names, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import fresh, rebuild, rewriter, walk_statements


@frozen
class Divided:
    """The two parts of a function."""

    # what is run once: from the constant parameters to temporaries
    constant: ir.Function
    rest: ir.Function  # function with these temporaries as further inputs, at the end


def divided(function: ir.Function, constants: Sequence[int]) -> Divided | None:
    """Both parts of a function; None if no outermost stage reads constants alone.

    Args:
        function: A function, before lowering.
        constants: Positions of the parameters that have the same contents in all calls.
    """
    fixed = {function.params[at].buffer for at in constants}
    taken = names(function)
    stmts = [s for each in _stmts(function.body) for s in _apart(each, fixed, taken)]
    early = _early(stmts, fixed)
    made = {buffer for each in early for buffer in writes(each)}
    late = [each for each in stmts if each not in early]
    both = [b for b in _allocated(stmts, made) if any(b in reads(s) for s in late)]
    if not both:
        return None
    given = [param for param in function.params if param.buffer in fixed]
    inside = [ir.Alloc(b) for b in _allocated(stmts, made) if b not in both]
    sizes = {size for param in given for size in param.buffer.shape}
    first = ir.Function(
        f"{function.name}_constants",
        (*given, *(ir.Param(b, "out") for b in both)),
        tuple(scalar for scalar in function.scalars if scalar in sizes),
        ir.seq(*inside, *early),
    )
    kept = [s for s in late if not (isinstance(s, ir.Alloc) and s.buffer in made)]
    params = (*function.params, *(ir.Param(b, "in") for b in both))
    rest = replace(function, params=params, body=ir.seq(*kept))
    return Divided(_row_major(first, both), _row_major(rest, both))


def _stmts(body: ir.Stmt) -> Sequence[ir.Stmt]:
    return body.stmts if isinstance(body, ir.Seq) else (body,)


def _apart(
    stmt: ir.Stmt, fixed: set[ir.Buffer], taken: set[str], *loops: ir.Var
) -> Sequence[ir.Stmt]:
    """A loop, preceded by a loop over the stages in it that read constants alone.

    `loops` are those around it; loops inside of it are distributed first.
    """
    if not isinstance(stmt, ir.For) or not isinstance(stmt.extent, ir.Const):
        return [stmt]
    around = (*loops, stmt.var)
    parts = (_apart(each, fixed, taken, *around) for each in _stmts(stmt.body))
    inside = [each for part in parts for each in part]
    early = _early(inside, fixed, *around)
    made = {buffer for each in early for buffer in writes(each)}
    if not made:
        return [stmt]
    kept = [
        s
        for s in inside
        if s not in early and not (isinstance(s, ir.Alloc) and s.buffer in made)
    ]
    wider = {each: _wider(each, stmt) for each in _allocated(inside, made)}
    move = _Indexing(wider, stmt, taken)
    first, rest = (
        replace(stmt, body=ir.seq(*(move(each, stmt.var) for each in part)))
        for part in (early, kept)
    )
    return [*map(ir.Alloc, wider.values()), first, rest]


def _wider(buffer: ir.Buffer, loop: ir.For) -> ir.Buffer:
    """A buffer for all iterations of a loop, whose index comes first."""
    layout = buffer.layout
    if layout is not None:
        at = ir.Var(f"{loop.var.name}_at", i64)
        layout = ir.IndexMap((at, *layout.vars), (at, *layout.results))
    return replace(buffer, shape=(loop.extent, *buffer.shape), layout=layout)


class _Indexing:
    """Indexes buffers by a loop too; in a block, by a further axis."""

    def __init__(
        self, wider: Mapping[ir.Buffer, ir.Buffer], loop: ir.For, taken: set[str]
    ) -> None:
        self._wider, self._loop, self._taken = wider, loop, taken

    def __call__(self, node: ir.Stmt, at: ir.Var) -> ir.Stmt:
        """A statement where `at` is the index of the iteration."""

        @rewriter
        def visit(current: ir.Node) -> ir.Node:
            if isinstance(current, ir.Block) and at is self._loop.var:
                return self._block(current)
            new = rebuild(current, visit)
            if isinstance(new, (ir.Load, ir.Store, ir.AtomicUpdate)):
                held = self._wider.get(new.buffer)
                if held is not None:
                    return replace(new, buffer=held, indices=(at, *new.indices))
            if isinstance(new, ir.Reduce) and new.buffers[0] in self._wider:
                held_all = tuple(self._wider[each] for each in new.buffers)
                return replace(new, buffers=held_all, indices=(at, *new.indices))
            return new

        return visit(node)

    def _block(self, block: ir.Block) -> ir.Stmt:
        if self._wider.keys().isdisjoint(reads(block) | writes(block)):
            return block
        loop = self._loop
        var = ir.Var(fresh(f"v{loop.var.name}", self._taken), i64)
        axis = ir.Axis(var, "spatial", loop.extent, loop.var)
        return self(replace(block, axes=(axis, *block.axes)), var)


def _early(
    stmts: Sequence[ir.Stmt], fixed: set[ir.Buffer], *loops: ir.Var
) -> list[ir.Stmt]:
    """The stages that read constants alone, and write what no other stage writes.

    They may depend on the loops around them.
    """
    allocs = (each.buffer for each in stmts if isinstance(each, ir.Alloc))
    temporaries = {buffer for buffer in allocs if buffer.scope == "global"}
    barred = {b for s in stmts for b in _states(s) if b.layout is not None}
    while True:
        known, found = set(fixed), list[ir.Stmt]()
        for stmt in stmts:
            written = writes(stmt)
            own = written <= temporaries - barred and bool(written)
            if (
                own
                and reads(stmt) <= known | written
                and not _open(stmt, written, loops)
            ):
                found.append(stmt)
                known |= written
        taken = {buffer for stmt in found for buffer in writes(stmt)}
        others = {b for s in stmts if s not in found for b in writes(s)}
        if not taken & others:
            return found
        barred |= taken & others


def _states(stmt: ir.Stmt) -> Iterable[ir.Buffer]:
    """The buffers that reductions update."""
    inside = (each for each in walk_statements(stmt) if isinstance(each, ir.Reduce))
    return (buffer for each in inside for buffer in each.buffers)


def _open(stmt: ir.Stmt, written: Iterable[ir.Buffer], loops: Sequence[ir.Var]) -> bool:
    """Whether it depends on scalars, or on values computed before it."""
    open_ = bool(free_vars(stmt) - set(loops))
    return open_ or any(free_vars(buffer) for buffer in written)


def _allocated(stmts: Sequence[ir.Stmt], made: set[ir.Buffer]) -> list[ir.Buffer]:
    """The buffers of a set, in the order of their allocations."""
    allocs = (each.buffer for each in stmts if isinstance(each, ir.Alloc))
    return [buffer for buffer in allocs if buffer in made]


def _row_major(function: ir.Function, buffers: Sequence[ir.Buffer]) -> ir.Function:
    """The function with buffers in the shape of their memory, without layouts."""
    plain = {
        buffer: replace(
            buffer, shape=physical_shape(buffer), scope="global", layout=None
        )
        for buffer in buffers
    }

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        new = rebuild(node, visit)
        if isinstance(new, (ir.Load, ir.Store, ir.AtomicUpdate)):
            held = plain.get(new.buffer)
            if held is not None:
                at = physical_indices(new.buffer, new.indices)
                return replace(new, buffer=held, indices=at)
        if isinstance(new, ir.Reduce):  # its state has no layout: see `_early`
            buffers = tuple(plain.get(b, b) for b in new.buffers)
            return replace(new, buffers=buffers)
        return new

    params = tuple(
        replace(p, buffer=plain.get(p.buffer, p.buffer)) for p in function.params
    )
    return replace(function, params=params, body=visit(function.body))
