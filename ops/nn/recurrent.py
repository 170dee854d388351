"""Recurrent networks: along whole sequences, and cells, which are a step of them.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; Cho et al., "Learning phrase
representations using RNN encoder-decoder for statistical machine translation", 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.recurrence import Place, Recurrence, Sum, packed
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Indices

_STATE: Final = (64, 512)


def _usual(gates: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of inputs and weights of a network with so many gates, and of a state."""
    return (128, 1, gates * 256), (gates * 256, 256), (1, 256)


@operator("nn.lstm", shapes=(*_usual(4), (1, 256)), family="recurrent")
def lstm(
    gates: Floats,
    r: Floats,
    h: Floats,
    c: Floats,
    peepholes: Floats | None = None,
    *,
    lengths: Indices | None = None,
    order: Literal["ifgo", "iofg"] = "ifgo",
    reverse: bool = False,
    saves: bool = False,
) -> tuple[ir.Tensor, ...]:
    """An LSTM along sequences: all outputs, the last one, and the last cell state.

    Each step is a product with `r` and an `nn.lstm_cell`.

    Args:
        gates: Products with the inputs, and biases, `[length, batch, 4 * size]`.
        r: Weights of outputs, `[4 * size, size]`.
        h: The output before the first step, `[batch, size]`.
        c: The cell state before it, of the same shape.
        peepholes: As for `nn.lstm_cell`.
        lengths: The lengths of the sequences, `[batch]`: what is beyond is not read,
            outputs there are 0. None if all are whole.
        order: The order of the gates: PyTorch's, or ONNX's.
        reverse: Whether the last input comes first.
        saves: Whether to return what gradients need too: the outputs and the cell
            states from before the first step on, `[length + 1, batch, size]`, and the
            gates `i`, `f`, `g` and `o`, `[length, batch, 4 * size]`, step by step.
        out: Output arrays, three: `[length, batch, size]`, and two like `h`.
    """
    _check_sequences(gates, r, h, lengths, 4)
    ir.require(c.shape == h.shape, f"c has the shape of h, {h.shape}, not {c.shape}")
    _check_peepholes(peepholes, h.shape[1])
    loop = Recurrence(gates, h, lengths, reverse, saves)
    cells = loop.held("cell", c)

    def cell(at: Place, total: Sum) -> ir.Stmt:
        before = loop.value(cells, *at)
        named = {name: ir.Var(name, loop.wide) for name in (*"ifgo", "new", "shown")}

        def let(name: str, value: ir.Expr) -> ir.Stmt:
            return ir.Let(named[name], value)

        def gate(name: str, peep: ir.Expr) -> ir.Expr:
            value = total(order.index(name)) + loop.of_input(at, order.index(name))
            if peepholes is None:
                return value
            weight = peepholes["iof".index(name) * loop.size + at.j]
            return value + ir.wide(weight) * peep

        n = order.index("g")
        i, f, g, o, state, shown = named.values()
        return ir.seq(
            let("i", ir.sigmoid(gate("i", before))),
            let("f", ir.sigmoid(gate("f", before))),
            let("g", ir.tanh(total(n) + loop.of_input(at, n))),
            let("new", f * before + i * g),
            let("o", ir.sigmoid(gate("o", state))),
            let("shown", o * ir.tanh(state)),
            loop.saved(at, i, f, g, o),
            loop.after(at, shown, state),
        )

    return loop.results(loop.phase("gate", packed(r, range(4)), loop.before, cell))


