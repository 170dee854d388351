"""Cells of recurrent networks: what a step does after its matrix product.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; Cho et al., "Learning phrase
representations using RNN encoder-decoder for statistical machine translation", 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tensorlang import ir
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats

_STATE: Final = (64, 512)


@operator(
    "nn.lstm_cell",
    shapes=((64, 4 * 512), _STATE),
    gradient={"linear": False, "results": {"h": "c", "state": "c"}},
)
def lstm_cell(
    gates: Floats,
    c: Floats,
    peepholes: Floats | None = None,
    order: Literal["ifgo", "iofg"] = "ifgo",
) -> tuple[ir.Tensor, ir.Tensor]:
    """A step of an LSTM: its output and its next cell state.

    `c2 = sigmoid(f) * c + sigmoid(i) * tanh(g)` and `h = sigmoid(o) * tanh(c2)`.

    Args:
        gates: Sums of products with the input and the output before, and of biases,
            `[batch, 4 * size]`.
        c: The cell state, `[batch, size]`.
        peepholes: Weights of the cell state in `i`, `o` and `f`, `[3 * size]`, or None.
        order: The order of the gates: PyTorch's, or ONNX's.
        out: Output arrays, two.
    """
    rows, size = _checked(gates, c, 4)
    ir.require(
        peepholes is None or peepholes.shape == (3 * size,),
        f"peepholes have shape [3 * {size}], not {peepholes and peepholes.shape}",
    )
    gate = _gates(gates, order)

    def peeped(name: str, b: ir.Expr, j: ir.Expr, cell: ir.Expr) -> ir.Expr:
        value = gate(name, b, j)
        if peepholes is None:
            return value
        return value + ir.wide(peepholes["iof".index(name) * size + j]) * cell

    def state(b: ir.Expr, j: ir.Expr) -> ir.Expr:
        before = ir.wide(c[b, j])
        kept = ir.sigmoid(peeped("f", b, j, before)) * before
        return kept + ir.sigmoid(peeped("i", b, j, before)) * ir.tanh(gate("g", b, j))

    wide = ir.compute((rows, size), state, "wide")

    def result(b: ir.Expr, j: ir.Expr) -> ir.Expr:
        value = ir.sigmoid(peeped("o", b, j, wide[b, j])) * ir.tanh(wide[b, j])
        return ir.stored(value, c.dtype)

    h = ir.compute((rows, size), result, "h")
    if wide.dtype == c.dtype:
        return h, wide
    return h, ir.compute((rows, size), lambda *i: ir.stored(wide[i], c.dtype), "state")


@operator(
    "nn.gru_cell",
    shapes=((64, 3 * 512), (64, 3 * 512), _STATE),
    gradient={"linear": False},
)
def gru_cell(
    x_gates: Floats,
    h_gates: Floats,
    h: Floats,
    order: Literal["rzn", "zrn"] = "rzn",
) -> ir.Tensor:
    """A step of a GRU: its output, which is its state.

    `r` and `z` are sigmoids of sums, `n = tanh(x_n + r * h_n)`, and the result is
    `(1 - z) * n + z * h`.

    Args:
        x_gates: Products with the input, and biases, `[batch, 3 * size]`.
        h_gates: Products with the output before, and biases, of the same shape.
        h: The output before, `[batch, size]`.
        order: The order of the gates: PyTorch's, or ONNX's.
        out: Output array, `[batch, size]`.
    """
    rows, size = _checked(x_gates, h, 3)
    _checked(h_gates, h, 3)
    x, y = _gates(x_gates, order), _gates(h_gates, order)

    def element(b: ir.Expr, j: ir.Expr) -> ir.Expr:
        r, z = (ir.sigmoid(x(g, b, j) + y(g, b, j)) for g in "rz")
        n = ir.tanh(x("n", b, j) + r * y("n", b, j))
        return ir.stored((1.0 - z) * n + z * ir.wide(h[b, j]), h.dtype)

    made: ir.Tensor = ir.compute((rows, size), element, "y")
    return made


def _checked(gates: ir.Tensor, state: ir.Tensor, count: int) -> tuple[ir.Expr, ir.Expr]:
    """The shape of the state.

    Raises:
        ShapeError: the gates do not fit.
    """
    ir.require(
        state.ndim == 2
        and gates.ndim == 2
        and gates.shape == (state.shape[0], count * state.shape[1]),
        f"gates of {gates.shape} and a state of {state.shape}: [batch, {count} * "
        "size] and [batch, size]",
    )
    return state.shape


def _gates(gates: ir.Tensor, order: str) -> Callable[[str, ir.Expr, ir.Expr], ir.Expr]:
    """Looks up a gate by name."""
    rows, whole = gates.shape
    view = ir.reshaped(gates, (rows, len(order), whole // len(order)))
    return lambda name, b, j: ir.wide(view[b, order.index(name), j])
