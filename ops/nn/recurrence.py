"""Loops along sequences: a step is products with the state before, and a cell.

    for t in range(length):
        for s, b, k, g, u in range(...):
            sums[b, s, g, u] += state[t, b, k] * w[s, k, g, u]
        for b, j in range(...):
            state[t + 1, b, j] = cell(sums[b, j // units, :, j % units], ...)

Weights are packed by strips of units side by side, all gates of a strip together: so a
thread computes the sums and the cells of its strips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from tensorlang import ir

SUMS: Final = 64  # of a strip, in all gates
_STEP: Final = "step"  # the loop over steps
Sum: TypeAlias = "Callable[[int], ir.Expr]"  # a sum, by the number of its gate


class Place(NamedTuple):
    """A step, a row of the batch, and a unit."""

    t: ir.Expr
    b: ir.Expr
    j: ir.Expr


def packed(
    r: ir.Tensor, gates: range, name: str = "packed", *, transposed: bool = False
) -> ir.Tensor:
    """Weights of some gates as `[strips, depth, gates, units]`, with zeros at the end.

    Args:
        r: The weights of all gates, `[gates * size, size]`.
        gates: Which gates; the only one if transposed.
        name: The name of the result.
        transposed: Whether products are with columns of `r`, not with rows.
    """
    size, units = r.shape[1], 1 << (SUMS // len(gates)).bit_length() - 1

    def element(s: ir.Expr, k: ir.Expr, g: ir.Expr, u: ir.Expr) -> ir.Expr:
        unit = s * units + u
        near = ir.binary("min", unit, size - 1)
        row = (gates.start + g) * size + near
        weight = r[k, near] if transposed else r[row, k]
        return ir.select(unit < size, weight, ir.as_expr(0).cast(r.dtype))

    depth = r.shape[0] if transposed else size
    shape = (size + (units - 1)) // units, depth, len(gates), units
    return ir.compute(shape, element, name)


class Steps:
    """A loop along sequences, whose steps are `phase`s.

    Args:
        length: The number of steps.
        dtype: The type of the state.
        shape: Its shape, `[batch, size]`.
        lengths: The lengths of the sequences, `[batch]`, or None if all are whole.
        reverse: Whether the last input comes first.
    """

    def __init__(
        self,
        length: ir.Expr,
        dtype: ir.DType,
        shape: Sequence[ir.Expr],
        lengths: ir.Tensor | None,
        reverse: bool,
    ) -> None:
        self.length, self.dtype = length, dtype
        self.wide = ir.wide(ir.as_expr(0).cast(dtype)).dtype
        self.rows, self.size = shape
        self._lengths, self._reverse = lengths, reverse
        self._read: list[ir.Tensor] = [] if lengths is None else [lengths]
        self._made: list[ir.Buffer] = []

    def reads(self, *arrays: ir.Tensor | None) -> None:
        """Take arrays that its blocks read."""
        self._read += [array for array in arrays if array is not None]

    def units(
        self,
        name: str,
        dtype: ir.DType,
        *before: ir.ExprLike,
        each: int = 1,
    ) -> ir.Buffer:
        """An array of `each` numbers for each unit of each row.

        Args:
            before: Dimensions before those, such as the number of steps.
        """
        shape = (*map(ir.as_expr, before), self.rows, each * self.size)
        made = ir.Buffer(name, dtype, shape)
        self._made.append(made)
        return made

    def position(self, t: ir.Expr) -> ir.Expr:
        """The position of a step in the sequences."""
        return self.length - 1 - t if self._reverse else t

    def where(self, at: Place, value: ir.Expr, other: ir.ExprLike) -> ir.Expr:
        """A value at the steps that a sequence has, and another beyond them."""
        if self._lengths is None:
            return value
        there = self._lengths[at.b].cast(ir.i64) > self.position(at.t)
        return ir.select(there, value, ir.as_expr(other).cast(value.dtype))

    def phase(
        self,
        name: str,
        w: ir.Tensor,
        factor: Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr],
        cell: Callable[[Place, Sum], ir.Stmt],
    ) -> ir.Stmt:
        """A part of a step: sums of products with weights, and what is made of them.

        Args:
            name: The name of the sums.
            w: Packed weights.
            factor: What they are multiplied by, at a step, a row and an input.
            cell: Stores what is made at a place from sums.
        """
        strips, depth, gates, units = w.buffer.shape
        kind = self.wide
        sums = ir.Buffer(name, kind, (self.rows, strips, gates, units))
        self._made.append(sums)
        self._read.append(w)
        extents = {"s": strips, "b": self.rows, "k": depth, "g": gates, "u": units}
        s, b, k, g, u = axes = [
            ir.nests.axis(f"{name}_{n}", extent, "reduction" if n == "k" else "spatial")
            for n, extent in extents.items()
        ]
        step = self._step(name, "spatial")
        term = factor(step.var, b.var, k.var) * ir.wide(w[s.var, k.var, g.var, u.var])
        add = ir.reducers.builtin("sum", (kind,))
        assert add is not None
        to = b.var, s.var, g.var, u.var
        products = _nest(name, step, axes, ir.Reduce(add, (sums,), to, (term,)))
        name = f"{name}_cell"
        step = self._step(name, "ordered")
        row, unit = (
            ir.nests.axis(f"{name}_{n}", extent)
            for n, extent in (("b", self.rows), ("j", self.size))
        )

        def total(gate: int) -> ir.Expr:
            j = unit.var
            return ir.Load(sums, (row.var, j // units, ir.as_expr(gate), j % units))

        body = cell(Place(step.var, row.var, unit.var), total)
        return ir.seq(products, _nest(name, step, (row, unit), body))

    def _step(self, name: str, kind: str) -> ir.Axis:
        return ir.Axis(
            ir.Var(f"v{name}_step", ir.i64), kind, self.length, ir.Var(_STEP, ir.i64)
        )

    def stage(
        self,
        first: Callable[[ir.Expr, ir.Expr], ir.Stmt],
        phases: Sequence[ir.Stmt],
        last: Callable[[ir.Expr, ir.Expr], ir.Stmt] | None = None,
    ) -> ir.Stage:
        """What happens before the first step, in each, and after the last one."""
        step = ir.Var(_STEP, ir.i64)
        nests = ir.seq(
            self._units("first", first),
            ir.For(step, self.length, "serial", ir.seq(*phases)),
            [] if last is None else [self._units("last", last)],
        )
        return ir.Stage(nests, tuple(self._made), tuple(self._read))

    def _units(
        self, name: str, store: Callable[[ir.Expr, ir.Expr], ir.Stmt]
    ) -> ir.Stmt:
        b, j = (
            ir.nests.axis(f"{name}_{n}", extent)
            for n, extent in (("b", self.rows), ("j", self.size))
        )
        return ir.nests.nest(name, (b, j), store(b.var, j.var))


class Recurrence(Steps):
    """A loop along sequences from a state to the next.

    Args:
        gates: Products with the inputs, `[length, batch, gates * size]`.
        h: The first state, `[batch, size]`.
        lengths: As for `Steps`.
        reverse: As for `Steps`.
        saves: Whether the states of all steps are results too, and what is `saved`.
    """

    def __init__(
        self,
        gates: ir.Tensor,
        h: ir.Tensor,
        lengths: ir.Tensor | None,
        reverse: bool,
        saves: bool = False,
    ) -> None:
        super().__init__(
            gates.buffer.shape[0], h.dtype, h.buffer.shape, lengths, reverse
        )
        self._gates, self._h, self._saves = gates, h, saves
        self.reads(gates, h)
        self._more: dict[ir.Buffer, ir.Tensor] = {}
        self._y = self.units("y", h.dtype, self.length)
        self._state = self.units("state", h.dtype, self.length + 1)
        self._saved: list[ir.Buffer] = []

    def held(self, name: str, first: ir.Tensor) -> ir.Buffer:
        """A further state, with its value before the first step."""
        steps = (self.length + 1,) if self._saves else ()
        made = self.units(name, first.dtype, *steps)
        self._more[made] = first
        self.reads(first)
        return made

    def value(self, held: ir.Buffer, t: ir.Expr, b: ir.Expr, j: ir.Expr) -> ir.Expr:
        """A further state before a step."""
        return ir.wide(ir.Load(held, self._unit(held, t, b, j)))

    def _unit(self, held: ir.Buffer, *at: ir.Expr) -> tuple[ir.Expr, ...]:
        return at[len(at) - len(held.shape) :]

    def before(self, t: ir.Expr, b: ir.Expr, j: ir.Expr) -> ir.Expr:
        """The state before a step."""
        return ir.wide(ir.Load(self._state, (t, b, j)))

    def of_input(self, at: Place, gate: int) -> ir.Expr:
        """The product of a gate with the input of a step."""
        j = gate * self.size + at.j
        return ir.wide(self._gates[self.position(at.t), at.b, j])

    def saved(self, at: Place, *values: ir.Expr) -> ir.Stmt:
        """Store what gradients need of a step, side by side."""
        if not self._saves:
            return ir.seq()
        to = self.units("saved", self.wide, self.length, each=len(values))
        self._saved.append(to)
        return ir.seq(
            ir.Store(to, (at.t, at.b, n * self.size + at.j), value)
            for n, value in enumerate(values)
        )

    def after(self, at: Place, h: ir.Expr, *more: ir.Expr) -> ir.Stmt:
        """Store the states after a step, and what is shown of the first of them."""
        t, *unit = at
        kept = zip([self._state, *self._more], [h, *more], strict=True)
        stores = []
        for held, value in kept:
            new, place = ir.stored(value, held.dtype), self._unit(held, t, *unit)
            new = self.where(at, new, ir.Load(held, place))
            stores.append(ir.Store(held, self._unit(held, t + 1, *unit), new))
        shown = ir.stored(self.where(at, h, 0), self.dtype)
        return ir.seq(stores, ir.Store(self._y, (self.position(t), *unit), shown))

    def results(self, *phases: ir.Stmt) -> tuple[ir.Tensor, ...]:
        """All outputs, and the last values of all states; then what is saved."""
        whole = [self._state, *(self._more if self._saves else ())]
        ends = {held: self.units(f"last_{held.name}", held.dtype) for held in whole}

        def first(b: ir.Expr, j: ir.Expr) -> ir.Stmt:
            starts = {self._state: self._h, **self._more}
            zero = ir.as_expr(0)
            return ir.seq(
                ir.Store(held, self._unit(held, zero, b, j), x[b, j])
                for held, x in starts.items()
            )

        def end(b: ir.Expr, j: ir.Expr) -> ir.Stmt:
            return ir.seq(
                ir.Store(to, (b, j), ir.Load(held, (self.length, b, j)))
                for held, to in ends.items()
            )

        stage = self.stage(first, phases, end)
        made = [self._y, *(ends.get(held, held) for held in (self._state, *self._more))]
        made += [*whole, *self._saved] if self._saves else []
        return tuple(ir.Tensor(buffer, stage) for buffer in made)


def _nest(name: str, step: ir.Axis, axes: Sequence[ir.Axis], body: ir.Stmt) -> ir.Stmt:
    """A block in the loop over steps, and loops of its own over other axes."""
    made: ir.Stmt = ir.Block(name, (step, *axes), body)
    for each in reversed(axes):
        assert isinstance(each.value, ir.Var)
        made = ir.For(each.value, each.extent, "serial", made)
    return made
