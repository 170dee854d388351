"""Constant folding while a file is read.

Shape computations in files are such constants: arrays of `int64`, or of `object` if
they contain a symbolic size, a `Dim`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar, overload

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.networks.leaves import constant
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Tensor, values_in
from tensorlang.onnx.calls import Operand
from tensorlang.ops import Operator

LARGEST: Final = 1 << 31  # default limit in bytes of an array made while reading
MOST_DIMENSIONS: Final = 64  # NumPy's limit
_ADDRESSES: Final = (1 << 63) - 1  # bytes
T = TypeVar("T")
_LIMIT: ContextVar[int] = ContextVar("limit", default=LARGEST)
# NumPy functions that also work on symbolic sizes
_ON_SIZES: Final = frozenset(
    (
        *("add", "subtract", "multiply", "prod", "where"),
        *("take", "reshape", "transpose", "concatenate"),
    )
)


@contextmanager
def limited(largest: int) -> Iterator[None]:
    """Limit the bytes of arrays while a file is read."""
    token = _LIMIT.set(largest)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def checked_size(
    shape: Sequence[object], itemsize: int, what: str = "an array"
) -> None:
    """Reject an array that is too large before allocating it.

    Raises:
        ShapeError: too large, by its known sizes alone; sizes of 0 count as 1, since
            strides must be representable too.
    """
    known = [n for n in shape if isinstance(n, int)]
    if len(shape) > MOST_DIMENSIONS:
        raise ShapeError(f"{what} has {len(shape)} dimensions, more than 64")
    if math.prod(n or 1 for n in known) * itemsize > _ADDRESSES:
        raise ShapeError(f"no memory holds {what} of shape {tuple(shape)}")
    size = math.prod(known) * itemsize
    checked_bytes(size, f"{what} of shape {tuple(shape)}")


def checked_bytes(size: int, what: str) -> None:
    """Reject a size above the limit; ShapeError if too many bytes."""
    if size > _LIMIT.get():
        raise ShapeError(
            f"{what} has {size} bytes, more than {_LIMIT.get()}; give largest={size} "
            "to load the file anyway"
        )


def foldable(op: Operator) -> Callable[..., Operand]:
    """An operator on values; the NumPy function of the same name on constants."""
    known = getattr(np, op.__name__)

    def apply(*args: object, **kwargs: object) -> Operand:
        if any(True for _ in values_in(args)):
            made: Tensor = op(*map(_beside, args), **kwargs)
            return made
        return folded(known, *args, **kwargs)

    return apply


def folded(known: Callable[..., object], *args: object, **kwargs: object) -> np.ndarray:
    """Apply a NumPy function to constants.

    Raises:
        ShapeError: they do not fit, or the result is too large.
        GraphError: it does not support symbolic sizes.
    """
    given = [each for arg in args for each in (arg if type(arg) is list else [arg])]
    arrays = [each for each in given if isinstance(each, np.ndarray)]
    if any(each.dtype == object for each in arrays) and known.__name__ not in _ON_SIZES:
        raise GraphError(
            f"{known.__name__} of a symbolic size; export with a fixed one"
        )
    try:
        wide = isinstance(known, np.ufunc) or known is np.where
        shape = np.broadcast_shapes(*(each.shape for each in arrays)) if wide else ()
        size = sum(each.size for each in arrays)
        checked_size(
            shape or (size,), max((each.itemsize for each in arrays), default=0)
        )
        with np.errstate(all="ignore"):
            made = np.asarray(known(*args, **kwargs))
        return tidy(made)
    except (ValueError, IndexError, TypeError, ArithmeticError, MemoryError) as problem:
        shapes = ", ".join(str(each.shape) for each in arrays)
        raise ShapeError(f"constants of shapes {shapes}: {problem}") from None


def tidy(array: np.ndarray) -> np.ndarray:
    """An array of sizes, of integers if none is symbolic."""
    if array.dtype != object or any(isinstance(n, Dim) for n in array.flat):
        return array
    return array.astype(np.int64)


@overload
def to_value(value: Operand) -> Tensor: ...
@overload
def to_value(value: T) -> T: ...
def to_value(value: object) -> object:
    """A constant as a value of the program; other objects unchanged.

    Raises:
        GraphError: it contains a symbolic size.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == object:
        raise GraphError(
            f"the symbolic size {value} is used as data; export a fixed one"
        )
    return constant(value)


def _beside(arg: object) -> object:
    """An operand used with a value: a single element becomes a scalar."""
    if isinstance(arg, (list, tuple)):
        return (
            type(arg)(map(_beside, arg)) if any(True for _ in values_in(arg)) else arg
        )
    if isinstance(arg, np.ndarray) and not arg.ndim and arg.dtype.kind in "iuf":
        return arg.item()
    return to_value(arg)
