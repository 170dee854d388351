"""The canonical form of a traced function, which lets equivalent calls share a kernel.

Adjacent dimensions that all accesses of all stages traverse contiguously are collapsed:
the two of `y[i, j] = exp(x[i, j])`, the first two of a softmax along the last of three.
The outer index may have an offset: the rows of `y[i, j] = x[i + 2, j]` are parts of one
long row that starts at `2 * n`. The remaining sizes are named n0, n1, ... in the order
of the arrays. Calls whose functions are equal in this form run the same kernel.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, TypeVar

from tensorlang import ir
from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.polynomials import Monomial, Poly, Polys, poly
from tensorlang.ops.spec.demands import extents

Access: TypeAlias = ir.Load | ir.Store | ir.Reduce
Part = TypeVar("Part", bound=ir.Node)


class Place(NamedTuple):
    """An index: the variable of an axis, or any expression, and an offset."""

    along: ir.Expr
    begin: ir.Expr


@dataclass(slots=True)
class Stage:
    """A block with its loops; each axis in `joined` can be fused with the next one."""

    block: ir.Block
    loops: tuple[ir.For, ...]
    joined: set[int]
    accesses: list[Access] = field(default_factory=list)
    places: dict[ir.Expr, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        axes, loose, bounded = self.block.axes, set[ir.Var](), set[ir.Expr]()
        for extent in extents(self.block):
            self._look(extent, loose, bounded)
        self._look(self.block.body, loose, bounded)
        moved = False
        for n in range(len(axes) - 1):
            moved = axes[n].var in bounded or (moved and n - 1 in self.joined)
            alike = axes[n].kind == axes[n + 1].kind in ("spatial", "reduction")
            free = loose.isdisjoint((axes[n].var, axes[n + 1].var))
            whole = axes[n + 1].var not in bounded and _known(moved, axes[n + 1].extent)
            if alike and free and whole:
                self.joined.add(n)
        self._note_places()

    def _look(self, node: ir.Node, loose: set[ir.Var], bounded: set[ir.Expr]) -> None:
        """Collect accesses, and variables that are used other than as indices."""
        if isinstance(node, ir.Var):
            loose.add(node)
        if _is_bound(node):
            bounded.add(node.a)
            self._look(node.b, loose, bounded)
            return
        indices: Sequence[ir.Node] = ()
        if isinstance(node, (ir.Load, ir.Store, ir.Reduce)):
            indices = node.indices
            inside = (part for index in indices for part in ir.visit.walk(index))
            self.accesses += [node, *(p for p in inside if isinstance(p, ir.Load))]
        for child in ir.visit.children(node):
            if not isinstance(child, (ir.Buffer, ir.Reducer)) and child not in indices:
                self._look(child, loose, bounded)

    def _note_places(self) -> None:
        axes = {axis.var for axis in self.block.axes}
        named = (
            node for node in ir.visit.walk(self.block.body) if isinstance(node, ir.Let)
        )
        moving = axes | {let.var for let in named}
        for index in {index for access in self.accesses for index in access.indices}:
            self.places[index] = _place(index, axes, moving)

    def narrow(self, dims: dict[ir.Buffer, set[int]]) -> bool:
        """Drop dimensions and axes that an access does not allow to collapse.

        Returns whether any was dropped.
        """
        place: dict[ir.Expr, int] = {
            axis.var: n for n, axis in enumerate(self.block.axes)
        }
        before = len(self.joined), sum(map(len, dims.values()))
        for access in self.accesses:
            buffers = buffers_of(access)
            shape = buffers[0].shape
            found = [self.places[index] for index in access.indices]
            at = [place.get(each.along, -2) for each in found]
            both = set.intersection(*(dims[buffer] for buffer in buffers))
            together, moved = set[int](), False
            for d in range(len(shape) - 1):
                moved = found[d].begin != _ZERO or (moved and d - 1 in together)
                if (
                    d in both
                    and at[d] in self.joined
                    and at[d + 1] == at[d] + 1
                    and found[d + 1].begin == _ZERO
                    and self._extent(at[d + 1]) == shape[d + 1]
                    and _known(moved, shape[d + 1])
                ):
                    together.add(d)
            dims.update(dict.fromkeys(buffers, together))
            used = [
                place[var]
                for index in access.indices
                for var in ir.visit.walk(index)
                if var in place
            ]
            whole = {at[d] for d in together} if len(set(used)) == len(used) else set()
            self.joined -= {n for n in self.joined - whole if {n, n + 1} & {*used}}
        return before != (len(self.joined), sum(map(len, dims.values())))

    def _extent(self, n: int) -> ir.Expr:
        return self.block.axes[n].extent

    def nest(
        self, dims: dict[ir.Buffer, set[int]], made: dict[ir.Buffer, ir.Buffer]
    ) -> ir.Stmt:
        """The stage with fused axes, on the new buffers."""
        axes = self.block.axes
        own = [self._accessed(axis.extent, dims, made) for axis in axes]
        joined = _joined(own, self.joined)
        kept = [n for n in range(len(axes)) if n - 1 not in self.joined]
        body = self._accessed(self.block.body, dims, made)
        left = [replace(axes[n], extent=e) for n, e in zip(kept, joined, strict=True)]
        nest: ir.Stmt = replace(self.block, axes=tuple(left), body=body)
        for n, extent in reversed(list(zip(kept, joined, strict=True))):
            nest = replace(self.loops[n], extent=extent, body=nest)
        return nest

    def _accessed(
        self,
        body: Part,
        dims: dict[ir.Buffer, set[int]],
        made: dict[ir.Buffer, ir.Buffer],
    ) -> Part:
        """The block's body, or the extent of an axis, on the new buffers."""
        longer = self._longer()

        def visit(node: Any) -> Any:
            if isinstance(node, (ir.Buffer, ir.Reducer)):
                return node
            changed = ir.visit.rebuild(node, visit)
            if _is_bound(changed) and changed.a in longer:
                return replace(changed, b=_product(changed.b, longer[changed.a]))
            if not isinstance(changed, (ir.Load, ir.Store, ir.Reduce)):
                return changed
            first, *_ = held = buffers_of(changed)
            places = self._places(node.indices, changed.indices, first, dims[first])
            indices = tuple(map(_index, places))
            if isinstance(changed, ir.Reduce):
                buffers = tuple(made.get(b, b) for b in held)
                return replace(changed, buffers=buffers, indices=indices)
            return replace(changed, buffer=made.get(first, first), indices=indices)

        return visit(body)  # type: ignore[no-any-return]

    def _places(
        self,
        indices: Sequence[ir.Expr],
        changed: Sequence[ir.Expr],
        buffer: ir.Buffer,
        gone: set[int],
    ) -> list[Place]:
        """The indices of an access after dimensions were collapsed."""
        found: list[Place] = []
        for d, (index, new) in enumerate(zip(indices, changed, strict=True)):
            if d - 1 in gone:
                along, begin = found.pop()
                found.append(Place(along, _product(begin, buffer.shape[d])))
            else:
                found.append(self.places[index] if d in gone else Place(new, _ZERO))
        return found

    def _longer(self) -> dict[ir.Expr, ir.Expr]:
        """The stride of each axis within its fused axis."""
        steps: dict[ir.Expr, ir.Expr] = {}
        for n in sorted(self.joined, reverse=True):
            after = steps.get(self.block.axes[n + 1].var, _ONE)
            steps[self.block.axes[n].var] = _product(self._extent(n + 1), after)
        return steps


