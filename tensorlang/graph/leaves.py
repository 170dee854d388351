"""What a program does not compute: weights, and data that stands in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.graph.values import Key, Tensor, Value
from tensorlang.ops.random.keys import Key as Concrete

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Data: TypeAlias = "Value | Concrete | ArrayLike"  # what `constant` takes
# from key, shape and type to an array
Initial: TypeAlias = Callable[[Concrete, tuple[int, ...], np.dtype], np.ndarray]


class Weight(Tensor):
    """A tensor that a network keeps: found by its path, made by an initialiser.

    Attributes:
        path: Its name in the network, such as `3.weight`.
        initial: From key, shape and type to the array it begins as.
        trainable: Whether training changes it.
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
    """An array that stands in the program.

    Attributes:
        data: The array, read-only.
    """

    __slots__ = ("data",)

    def __init__(self, data: np.ndarray) -> None:
        super().__init__(TensorSpec(data.shape, data.dtype.name))
        self.data = data
        self.scope = None


class ConstantKey(Key):
    """A concrete key that stands in the program: every run draws the same.

    Attributes:
        data: The key of `tensorlang.ops.random`.
    """

    __slots__ = ("data",)

    def __init__(self, data: Concrete) -> None:
        super().__init__(KeySpec(data.shape, data.impl))
        self.data = data
        self.scope = None


CONSTANTS: Final = (ConstantTensor, ConstantKey)


def constant(data: Data) -> Value:
    """A value that stands for data: an array, a number, or a key of `ops.random`.

    A key is used up by it: it may stand in one place of one program.
    """
    if isinstance(data, Value):
        return data
    if isinstance(data, Concrete):
        data.consume("put into a graph")
        return ConstantKey(data.clone())
    array = np.array(data, order="C")
    array.flags.writeable = False
    return ConstantTensor(array)
