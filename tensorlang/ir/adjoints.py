"""Reverse-mode gradients of definitions, by transposing the accesses of their stages.

A stage gathers: at each iteration of its axes it reads `x[f(axes)]` and writes, or adds
to, `y[g(axes)]`. Its gradient would scatter `slope * dy[g(axes)]` to `dx[f(axes)]`.
Where `f` is affine it becomes a gather again: for each index `j` of `dx`, the equation
`f(axes) == j` is solved for as many axes as possible, and the rest are summed over.

    y[i] = sum over k of x[2 * i + k] * w[k]
    dx[j] = sum over t of dy[j // 2 - t] * w[j % 2 + 2 * t]     where both are inside

Slopes are derivatives of scalar expressions (`tensorlang.ir.derivatives`). A gradient
consists of stages again, so it has a gradient in turn. Where `f` is not affine, every
iteration is compared with `j`: correct, and as slow as that sounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add, and_
from typing import Final, TypeAlias

from tensorlang.errors import OperatorError
from tensorlang.ir import affine
from tensorlang.ir.assembly import reachable
from tensorlang.ir.bounds import Range, decide
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.derivatives import gradients
from tensorlang.ir.dtypes import f32, i64
from tensorlang.ir.elementwise import NARROW, stored, wide
from tensorlang.ir.frontend import (
    Reduction,
    Stage,
    Tensor,
    compute,
    reduce_axis,
    reshaped,
)
from tensorlang.ir.frontend import sum as total
from tensorlang.ir.known import Known, counted
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Buffer,
    Cast,
    Compare,
    Const,
    Expr,
    Let,
    Load,
    Node,
    Reduce,
    Select,
    Store,
    Var,
    as_expr,
)
from tensorlang.ir.simplify import Place
from tensorlang.ir.sizes import TRACED
from tensorlang.ir.visit import fresh, rebuild, rewriter, substitute, walk

Ranges: TypeAlias = dict[Var, Range]
At: TypeAlias = Callable[[tuple[Expr, ...]], Expr]
_ZERO: Final = as_expr(0)
_ONE: Final = as_expr(1)
_SUMS: Final = ("sum", "sums")
_SHIFT: Final = "top"  # `rows.top_of`: what is subtracted before exp cancels
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
    tape = _Tape({x.buffer for x in seen})
    stages = reachable(results)
    for stage in stages:
        tape.note(stage)
    for result, seed in zip(results, seeds, strict=True):
        tape.seed(result, reshaped(seed, result.buffer.shape))
    for stage in reversed(stages):
        tape.back(stage)
    return tuple(
        reshaped(tape.gathered(x.buffer, name), given.shape)
        for x, given, name in zip(seen, wrt, names, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A contribution to a gradient: one access of one block, as a scatter.

    Attributes:
        indices: The index that each iteration adds to.
        value: The value that it adds.
        axes: The extents of the block's axes.
        reduced: The block's reduction axes.
    """

    indices: tuple[Expr, ...]
    value: Expr
    axes: Mapping[Var, Expr]
    reduced: frozenset[Var] = frozenset()


