"""Recurrent layers: LSTM and GRU, with PyTorch's weights."""

from __future__ import annotations

from typing import ClassVar, Literal

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph import recurrent
from tensorlang.graph.recurrent import Sequences, States
from tensorlang.graph.scopes import call_site, path
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import OpResult, Tensor, zeros
from tensorlang.layers.initializers import Initializer, Uniform
from tensorlang.layers.layer import Layer, checked_integer
from tensorlang.ops import nn


class Recurrent(Layer):
    """A recurrent layer of one direction, or two; see `LSTM` and `GRU`.

    Attributes:
        size: The size of the output of a direction.
        bidirectional: Whether a second direction begins at the end.
        returns: `all` outputs, or the `last` ones.
    """

    gates: ClassVar[int]
    held: ClassVar[int] = 1  # states

    def __init__(
        self,
        size: int,
        *,
        bidirectional: bool = False,
        returns: Literal["all", "last"] = "all",
        weight: Initializer | None = None,
    ) -> None:
        """Set the size; weights are by default uniform, up to `1 / sqrt(size)`.

        Raises:
            ArgumentError: `returns` is neither `all` nor `last`.
        """
        super().__init__()
        name = type(self).__name__
        self.size = checked_integer(f"size of {name}", size, 1)
        if returns not in {"all", "last"}:
            raise ArgumentError(
                f"returns of {name} is 'all' or 'last', not {returns!r}"
            )
        self.bidirectional, self.returns = bidirectional, returns
        self.begin = weight or Uniform(-(size**-0.5), size**-0.5)

    def apply(self, x: Tensor, lengths: Tensor | None = None) -> OpResult:
        """Map `[batch, length, in]` to `[batch, length, size]`, or `[batch, size]`.

        With two directions, results are twice as wide.

        Args:
            x: The inputs; of a known length if trained with `autocast`.
            lengths: The lengths of the sequences, `[batch]`, if not all are whole.
        """
        if x.ndim != 3:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): {type(self).__name__} takes floats "
                f"of shape [batch, length, in], not {x.spec}"
            )
        first = zeros(TensorSpec((x.shape[0], self.size), x.spec.dtype))
        columns = nn.transpose(x, (1, 0, 2))
        found = []
        for reverse in (False, True)[: 1 + self.bidirectional]:
            arrays = self._arrays(x, "_reverse" if reverse else "")
            of = Sequences(columns, lengths, reverse)
            y, (last, *_) = self.run(of, arrays, (first,) * self.held)
            found.append(y if self.returns == "all" else last)
        y = nn.concatenate(found, -1) if self.bidirectional else found[0]
        return nn.transpose(y, (1, 0, 2)) if self.returns == "all" else y

    def _arrays(self, x: Tensor, suffix: str) -> tuple[Tensor, ...]:
        rows = self.gates * self.size
        shapes = {
            "weight_ih": (rows, x.shape[-1]),
            "weight_hh": (rows, self.size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        return tuple(
            self.weight(name + suffix, shape, self.begin, x.dtype)
            for name, shape in shapes.items()
        )

    def run(
        self, of: Sequences, arrays: tuple[Tensor, ...], states: States
    ) -> tuple[Tensor, States]:
        """The outputs of one direction, and its last states."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"


class LSTM(Recurrent):
    """Long short-term memory, as `torch.nn.LSTM`; see `nn.lstm_cell`."""

    gates = 4
    held = 2

    def run(
        self, of: Sequences, arrays: tuple[Tensor, ...], states: States
    ) -> tuple[Tensor, States]:
        """The outputs of one direction, and its last output and cell state."""
        w, r, b, b_h = arrays
        return recurrent.lstm(of, w, r, b + b_h, states)


class GRU(Recurrent):
    """Gated recurrent unit, as `torch.nn.GRU`; see `nn.gru_cell`."""

    gates = 3

    def run(
        self, of: Sequences, arrays: tuple[Tensor, ...], states: States
    ) -> tuple[Tensor, States]:
        """The outputs of one direction, and its last output."""
        w, r, b, b_h = arrays
        return recurrent.gru(of, w, r, b, b_h, states)
