"""Reference semantics of scalar operations, on NumPy arrays.

`apply(node, operands)` computes an expression node from its children's values. The
interpreter applies it to lanes, and the simplifier folds constants with it. `call` is a
named function of arrays; a mathematical one is evaluated by its expansion. Callers
check for faults (division by zero) first; here they give arbitrary values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Final

import numpy as np

from tensorlang import lazy
from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ir.intrinsics import INTRINSICS, intrinsic
from tensorlang.ir.numeric import Array, narrow_to_odd, sum_to_odd
from tensorlang.ir.operations import COMPARISONS, INTEGERS
from tensorlang.ir.visit import children

with lazy.modules(__name__):  # few programs need them
    from tensorlang.ir import math as expansions

_INTEGER: Final = INTEGERS | {"min": np.minimum, "max": np.maximum}
_FLOAT: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": lambda a, b: _extreme(np.minimum, a, b),
    "max": lambda a, b: _extreme(np.maximum, a, b),
}


def binary(op: str, dtype: DType, a: Array, b: Array) -> Array:
    """`op` of two operands of `dtype`: integers wrap, floats are IEEE 754."""
    table = _FLOAT if dtype.is_float else _INTEGER
    with np.errstate(all="ignore"):
        return table[op](a, b)


def _extreme(pick: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """Prefer a number over a NaN; `np.fmax` returns NaN for a signalling one."""
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, pick(a, b)))


def unary(op: str, dtype: DType, a: Array) -> Array:
    """`neg`, `abs` or `not` of `dtype`."""
    with np.errstate(all="ignore"):
        if op == "neg":
            return np.negative(a)
        if op == "abs":
            return np.abs(a)
        return np.logical_not(a) if dtype.is_bool else np.invert(a)


def compare(op: str, a: Array, b: Array) -> Array:
    """A comparison; NaN is unequal to everything and unordered."""
    with np.errstate(all="ignore"):
        return COMPARISONS[op](a, b)


def cast(target: DType, source: DType, a: Array) -> Array:
    """`a` of `source` converted to `target` by value (see `tensorlang.ir.nodes`)."""
    with np.errstate(all="ignore"):
        if target.is_bool:
            return np.not_equal(a, 0)
        if source.is_float and target.is_integer:
            return _saturated(target, a)
        if target.name in ("f16", "bf16") and source.name not in ("f16", "bf16", "f32"):
            return _to_half(target, a)
        return np.asarray(a).astype(target.numpy)


def _saturated(target: DType, a: Array) -> Array:
    """Floats truncated and saturated to an integer type; NaN becomes 0."""
    low, high = target.limits
    wide = np.trunc(np.asarray(a).astype(np.float64))
    above, below = wide >= float(high) + 1, wide < float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide)
    small = inside.astype(target.numpy)
    return np.where(above, target.numpy.type(high), np.where(below, low, small)).astype(
        target.numpy
    )


def _to_half(target: DType, a: Array) -> Array:
    """f64 or integers to f16 or bf16 with one rounding, via rounding to odd."""
    a = np.asarray(a)
    if a.dtype.kind == "f":
        wide = a
    else:
        low = (a & a.dtype.type(0xFF)) if a.dtype.itemsize == 8 else a * 0
        wide = sum_to_odd((a - low).astype(np.float64), low.astype(np.float64))
    return narrow_to_odd(wide).astype(target.numpy)


def bitcast(target: DType, a: Array) -> Array:
    """The bits of `a` reinterpreted as `target`."""
    return np.asarray(a).view(target.numpy)


@by_class
def apply(node: ir.Expr, operands: Sequence[Array]) -> Array:
    """The value of `node` from the values of its children, in field order.

    Raises:
        IRError: the node is not a lane-wise operation (a load, a shuffle).
    """
    del operands
    raise IRError(f"{type(node).__name__} is no operation on scalars")


@apply.register
def _(node: ir.Const, _operands: Sequence[Array]) -> Array:
    return np.asarray(node.value).astype(node.dtype.numpy)


@apply.register
def _(node: ir.Unary, operands: Sequence[Array]) -> Array:
    return unary(node.op, node.dtype, operands[0])


@apply.register
def _(node: ir.Binary, operands: Sequence[Array]) -> Array:
    return binary(node.op, node.dtype, operands[0], operands[1])


@apply.register
def _(node: ir.Compare, operands: Sequence[Array]) -> Array:
    return compare(node.op, operands[0], operands[1])


@apply.register
def _(_node: ir.Select, operands: Sequence[Array]) -> Array:
    return np.where(operands[0], operands[1], operands[2])


@apply.register
def _(node: ir.Cast, operands: Sequence[Array]) -> Array:
    return cast(node.dtype, node.a.dtype, operands[0])


@apply.register
def _(node: ir.Bitcast, operands: Sequence[Array]) -> Array:
    return bitcast(node.dtype, operands[0])


@apply.register
def _(node: ir.Call, operands: Sequence[Array]) -> Array:
    return call(node.name, *operands)


def call(name: str, *args: Array) -> Array:
    """A named function of arrays of one type, bitwise the same as in kernels.

    Raises:
        DTypeError: the element type is not supported.
    """
    native = INTRINSICS[name].numpy
    if native is not None:
        with np.errstate(all="ignore"):
            return native(*args)
    dtype = as_dtype(np.asarray(args[0]).dtype)
    lets, result = _expanded(name, dtype, len(args))
    values = dict(zip(_arguments(dtype, len(args)), args, strict=True))
    return evaluate_lets(lets, result, values)


@cache
def _expanded(
    name: str, dtype: DType, arity: int
) -> tuple[tuple[ir.Let, ...], ir.Expr]:
    numbers = count()
    args = _arguments(dtype, arity)
    return expansions.expand(
        intrinsic(name, *args),
        lambda part, kind: ir.Var(f"{part}{next(numbers)}", kind),
    )


def _arguments(dtype: DType, arity: int) -> list[ir.Var]:
    return [ir.Var(f"x{number}", dtype) for number in range(arity)]


def evaluate(expr: ir.Expr, values: Mapping[ir.Var, Array]) -> Array:
    """The value of an expression without loads or vectors, given its variables."""
    if isinstance(expr, ir.Var):
        return values[expr]
    return apply(expr, [evaluate(child, values) for child in _operands(expr)])


def _operands(expr: ir.Expr) -> list[ir.Expr]:
    return [child for child in children(expr) if isinstance(child, ir.Expr)]


def evaluate_lets(
    lets: Sequence[ir.Let], result: ir.Expr, values: Mapping[ir.Var, Array]
) -> Array:
    """The value of `result` after `lets`, given the variables free in both."""
    known = dict(values)
    for let in lets:
        known[let.var] = evaluate(let.value, known)
    return evaluate(result, known)
