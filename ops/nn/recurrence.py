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


def packed(r: ir.Tensor, gates: range, name: str = "packed") -> ir.Tensor:
    """Weights of some gates as `[strips, depth, gates, units]`, with zeros at the end.

    Args:
        r: The weights of all gates, `[gates * size, size]`.
        name: The name of the result.
    """
    size, units = r.shape[1], 1 << (SUMS // len(gates)).bit_length() - 1

    def element(s: ir.Expr, k: ir.Expr, g: ir.Expr, u: ir.Expr) -> ir.Expr:
        unit = s * units + u
        near = ir.binary("min", unit, size - 1)
        weight = r[(gates.start + g) * size + near, k]
        return ir.select(unit < size, weight, ir.as_expr(0).cast(r.dtype))

    shape = (size + (units - 1)) // units, size, len(gates), units
    return ir.compute(shape, element, name)


class Recurrence:
    """A loop along sequences, whose steps are `phase`s.

    Args:
        gates: Products with the inputs, `[length, batch, gates * size]`.
        h: The first state, `[batch, size]`.
        lengths: The lengths of the sequences, `[batch]`, or None if all are whole.
        reverse: Whether the last input comes first.
    """

    def __init__(
        self, gates: ir.Tensor, h: ir.Tensor, lengths: ir.Tensor | None, reverse: bool
    ) -> None:
        self._gates, self._h, self._lengths = gates, h, lengths
        self._reverse = reverse
        self._length = gates.buffer.shape[0]
        self._read = [gates, h, *([] if lengths is None else [lengths])]
        self._more: dict[ir.Buffer, ir.Tensor] = {}
        self._y, self._state = (
            ir.Buffer(name, h.dtype, (length, *h.buffer.shape))
            for name, length in (("y", self._length), ("state", self._length + 1))
        )
        self._made = [self._y, self._state]

    def held(self, name: str, first: ir.Tensor) -> ir.Buffer:
        """A further state, with its value before the first step."""
        made = self.temporary(name, first.dtype)
        self._more[made] = first
        self._read.append(first)
        return made

    def temporary(self, name: str, dtype: ir.DType) -> ir.Buffer:
        """A number for each unit of each row."""
        made = ir.Buffer(name, dtype, self._h.buffer.shape)
        self._made.append(made)
        return made

    def before(self, t: ir.Expr, b: ir.Expr, j: ir.Expr) -> ir.Expr:
        """The state before a step."""
        return ir.wide(ir.Load(self._state, (t, b, j)))

    def of_input(self, at: Place, gate: int) -> ir.Expr:
        """The product of a gate with the input of a step."""
        size = self._h.buffer.shape[1]
        return ir.wide(self._gates[self._at(at.t), at.b, gate * size + at.j])

    def _at(self, t: ir.Expr) -> ir.Expr:
        """The position of a step in the sequences."""
        return self._length - 1 - t if self._reverse else t

    def after(self, at: Place, h: ir.Expr, *more: ir.Expr) -> ir.Stmt:
        """Store the states after a step, and what is shown of the first of them."""
        t, *unit = at
        shown, dtype = h, self._h.dtype
        kept = zip([self._state, *self._more], [h, *more], strict=True)
        stores = []
        for held, value in kept:
            place = (t + 1, *unit) if held is self._state else (*unit,)
            new = ir.stored(value, held.dtype)
            if self._lengths is not None:
                old = ir.Load(held, (t, *unit) if held is self._state else (*unit,))
                new = ir.select(self._there(at), new, old)
            stores.append(ir.Store(held, place, new))
        if self._lengths is not None:
            shown = ir.select(self._there(at), h, ir.as_expr(0).cast(h.dtype))
        place = (self._at(t), *unit)
        return ir.seq(stores, ir.Store(self._y, place, ir.stored(shown, dtype)))

    def _there(self, at: Place) -> ir.Expr:
        """Whether a sequence has an input at a step."""
        assert self._lengths is not None
        return self._lengths[at.b].cast(ir.i64) > self._at(at.t)

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
        rows, size = self._h.buffer.shape
        strips, depth, gates, units = w.buffer.shape
        kind = ir.wide(ir.as_expr(0).cast(self._h.dtype)).dtype
        sums = ir.Buffer(name, kind, (rows, strips, gates, units))
        self._made.append(sums)
        self._read.append(w)
        extents = {"s": strips, "b": rows, "k": depth, "g": gates, "u": units}
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
        row, unit = ir.nests.axis(f"{name}_b", rows), ir.nests.axis(f"{name}_j", size)

        def total(gate: int) -> ir.Expr:
            j = unit.var
            return ir.Load(sums, (row.var, j // units, ir.as_expr(gate), j % units))

        body = cell(Place(step.var, row.var, unit.var), total)
        return ir.seq(products, _nest(name, step, (row, unit), body))

    def _step(self, name: str, kind: str) -> ir.Axis:
        return ir.Axis(
            ir.Var(f"v{name}_step", ir.i64), kind, self._length, ir.Var(_STEP, ir.i64)
        )

    def results(self, *phases: ir.Stmt) -> tuple[ir.Tensor, ...]:
        """All outputs, the last one, and the last values of further states."""
        last = self.temporary("last", self._h.dtype)

        def first(b: ir.Expr, j: ir.Expr) -> ir.Stmt:
            begin = ir.Store(self._state, (ir.as_expr(0), b, j), self._h[b, j])
            more = [ir.Store(to, (b, j), x[b, j]) for to, x in self._more.items()]
            return ir.seq(begin, more)

        def end(b: ir.Expr, j: ir.Expr) -> ir.Stmt:
            return ir.Store(last, (b, j), ir.Load(self._state, (self._length, b, j)))

        nests = ir.seq(
            self._units("first", first),
            ir.For(ir.Var(_STEP, ir.i64), self._length, "serial", ir.seq(*phases)),
            self._units("last", end),
        )
        stage = ir.Stage(nests, tuple(self._made), tuple(self._read))
        return tuple(ir.Tensor(made, stage) for made in (self._y, last, *self._more))

    def _units(
        self, name: str, store: Callable[[ir.Expr, ir.Expr], ir.Stmt]
    ) -> ir.Stmt:
        rows, size = self._h.buffer.shape
        b, j = ir.nests.axis(f"{name}_b", rows), ir.nests.axis(f"{name}_j", size)
        return ir.nests.nest(name, (b, j), store(b.var, j.var))


def _nest(name: str, step: ir.Axis, axes: Sequence[ir.Axis], body: ir.Stmt) -> ir.Stmt:
    """A block in the loop over steps, and loops of its own over other axes."""
    made: ir.Stmt = ir.Block(name, (step, *axes), body)
    for each in reversed(axes):
        assert isinstance(each.value, ir.Var)
        made = ir.For(each.value, each.extent, "serial", made)
    return made
