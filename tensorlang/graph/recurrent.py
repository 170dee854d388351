"""Recurrent networks: LSTM, GRU and plain ones, with a step for each input.

The products with all inputs are one; a step is a product with the output before and a
cell. The steps are unrolled, so the length is known, and memory and gradients are those
of any other program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorlang.errors import ShapeError
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Tensor
from tensorlang.ops import Operator, math, nn

States: TypeAlias = tuple[Tensor, ...]  # the output before, and others
Step: TypeAlias = Callable[..., States]  # maps products with an input, and states
_TOGETHER: Final = 12  # arrays that one kernel joins


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sequences of a batch, and how they are gone through.

    Attributes:
        x: Inputs `[length, batch, in]`.
        lengths: Integers `[batch]`; what is beyond is not read, results there are 0.
            None if all are whole.
        reverse: Whether to begin with the last input.
    """

    x: Tensor
    lengths: Tensor | None = None
    reverse: bool = False

    def results(
        self, step: Step, products: Tensor, states: States
    ) -> tuple[Tensor, States]:
        """The outputs `[length, batch, size]`, and the states after the last one.

        Raises:
            ShapeError: the length is not known.
        """
        count = self.x.shape[0]
        if isinstance(count, Dim) or not count:
            raise ShapeError(
                f"a recurrent network takes sequences of a known length, not {count}"
            )
        found: list[Tensor] = []
        order = range(count)
        for at in reversed(order) if self.reverse else order:
            y, states = self._step(step, at, products[at], states)
            found.append(y)
        return stacked(found[::-1] if self.reverse else found), states

    def _step(
        self, step: Step, at: int, products: Tensor, states: States
    ) -> tuple[Tensor, States]:
        after = step(products, *states)
        if self.lengths is None:
            return after[0], after
        there = math.greater(nn.reshape(self.lengths, (-1, 1)), at)
        kept = tuple(
            math.where(there, a, b) for a, b in zip(after, states, strict=True)
        )
        return math.where(there, after[0], 0.0), kept


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
        inputs: The inputs.
        w: Weights of inputs `[4 * size, in]`.
        r: Weights of outputs `[4 * size, size]`.
        b: Biases `[4 * size]`, or None.
        states: The first output and cell state, `[batch, size]`.
        peepholes: As for `nn.lstm_cell`.
        order: The order of the gates.

    Returns:
        The outputs `[length, batch, size]`, and the last output and cell state.
    """

    def step(products: Tensor, h: Tensor, c: Tensor) -> States:
        gates = nn.dense(h, r, residual=products)
        made: States = nn.lstm_cell(gates, c, peepholes, order)
        return made

    return inputs.results(step, nn.dense(inputs.x, w, b), states)


def gru(  # noqa: PLR0917 - the arrays of a GRU
    inputs: Sequences,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    b_h: Tensor | None,
    states: States,
    order: str = "rzn",
) -> tuple[Tensor, States]:
    """A GRU, which applies the reset gate after the product, as cuDNN and PyTorch do.

    Args:
        inputs: The inputs.
        w: Weights of inputs `[3 * size, in]`.
        r: Weights of outputs `[3 * size, size]`.
        b: Biases of products with inputs, `[3 * size]`, or None.
        b_h: Biases of products with outputs, or None.
        states: The first output, `[batch, size]`.
        order: The order of the gates.
    """

    def step(products: Tensor, h: Tensor) -> States:
        return (nn.gru_cell(products, nn.dense(h, r, b_h), h, order),)

    return inputs.results(step, nn.dense(inputs.x, w, b), states)


def gru_reset_before(
    inputs: Sequences, w: Tensor, r: Tensor, b: Tensor | None, states: States
) -> tuple[Tensor, States]:
    """A GRU that applies the reset gate to the output before, of gates `zrn`."""
    size = r.shape[1]
    r_gates, r_new = r[: 2 * size], r[2 * size :]

    def step(products: Tensor, h: Tensor) -> States:
        gates = nn.sigmoid(nn.dense(h, r_gates, residual=products[:, : 2 * size]))
        z, reset = gates[:, :size], gates[:, size:]
        new = nn.dense(reset * h, r_new, residual=products[:, 2 * size :])
        new = math.tanh(new)
        return (new + z * (h - new),)

    return inputs.results(step, nn.dense(inputs.x, w, b), states)


def rnn(  # noqa: PLR0917 - the arrays of a recurrent network
    inputs: Sequences,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    states: States,
    activation: Operator = nn.tanh,
) -> tuple[Tensor, States]:
    """A recurrent network: `h = activation(x w^T + h r^T + b)`.

    Args:
        inputs: The inputs.
        w: Weights of inputs `[size, in]`.
        r: Weights of outputs `[size, size]`.
        b: Biases `[size]`, or None.
        states: The first output, `[batch, size]`.
        activation: An elementwise operator.
    """

    def step(products: Tensor, h: Tensor) -> States:
        return (activation(nn.dense(h, r, residual=products)),)

    return inputs.results(step, nn.dense(inputs.x, w, b), states)


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
