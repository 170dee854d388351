"""Calls whose operands may be Python numbers: scalars of the kernel, no kernel each.

A Python number takes the type of the arrays beside it, as in NumPy: a whole number
becomes a float beside floats, but a float never meets integers. A `np.float64`, which
is a Python float, is such a number; NumPy's other scalars are arrays of their type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.elementwise import NUMBERS
from tensorlang.ops.tensors import TensorOperator, call

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

PYTHON: Final = (float, int, bool, np.float64)
IN_ALL: Final = 65504.0  # the largest f16: every float type holds numbers up to this
_NONE: Final[Mapping[str, Any]] = {}
ALL_ARRAYS: Final[dict[str, Any]] = {NUMBERS: ()}
SECOND_IS_NUMBER: Final[dict[str, Any]] = {NUMBERS: (1,)}


def mixed(  # noqa: PLR0917 - as `call`
    op: TensorOperator,
    operands: Sequence[Any],
    target: Any,
    out: Any,
    attributes: Mapping[str, Any] = _NONE,
    scalars: tuple[Any, ...] = (),
) -> Launch:
    """The launch of a call with arrays and Python numbers: the end of a front.

    Args:
        op: The operator.
        operands: What the caller gave, in the operator's order.
        target: Where to compute.
        out: Where the results go.
        attributes: Static attributes, in the operator's order.
        scalars: The kernel's scalars beside the operands.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    at, arrays, plain = [], [], True
    for n, value in enumerate(operands):
        kind = type(value)
        if kind in PYTHON:
            at.append(n)
        else:
            arrays.append(value)
            plain = plain and kind is np.ndarray
    if not at:
        return call(op, operands, {**ALL_ARRAYS, **attributes}, scalars, target, out)
    if not plain:
        own(*arrays)
    if not arrays:
        raise ArgumentError(f"{op.id}: one of the operands has to be an array")
    beside = type_of(op.id, arrays[-1])
    numbers = tuple([fitted(op.id, operands[n], *beside) for n in at])
    given = {NUMBERS: tuple(at), **attributes}
    return call(op, arrays, given, (*numbers, *scalars), target, out)


def type_of(id: str, array: Any) -> tuple[str, str]:
    """Kind and name of an array's element type."""
    if type(array) is not np.ndarray:
        from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - runtime

        array = seen(array, f"{id}: an operand")
    return _kind(array.dtype)


@cache
def _kind(dtype: np.dtype[Any]) -> tuple[str, str]:
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = as_dtype(dtype)
    return found.kind, found.name


@cache
def _beyond(name: str) -> float:
    """The least number that rounds to infinity: half an ulp above the largest."""
    from ml_dtypes import finfo  # noqa: PLC0415 - numbers as large are rare

    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = finfo(as_dtype(name).numpy)
    largest = float(found.max)
    exponent = math.frexp(largest)[1]
    return largest + math.ldexp(float(found.eps), exponent - 2)


@cache
def _integers(name: str) -> tuple[int, int]:
    """The range of an integer type."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - once a type

    found = np.iinfo(as_dtype(name).numpy)
    return int(found.min), int(found.max)


def fitted(id: str, value: Any, kind: str, name: str) -> Any:
    """The number as a kernel for arrays of a type takes it.

    Raises:
        DTypeError: the type does not hold such numbers.
    """
    if type(value) is np.float64:
        value = float(value)
    if kind == "float":
        try:
            number = float(value)
        except OverflowError:
            raise DTypeError(f"{id}: {name} holds no number so large") from None
        if IN_ALL < abs(number) < math.inf and abs(number) >= _beyond(name):
            raise DTypeError(
                f"{id}: {number} rounds to an infinity in the {name} beside it; cast "
                "the array, or give math.inf where that is meant"
            )
        return number
    if type(value) is bool:
        return value if kind == "bool" else int(value)
    if type(value) is float or kind == "bool":
        raise DTypeError(
            f"{id}: {value!r} is no value of the {name} beside it; kinds of "
            "numbers are not mixed: cast the array, or give such a value"
        )
    least, most = _integers(name)
    if not least <= value <= most:
        raise DTypeError(
            f"{id}: {value} is no value of {name}, which holds {least} to {most}"
        )
    return value