_ZERO: Final = ir.as_expr(0)
_ONE: Final = ir.as_expr(1)


def _known(moved: bool, extent: ir.Expr) -> bool:
    """Whether an offset can be collapsed: it is 0, or the row's extent is constant."""
    return not moved or isinstance(extent, ir.Const)


def _is_bound(node: object) -> TypeGuard[ir.Compare]:
    """Whether a node compares a variable with a bound."""
    return (
        isinstance(node, ir.Compare)
        and node.op in ("ge", "lt")
        and isinstance(node.a, ir.Var)
        and node.b.dtype == ir.i64
    )


def _place(
    index: ir.Expr, axes: Collection[ir.Var], moving: Collection[ir.Var]
) -> Place:
    """An index as a place; its offset must not depend on the variables in `moving`."""
    if isinstance(index, ir.Var) and index in axes:
        return Place(index, _ZERO)
    if any(isinstance(part, ir.Load) for part in ir.visit.walk(index)):
        return Place(index, _ZERO)
    total = poly(index)
    along = [m[0] for m, by in total.items() if len(m) == by == 1 and m[0] in axes]
    if len(along) == 1:
        begin = (total - poly(along[0])).expr()
        if free_vars(begin).isdisjoint(moving):
            return Place(along[0], begin)
    return Place(index, _ZERO)