class _Tape:
    """Contributions to gradients, by buffer.

    Args:
        wrt: The inputs to differentiate with respect to.
    """

    def __init__(self, wrt: Iterable[Buffer]) -> None:
        self._needed = set(wrt)
        self._tensors: dict[Buffer, Tensor] = {}
        self._parts: dict[Buffer, list[_Solved]] = {}
        self._taken: set[str] = set()
        self._apart = 0  # numbers the axes of blocks

    def note(self, stage: Stage) -> None:
        """Record the tensors of a stage, and whether it depends on an input."""
        self._tensors |= {tensor.buffer: tensor for tensor in stage.inputs}
        named = (*stage.outputs, *(tensor.buffer for tensor in stage.inputs))
        self._taken |= {buffer.name for buffer in named}
        if any(tensor.buffer in self._needed for tensor in stage.inputs):
            self._needed |= {*stage.outputs}

    def seed(self, result: Tensor, seed: Tensor) -> None:
        """Record the gradient of a result."""
        self._tensors |= {result.buffer: result, seed.buffer: seed}
        axes = {Var(f"seed{n}", i64): e for n, e in enumerate(result.buffer.shape)}
        place = tuple(axes)
        self._add(result.buffer, _Part(place, Load(seed.buffer, place), axes))

    def _add(self, buffer: Buffer, part: _Part) -> None:
        self._parts.setdefault(buffer, []).append(_Solved(part, buffer))

    def back(self, stage: Stage) -> None:
        """Add the contributions of a stage to the gradients of its inputs."""
        if not self._needed.isdisjoint(stage.outputs):
            if self._copied(stage):
                return
            given = {
                out: self._of_output(out) for out in stage.outputs if out in self._parts
            }
            for block in blocks(stage.nest):
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
                zero = as_expr(0, value.dtype)
                value = Select(substitute(copy.there, moved), value, zero)
            at = (substitute(inside.simple(i), moved) for i in load.indices)
            self._add(load.buffer, replace(part, indices=tuple(at), value=value))
        return True

    def _of_output(self, out: Buffer) -> At:
        """The gradient of a stage's output, as a function of the index.

        A plain read, such as that of a result's gradient, gets no stage of its own, nor
        does one that is scaled by a factor common to all elements.
        """
        first, *others = self._parts[out]
        if not (others or first.free):
            value = _by_reciprocal(first.value)
            if _is_read(value):
                return lambda at: substitute(
                    value, dict(zip(first.place, at, strict=True))
                )
        made = self.gathered(out, f"d_{out.name}")
        self._tensors[made.buffer] = made
        return lambda at: Load(made.buffer, at)

    def _block(self, block: Block, given: Mapping[Buffer, At]) -> None:
        own = {a.var: Var(f"{a.var.name}_{self._apart}", i64) for a in block.axes}
        self._apart += 1
        axes = {a.value: own[a.var] for a in block.axes if isinstance(a.value, Var)}
        extents = {own[a.var]: substitute(a.extent, axes) for a in block.axes}
        if any(
            isinstance(e, Load) for extent in extents.values() for e in walk(extent)
        ):
            raise OperatorError(
                "a reduction whose extent depends on data has no derivative; give the "
                "operator a gradient of its own"
            )
        reduced = frozenset(own[a.var] for a in block.axes if a.kind == "reduction")
        pairs = [
            (value, given[buffer](indices))
            for buffer, indices, value in _written(block, own)
            if buffer in given
        ]
        loads = dict.fromkeys(
            node
            for value, _ in pairs
            for node in walk(value)
            if isinstance(node, Load) and node.buffer in self._needed
        )
        for load, slope in zip(loads, gradients(pairs, [*loads]), strict=True):
            value = _in_order(slope, pairs[0][0], load)
            self._add(load.buffer, _Part(load.indices, value, extents, reduced))

    def gathered(self, buffer: Buffer, name: str) -> Tensor:
        """The gradient of a buffer: the sum of its contributions."""
        name = fresh(name, self._taken)
        solved = self._parts.get(buffer, [])
        narrow = buffer.dtype.name in NARROW
        sums = [part for part in solved if part.free]
        if len(solved) == len(sums) == 1 and not narrow:
            return self._made(solved[0].summed(name), sums)
        made = {
            id(part): self._made(part.summed(fresh(f"{name}_sum", self._taken)), [part])
            for part in sums
        }

        def element(*i: Var) -> Expr:
            values = [
                made[id(part)][i] if id(part) in made else part.at(i) for part in solved
            ]
            if len(values) > 1 or sums:
                values = [wide(value) for value in values]
            zero = as_expr(0, buffer.dtype)
            return stored(reduce(add, values), buffer.dtype) if values else zero

        return self._made(compute(buffer.shape, element, name), solved)

    def _made(self, tensor: Tensor, parts: Sequence[_Solved]) -> Tensor:
        """The tensor, with the inputs of its stage."""
        read = {buffer for part in parts for buffer in part.reads}
        assert tensor.stage is not None
        inputs = [self._tensors[buffer] for buffer in self._tensors if buffer in read]
        stage = replace(tensor.stage, inputs=(*inputs, *tensor.stage.inputs))
        return replace(tensor, stage=stage)