@operator("nn.gru", shapes=_usual(3), family="recurrent")
def gru(
    gates: Floats,
    r: Floats,
    h: Floats,
    b: Floats | None = None,
    *,
    lengths: Indices | None = None,
    order: Literal["rzn", "zrn"] = "rzn",
    reverse: bool = False,
    reset_after: bool = True,
    saves: bool = False,
) -> tuple[ir.Tensor, ...]:
    """A GRU along sequences: all outputs, and the last one.

    Each step is a product with `r` and an `nn.gru_cell`.

    Args:
        gates: Products with the inputs, and biases, `[length, batch, 3 * size]`.
        r: Weights of outputs, `[3 * size, size]`.
        h: The output before the first step, `[batch, size]`.
        b: Biases of the products with outputs, `[3 * size]`, or None.
        lengths: As for `nn.lstm`.
        order: The order of the gates: PyTorch's, or ONNX's.
        reverse: Whether the last input comes first.
        reset_after: Whether the reset gate multiplies products, as in cuDNN and
            PyTorch, or the output before; then the new gate is the last one.
        saves: Whether to return what gradients need too: the outputs from before the
            first step on, `[length + 1, batch, size]`, and `r`, `z`, `n` and the
            product that `r` multiplies, `[length, batch, 4 * size]`, step by step.
        out: Output arrays, two: `[length, batch, size]`, and one like `h`.

    Raises:
        ArgumentError: a GRU without `reset_after` has such biases, or saves.
    """
    _check_sequences(gates, r, h, lengths, 3)
    size = h.buffer.shape[1]
    ir.require(
        b is None or b.shape == (3 * h.shape[1],),
        f"b has shape [3 * {h.shape[1]}], not {b and b.shape}",
    )
    ir.require(
        reset_after or b is None,
        "biases of products with outputs are for reset_after=True",
        ArgumentError,
    )
    ir.require(
        reset_after or not saves,
        "what gradients need is saved for reset_after=True",
        ArgumentError,
    )
    loop = Recurrence(gates, h, lengths, reverse, saves)

    def new(at: Place, z: ir.Expr, n: ir.Expr) -> ir.Stmt:
        shown = ir.Var("shown", n.dtype)
        value = (1.0 - z) * n + z * loop.before(*at)
        return ir.seq(ir.Let(shown, value), loop.after(at, shown))

    def of(name: str, at: Place) -> ir.Expr:
        return loop.of_input(at, order.index(name))

    if reset_after:

        def cell(at: Place, total: Sum) -> ir.Stmt:
            def product(name: str) -> ir.Expr:
                n = order.index(name)
                return total(n) if b is None else total(n) + ir.wide(b[n * size + at.j])

            r, z, n, last = (
                ir.Var(name, loop.wide) for name in ("r", "z", "n", "last")
            )
            return ir.seq(
                ir.Let(r, ir.sigmoid(of("r", at) + product("r"))),
                ir.Let(z, ir.sigmoid(of("z", at) + product("z"))),
                ir.Let(last, product("n")),
                ir.Let(n, ir.tanh(of("n", at) + r * last)),
                loop.saved(at, r, z, n, last),
                new(at, z, n),
            )

        return loop.results(loop.phase("gate", packed(r, range(3)), loop.before, cell))
    update, left = (loop.units(name, loop.wide) for name in ("update", "left"))

    def gates_of(at: Place, total: Sum) -> ir.Stmt:
        reset, z = (ir.sigmoid(of(g, at) + total(order.index(g))) for g in "rz")
        unit = at.b, at.j
        return ir.seq(
            ir.Store(update, unit, z), ir.Store(left, unit, reset * loop.before(*at))
        )

    def last(at: Place, total: Sum) -> ir.Stmt:
        z = ir.Load(update, (at.b, at.j))
        return new(at, z, ir.tanh(of("n", at) + total(0)))

    return loop.results(
        loop.phase("gate", packed(r, range(2)), loop.before, gates_of),
        loop.phase(
            "new",
            packed(r, range(2, 3), "packed_new"),
            lambda _, b, k: ir.Load(left, (b, k)),
            last,
        ),
    )


@operator("nn.rnn", shapes=_usual(1), family="recurrent")
def rnn(
    gates: Floats,
    r: Floats,
    h: Floats,
    *,
    lengths: Indices | None = None,
    activation: Literal["tanh", "sigmoid", "relu"] = "tanh",
    reverse: bool = False,
) -> tuple[ir.Tensor, ...]:
    """A recurrent network along sequences: all outputs, and the last one.

    An output is `activation(gates + h @ r.T)`.

    Args:
        gates: Products with the inputs, and biases, `[length, batch, size]`.
        r: Weights of outputs, `[size, size]`.
        h: The output before the first step, `[batch, size]`.
        lengths: As for `nn.lstm`.
        activation: The activation.
        reverse: Whether the last input comes first.
        out: Output arrays, two: `[length, batch, size]`, and one like `h`.
    """
    _check_sequences(gates, r, h, lengths, 1)
    loop = Recurrence(gates, h, lengths, reverse)

    def cell(at: Place, total: Sum) -> ir.Stmt:
        value = activated(total(0) + loop.of_input(at, 0), activation)
        shown = ir.Var("shown", value.dtype)
        return ir.seq(ir.Let(shown, value), loop.after(at, shown))

    return loop.results(loop.phase("gate", packed(r, range(1)), loop.before, cell))


def _check_sequences(
    gates: ir.Tensor, r: ir.Tensor, h: ir.Tensor, lengths: ir.Tensor | None, count: int
) -> None:
    """Check the shapes of what goes along sequences, with so many gates."""
    ir.require(
        gates.ndim == 3
        and h.ndim == 2
        and gates.shape[1:] == (h.shape[0], count * h.shape[1])
        and r.shape == (count * h.shape[1], h.shape[1]),
        f"gates of {gates.shape}, weights of {r.shape} and a state of {h.shape}: "
        f"[length, batch, {count} * size], [{count} * size, size] and [batch, size]",
    )
    ir.require(
        lengths is None or lengths.shape == h.shape[:1],
        f"lengths have shape [batch], not {lengths and lengths.shape}",
    )


def _check_peepholes(peepholes: ir.Tensor | None, size: ir.ExprLike) -> None:
    ir.require(
        peepholes is None or peepholes.shape == (3 * size,),
        f"peepholes have shape [3 * {size}], not {peepholes and peepholes.shape}",
    )


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
    _check_peepholes(peepholes, size)
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
    x_gates: Floats, h_gates: Floats, h: Floats, order: Literal["rzn", "zrn"] = "rzn"
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

    return ir.compute((rows, size), element, "y")


def _checked(gates: ir.Tensor, state: ir.Tensor, count: int) -> tuple[ir.Expr, ir.Expr]:
    """The shape of the state; ShapeError if the gates do not fit."""
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
