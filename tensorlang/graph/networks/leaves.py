"""Values that a program does not compute: weights and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.graph.values import Key, Tensor, Value
from tensorlang.ops.random.keys import Key as Concrete

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Data: TypeAlias = "Value | Concrete | ArrayLike"  # accepted by `constant`
# maps key, shape and dtype to an array
Initial: TypeAlias = Callable[[Concrete, tuple[int, ...], np.dtype], np.ndarray]


class Weight(Tensor):
    """A persistent tensor of a network, identified by its path.

    Attributes:
        path: Its name in the network, such as `3.weight`.
        initial: Initialiser: maps key, shape and dtype to the initial array.
        trainable: Whether training updates it.
    """

    __slots__ = ("initial", "path", "trainable")

    def __init__(
        self,
        spec: TensorSpec,
        path: str,
        initial: Initial | None = None,
        *,
        trainable: bool = True,
    ) -> None:
        super().__init__(spec, name=path)
        self.path = path
        self.initial = initial
        self.trainable = trainable
        self.scope = None


class ConstantTensor(Tensor):
    """A constant array of the program."""

    __slots__ = ("data",)

    def __init__(self, data: np.ndarray) -> None:
        super().__init__(TensorSpec(data.shape, data.dtype.name))
        self.data = data  # array, read-only
        self.scope = None


class ConstantKey(Key):
    """A concrete key in the program: every run draws the same."""

    __slots__ = ("data",)

    def __init__(self, data: Concrete) -> None:
        super().__init__(KeySpec(data.shape, data.impl))
        self.data = data  # key of `tensorlang.ops.random`
        self.scope = None


CONSTANTS: Final = (ConstantTensor, ConstantKey)


def constant(data: Data) -> Value:
    """A constant: an array, a number, or a key of `ops.random`.

    This consumes the key: it may appear in one place of one program.
    """
    if isinstance(data, Value):
        return data
    if isinstance(data, Concrete):
        data.consume("put into a graph")
        return ConstantKey(data.clone())
    array = np.array(data, order="C")
    array.flags.writeable = False
    return ConstantTensor(array)