def _written(
    block: Block, axes: Mapping[Var, Expr]
) -> list[tuple[Buffer, tuple[Expr, ...], Expr]]:
    """The buffers, indices and values that a block writes, with its axes replaced.

    Raises:
        OperatorError: it reduces by something else than a sum.
    """
    named = {**axes}
    found: list[tuple[Buffer, tuple[Expr, ...], Expr]] = []
    for node in walk(block.body):
        match node:
            case Let(var=var, value=value):
                named[var] = substitute(value, named)
            case Store(buffer=buffer, indices=indices, value=value):
                found.append((buffer, indices, value))
            case Reduce(reducer=reducer, buffers=buffers, indices=indices):
                if reducer.name == _SHIFT:
                    continue
                if reducer.name not in _SUMS:
                    raise OperatorError(
                        f"a reduction by {reducer.name} has no derivative; give the "
                        "operator a gradient of its own"
                    )
                found += [
                    (b, indices, value)
                    for b, value in zip(buffers, node.values, strict=True)
                ]
    return [
        (b, tuple(substitute(i, named) for i in at), substitute(value, named))
        for b, at, value in found
    ]


@dataclass(slots=True)
class _Axes:
    """The axes that contribute to an index of a gradient: solved for, and free.

    Attributes:
        known: The ranges of indices, axes and sizes.
        free: The extents of the free axes, which are summed over.
        values: The solved axes, as expressions of the index and the free axes.
        limits: Conditions for the solved axes to lie within their extents.
        limited: The axes that `limits` restrict.
    """

    known: Ranges
    free: dict[Var, Expr]
    values: dict[Var, Expr] = field(default_factory=dict)
    limits: list[Expr] = field(default_factory=list)
    limited: set[Var] = field(default_factory=set)

    def solve(self, index: Expr, place: Var, reduced: frozenset[Var]) -> None:
        """Solve `index == place` for an axis, or add it as a condition."""
        index = substitute(index, self.values)
        terms = affine.poly(index)
        by = {
            m[0]: c
            for m, c in terms.items()
            if len(m) == 1 and m[0] in self.free
            if not any(m[0] in free_vars(f) for o in terms if o != m for f in o)
        }
        if not by:
            self.limit(Compare("eq", place, index))
            return
        axis = min(by, key=lambda var: (var in reduced, abs(by[var]) != 1))
        others = [var for var in by if var != axis]
        step, sign = abs(by[axis]), 1 if by[axis] > 0 else -1
        rest = {m: c for m, c in terms.items() if m != (axis,)}
        # sign * (place - rest) is step * axis
        moved = affine.scaled(affine.add(affine.poly(place), rest, -1), sign)
        overlapping = step > 1 and len(others) == 1 and others[0] in reduced
        if overlapping and self._window(axis, others[0], by, moved):
            return
        extent = self.free.pop(axis)
        found = affine.expression(moved)
        self._let({axis: found // step if step > 1 else found})
        self._inside(axis, moved, step, extent, place)
        if step > 1:
            self.limit((found % step).equal(0), axis)

    def _let(self, found: Mapping[Var, Expr]) -> None:
        """Record solved axes, and substitute them in earlier solutions."""
        self.values = {v: substitute(e, found) for v, e in self.values.items()}
        self.values |= found
        self.limits = [substitute(limit, found) for limit in self.limits]

    def _window(
        self, axis: Var, tap: Var, by: Mapping[Var, int], moved: affine.Poly
    ) -> bool:
        """Overlapping windows: iterate over those that contain the place."""
        size, step, along = self.free[tap], by[axis], by[tap]
        if not isinstance(size, Const) or step < 0 or along < 0:
            return False
        around = (int(size.value) - 1) * along // step + 1
        whole = affine.expression(affine.add(moved, affine.poly(tap), along))
        extent = self.free.pop(axis)
        del self.free[tap]
        near = Var(f"{tap.name}_near", i64)
        if around > 1:
            self.free[near] = as_expr(around)
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
        self, axis: Var, moved: affine.Poly, step: int, extent: Expr, place: Var
    ) -> None:
        """Add the conditions for a solved axis to lie within its extent."""
        if not self._is_positive(affine.add(moved, affine.constant(1))):
            self.limit(_bound(moved, place), axis)
        over = affine.add(affine.scaled(affine.poly(extent), step), moved, -1)
        if not self._is_positive(over):
            last = affine.add(over, affine.constant(step), -1)
            self.limit(_bound(last, place), axis)

    @property
    def _facts(self) -> Known:
        return Known(self.known)

    def _is_positive(self, total: affine.Poly) -> bool:
        """Whether a polynomial is positive over all ranges."""
        least = total
        for var, (low, high) in reversed(self.known.items()):  # sizes are last
            by = least.get((var,), 0)
            end = low if by > 0 else high
            if by and isinstance(end, (int, Expr)):
                rest = {m: c for m, c in least.items() if m != (var,)}
                least = affine.add(rest, affine.poly(as_expr(end)), by)
        value = affine.value_of(least)
        if value is not None and value > 0:
            return True
        return decide(affine.expression(total) > 0, self._facts) is True

    def limit(self, condition: Expr, axis: Var | None = None) -> None:
        """Add a condition, unless it is implied by the ranges."""
        if decide(condition, self._facts) is not True:
            self.limits.append(condition)
            self.limited |= set() if axis is None else {axis}


def _bound(total: affine.Poly, place: Var) -> Expr:
    """`total >= 0`, as a bound on `place` where possible."""
    by = total.get((place,), 0)
    rest = {m: c for m, c in total.items() if m != (place,)}
    if abs(by) != 1 or any(place in free_vars(f) for m in rest for f in m):
        return affine.expression(total) >= 0
    if by > 0:
        return place >= affine.expression(affine.scaled(rest, -1))
    return place < affine.expression(affine.add(rest, affine.constant(1)))


class _Solved:
    """A contribution as a gather.

    Attributes:
        part: The contribution as a scatter.
        place: The index of the gradient, in `value`.
        reads: The buffers that it reads.
    """

    def __init__(self, part: _Part, buffer: Buffer) -> None:
        self.part, self._buffer = part, buffer
        self.place = tuple(Var(f"vi{n}", i64) for n in range(buffer.ndim))
        loads = (node for node in walk(part.value) if isinstance(node, Load))
        self.reads = {load.buffer for load in loads}

    @property
    def free(self) -> bool:
        """Whether axes are left to sum over."""
        return bool(self._axes.free)

    @cached_property
    def value(self) -> Expr:
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

            def open_axes(pair: tuple[Expr, Var]) -> int:
                return len(free_vars(pair[0]) & found.free.keys())

            first = min(waiting, key=open_axes)
            waiting.remove(first)
            found.solve(*first, self.part.reduced)
        return found

    def at(self, place: Sequence[Var]) -> Expr:
        """The contribution to an index, where there are no free axes."""
        return substitute(self.value, dict(zip(self.place, place, strict=True)))

    def summed(self, name: str) -> Tensor:
        """The contribution to every index, accumulated in f32 at least."""

        def element(*i: Var) -> Reduction:
            free = self._axes.free.items()
            loops = {var: reduce_axis(e, f"r_{var.name}") for var, e in free}
            held: dict[Var, Expr] = dict(zip(self.place, i, strict=True))
            held |= {var: axis.var for var, axis in loops.items()}
            value = substitute(_unrounded(self.value), held)
            return total(value, list(loops.values()))

        made: Tensor = compute(self._buffer.shape, element, name)
        return made

    def _value(self, axes: _Axes) -> Expr:
        """The contribution of a solution; 0 where it lies outside the extents."""
        inside = reduce(and_, axes.limits) if axes.limits else None
        facts = TRACED.get()
        here = Place(Known(axes.known))
        if inside is not None:
            if here.holds(inside) is False:
                return as_expr(0, self._buffer.dtype)
            here = here.where(inside)

        def simple(cond: Expr) -> Expr:
            cond = substitute(cond, axes.values)
            return here.simple(facts.renamed(cond) if facts else cond)

        @rewriter
        def visit(node: Node) -> Node:
            if isinstance(node, Select):
                cond = simple(node.cond)
                sides = visit(node.a), visit(node.b)
                if isinstance(cond, Const):
                    return sides[0 if cond.value else 1]
                return Select(cond, *sides)
            if not isinstance(node, Load):
                return rebuild(node, visit)
            mask = None if node.mask is None else simple(node.mask)
            if isinstance(mask, Const) and mask.value:
                mask = None
            at = frozenset().union(*map(free_vars, node.indices))
            if inside is not None and not axes.limited.isdisjoint(at):
                mask = inside if mask is None else mask & inside
            return replace(node, indices=tuple(map(visit, node.indices)), mask=mask)

        value = substitute(visit(self.part.value), axes.values)
        if inside is None:
            return value
        return Select(inside, value, as_expr(0, value.dtype))


def _in_order(slope: Expr, value: Expr, load: Load) -> Expr:
    """A product with its factors in the order of the product it derives from."""
    match slope, value:
        case Cast(a=a), _:
            return replace(slope, a=_in_order(a, value, load))
        case _, Cast(a=a):
            return _in_order(slope, a, load)
        case Binary(op="mul", a=p, b=q), Binary(op="mul", a=a) if load not in walk(a):
            return Binary("mul", q, p)
    return slope


@dataclass(frozen=True, slots=True)
class _Copy:
    """A stage that reads elements, as they are.

    Attributes:
        out: The buffer that it writes.
        axes: The extents of its axes, which index `out`.
        load: The element that it reads,
        there: where this condition holds, if there is one; else it writes a number.
    """

    out: Buffer
    axes: dict[Var, Expr]
    load: Load
    there: Expr | None


def _copy(stage: Stage) -> _Copy | None:
    """A stage as a copy, or None if it is something else."""
    block, *others = blocks(stage.nest)
    own = {a.var: Var(f"copied{n}", i64) for n, a in enumerate(block.axes)}
    if others or any(isinstance(node, Reduce) for node in walk(block)):
        return None
    (out, place, value), *more = _written(block, own)
    loads = [node for node in walk(value) if isinstance(node, Load)]
    if more or len(loads) != 1 or place != (*own.values(),):
        return None
    axes = {own[a.var]: a.extent for a in block.axes}
    match value:
        case Load(mask=None):
            return _Copy(out, axes, value, None)
        case Select(cond=cond, a=Load(mask=None) as load):
            return _Copy(out, axes, load, cond)
    return None


def _is_read(value: Expr) -> bool:
    """Whether a value is a load, possibly cast, or scaled by a common factor."""
    match value:
        case Cast(a=a):
            return _is_read(a)
        case Binary(op="mul", a=a, b=b):
            return _is_read(a) and _is_common(b)
    return isinstance(value, Load)


def _is_common(value: Expr) -> bool:
    """Whether a value is the same for all elements: made of numbers and sizes."""
    facts = TRACED.get()
    sizes = facts.values.keys() if facts is not None else ()
    return free_vars(value) <= {*sizes} and not any(
        isinstance(node, Load) for node in walk(value)
    )


def _by_reciprocal(value: Expr) -> Expr:
    """A quotient by a common divisor as a product: one division for all elements."""
    match value:
        case Cast(a=a):
            return replace(value, a=_by_reciprocal(a))
        case Binary(op="div", a=a, b=b) if _is_common(b):
            return Binary("mul", a, 1.0 / b)
    return value


def _unrounded(value: Expr) -> Expr:
    """A summand without its final rounding to a narrow type."""
    if value.dtype.name not in NARROW:
        return value
    match value:
        case Cast(a=a) if a.dtype == f32:
            return a
        case Select(cond=cond, a=a, b=b):
            return Select(cond, _unrounded(a), _unrounded(b))
        case Const(value=number):
            return as_expr(number, f32)
    return wide(value)
