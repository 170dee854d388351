"""Reverse-mode gradients of definitions, by transposing the accesses of their stages.

A stage gathers: at each iteration of its axes it reads `x[f(axes)]` and writes, or adds
to, `y[g(axes)]`. Its gradient would scatter `slope * dy[g(axes)]` to `dx[f(axes)]`.
Where `f` is affine it becomes a gather again: for each index `j` of `dx`, the equation
`f(axes) == j` is solved for as many axes as possible, and the rest are summed over.

    y[i] = sum over k of x[2 * i + k] * w[k]
    dx[j] = sum over t of dy[j // 2 - t] * w[j % 2 + 2 * t]     where both are inside

Slopes are derivatives of scalar expressions (`tensorlang.ir.gradients.derivatives`). A
gradient consists of stages again, so it has a gradient in turn. Where `f` is data, or
not affine, the iterations add to `dx[f(axes)]` in order, those of other axes apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_
from typing import Final, TypeAlias

from tensorlang.errors import OperatorError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.definitions.elementwise import NARROW, stored, wide
from tensorlang.ir.definitions.frontend import (
    Reduction,
    Stage,
    Tensor,
    compute,
    reduce_axis,
    reduction,
    reshaped,
)
from tensorlang.ir.definitions.nests import axis as block_axis
from tensorlang.ir.definitions.nests import nest
from tensorlang.ir.definitions.rows import two_sums
from tensorlang.ir.definitions.sizes import TRACED
from tensorlang.ir.dtypes import f32, i32, i64
from tensorlang.ir.gradients.derivatives import ZERO, gradients
from tensorlang.ir.gradients.derivatives import written as to_expr
from tensorlang.ir.gradients.stages import Forward, replaced, written
from tensorlang.ir.gradients.sums import added, by_loops, closed, moved_out
from tensorlang.ir.integers.bounds import Range, decide
from tensorlang.ir.integers.known import Known, counted
from tensorlang.ir.integers.polynomials import Poly, poly
from tensorlang.ir.simplification.simplify import Place, simplify
from tensorlang.ir.visit import fresh, holds, rebuild, rewriter, substitute, walk

Ranges: TypeAlias = dict[ir.Var, Range]
At: TypeAlias = Callable[[tuple[ir.Expr, ...]], ir.Expr]
_ZERO: Final = ir.as_expr(0)
_ONE: Final = ir.as_expr(1)
_MOST: Final = 1 << 48  # of any size: sums of them do not wrap


def adjoint(
    results: Sequence[Tensor],
    seeds: Sequence[Tensor],
    wrt: Sequence[Tensor],
    names: Sequence[str],
    *,
    read: bool = True,
) -> tuple[Tensor, ...]:
    """The gradients of a definition's inputs, from those of its results.

    Args:
        results: The definition's results.
        seeds: The gradient of each result, in its shape.
        wrt: The inputs, as they were passed to the definition.
        names: Names for the gradients.
        read: Whether the kernel gets the inputs, not only their shapes.

    Raises:
        OperatorError: a stage has no derivative.
    """
    facts = TRACED.get()
    views = {} if facts is None else facts.views
    seen = [views.get(x.buffer.name, x) for x in wrt]
    if facts is not None and not read:
        said = (e for result in results for e in result.buffer.shape)
        facts.fix_unsaid((e for x in seen for e in x.buffer.shape), said)
    forward = Forward.of(results, (x.buffer for x in seen))
    tape = _Tape(forward)
    for result, seed in zip(results, seeds, strict=True):
        tape.seed(result, reshaped(seed, result.buffer.shape))
    for stage in reversed(forward.stages):
        tape.back(stage)
    made = tape.gathered([x.buffer for x in seen], names)
    pairs = zip(made, wrt, strict=True)
    return tuple(reshaped(each, given.shape) for each, given in pairs)


@frozen
class _Part:
    """A contribution to a gradient: one access of one block, as a scatter."""

    indices: tuple[ir.Expr, ...]  # index that each iteration adds to
    value: ir.Expr  # value that it adds
    axes: Mapping[ir.Var, ir.Expr]  # extents of the block's axes
    reduced: frozenset[ir.Var] = frozenset()  # block's reduction axes


class _Tape:
    """Contributions to gradients, by buffer.

    Args:
        forward: The definition.
    """

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._needed, self._taken = forward.needed, forward.taken
        self._tensors = dict(forward.tensors)
        self._parts: dict[ir.Buffer, list[_Solved]] = {}
        self._apart = 0  # numbers the axes of blocks

    def seed(self, result: Tensor, seed: Tensor) -> None:
        """Record the gradient of a result."""
        self._tensors.setdefault(result.buffer, result)
        self._tensors[seed.buffer] = seed
        self._taken.add(seed.buffer.name)
        axes = {ir.Var(f"seed{n}", i64): e for n, e in enumerate(result.buffer.shape)}
        place = tuple(axes)
        self._add(result.buffer, _Part(place, ir.Load(seed.buffer, place), axes))

    def _add(self, buffer: ir.Buffer, part: _Part) -> None:
        self._parts.setdefault(buffer, []).append(_Solved(part, buffer))

    def back(self, stage: Stage) -> None:
        """Add the contributions of a stage to the gradients of its inputs."""
        if not self._needed.isdisjoint(stage.outputs):
            if self._copied(stage):
                return
            every = [*blocks(stage.nest)]
            pairs = [(out, self._of_output(out, every)) for out in stage.outputs]
            given = {out: at for out, at in pairs if at is not None}
            for block in every:
                self._block(block, given)

    def _copied(self, stage: Stage) -> bool:
        """Pass a sum over windows on to what a stage copies, as padding does.

        The gradient of the copy then gets no stage of its own.
        """
        copy = _copy(stage)
        parts = self._parts.get(copy.out, []) if copy else []
        if copy is None or len(parts) != 1 or not parts[0].free:
            return False
        part, load = parts[0].part, copy.load
        if load.buffer in self._needed:
            moved = dict(zip(copy.axes, part.indices, strict=True))
            inside = Place(Known({v: counted(e) for v, e in copy.axes.items()}))
            value = part.value
            if copy.there is not None:
                inside = inside.where(copy.there)
                zero = ir.as_expr(0, value.dtype)
                value = ir.Select(substitute(copy.there, moved), value, zero)
            at = (substitute(inside.simple(i), moved) for i in load.indices)
            self._add(load.buffer, replace(part, indices=tuple(at), value=value))
        return True

    def _of_output(self, out: ir.Buffer, readers: Sequence[ir.Block]) -> At | None:
        """The gradient of a stage's output, as a function of the index; None for 0.

        It gets no stage of its own if it is a plain read, such as that of a result's
        gradient, or is computed once for each element of an input: in a block of as
        many elements, or a scaled sum or contribution without calls along a row.
        """
        parts = self._parts.get(out, [])
        if len(parts) == 1 and not parts[0].free:
            value = _by_reciprocal(parts[0].value)
            if _is_read(value):
                return _at(value, parts[0].place)
        name = fresh(f"d_{out.name}", self._taken)
        terms = self._terms(out, name)
        if not terms:
            return None
        alike = len(readers) == 1 and len(readers[0].axes) == out.ndim
        sums = all(part.free for part in parts)
        plain = len(terms) == 1 and (sums or not holds(parts[0].value, ir.Call))
        once = alike or (plain and all(map(self._reads_once, readers)))
        if once and out.dtype.name not in NARROW:
            return lambda at: added([term(at) for term in terms])
        made = self._total(out, name, terms)
        return lambda at: ir.Load(made.buffer, at)

    def _reads_once(self, block: ir.Block) -> bool:
        """Whether a block reads an element of an input at each of its iterations."""
        axes = {axis.var for axis in block.axes}
        return any(
            isinstance(node, ir.Load)
            and node.buffer in self._needed
            and axes.issubset(node.indices)
            for node in walk(block.body)
        )

    def _block(self, block: ir.Block, given: Mapping[ir.Buffer, At]) -> None:
        own = {a.var: ir.Var(f"{a.var.name}_{self._apart}", i64) for a in block.axes}
        self._apart += 1
        axes = {a.value: own[a.var] for a in block.axes if isinstance(a.value, ir.Var)}
        extents = {own[a.var]: substitute(a.extent, axes) for a in block.axes}
        if any(
            isinstance(e, ir.Load) for extent in extents.values() for e in walk(extent)
        ):
            raise OperatorError(
                "a reduction whose extent depends on data has no derivative; give the "
                "operator a gradient of its own"
            )
        reduced = frozenset(own[a.var] for a in block.axes if a.kind == "reduction")
        made = [each for each in written(block, own) if each[0] in given]
        pairs = [(value, given[buffer](indices)) for buffer, indices, value in made]
        stores = not any(isinstance(node, ir.Reduce) for node in walk(block.body))
        stored: dict[ir.Expr, ir.Expr] = {
            value: ir.Load(buffer, indices)
            for buffer, indices, value in made
            if stores and isinstance(value, ir.Call) and value.dtype == buffer.dtype
        }
        loads = dict.fromkeys(
            node
            for value, _ in pairs
            for node in walk(value)
            if isinstance(node, ir.Load) and node.buffer in self._needed - given.keys()
        )
        for load, slope in zip(loads, gradients(pairs, [*loads]), strict=True):
            value = replaced(_in_order(slope, pairs[0][0], load), stored)
            self._add(load.buffer, _Part(load.indices, value, extents, reduced))

    def gathered(
        self, wanted: Sequence[ir.Buffer], names: Sequence[str]
    ) -> list[Tensor]:
        """The gradients of buffers: the sums of their contributions.

        Two that are sums over the same axes, as of a weight and a bias, are one stage.
        """
        pairs = zip(wanted, names, strict=True)
        named = {buffer: fresh(name, self._taken) for buffer, name in pairs}
        made: dict[ir.Buffer, Tensor] = {}
        for buffer in wanted:
            every = self._parts.get(buffer, [])
            if every and all(part.scattered for part in every):
                made[buffer] = self._scatter(every, self._title(buffer, named[buffer]))
        for parts in self._alone(wanted):
            titles = [self._title(buffer, named[buffer]) for buffer in parts]
            summands = [(part, part.unrounded) for part in parts.values()]
            made |= zip(parts, self._sums(summands, titles), strict=True)
        for buffer, name in named.items():
            if buffer not in made:
                made[buffer] = self._total(buffer, name, self._terms(buffer, name))
            elif buffer.dtype.name in NARROW:
                made[buffer] = self._total(buffer, name, [_element_of(made[buffer])])
        return [made[buffer] for buffer in wanted]

    def _alone(self, wanted: Sequence[ir.Buffer]) -> Iterator[dict[ir.Buffer, _Solved]]:
        """The gradients that are a single sum, in pairs where two read the same."""
        alike: dict[Hashable, dict[ir.Buffer, _Solved]] = {}
        for buffer in wanted:
            part, *others = self._parts.get(buffer, [None])
            if part and part.free and not part.scattered and not others:
                kind = buffer.shape, (*part.free.values(),), part.unrounded.dtype
                alike.setdefault(kind, {})[buffer] = part
        for parts in alike.values():
            if len(parts) == 2 and _read_alike(*parts.values()):
                yield parts
            else:
                yield from ({buffer: part} for buffer, part in parts.items())

    def _title(self, buffer: ir.Buffer, name: str) -> str:
        """The name of a sum, which is rounded to get the gradient of a narrow type."""
        narrow = buffer.dtype.name in NARROW
        return fresh(f"{name}_sum", self._taken) if narrow else name

    def _terms(self, buffer: ir.Buffer, name: str) -> list[At]:
        """The contributions to a gradient, with sums in stages of their own.

        Several are added unrounded; a single one is stored as it is, so that the
        gradient of a copy in a narrow type is a copy.
        """
        found: list[At] = []
        parts = self._parts.get(buffer, [])
        if moved := [part for part in parts if part.scattered]:
            found.append(
                _element_of(self._scatter(moved, fresh(f"{name}_sum", self._taken)))
            )
        for part in parts:
            if part.scattered:
                continue
            if not part.free:
                value = part.unrounded if len(parts) > 1 else part.value
                found.append(_at(value, part.place))
                continue
            rest, common = moved_out(part.unrounded, part.free)
            known = closed(rest, part.place, part.free, self._forward.sums)
            if known is None:
                title = fresh(f"{name}_sum", self._taken)
                (made,) = self._sums([(part, rest)], [title])
                value = ir.Load(made.buffer, part.place)
            elif known == ZERO:
                continue
            else:
                value = to_expr(known, rest.dtype)
            scaled = value if common is None else value * common
            found.append(_at(scaled, part.place))
        return found

    def _sums(
        self, summands: Sequence[tuple[_Solved, ir.Expr]], names: Sequence[str]
    ) -> list[Tensor]:
        """Sums over the free axes of contributions, one or two, in one stage."""
        first, _ = summands[0]

        def element(*i: ir.Var) -> Reduction:
            named = zip(_loop_names(first.free), first.free.values(), strict=True)
            loops = [reduce_axis(extent, name) for name, extent in named]
            here = (*i, *(axis.var for axis in loops))
            values = [
                substitute(
                    value, dict(zip((*part.place, *part.free), here, strict=True))
                )
                for part, value in summands
            ]
            kind = two_sums(values[0].dtype) if values[1:] else "sum"
            inner = i[-1:], here[len(i) :]
            found = tuple(by_loops(value, here, *inner) for value in values)
            return reduction(kind, found, loops)

        found = compute(first.shape, element, tuple(names))
        return self._made(found if isinstance(found, tuple) else (found,))

    def _scatter(self, parts: Sequence[_Solved], name: str) -> Tensor:
        """Contributions to indices that are data, added in order, in one stage."""
        first, *_ = parts
        out = ir.Buffer(
            name, first.unrounded.dtype, tuple(map(ir.as_expr, first.shape))
        )
        every = [block_axis(f"i{n}", extent) for n, extent in enumerate(out.shape)]
        zero = ir.as_expr(0, out.dtype)
        clear = ir.Store(out, tuple(axis.var for axis in every), zero)
        added = (part.added_to(out, n) for n, part in enumerate(parts))
        nests = ir.seq(nest(f"{name}_clear", every, clear), added)
        (made,) = self._made([Tensor(out, Stage(nests, (out,)))])
        return made

    def _total(self, buffer: ir.Buffer, name: str, terms: Sequence[At]) -> Tensor:
        """The sum of contributions."""

        def element(*i: ir.Var) -> ir.Expr:
            values = [term(i) for term in terms]
            if len(values) > 1:
                values = [wide(value) for value in values]
            if not values:
                return ir.as_expr(0, buffer.dtype)
            value = _by_reciprocal(by_loops(added(values), i, i[-1:]))
            return stored(value, buffer.dtype)

        (made,) = self._made([compute(buffer.shape, element, name)])
        return made

    def _made(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors of a stage, with its inputs; recorded.

        Those of few dimensions come first: so nests over rows stay together, behind
        what is reduced to a number.
        """
        stage = tensors[0].stage
        assert stage is not None
        read = {node.buffer for node in walk(stage.nest) if isinstance(node, ir.Load)}
        inputs = [self._tensors[b] for b in self._tensors if b in read]
        inputs.sort(key=lambda tensor: tensor.buffer.ndim)
        stage = replace(stage, inputs=tuple(inputs))
        made = [replace(tensor, stage=stage) for tensor in tensors]
        self._tensors |= {tensor.buffer: tensor for tensor in made}
        return made


