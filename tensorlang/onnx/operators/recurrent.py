"""LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph import recurrent
from tensorlang.graph.recurrent import Sequences, States
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import Node, Tensor, zeros
from tensorlang.onnx.cell_functions import ORDERS
from tensorlang.onnx.functions import DOMAIN
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.reading import Read, Results, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import find, math, nn

# maps the number of a direction, its sequences and its first states to results
Run: TypeAlias = Callable[[int, Sequences, States], tuple[Tensor, States]]
_DIRECTIONS: Final = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}
_ACTIVATIONS: Final = ("Tanh", "Relu", "Sigmoid")


def _directions(
    x: Tensor,
    lengths: Tensor | None,
    begin: Sequence[Tensor | None],
    r: Tensor,
    run: Run,
    *,
    direction: str,
    layout: int,
) -> Results:
    """The results of all directions."""
    reverse = _DIRECTIONS.get(direction)
    if reverse is None or layout not in {0, 1}:
        raise GraphError(f"{direction=}, {layout=} is not supported")
    if r.ndim != 3 or r.shape[0] != len(reverse) or x.ndim != 3:
        raise ShapeError(f"x of {x.spec} and weights of {r.spec} with {direction=}")
    x = nn.transpose(x, (1, 0, 2)) if layout else x
    first = TensorSpec((x.shape[1], r.shape[2]), x.spec.dtype)
    outputs, last = [], []
    for n, back in enumerate(reverse):
        states = [
            zeros(first) if each is None else each[:, n] if layout else each[n]
            for each in begin
        ]
        y, after = run(n, Sequences(x, lengths, back), tuple(states))
        outputs.append(y)
        last.append(after)
    y = nn.stack(outputs, 1)
    y = nn.transpose(y, (2, 0, 1, 3)) if layout else y
    ends = (nn.stack(each, layout) for each in zip(*last, strict=True))
    return (y, *ends)


def _check(
    kind: str,
    given: Sequence[str] | None,
    usual: Sequence[str],
    clip: float | None,
    direction: str,
) -> None:
    """Reject activations other than the usual ones, and clipping."""
    wanted = list(usual) * (2 if direction == "bidirectional" else 1)
    names = wanted if given is None else [_name(each) for each in given]
    if names != wanted or clip is not None:
        raise GraphError(f"{kind} with activations={names}, {clip=} is not supported")


def _name(activation: str | bytes) -> str:
    text = activation.decode() if isinstance(activation, bytes) else activation
    return text.capitalize()


def _halves(b: Tensor | None, n: int) -> tuple[Tensor | None, Tensor | None]:
    """Biases of products with inputs, and with outputs."""
    if b is None:
        return None, None
    half = known_shape(b)[1] // 2
    return b[n, :half], b[n, half:]


def _bias(b: Tensor | None, n: int) -> Tensor | None:
    """The sum of both."""
    first, second = _halves(b, n)
    return first if first is None or second is None else math.add(first, second)


@reads("LSTM", since=7)
def lstm(  # noqa: PLR0917 - ONNX's order
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    input_forget: bool = False,
    layout: int = 0,
) -> Results:
    """An LSTM of one direction, or two."""
    del hidden_size
    _check("LSTM", activations, ("Sigmoid", "Tanh", "Tanh"), clip, direction)
    if input_forget:
        raise GraphError("attribute input_forget=1 is not supported")

    def run(n: int, of: Sequences, states: States) -> tuple[Tensor, States]:
        peepholes = None if p is None else p[n]
        return recurrent.lstm(
            of, w[n], r[n], _bias(b, n), states, peepholes, order="iofg"
        )

    begin = (initial_h, initial_c)
    return _directions(
        x, sequence_lens, begin, r, run, direction=direction, layout=layout
    )


@reads("GRU", since=7)
def gru(  # noqa: PLR0917 - ONNX's order
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: bool,
) -> Results:
    """A GRU of one direction, or two."""
    del hidden_size
    _check("GRU", activations, ("Sigmoid", "Tanh"), clip, direction)

    def run(n: int, of: Sequences, states: States) -> tuple[Tensor, States]:
        after = bool(linear_before_reset)
        biases = _halves(b, n) if after else (_bias(b, n), None)
        return recurrent.gru(
            of, w[n], r[n], *biases, states, order="zrn", reset_after=after
        )

    return _directions(
        x, sequence_lens, (initial_h,), r, run, direction=direction, layout=layout
    )


@reads("RNN", since=7)
def rnn(  # noqa: PLR0917 - ONNX's order
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Sequence[str],
    clip: float | None = None,
    direction: str,
    hidden_size: int | None = None,
    layout: int = 0,
) -> Results:
    """A recurrent network of one direction, or two."""
    del hidden_size
    names = [_name(each) for each in activations]
    if clip is not None or not set(names) <= set(_ACTIVATIONS):
        raise GraphError(f"RNN with activations={names}, {clip=} is not supported")

    def run(n: int, of: Sequences, states: States) -> tuple[Tensor, States]:
        activation = names[n].lower()
        return recurrent.rnn(of, w[n], r[n], _bias(b, n), states, activation)

    return _directions(
        x, sequence_lens, (initial_h,), r, run, direction=direction, layout=layout
    )


@writes("nn.lstm_cell")
def write_lstm_cell(writer: Writer, node: Node) -> list[str]:
    """A cell of an LSTM, as a function in the file."""
    if argument(node, 2, "peepholes", None) is not None:
        raise GraphError(f"{node.place}: ONNX is not written for peepholes")
    order = argument(node, 3, "order", ORDERS["lstm_cell"][0])
    names = map(writer.name, node.args[:2])
    return writer.call_all(f"lstm_cell_{order}", *names, results=2)


@writes("nn.gru_cell")
def write_gru_cell(writer: Writer, node: Node) -> str:
    """A cell of a GRU, as a function in the file."""
    order = argument(node, 3, "order", ORDERS["gru_cell"][0])
    return writer.call(f"gru_cell_{order}", *map(writer.name, node.args[:3]))


def _read_cell(id: str, order: str) -> Read:
    return lambda *arrays: find(id)(*arrays, order=order)


for _cell, _orders in ORDERS.items():
    for _order in _orders:
        reads(f"{_cell}_{_order}", domain=DOMAIN)(_read_cell(f"nn.{_cell}", _order))
