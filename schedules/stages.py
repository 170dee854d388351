"""Classify the stages of a function: injective, reduction or contraction.

A stage is an outermost nest of plain loops around one block that computes by its axes.
Anything else is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import statements, substitute, walk, walk_statements

INJECTIVE, REDUCTION, CONTRACTION = "injective", "reduction", "contraction"


@frozen
class Stage:
    """A block and the loops around it, outermost first, each driving one axis."""

    block: ir.Block
    loops: tuple[ir.For, ...]

    @property
    def name(self) -> str:
        """The block's name."""
        return self.block.name

    @property
    def update(self) -> ir.Store | ir.Reduce:
        """The block's last store or reduction."""
        below = walk_statements(self.block.body)
        return [s for s in below if isinstance(s, (ir.Store, ir.Reduce))][-1]

    @property
    def outputs(self) -> tuple[ir.Buffer, ...]:
        """The buffers written last: all components of a reduction's state."""
        return buffers_of(self.update)

    @property
    def output(self) -> ir.Buffer:
        """The first output."""
        return self.outputs[0]

    @property
    def loads(self) -> tuple[ir.Load, ...]:
        """The block's distinct loads, lets substituted, in terms of its axes."""
        named: dict[ir.Var, ir.Expr] = {}
        found = []
        for node in walk(self.block.body):
            if isinstance(node, ir.Let):
                named[node.var] = substitute(node.value, named)
            if isinstance(node, ir.Load):
                found.append(substitute(node, named))
        return tuple(dict.fromkeys(found))

    def axis(self, loop: ir.For) -> ir.Var:
        """The axis that a loop drives."""
        return next(a.var for a in self.block.axes if a.value == loop.var)

    def driven(self, kind: str) -> tuple[ir.For, ...]:
        """The loops that drive axes of a kind."""
        kinds = {a.value: a.kind for a in self.block.axes}
        return tuple(loop for loop in self.loops if kinds.get(loop.var) == kind)

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of these loops."""
        return tuple(loop.var.name for loop in self.driven(kind))

    @property
    def work(self) -> int | None:
        """The number of block instances, if known."""
        return trips(self.loops)


def extent_of(loop: ir.For) -> int | None:
    """A loop's extent, if constant."""
    return int(loop.extent.value) if isinstance(loop.extent, ir.Const) else None


def trips(loops: Sequence[ir.For]) -> int | None:
    """The trip count of a nest of loops, if known."""
    sizes = [extent_of(loop) for loop in loops]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def stages(func: ir.Function) -> Iterator[Stage]:
    """The recognised stages, in program order; of all cases that sizes decide."""
    for stmt in host_steps(func.body):
        chain: list[ir.For] = []
        inner: ir.Stmt = stmt
        while isinstance(inner, ir.For):
            chain.append(inner)
            inner = inner.body
        if chain and isinstance(inner, ir.Block) and _plain(inner, chain):
            yield Stage(inner, tuple(chain))


