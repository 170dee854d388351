"""Sites of tiles: a loop body (or the whole function) and the nest that uses the tile.

A `Site` identifies the statements among which a copy nest is inserted: the body of the
loop `at`, or the function's outermost statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.integers.bounds import prove
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.visit import children, nodes_of, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import dense
from tensorlang.scheduling.analysis.facts import ranges_at
from tensorlang.scheduling.analysis.regions import Range, of_extent, relax


@frozen
class Site:
    """A block seen from one of the loops around it, or from the function (`at` None).

    `path` leads to the block; `path[depth]` is the statement of `at`'s body around it.
    """

    path: tree.Path
    depth: int
    at: ir.For | None

    @property
    def block(self) -> ir.Block:
        """The block."""
        return tree.block_of(self.path)

    @property
    def func(self) -> ir.Function:
        """The function."""
        return tree.function_of(self.path)

    @property
    def child(self) -> ir.Stmt:
        """The statement of `at`'s body that contains the block."""
        child = self.path[self.depth]
        assert isinstance(child, ir.Stmt)
        return child

    @property
    def inner(self) -> tuple[ir.For, ...]:
        """The loops around the block, inside `at`."""
        below = (*self.path[self.depth : -1], self.block)
        return tree.enclosing_loops(below)

    @property
    def outer(self) -> tuple[ir.For, ...]:
        """`at` and the loops around it."""
        return tree.enclosing_loops(self.path[: self.depth + 1])

    @property
    def inner_ranges(self) -> Mapping[ir.Var, Range | None]:
        """The range of each loop inside `at`; None for the `Let`s there."""
        named = dict.fromkeys(node.var for node in _outside_blocks(self.child))
        return {**named, **loop_ranges(self.inner)}

    @property
    def outer_ranges(self) -> Mapping[ir.Var, Range | None]:
        """The range of each loop from `at` outwards."""
        return loop_ranges(self.outer)

    @property
    def ranges(self) -> Mapping[ir.Var, Range | None]:
        """The range of every loop around the block."""
        return loop_ranges((*self.outer, *self.inner))

    @property
    def outer_extents(self) -> Mapping[ir.Var, ir.Expr]:
        """The extent of each loop from `at` outwards."""
        return {loop.var: loop.extent for loop in self.outer}

    def with_block(self, block: ir.Block) -> Site:
        """The same site in a function with the block replaced."""
        func = tree.replace(self.path, block)
        return site(func, block.name, self.at.var.name if self.at else None)

    def beside(
        self, before: tuple[ir.Stmt, ...], after: tuple[ir.Stmt, ...] = ()
    ) -> ir.Function:
        """The function with statements inserted before and after the child."""
        return tree.replace(
            self.path[: self.depth + 1], ir.seq(*before, self.child, *after)
        )


def site(func: ir.Function, block: str, at: str | None) -> Site:
    """The block seen from its loop `at`, or from the function's outermost statements.

    Raises:
        ScheduleError: there is no such block, or the loop is not around it.
    """
    path = tree.find_block(func, block)
    loop = at and at.rpartition("/")[2]
    for depth, node in enumerate(path[:-1]):
        if isinstance(node, ir.For) and node.var.name == loop:
            return _below(path, depth, node)
    if at is None:
        return _below(path, 0, None)
    around = ", ".join(loop.var.name for loop in tree.enclosing_loops(path)) or "none"
    raise ScheduleError(
        f"loop {at!r} is not around block {block!r}; its loops are: {around}"
    )


def _below(path: tree.Path, depth: int, at: ir.For | None) -> Site:
    depth += 1
    if isinstance(path[depth], ir.Seq):
        depth += 1
    return Site(path, depth, at)


def _outside_blocks(node: ir.Node) -> Iterator[ir.Let]:
    """The `Let`s at or below `node` outside of blocks."""
    if isinstance(node, ir.Let):
        yield node
    elif isinstance(node, ir.Stmt) and not isinstance(node, ir.Block):
        for child in children(node):
            yield from _outside_blocks(child)


def loop_ranges(loops: tuple[ir.For, ...]) -> Mapping[ir.Var, Range | None]:
    """The range of each loop variable; extents may use loops further out."""
    ranges: dict[ir.Var, Range | None] = {}
    for loop in loops:
        last = relax(loop.extent, ranges)
        ranges[loop.var] = last and of_extent(last.high)
    return ranges


def extents(loops: tuple[ir.For, ...]) -> Mapping[ir.Var, Poly]:
    """The extent of each loop as a linear form."""
    return {loop.var: linear(loop.extent) for loop in loops}


def takes(place: Range, wanted: Range, path: tree.Path) -> bool:
    """Whether one range provably contains another."""
    ranges = ranges_at(path)
    return all(
        (room.is_constant and room.constant >= 0)
        or bool(prove(room.expr() >= 0, ranges))
        for room in (wanted.low - place.low, place.high - wanted.high)
    )


def whole_axes(path: tree.Path, used: Collection[ir.Var]) -> bool:
    """Whether the loops around a block cover the full extents of these axes."""
    loops, axes = tree.enclosing_loops(path), tree.block_of(path).axes
    ranges = loop_ranges(loops)
    named = [axis for axis in axes if axis.var in used]
    found = [(relax(axis.value, ranges), axis) for axis in named]
    return dense([linear(axis.value) for axis in named], extents(loops)) and all(
        place is not None and takes(place, of_extent(linear(axis.extent)), path[:1])
        for place, axis in found
    )


def stored(block: ir.Block) -> tuple[ir.Store | ir.Reduce, ...]:
    """The stores and reductions in a block's body."""
    return tuple(n for n in walk(block.body) if isinstance(n, (ir.Store, ir.Reduce)))


def loaded(node: ir.Node) -> frozenset[ir.Buffer]:
    """The buffers in loads; a reduction's own state does not count as loaded."""
    return frozenset(load.buffer for load in nodes_of(node, ir.Load))


def need_alive(place: Site, buffer: ir.Buffer) -> None:
    """Refuse a buffer allocated further in than a copy of it would be made.

    Raises:
        ScheduleError: it is.
    """
    around = place.path[: place.depth]
    for path in tree.paths_to(place.func, ir.Alloc):
        alive = any(node is path[-2] for node in around)
        if tree.alloc_of(path).buffer == buffer and not alive:
            raise ScheduleError(
                f"{buffer.name!r} is allocated in a loop around block "
                f"{place.block.name!r}; copy it further in"
            )


def only_loops(place: Site) -> bool:
    """Whether there are only loops between `at` and the block."""
    between = place.path[place.depth : -1]
    return all(isinstance(node, (ir.For, ir.Seq)) for node in between) and not any(
        isinstance(stmt, (ir.Let, ir.Alloc))
        for node in between
        if isinstance(node, ir.Seq)
        for stmt in node.stmts
    )
