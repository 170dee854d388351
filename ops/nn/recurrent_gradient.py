"""Gradients of recurrent networks along sequences, from the last step to the first.

    for t in reversed(range(length)):
        dh = left + sums[t + 1] @ r + dy[t]  # of the output of the step
        sums[t], left = ...  # of the sums of its gates, and of the output before

The gradients of weights are products over all steps, and no part of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from tensorlang import ir
from tensorlang.ops.nn.recurrence import Place, Steps, Sum, packed
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Indices


class Slopes(NamedTuple):
    """What a step gives to those before, at a unit."""

    lets: Sequence[ir.Stmt]  # come first
    gates: Sequence[ir.Expr]  # gradients of the products with inputs
    sums: Sequence[ir.Expr]  # of the products with the output before
    carried: Sequence[ir.Expr]  # what is left for the output, and further states


Cell: TypeAlias = "Callable[[Place, ir.Expr], Slopes]"  # of the gradient of an output


class _Backward(Steps):
    """A loop from the last step of sequences to the first.

    Args:
        r: Weights of outputs, `[gates * size, size]`.
        states: Outputs from before the first step on, `[length + 1, batch, size]`.
        dy: The gradient of all outputs, or None for zeros.
        dh: That of the last ones, or None for zeros.
        lengths: As for `Steps`.
        reverse: As for `Steps`.
        gates: The number of gates.
    """

    def __init__(  # noqa: PLR0917 - the arrays of a recurrent network
        self,
        r: ir.Tensor,
        states: ir.Tensor,
        dy: ir.Tensor | None,
        dh: ir.Tensor | None,
        lengths: ir.Tensor | None,
        reverse: bool,
        gates: int,
    ) -> None:
        steps, *shape = states.buffer.shape
        super().__init__(steps - 1, states.dtype, shape, lengths, reverse)
        self._check(r, states, gates, dy)
        self._r, self._states, self._dy = r, states, dy
        self.reads(states, dy)
        self._gates = gates
        self._dgates = self.units("dgates", r.dtype, self.length, each=self._gates)
        self._sums = self.units("sums", r.dtype, self.length + 1, each=self._gates)
        self._more: dict[ir.Buffer, ir.Tensor | None] = {}
        self._left = self.carried("left", dh)

    @staticmethod
    def _check(
        r: ir.Tensor, states: ir.Tensor, gates: int, dy: ir.Tensor | None
    ) -> None:
        size = states.shape[-1]
        ir.require(
            states.ndim == 3 and r.shape == (gates * size, size),
            f"weights of {r.shape} and outputs of {states.shape}: [{gates} * size, "
            "size] and [length + 1, batch, size]",
        )
        steps, *shape = states.shape
        ir.require(
            dy is None or dy.shape == (steps - 1, *shape),
            f"the gradient of outputs has shape {(steps - 1, *shape)}, not "
            f"{dy and dy.shape}",
        )

    def check_saved(self, gates: ir.Tensor) -> None:
        """ShapeError if the numbers saved of gates are not four a unit."""
        steps, rows, size = self._states.shape
        ir.require(
            gates.shape == (steps - 1, rows, 4 * size),
            f"gates of {gates.shape} and outputs of {self._states.shape}: [length, "
            "batch, 4 * size] and [length + 1, batch, size]",
        )

    def carried(self, name: str, after: ir.Tensor | None) -> ir.Buffer:
        """What goes from a step to the one before, and its value after the last."""
        wanted = self._states.shape[1:]
        ir.require(
            after is None or after.shape == wanted,
            f"the gradient of last states has shape {wanted}, not "
            f"{after and after.shape}",
        )
        made = self.units(name, self.wide)
        self._more[made] = after
        self.reads(after)
        return made

    def before(self, at: Place) -> ir.Expr:
        """The output before a step."""
        return ir.wide(self._states[at])

    def saved(self, array: ir.Tensor, at: Place, number: int) -> ir.Expr:
        """One of the numbers of a unit that were saved side by side."""
        return array[at.t, at.b, number * self.size + at.j]

    def results(self, cell: Cell) -> tuple[ir.Tensor, ...]:
        """The gradients of gates by position and of sums by step, and what is left."""
        zero = ir.as_expr(0)

        def first(b: ir.Expr, j: ir.Expr) -> ir.Stmt:
            ends = (self.length, b)
            clear = (
                ir.Store(self._sums, (*ends, n * self.size + j), zero.cast(self.dtype))
                for n in range(self._gates)
            )
            starts = (
                ir.Store(
                    to,
                    (b, j),
                    zero.cast(self.wide) if x is None else ir.wide(x[b, j]),
                )
                for to, x in self._more.items()
            )
            return ir.seq(clear, starts)

        def factor(step: ir.Expr, b: ir.Expr, k: ir.Expr) -> ir.Expr:
            return ir.wide(ir.Load(self._sums, (self.length - step, b, k)))

        def of_step(place: Place, total: Sum) -> ir.Stmt:
            at = place._replace(t=self.length - 1 - place.t)
            return self._step_back(at, total(0), cell)

        weights = packed(self._r, range(1), transposed=True)
        stage = self.stage(first, [self.phase("back", weights, factor, of_step)])
        made = (self._dgates, self._sums, *self._more)
        return tuple(ir.Tensor(buffer, stage) for buffer in made)

    def _step_back(self, at: Place, total: ir.Expr, cell: Cell) -> ir.Stmt:
        """Store what a step gives to those before, from the sum of products."""
        t, *unit = at
        position = self.position(t)
        held, dh = ir.Var("held", self.wide), ir.Var("dh", self.wide)
        shown = held if self._dy is None else held + ir.wide(self._dy[position, *unit])
        step = cell(at, dh)
        slopes = []
        for to, place, values in (
            (self._dgates, position, step.gates),
            (self._sums, t, step.sums),
        ):
            slopes += [
                ir.Store(
                    to,
                    (place, at.b, n * self.size + at.j),
                    ir.stored(self.where(at, value, 0), self.dtype),
                )
                for n, value in enumerate(values)
            ]
        kept = (held, *(self.value(to, at) for to in [*self._more][1:]))
        carried = [
            ir.Store(to, tuple(unit), self.where(at, value, old))
            for to, value, old in zip(self._more, step.carried, kept, strict=True)
        ]
        start = ir.Let(held, total + self.value(self._left, at))
        return ir.seq(start, ir.Let(dh, shown), step.lets, slopes, carried)

    def value(self, carried: ir.Buffer, at: Place) -> ir.Expr:
        """What the step after left."""
        return ir.Load(carried, (at.b, at.j))


@operator(
    "nn.lstm_gates_grad",
    shapes=((4 * 256, 256), (129, 1, 256), (129, 1, 256), (128, 1, 1024)),
    family="recurrent",
)
def lstm_gates_grad(  # noqa: PLR0917 - the arrays of an LSTM
    r: Floats,
    states: Floats,
    cells: Floats,
    gates: Floats,
    dy: Floats | None = None,
    dh: Floats | None = None,
    dc: Floats | None = None,
    peepholes: Floats | None = None,
    *,
    lengths: Indices | None = None,
    order: Literal["ifgo", "iofg"] = "ifgo",
    reverse: bool = False,
) -> tuple[ir.Tensor, ...]:
    """The gradients of an LSTM's gates, from what `nn.lstm` saves.

    Args:
        r: Weights of outputs, `[4 * size, size]`.
        states: Outputs from before the first step on, `[length + 1, batch, size]`.
        cells: Cell states, of the same shape.
        gates: The gates `i`, `f`, `g` and `o`, `[length, batch, 4 * size]`.
        dy: The gradient of all outputs, `[length, batch, size]`, or None for zeros.
        dh: That of the last output, `[batch, size]`, or None for zeros.
        dc: That of the last cell state, or None for zeros.
        peepholes: As for `nn.lstm_cell`.
        lengths: As for `nn.lstm`.
        order: The order of the gates in `r` and in results.
        reverse: Whether the last input comes first.
        out: Output arrays, four.

    Returns:
        The gradients of the products with inputs, `[length, batch, 4 * size]`; of those
        with outputs, step by step, `[length + 1, batch, 4 * size]`, with zeros at the
        end; what is to be added to `dsums[0] @ r` for that of the first output; and
        that of the first cell state.
    """
    loop = _Backward(r, states, dy, dh, lengths, reverse, 4)
    loop.check_saved(gates)
    ir.require(
        cells.shape == states.shape,
        f"cells have the shape of states, {states.shape}, not {cells.shape}",
    )
    size = states.shape[2]
    ir.require(
        peepholes is None or peepholes.shape == (3 * size,),
        f"peepholes have shape [3 * {size}], not {peepholes and peepholes.shape}",
    )
    loop.reads(cells, gates, peepholes)
    dcell = loop.carried("dcell", dc)

    def cell(at: Place, dh: ir.Expr) -> Slopes:
        i, f, g, o = (loop.saved(gates, at, n) for n in range(4))
        before = ir.wide(cells[at])
        state, d = (ir.Var(name, loop.wide) for name in ("tanh_state", "dstate"))
        slope = {name: ir.Var(f"d{name}", loop.wide) for name in "ifgo"}

        def peeped(name: str) -> ir.Expr:
            if peepholes is None:
                return ir.as_expr(0).cast(loop.wide)
            weight = peepholes["iof".index(name) * loop.size + at.j]
            return ir.wide(weight) * slope[name]

        lets = (
            ir.Let(state, ir.tanh(ir.wide(cells[at.t + 1, at.b, at.j]))),
            ir.Let(slope["o"], dh * state * o * (1.0 - o)),
            ir.Let(
                d,
                loop.value(dcell, at) + dh * o * (1.0 - state * state) + peeped("o"),
            ),
            ir.Let(slope["i"], d * g * i * (1.0 - i)),
            ir.Let(slope["f"], d * before * f * (1.0 - f)),
            ir.Let(slope["g"], d * i * (1.0 - g * g)),
        )
        values = [slope[name] for name in order]
        left = ir.as_expr(0).cast(loop.wide)
        return Slopes(lets, values, values, (left, d * f + peeped("i") + peeped("f")))

    return loop.results(cell)


@operator(
    "nn.gru_gates_grad",
    shapes=((3 * 256, 256), (129, 1, 256), (128, 1, 1024)),
    family="recurrent",
)
def gru_gates_grad(
    r: Floats,
    states: Floats,
    gates: Floats,
    dy: Floats | None = None,
    dh: Floats | None = None,
    *,
    lengths: Indices | None = None,
    order: Literal["rzn", "zrn"] = "rzn",
    reverse: bool = False,
) -> tuple[ir.Tensor, ...]:
    """The gradients of a GRU's gates, from what `nn.gru` saves.

    Args:
        r: Weights of outputs, `[3 * size, size]`.
        states: Outputs from before the first step on, `[length + 1, batch, size]`.
        gates: `r`, `z`, `n` and the product that `r` multiplies, `[length, batch,
            4 * size]`.
        dy: The gradient of all outputs, `[length, batch, size]`, or None for zeros.
        dh: That of the last output, `[batch, size]`, or None for zeros.
        lengths: As for `nn.lstm`.
        order: The order of the gates in `r` and in results.
        reverse: Whether the last input comes first.
        out: Output arrays, three.

    Returns:
        The gradients of the products with inputs, `[length, batch, 3 * size]`; of those
        with outputs, step by step, `[length + 1, batch, 3 * size]`, with zeros at the
        end; and what is to be added to `dsums[0] @ r` for that of the first output.
    """
    loop = _Backward(r, states, dy, dh, lengths, reverse, 3)
    loop.check_saved(gates)
    loop.reads(gates)

    def cell(at: Place, dh: ir.Expr) -> Slopes:
        reset, z, new, last = (loop.saved(gates, at, n) for n in range(4))
        slope = {name: ir.Var(f"d{name}", loop.wide) for name in "rzn"}
        lets = (
            ir.Let(slope["n"], dh * (1.0 - z) * (1.0 - new * new)),
            ir.Let(slope["z"], dh * (loop.before(at) - new) * z * (1.0 - z)),
            ir.Let(slope["r"], slope["n"] * last * reset * (1.0 - reset)),
        )
        sums = slope | {"n": slope["n"] * reset}
        gates_of, sums_of = ([each[name] for name in order] for each in (slope, sums))
        return Slopes(lets, gates_of, sums_of, (dh * z,))

    return loop.results(cell)