def _index(place: Place) -> ir.Expr:
    if place.begin == _ZERO:
        return place.along
    return (poly(place.along) + poly(place.begin)).expr()


def _product(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return poly(a).product(poly(b)).expr()


def merged(func: ir.Function) -> ir.Function:
    """The function with contiguous dimensions collapsed."""
    stmts = func.body.stmts if isinstance(func.body, ir.Seq) else (func.body,)
    found = [s if isinstance(s, ir.Alloc) else _stage(s) for s in stmts]
    stages = [each for each in found if isinstance(each, Stage)]
    if None in found:
        return func
    held = [*func.buffers, *(s.buffer for s in stmts if isinstance(s, ir.Alloc))]
    used = {b for stage in stages for a in stage.accesses for b in buffers_of(a)}
    dims = {b: set(range(b.ndim - 1)) if b in used else set[int]() for b in held}
    while any(stage.narrow(dims) for stage in stages):
        pass
    made = {b: replace(b, shape=_joined(b.shape, dims[b])) for b in held if dims[b]}
    nests = [
        each.nest(dims, made)
        if isinstance(each, Stage)
        else ir.Alloc(made.get(each.buffer, each.buffer))
        for each in found
        if each is not None
    ]
    params = tuple(ir.Param(made.get(p.buffer, p.buffer), p.role) for p in func.params)
    body = nests[0] if len(nests) == 1 else ir.Seq(tuple(nests))
    return ir.Function(func.name, params, func.scalars, _numbered(body))


def _stage(stmt: ir.Stmt) -> Stage | None:
    """A definition's loop nest as a stage; None for other statements."""
    loops = []
    while isinstance(stmt, ir.For):
        loops.append(stmt)
        stmt = stmt.body
    plain = isinstance(stmt, ir.Block) and [(a.value, a.extent) for a in stmt.axes] == [
        (loop.var, loop.extent) for loop in loops
    ]
    return Stage(stmt, tuple(loops), set()) if plain else None  # type: ignore[arg-type]


def _joined(extents: Sequence[ir.Expr], joined: set[int]) -> tuple[ir.Expr, ...]:
    """The extents, with those of fused axes multiplied."""
    made: list[ir.Expr] = []
    for n, extent in enumerate(extents):
        if n - 1 in joined:
            made[-1] = _product(made[-1], extent)
        else:
            made.append(extent)
    return tuple(made)


_NUMBERED = re.compile(r"(.*?[a-z_])(\d*)((?:_\d+)?)")


def _numbered(body: ir.Stmt) -> ir.Stmt:
    """The body with numbered loops, such as i0, i2, renumbered without gaps."""
    names = [
        node.var.name
        for node in ir.visit.walk(body)
        if isinstance(node, (ir.For, ir.Axis))
    ]
    rows: dict[tuple[str, str], list[int]] = {}
    called = {}
    for name in dict.fromkeys(names):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            continue
        base, number, suffix = found.groups()
        row = rows.setdefault((base, suffix), [])
        row.append(int(number or 0))
        if len(row) > 1:
            called[name] = f"{base}{row[0] + len(row) - 1}{suffix}"

    def visit(node: Any) -> Any:
        if isinstance(node, (ir.Buffer, ir.Reducer)):
            return node
        if isinstance(node, ir.Var):
            return ir.Var(called.get(node.name, node.name), node.dtype)
        return ir.visit.rebuild(node, visit)

    return visit(body) if any(a != b for a, b in called.items()) else body


def with_sizes(
    func: ir.Function, scalars: Sequence[ir.Var], taken: Collection[str]
) -> tuple[ir.Function, dict[str, ir.Expr]]:
    """The function with its sizes named n0, n1, ..., and the expression of each.

    Args:
        scalars: Its scalars that are not sizes.
        taken: Names that sizes must not have.
    """
    numbered = (f"n{n}" for n in count())
    names = (name for name in numbered if name not in taken)
    inputs = [p.buffer for p in func.params if p.role != "out"]
    outputs = [p.buffer for p in func.params if p.role == "out"]
    called: dict[ir.Expr, ir.Var] = {}
    for extent in (extent for buffer in inputs for extent in buffer.shape):
        if extent not in called and not free_vars(extent) <= called.keys():
            called[extent] = ir.Var(next(names), ir.i64)
    polys, products, changed = Polys(), _Products(), dict[ir.Expr, ir.Expr]()

    def note_product(extent: ir.Expr) -> None:
        changed.clear()
        total = polys[extent]
        if not isinstance(extent, ir.Var) and len(total) == 1:
            ((factors, by),) = total.items()
            products.add(factors, by, called[extent])

    for extent in called:
        note_product(extent)

    def visit(node: Any) -> Any:
        if isinstance(node, ir.Reducer):
            return node
        if isinstance(node, ir.Expr) and node in called:
            return called[node]
        if not isinstance(node, ir.Expr):
            return _without_plain_names(ir.visit.rebuild(node, visit))
        if node not in changed:
            new = node
            if products.known and node.dtype == ir.i64:
                new = products.divided(node, polys[node])
            changed[node] = ir.visit.rebuild(new, visit)
        return changed[node]

    # sizes that occur in no input, and products of several of them
    def unknown(extent: ir.Expr) -> frozenset[ir.Var]:
        return free_vars(visit(extent)) - {*called.values()}

    given = [extent for buffer in outputs for extent in buffer.shape]
    for extent in sorted(given, key=lambda extent: len(unknown(extent)) > 1):
        new = unknown(extent)
        for each in new if len(new) < 2 else [extent]:
            called[each] = ir.Var(next(names), ir.i64)
            note_product(each)
    params = tuple(ir.Param(visit(p.buffer), p.role) for p in func.params)
    listed = (*scalars, *called.values())
    made = ir.Function(func.name, params, listed, visit(func.body))
    return made, {var.name: extent for extent, var in called.items()}


def _without_plain_names(node: ir.Node) -> ir.Node:
    """Statements with lets of plain sizes and constants substituted."""
    if not isinstance(node, ir.Seq):
        return node
    plain = {
        stmt.var: stmt.value
        for stmt in node.stmts
        if isinstance(stmt, ir.Let) and isinstance(stmt.value, (ir.Var, ir.Const))
    }
    left = (s for s in node.stmts if not (isinstance(s, ir.Let) and s.var in plain))
    return ir.visit.substitute(ir.seq(left), plain) if plain else node


class _Products:
    """Sizes that stand for products of others: the longest divide first."""

    def __init__(self) -> None:
        # by their first factor: rows that sort in the order in which they divide
        self.known: dict[ir.Expr, list[tuple[int, int, Monomial, int, ir.Var]]] = {}
        self._numbers = count()

    def add(self, factors: Monomial, by: int, var: ir.Var) -> None:
        """Note that a size is `by` times these factors."""
        if factors:
            row = -len(factors), next(self._numbers), factors, by, var
            self.known.setdefault(factors[0], []).append(row)

    def divided(self, expr: ir.Expr, given: Poly) -> ir.Expr:
        """A polynomial of sizes, rewritten in sizes that stand for products."""
        total = Poly()
        for monomial, times in given.items():
            left, coefficient = list(monomial), times
            rows = (self.known.get(f, ()) for f in dict.fromkeys(monomial))
            for _, _, factors, by, var in sorted(chain.from_iterable(rows)):
                inside = all(left.count(f) >= factors.count(f) for f in factors)
                if inside and coefficient % by == 0:
                    for factor in factors:
                        left.remove(factor)
                    left.append(var)
                    coefficient //= by
            total.accumulate(tuple(left), coefficient)
        return expr if total == given else total.expr()