def _read_alike(one: _Solved, other: _Solved) -> bool:
    """Whether two sums over as many axes read an element in common at each step."""
    axes = dict(zip(other.free, one.free, strict=True))
    pair = one.unrounded, substitute(other.unrounded, axes)
    first, second = ({n for n in walk(v) if isinstance(n, ir.Load)} for v in pair)
    return not first.isdisjoint(second)


def _element_of(tensor: Tensor) -> At:
    return lambda at: tensor[at]


def _at(value: ir.Expr, place: Sequence[ir.Var]) -> At:
    """An expression of an index as a function of it."""
    return lambda at: substitute(value, dict(zip(place, at, strict=True)))


@dataclass(slots=True)
class _Axes:
    """The axes that contribute to an index of a gradient: solved for, and free."""

    known: Ranges  # ranges of indices, axes and sizes
    free: dict[ir.Var, ir.Expr]  # extents of the free axes, which are summed over
    # solved axes, as expressions of the index and the free axes
    values: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    # indices that are no solution for an axis, by their place
    scattered: dict[ir.Var, ir.Expr] = field(default_factory=dict)
    # conditions for the solved axes to lie within their extents
    limits: list[ir.Expr] = field(default_factory=list)
    limited: set[ir.Var] = field(default_factory=set)  # axes that `limits` restrict

    def solve(self, index: ir.Expr, place: ir.Var, reduced: frozenset[ir.Var]) -> None:
        """Solve `index == place` for an axis, if it is affine in one."""
        index = substitute(index, self.values)
        terms = poly(index)
        by = {
            m[0]: c
            for m, c in terms.items()
            if len(m) == 1 and m[0] in self.free
            if not any(m[0] in free_vars(f) for o in terms if o != m for f in o)
        }
        if not by:
            if not self._digit(index, place):
                self.scattered[place] = index
            return
        axis = min(by, key=lambda var: (var in reduced, abs(by[var]) != 1))
        others = [var for var in by if var != axis]
        step, sign = abs(by[axis]), 1 if by[axis] > 0 else -1
        # sign * (place - rest) is step * axis
        moved = (poly(place) - terms.without(axis)).scaled(sign)
        overlapping = step > 1 and len(others) == 1 and others[0] in reduced
        if overlapping and self._window(axis, others[0], by, moved):
            return
        extent = self.free.pop(axis)
        found = moved.expr()
        self._let({axis: found // step if step > 1 else found})
        self._inside(axis, moved, step, extent, place)
        if step > 1:
            self.limit((found % step).equal(0), axis)

    def _digit(self, index: ir.Expr, place: ir.Var) -> bool:
        """Solve `axis // n == place` or `axis % n == place`: what is left is free."""
        match index:
            case ir.Binary(
                op="floordiv" | "floormod" as op,
                a=ir.Var() as axis,
                b=ir.Const(value=n),
            ) if axis in self.free and n > 0:
                extent, rest = self.free.pop(axis), ir.Var(f"{axis.name}_rest", i64)
            case _:
                return False
        high, low = (place, rest) if op == "floordiv" else (rest, place)
        turns = simplify((extent + (n - 1)) // n)
        count = ir.as_expr(int(n)) if op == "floordiv" else turns
        self.free[rest], self.known[rest] = count, counted(count)
        value = poly(high).scaled(int(n)).plus(poly(low), 1).expr()
        self._let({axis: value})
        self.limit(low < n)
        self.limit(value < extent, axis)
        return True

    def close(self) -> None:
        """Make conditions of the indices that no free axis is left in.

        What an index reads is read within the limits alone.
        """
        limits = [*self.limits]

        @rewriter
        def limited(node: ir.Node) -> ir.Node:
            node = rebuild(node, limited)
            if not isinstance(node, ir.Load):
                return node
            at = frozenset().union(*map(free_vars, node.indices))
            own = [each for each in limits if not at.isdisjoint(free_vars(each))]
            if node.mask is not None:
                own.append(node.mask)
            return replace(node, mask=reduce(and_, own)) if own else node

        for place, index in [*self.scattered.items()]:
            self.scattered[place] = limited(index)
            if free_vars(index).isdisjoint(self.free):
                self.limit(self._is_at(place, self.scattered.pop(place)))

    def holds(self, condition: ir.Expr) -> bool:
        """Whether a condition is implied by the ranges."""
        return decide(condition, self._facts) is True

    def _is_at(self, place: ir.Var, index: ir.Expr) -> ir.Expr:
        """Whether a place is at an index, compared in the type of the index if it fits.

        More lanes compare narrow integers at once.
        """
        if isinstance(index, ir.Cast) and index.a.dtype == i32:
            _, high = self.known[place]
            if isinstance(high, int) and high <= i32.limits[1]:
                return ir.Compare("eq", place.cast(i32), index.a)
        return ir.Compare("eq", place, index)

    def _let(self, found: Mapping[ir.Var, ir.Expr]) -> None:
        """Record solved axes, and substitute them in earlier solutions."""
        self.values = {v: substitute(e, found) for v, e in self.values.items()}
        self.values |= found
        self.scattered = {p: substitute(e, found) for p, e in self.scattered.items()}
        self.limits = [substitute(limit, found) for limit in self.limits]

    def _window(
        self, axis: ir.Var, tap: ir.Var, by: Mapping[ir.Var, int], moved: Poly
    ) -> bool:
        """Overlapping windows: iterate over those that contain the place."""
        size, step, along = self.free[tap], by[axis], by[tap]
        if not isinstance(size, ir.Const) or step < 0 or along < 0:
            return False
        around = (int(size.value) - 1) * along // step + 1
        whole = moved.plus(poly(tap), along).expr()
        extent = self.free.pop(axis)
        del self.free[tap]
        near = ir.Var(f"{tap.name}_near", i64)
        if around > 1:
            self.free[near] = ir.as_expr(around)
            self.known[near] = 0, around - 1
        back = near if around > 1 else _ZERO
        window = whole // step - back
        left = whole - window * step
        self._let({axis: window, tap: left // along if along > 1 else left})
        if along > 1:
            self.limit((left % along).equal(0), tap)
        self.limit(window >= 0, axis)
        self.limit(window < extent, axis)
        self.limit(self.values[tap] < size, tap)
        return True

    def _inside(
        self, axis: ir.Var, moved: Poly, step: int, extent: ir.Expr, place: ir.Var
    ) -> None:
        """Add the conditions for a solved axis to lie within its extent."""
        if not self._is_positive(moved.shifted(1)):
            self.limit(_bound(moved, place), axis)
        over = poly(extent).scaled(step) - moved
        if not self._is_positive(over):
            last = over.shifted(-step)
            self.limit(_bound(last, place), axis)

    @property
    def _facts(self) -> Known:
        return Known(self.known)

    def _is_positive(self, total: Poly) -> bool:
        """Whether a polynomial is positive over all ranges."""
        least = total
        for var, (low, high) in reversed(self.known.items()):  # sizes are last
            by = least.at(var)
            end = low if by > 0 else high
            if by and isinstance(end, (int, ir.Expr)):
                least = least.without(var).plus(poly(ir.as_expr(end)), by)
        value = least.value
        if value is not None and value > 0:
            return True
        return decide(total.expr() > 0, self._facts) is True

    def limit(self, condition: ir.Expr, axis: ir.Var | None = None) -> None:
        """Add a condition, unless it is implied by the ranges."""
        if not self.holds(condition):
            self.limits.append(condition)
            self.limited |= set() if axis is None else {axis}


def _bound(total: Poly, place: ir.Var) -> ir.Expr:
    """`total >= 0`, as a bound on `place` where possible."""
    by, rest = total.at(place), total.without(place)
    if abs(by) != 1 or place in rest.vars:
        return total.expr() >= 0
    if by > 0:
        return place >= (-rest).expr()
    return place < rest.shifted(1).expr()


def _loop_names(axes: Iterable[ir.Var]) -> list[str]:
    """Names for loops of sums over axes: of `vi1_0`, `r_i1`."""
    taken: set[str] = set()
    roots = (re.sub(r"^v|(_\d+)+$", "", axis.name) for axis in axes)
    return [fresh(f"r_{root}", taken) for root in roots]


class _Solved:
    """A contribution as a gather.

    Attributes:
        part: The contribution as a scatter.
        shape: The shape of the gradient.
        place: Its index, in `value`.
    """

    def __init__(self, part: _Part, buffer: ir.Buffer) -> None:
        self.part, self._buffer, self.shape = part, buffer, buffer.shape
        self.place = tuple(ir.Var(f"vi{n}", i64) for n in range(buffer.ndim))

    @property
    def free(self) -> Mapping[ir.Var, ir.Expr]:
        """The extents of the axes that are left to sum over."""
        return self._axes.free

    @property
    def scattered(self) -> bool:
        """Whether its iterations add to indices that are data, or not affine."""
        return bool(self._axes.scattered)

    @property
    def unrounded(self) -> ir.Expr:
        """The contribution without its final rounding to a narrow type."""
        return _unrounded(self.value)

    @cached_property
    def value(self) -> ir.Expr:
        """The contribution to `place`, by the free axes; 0 outside the extents."""
        return self._value(self._axes)

    @cached_property
    def _axes(self) -> _Axes:
        facts = TRACED.get()
        shape, extents = self._buffer.shape, dict(self.part.axes)
        known: Ranges = {}
        if facts is not None:
            known = dict.fromkeys(facts.values, (0, _MOST))
            shape = tuple(map(facts.resolved, shape))
            extents = {axis: facts.resolved(e) for axis, e in extents.items()}
        known |= {j: counted(e) for j, e in zip(self.place, shape, strict=True)}
        known |= {axis: counted(extent) for axis, extent in extents.items()}
        once = {axis: _ZERO for axis, extent in extents.items() if extent == _ONE}
        left = {axis: e for axis, e in extents.items() if axis not in once}
        found = _Axes(known, left, values=once)
        waiting = list(zip(self.part.indices, self.place, strict=True))
        while waiting:

            def open_axes(pair: tuple[ir.Expr, ir.Var]) -> int:
                return len(free_vars(pair[0]) & found.free.keys())

            first = min(waiting, key=open_axes)
            waiting.remove(first)
            found.solve(*first, self.part.reduced)
        found.close()
        return found

    def added_to(self, out: ir.Buffer, number: int) -> ir.Stmt:
        """The nest that adds the contribution to `out`, at indices that are data.

        Those outside of its extents are left out.

        Args:
            number: The number of the contribution, for names.
        """
        free, moved = self.free, self._axes.scattered
        own = [block_axis(f"i{n}_{number}", e) for n, e in enumerate(out.shape)]
        ordered = [
            block_axis(f"r{n}_{number}", extent, "ordered")
            for n, extent in enumerate(free.values())
        ]
        pairs = zip((*self.place, *free), (*own, *ordered), strict=True)
        here = {var: axis.var for var, axis in pairs}
        at: dict[ir.Var, ir.Expr] = {place: here[place] for place in self.place}
        lets: list[ir.Stmt] = []
        inside: ir.Expr | None = None
        for n, (place, index) in enumerate(moved.items()):
            extent = out.shape[self.place.index(place)]
            found = at[place] = ir.Var(f"at{n}_{number}", i64)
            lets.append(ir.Let(found, substitute(index.cast(i64), here)))
            if not (self._axes.holds(index >= 0) and self._axes.holds(index < extent)):
                there = (found >= 0) & (found < extent)
                at[place] = ir.select(there, found, 0)
                inside = there if inside is None else inside & there
        to, value = tuple(at.values()), substitute(self.unrounded, here)
        if inside is not None:
            value = ir.select(inside, value, 0)
        store: ir.Stmt = ir.Store(out, to, ir.Load(out, to) + value)
        if inside is not None:
            store = ir.If(inside, store)
        apart = [
            axis for v, axis in zip(self.place, own, strict=True) if v not in moved
        ]
        return nest(f"{out.name}_{number}", [*apart, *ordered], ir.seq(lets, store))

    def _value(self, axes: _Axes) -> ir.Expr:
        """The contribution of a solution; 0 where it lies outside the extents."""
        inside = reduce(and_, axes.limits) if axes.limits else None
        facts = TRACED.get()
        here = Place(Known(axes.known))
        if inside is not None:
            if here.holds(inside) is False:
                return ir.as_expr(0, self._buffer.dtype)
            here = here.where(inside)

        def simple(cond: ir.Expr) -> ir.Expr:
            cond = substitute(cond, axes.values)
            return here.simple(facts.renamed(cond) if facts else cond)

        @rewriter
        def visit(node: ir.Node) -> ir.Node:
            if isinstance(node, ir.Select):
                cond = simple(node.cond)
                sides = visit(node.a), visit(node.b)
                if isinstance(cond, ir.Const):
                    return sides[0 if cond.value else 1]
                return ir.Select(cond, *sides)
            if not isinstance(node, ir.Load):
                return rebuild(node, visit)
            mask = None if node.mask is None else simple(node.mask)
            if isinstance(mask, ir.Const) and mask.value:
                mask = None
            at = frozenset().union(*map(free_vars, node.indices))
            if inside is not None and not axes.limited.isdisjoint(at):
                mask = inside if mask is None else mask & inside
            return replace(node, indices=tuple(map(visit, node.indices)), mask=mask)

        value = substitute(visit(self.part.value), axes.values)
        if inside is None:
            return value
        return ir.Select(inside, value, ir.as_expr(0, value.dtype))


def _in_order(slope: ir.Expr, value: ir.Expr, load: ir.Load) -> ir.Expr:
    """A product with its factors in the order of the product it derives from."""
    match slope, value:
        case ir.Cast(a=a), _:
            return replace(slope, a=_in_order(a, value, load))
        case _, ir.Cast(a=a):
            return _in_order(slope, a, load)
        case ir.Binary(op="mul", a=p, b=q), ir.Binary(op="mul", a=a) if (
            load not in walk(a)
        ):
            return ir.Binary("mul", q, p)
    return slope


@frozen
class _Copy:
    """A stage that reads elements, as they are."""

    out: ir.Buffer  # buffer that it writes
    axes: dict[ir.Var, ir.Expr]  # extents of its axes, which index `out`
    load: ir.Load  # element that it reads,
    # where this condition holds, if there is one; else it writes a number
    there: ir.Expr | None


def _copy(stage: Stage) -> _Copy | None:
    """A stage as a copy, or None if it is something else."""
    block, *others = blocks(stage.nest)
    own = {a.var: ir.Var(f"copied{n}", i64) for n, a in enumerate(block.axes)}
    if others or any(isinstance(node, ir.Reduce) for node in walk(block)):
        return None
    (out, place, value), *more = written(block, own)
    loads = [node for node in walk(value) if isinstance(node, ir.Load)]
    if more or len(loads) != 1 or place != (*own.values(),):
        return None
    axes = {own[a.var]: a.extent for a in block.axes}
    match value:
        case ir.Load(mask=None):
            return _Copy(out, axes, value, None)
        case ir.Select(cond=cond, a=ir.Load(mask=None) as load):
            return _Copy(out, axes, load, cond)
    return None


def _is_read(value: ir.Expr) -> bool:
    """Whether a value is a load, possibly cast, or scaled by a common factor."""
    match value:
        case ir.Cast(a=a):
            return _is_read(a)
        case ir.Binary(op="mul", a=a, b=b):
            return _is_read(a) and _is_common(b)
    return isinstance(value, ir.Load)


def _is_common(value: ir.Expr) -> bool:
    """Whether a value is the same for all elements: made of numbers and sizes."""
    facts = TRACED.get()
    sizes = facts.values.keys() if facts is not None else ()
    return free_vars(value) <= {*sizes} and not any(
        isinstance(node, ir.Load) for node in walk(value)
    )


def _by_reciprocal(value: ir.Expr) -> ir.Expr:
    """A quotient by a common divisor as a product: one division for all elements."""
    match value:
        case ir.Cast(a=a):
            return replace(value, a=_by_reciprocal(a))
        case ir.Binary(op="div", a=a, b=b) if _is_common(b):
            return ir.Binary("mul", a, 1.0 / b)
    return value


def _unrounded(value: ir.Expr) -> ir.Expr:
    """A summand without its final rounding to a narrow type."""
    if value.dtype.name not in NARROW:
        return value
    match value:
        case ir.Cast(a=a) if a.dtype == f32:
            return a
        case ir.Select(cond=cond, a=a, b=b):
            return ir.Select(cond, _unrounded(a), _unrounded(b))
        case ir.Const(value=number):
            return ir.as_expr(number, f32)
    return wide(value)
