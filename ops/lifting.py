"""From a function on scalar expressions to one on tensors; only to build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

from tensorlang.ir import compute
from tensorlang.ir.nodes import Const
from tensorlang.ops.assembling import stored, wide

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


def lifted(body: Callable[..., Any]) -> Callable[..., Any]:
    """A function on tensors that does to each element what `body` does to scalars.

    Operands that are numbers come as scalars of their names.
    """
    operands = operand_names(body)

    @wraps(body)
    def tensors(*arrays: Tensor, numbers: Sequence[int] = (), **given: Any) -> Any:
        at_hand = Operands(operands, arrays, numbers, given)

        def element(*i: Any) -> Any:
            made = body(*at_hand.values(i), **at_hand.attributes)
            if isinstance(made, tuple):
                return tuple(stored(value, at_hand.dtype) for value in made)
            return stored(made, at_hand.dtype)

        return compute(at_hand.shape, element, "y")

    return tensors


def operand_names(body: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's positional parameters."""
    parameters = signature(body).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


class Operands:
    """The arrays and numbers of an elementwise operator, read at an index.

    Attributes:
        names: Of all operands.
        arrays: By name, those that are no numbers.
        attributes: What the body is given beside the operands.
        shape: The shape that all broadcast to.
        dtype: The type of the arrays, the last one's where a condition is among them.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        arrays: Sequence[Tensor],
        numbers: Sequence[int],
        given: dict[str, Any],
    ) -> None:
        spelled = [names[n] for n in numbers]
        held = [name for name in names if name not in spelled]
        self.names = names
        self.arrays = dict(zip(held, arrays, strict=True))
        self.dtype = arrays[-1].dtype
        self._numbers = {
            name: wide(stored(given[name], self.dtype)) for name in spelled
        }
        self.attributes = {k: v for k, v in given.items() if k not in spelled}
        dims = zip(*[x.shape for x in arrays], strict=True)
        self.shape = [
            next((d for d in of if not isinstance(d, Const)), of[0]) for of in dims
        ]

    def values(self, index: Sequence[Any]) -> list[Expr]:
        """The operands at an index of the broadcast shape, as they are computed in."""
        return [
            self._numbers[name]
            if name in self._numbers
            else wide(self.arrays[name][self._place(name, index)])
            for name in self.names
        ]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def broadcast(self, name: str) -> list[int]:
        """The dimensions along which an array is broadcast."""
        own = zip(self.arrays[name].shape, self.shape, strict=True)
        return [
            at
            for at, (dim, extent) in enumerate(own)
            if isinstance(dim, Const) and not isinstance(extent, Const)
        ]

    def _place(self, name: str, index: Sequence[Any]) -> tuple[Any, ...]:
        own = zip(self.arrays[name].shape, index, strict=True)
        return tuple(0 if isinstance(dim, Const) else at for dim, at in own)