def host_steps(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    """The statements of a host program."""
    match stmt:
        case ir.Seq() | ir.If():
            for part in statements(stmt):
                yield from host_steps(part)
        case _:
            yield stmt


def _plain(block: ir.Block, chain: list[ir.For]) -> bool:
    """Whether loops and axes match one to one, without guards or annotations."""
    driving = [
        axis.value for axis in block.axes if not isinstance(axis.value, ir.Const)
    ]
    one_to_one = sorted(map(repr, driving)) == sorted(loop.var.name for loop in chain)
    usual = block.where is None and block.init is None and block.scope == "thread"
    kinds = {axis.kind for axis in block.axes}
    return (
        one_to_one
        and usual
        and all(loop.kind == "serial" for loop in chain)
        and kinds <= {"spatial", "reduction"}
        and _computes(block, folds="reduction" in kinds)
    )


def _computes(block: ir.Block, *, folds: bool) -> bool:
    """Whether the body is lets and checks, then stores or one reduction."""
    body = block.body.stmts if isinstance(block.body, ir.Seq) else (block.body,)
    updates = [stmt for stmt in body if not isinstance(stmt, (ir.Let, ir.Evaluate))]
    if folds:
        return len(updates) == 1 and isinstance(updates[0], ir.Reduce)
    return bool(updates) and all(isinstance(stmt, ir.Store) for stmt in updates)


def kind_of(stage: Stage) -> str:
    """Classify a stage."""
    if not stage.driven("reduction"):
        return INJECTIVE
    return CONTRACTION if tile_axes(stage) else REDUCTION


def tile_axes(stage: Stage) -> tuple[ir.For, ir.For] | None:
    """The loops over a tile's rows and columns, if a stage is a contraction.

    Columns are the output's last dimension. Rows are the last spatial loop that does
    not index the operands the columns index, so that these are reused for all rows.
    """
    update, spatial = stage.update, stage.driven("spatial")
    folds = isinstance(update, ir.Reduce) and update.reducer.name == "sum"
    if not folds or len(spatial) < 2 or not is_product(stage):
        return None
    columns = spatial[-1]
    if update.indices[-1] != stage.axis(columns):
        return None
    used = {
        var
        for load in stage.loads
        if stage.axis(columns) in variables(load)
        for var in variables(load)
    }
    rows = [loop for loop in spatial[:-1] if stage.axis(loop) not in used]
    return (rows[-1], columns) if used and rows else None


def column_dimension(stage: Stage, load: ir.Load) -> int | None:
    """The (last) dimension of an operand that the columns index."""
    found = tile_axes(stage)
    assert found is not None
    column = stage.axis(found[1])
    at = [n for n, index in enumerate(load.indices) if column in free_vars(index)]
    return at[-1] if at else None


def is_product(stage: Stage) -> bool:
    """Whether the block multiplies."""
    return any(
        isinstance(n, ir.Binary) and n.op == "mul" for n in walk(stage.block.body)
    )


def variables(load: ir.Load) -> frozenset[ir.Var]:
    """The variables of a load's indices."""
    found: frozenset[ir.Var] = frozenset()
    return found.union(*(free_vars(index) for index in load.indices))


def contiguous_loop(stage: Stage) -> ir.For | None:
    """The loop along which the largest operand is contiguous.

    A window slides along two: its results count, as their vectors need no sum at the
    end.
    """
    ranked = sorted(stage.loads, key=lambda load: -len(variables(load)))
    for load in ranked[:1]:
        steps = dict(linear(load.indices[-1]).terms) if load.indices else {}
        for loop in (*stage.driven("spatial")[::-1], *stage.loops[::-1]):
            if steps.get(stage.axis(loop)) == 1:
                return loop
    return None


def is_elementwise(stage: Stage) -> bool:
    """Whether all operands have one shape and are read at the written index.

    Apart from dimensions of size 1.
    """
    units: dict[ir.Var, ir.Expr] = {
        stage.axis(loop): ir.Const(0, loop.var.dtype)
        for loop in stage.loops
        if extent_of(loop) == 1
    }
    driven = [loop for loop in stage.loops if stage.axis(loop) not in units]
    axes = [stage.axis(loop) for loop in driven]
    shape = [loop.extent for loop in driven]

    def alike(access: ir.Load | ir.Store) -> bool:
        indices = [simplify(substitute(index, units)) for index in access.indices]
        if all(isinstance(index, ir.Const) for index in indices):
            return True
        pairs = zip(indices, access.buffer.shape, strict=True)
        longer = [(index, size) for index, size in pairs if size != ir.Const(1, i64)]
        return longer == list(zip(axes, shape, strict=True))

    return all(
        alike(node)
        for node in walk(stage.block.body)
        if isinstance(node, (ir.Load, ir.Store))
    )


def steps_of(block: ir.Block) -> int:
    """The number of operations and calls of a block."""
    return sum(isinstance(n, (ir.Binary, ir.Call)) for n in walk(block.body))


def is_cheap(block: ir.Block) -> bool:
    """Whether recomputing a value costs no more than reading it back."""
    nodes = list(walk(block.body))
    return steps_of(block) <= 3 and not any(
        isinstance(n, ir.Call) or (isinstance(n, ir.Binary) and n.op == "div")
        for n in nodes
    )


def has_long_chains(stage: Stage) -> bool:
    """Whether a value calls a function that expands into a long dependency chain."""
    return any(
        isinstance(n, ir.Call) and INTRINSICS[n.name].expands
        for n in walk(stage.block.body)
    )
