"""Evaluate the mathematical functions on NumPy arrays, by their expansions."""

from __future__ import annotations

from functools import cache
from itertools import count

import numpy as np

from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.math import expand
from tensorlang.ir.nodes import Expr, Let, Var
from tensorlang.ir.numeric import Array
from tensorlang.ir.semantics import evaluate_lets


@cache
def _expanded(name: str, dtype: DType, arity: int) -> tuple[tuple[Let, ...], Expr]:
    numbers = count()
    args = _arguments(dtype, arity)
    return expand(intrinsic(name, *args), lambda kind: Var(f"t{next(numbers)}", kind))


def _arguments(dtype: DType, arity: int) -> list[Var]:
    return [Var(f"x{number}", dtype) for number in range(arity)]


def by_expansion(name: str, *args: Array) -> Array:
    """The function `name` of arrays of one float type, bitwise the same as in kernels.

    Raises:
        DTypeError: the element type is not supported.
    """
    dtype = as_dtype(np.asarray(args[0]).dtype)
    lets, result = _expanded(name, dtype, len(args))
    values = dict(zip(_arguments(dtype, len(args)), args, strict=True))
    return evaluate_lets(lets, result, values)
