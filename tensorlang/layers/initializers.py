"""Initialisers: values that are called with a key, a shape and a dtype.

    Dense(10, weight=HeNormal(), bias=Constant(0.1))

The fan-in and fan-out of a weight `[out, in, *window]` are `in` and `out` times the
number of elements of the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensorlang.frozen import frozen
from tensorlang.ops import random

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

Array: TypeAlias = np.ndarray
Shape: TypeAlias = tuple[int, ...]
# maps key, shape and dtype to the array
Initializer: TypeAlias = Callable[[random.Key, Shape, "DTypeLike"], Array]


def fans(shape: Shape) -> tuple[int, int]:
    """Fan-in and fan-out of a weight `[out, in, *window]`."""
    if len(shape) < 2:
        return (shape[0] if shape else 1,) * 2
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


@frozen
class Constant:
    """A constant."""

    value: float = 0.0

    def __call__(self, key: random.Key, shape: Shape, dtype: DTypeLike) -> Array:
        """The array; the key is not used."""
        del key
        return np.full(shape, self.value, dtype)


def Zeros() -> Constant:  # noqa: N802 - used like the classes
    """Zeros."""
    return Constant(0.0)


def Ones() -> Constant:  # noqa: N802 - used like the classes
    """Ones."""
    return Constant(1.0)


@frozen
class Given:
    """A given array."""

    array: ArrayLike

    def __call__(self, key: random.Key, shape: Shape, dtype: DTypeLike) -> Array:
        """The array, which must have the shape; the key is not used."""
        del key
        return np.broadcast_to(np.asarray(self.array, dtype), shape)


@frozen
class Normal:
    """A normal distribution."""

    mean: float = 0.0
    deviation: float = 0.01

    def __call__(self, key: random.Key, shape: Shape, dtype: DTypeLike) -> Array:
        """Draw the array."""
        drawn = random.normal(key, shape)
        moved = np.asarray(drawn) * self.deviation + self.mean
        return moved.astype(dtype)


@frozen
class Uniform:
    """A uniform distribution."""

    low: float = -0.05
    high: float = 0.05

    def __call__(self, key: random.Key, shape: Shape, dtype: DTypeLike) -> Array:
        """Draw the array."""
        drawn = random.uniform(key, shape, minval=self.low, maxval=self.high)
        return np.asarray(drawn).astype(dtype)


@frozen
class Scaled:
    """A distribution with variance `gain^2 / fan`.

    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010 (`average`); He et al., "Delving deep into rectifiers", 2015 (`in`).

    Attributes:
        gain: The factor of the standard deviation.
        fan: `in`, `out`, or the `average` of both.
        uniform: Uniform instead of normal.
    """

    gain: float = 1.0
    fan: str = "average"
    uniform: bool = True

    def __call__(self, key: random.Key, shape: Shape, dtype: DTypeLike) -> Array:
        """Draw the array."""
        into, out = fans(shape)
        fan = {"in": into, "out": out, "average": (into + out) / 2}[self.fan]
        deviation = self.gain / math.sqrt(max(fan, 1))
        if self.uniform:
            edge = deviation * math.sqrt(3)
            return Uniform(-edge, edge)(key, shape, dtype)
        return Normal(0.0, deviation)(key, shape, dtype)


def GlorotUniform() -> Scaled:  # noqa: N802 - used like the classes
    """Uniform with variance 2 / (in + out)."""
    return Scaled()


def GlorotNormal() -> Scaled:  # noqa: N802 - used like the classes
    """Normal with variance 2 / (in + out)."""
    return Scaled(uniform=False)


def HeUniform() -> Scaled:  # noqa: N802 - used like the classes
    """Uniform with variance 2 / in, for layers followed by relu."""
    return Scaled(math.sqrt(2), "in")


def HeNormal() -> Scaled:  # noqa: N802 - used like the classes
    """Normal with variance 2 / in, for layers followed by relu."""
    return Scaled(math.sqrt(2), "in", uniform=False)
