"""Recurrent networks: LSTM, GRU and plain ones, along sequences.

The products with all inputs are one; the steps are an operator, such as `nn.lstm`.
In training they save what their gradients need. For gradients of gradients, and in
ONNX files, they are written out: a product with the output before, and a cell, for each
input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from tensorlang.errors import ShapeError
from tensorlang.frozen import frozen
from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Argument, Node, Tensor, Value
from tensorlang.ops import find, math, nn
from tensorlang.ops.operator import Operator

States: TypeAlias = tuple[Tensor, ...]  # the output before, and others
Step: TypeAlias = Callable[..., States]  # maps products with an input, and states
_TOGETHER: Final = 12  # arrays that one kernel joins


@frozen
class Sequences:
    """Sequences of a batch, and how they are gone through."""

    x: Tensor  # inputs `[length, batch, in]`
    # Integers `[batch]`; what is beyond is not read, results there are 0. None if all
    # are whole.
    lengths: Tensor | None = None
    reverse: bool = False  # whether to begin with the last input


def lstm(  # noqa: PLR0917 - the arrays of an LSTM
    inputs: Sequences,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    states: States,
    peepholes: Tensor | None = None,
    order: str = "ifgo",
) -> tuple[Tensor, States]:
    """An LSTM.

    Args:
        w: Weights of inputs `[4 * size, in]`.
        r: Weights of outputs `[4 * size, size]`.
        b: Biases `[4 * size]`, or None.
        states: The first output and cell state, `[batch, size]`.
        peepholes: As for `nn.lstm_cell`.
        order: The order of the gates.

    Returns:
        The outputs `[length, batch, size]`, and the last output and cell state.
    """
    gates, h, c = nn.dense(inputs.x, w, b), *states
    of = {"lengths": inputs.lengths, "reverse": inputs.reverse, "order": order}
    y, *last = nn.lstm(gates, r, h, c, peepholes, **of)
    return y, tuple(last)


def gru(  # noqa: PLR0917 - the arrays of a GRU
    inputs: Sequences,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    b_h: Tensor | None,
    states: States,
    order: str = "rzn",
    *,
    reset_after: bool = True,
) -> tuple[Tensor, States]:
    """A GRU.

    Args:
        w: Weights of inputs `[3 * size, in]`.
        r: Weights of outputs `[3 * size, size]`.
        b: Biases of products with inputs, `[3 * size]`, or None.
        b_h: Biases of products with outputs, or None.
        states: The first output, `[batch, size]`.
        order: The order of the gates.
        reset_after: As for `nn.gru`.
    """
    gates, (h,) = nn.dense(inputs.x, w, b), states
    of = {"lengths": inputs.lengths, "reverse": inputs.reverse, "order": order}
    y, last = nn.gru(gates, r, h, b_h, reset_after=reset_after, **of)
    return y, (last,)


def rnn(  # noqa: PLR0917 - the arrays of a recurrent network
    inputs: Sequences,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    states: States,
    activation: str = "tanh",
) -> tuple[Tensor, States]:
    """A recurrent network: `h = activation(x w^T + h r^T + b)`.

    Args:
        w: Weights of inputs `[size, in]`.
        r: Weights of outputs `[size, size]`.
        b: Biases `[size]`, or None.
        states: The first output, `[batch, size]`.
        activation: `tanh`, `sigmoid` or `relu`.
    """
    gates, (h,) = nn.dense(inputs.x, w, b), states
    of = {"lengths": inputs.lengths, "reverse": inputs.reverse}
    y, last = nn.rnn(gates, r, h, activation=activation, **of)
    return y, (last,)


def step_by_step(graph: Graph) -> Graph:
    """A program whose recurrent networks are steps of other operators.

    Raises:
        ShapeError: the length of sequences is not known.
    """
    return _StepByStep().graph(graph)


class _StepByStep(Rewriter):
    def node(self, node: Node) -> Sequence[Value]:
        if node.id not in STEPS:
            return self.copied(node)
        named = {k: self.given(v) for k, v in arguments_of(node).items()}
        return steps(node.id, named)


def saving(graph: Graph) -> Graph:
    """A program whose recurrent networks save what their gradients need.

    Those that cannot are steps of other operators.

    Raises:
        ShapeError: the length of the sequences of such a one is not known.
    """
    return _Saving().graph(graph)


class _Saving(_StepByStep):
    def node(self, node: Node) -> Sequence[Value]:
        named = arguments_of(node) if node.id in STEPS else {}
        if "saves" not in named or not named.get("reset_after", True):
            return super().node(node)
        assert isinstance(node.op, Operator)
        kwargs = {name: self.given(value) for name, value in node.kwargs.items()}
        made: Sequence[Value] = node.op(
            *self.given(node.args), **kwargs | {"saves": True}
        )
        return made[: len(node.results)]


def steps(id: str, named: Mapping[str, Argument]) -> Sequence[Tensor]:
    """The results of a recurrent network, step by step.

    Args:
        id: The id of its operator.
        named: The arguments of this by name.

    Raises:
        ShapeError: the length of the sequences is not known.
    """
    products: Tensor = named["gates"]
    count, lengths = products.shape[0], named["lengths"]
    if isinstance(count, Dim) or not count:
        raise ShapeError(
            f"the steps of {id} are written out for gradients and for files: it takes "
            f"sequences of a known length, not {count}"
        )
    states: States = tuple(named[name] for name in ("h", "c") if name in named)
    step, found = STEPS[id](named), []
    order = range(count)
    for at in reversed(order) if named["reverse"] else order:
        after = step(products[at], *states)
        shown = after[0]
        if lengths is not None:
            there = math.greater(nn.reshape(lengths, (-1, 1)), at)
            shown = math.where(there, shown, 0.0)
            pairs = zip(after, states, strict=True)
            after = tuple(math.where(there, a, b) for a, b in pairs)
        found.append(shown)
        states = after
    return (stacked(found[::-1] if named["reverse"] else found), *states)


def _lstm_step(named: Mapping[str, Argument]) -> Step:
    r, peepholes, order = (named[name] for name in ("r", "peepholes", "order"))

    def step(products: Tensor, h: Tensor, c: Tensor) -> States:
        gates = nn.dense(h, r, residual=products)
        made: States = nn.lstm_cell(gates, c, peepholes, order)
        return made

    return step


def _gru_step(named: Mapping[str, Argument]) -> Step:
    r, b, order = (named[name] for name in ("r", "b", "order"))
    size = r.shape[1]

    def step(products: Tensor, h: Tensor) -> States:
        return (nn.gru_cell(products, nn.dense(h, r, b), h, order),)

    def reset_before(products: Tensor, h: Tensor) -> States:
        both = 2 * size
        gates = nn.dense(h, r[:both], residual=products[:, :both])
        first, second = nn.sigmoid(gates[:, :size]), nn.sigmoid(gates[:, size:])
        z, reset = (first, second) if order == "zrn" else (second, first)
        new = nn.dense(reset * h, r[both:], residual=products[:, both:])
        new = math.tanh(new)
        return (new + z * (h - new),)

    return step if named["reset_after"] else reset_before


def _rnn_step(named: Mapping[str, Argument]) -> Step:
    r, activation = named["r"], find(f"nn.{named['activation']}")

    def step(products: Tensor, h: Tensor) -> States:
        return (activation(nn.dense(h, r, residual=products)),)

    return step


STEPS: Final[Mapping[str, Callable[[Mapping[str, Argument]], Step]]] = {
    "nn.lstm": _lstm_step,
    "nn.gru": _gru_step,
    "nn.rnn": _rnn_step,
}


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """Join arrays along a new first dimension.

    In rounds, as kernels of very many arrays take long to compile.
    """
    first, join = list(rows), nn.stack
    while True:
        parts = [first[n : n + _TOGETHER] for n in range(0, len(first), _TOGETHER)]
        first, join = [join(part, 0) for part in parts], nn.concatenate
        if len(first) == 1:
            return first[0]
