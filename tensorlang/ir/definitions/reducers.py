"""Built-in reducers: monoids on scalars and on tuples.

`builtin("sum", (f32,))` is the reducer that IR text writes as plain `sum`. A tuple
state reduces several components together, so `argmax`, `logsumexp` and `welford` can be
scheduled like any sum: split, `rfactor`ed and reduced across lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.nodes import Binary, Const, Expr, Reducer, Select, Var, as_expr

State: TypeAlias = tuple[Var, ...]
Combine: TypeAlias = Callable[[State, State], tuple[Expr, ...]]


def lowest(dtype: DType) -> Expr:
    """The identity of `max`."""
    return Const(float("-inf") if dtype.is_float else dtype.limits[0], dtype)


def highest(dtype: DType) -> Expr:
    """The identity of `min`."""
    return Const(float("inf") if dtype.is_float else dtype.limits[1], dtype)


def reducer(
    name: str, dtypes: tuple[DType, ...], identity: tuple[Expr, ...], combine: Combine
) -> Reducer:
    """The reducer whose combination of two states is `combine(left, right)`."""
    left = tuple(Var(f"a{n}", dtype) for n, dtype in enumerate(dtypes))
    right = tuple(Var(f"b{n}", dtype) for n, dtype in enumerate(dtypes))
    return Reducer(name, left, right, identity, combine(left, right))


def _fold(name: str, op: str, identity: Callable[[DType], Expr]) -> _Maker:
    def make(dtypes: tuple[DType, ...]) -> Reducer:
        return reducer(
            name, dtypes, (identity(dtypes[0]),), lambda a, b: (Binary(op, a[0], b[0]),)
        )

    return make


def _arg(name: str, better: str, identity: Callable[[DType], Expr]) -> _Maker:
    """The extreme value and its lowest index; NaN counts as the extreme."""

    def make(dtypes: tuple[DType, ...]) -> Reducer:
        return reducer(
            name,
            dtypes,
            (identity(dtypes[0]), Const(i64.limits[1], i64)),
            lambda a, b: _pick(better, a, b),
        )

    return make


def _pick(better: str, a: State, b: State) -> tuple[Expr, ...]:
    wins = a[0] > b[0] if better == "gt" else a[0] < b[0]
    ties = a[0].equal(b[0])
    if a[0].dtype.is_float:
        a_nan, b_nan = a[0].not_equal(a[0]), b[0].not_equal(b[0])
        wins = wins | (a_nan & ~b_nan)
        ties = ties | (a_nan & b_nan)
    left = wins | (ties & (a[1] < b[1]))
    return Select(left, a[0], b[0]), Select(left, a[1], b[1])


def _logsumexp(dtypes: tuple[DType, ...]) -> Reducer:
    """Online softmax: the state is (maximum, sum of exp(x - maximum)).

    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """

    def combine(a: State, b: State) -> tuple[Expr, ...]:
        top = Binary("max", a[0], b[0])
        empty = top.equal(lowest(top.dtype))
        base = Select(empty, as_expr(0.0, top.dtype), top)  # exp(-inf - -inf) is NaN
        total = a[1] * intrinsic("exp", a[0] - base) + b[1] * intrinsic(
            "exp", b[0] - base
        )
        return top, total

    zero = Const(0.0, dtypes[1])
    return reducer("logsumexp", dtypes, (lowest(dtypes[0]), zero), combine)


def _welford(dtypes: tuple[DType, ...]) -> Reducer:
    """Mean and variance in one pass: (count, mean, sum of squared differences).

    Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm", 1979.
    """

    def combine(a: State, b: State) -> tuple[Expr, ...]:
        count = a[0] + b[0]
        safe = Select(count.equal(0.0), as_expr(1.0, count.dtype), count)
        delta = b[1] - a[1]
        share = b[0] / safe
        mean = a[1] + delta * share
        return count, mean, a[2] + b[2] + delta * delta * a[0] * share

    zeros = tuple(Const(0.0, dtype) for dtype in dtypes)
    return reducer("welford", dtypes, zeros, combine)


_Maker: TypeAlias = Callable[[tuple[DType, ...]], Reducer]

# name -> (number of components, allowed kinds of the first component, maker)
_TABLE: Final[dict[str, tuple[int, tuple[str, ...], _Maker]]] = {
    "sum": (1, ("float", "int", "uint"), _fold("sum", "add", lambda t: Const(0, t))),
    "prod": (1, ("float", "int", "uint"), _fold("prod", "mul", lambda t: Const(1, t))),
    "min": (1, ("float", "int", "uint"), _fold("min", "min", highest)),
    "max": (1, ("float", "int", "uint"), _fold("max", "max", lowest)),
    "any": (1, ("bool",), _fold("any", "or", lambda t: Const(False, t))),
    "all": (1, ("bool",), _fold("all", "and", lambda t: Const(True, t))),
    "xor": (1, ("int", "uint"), _fold("xor", "xor", lambda t: Const(0, t))),
    "argmax": (2, ("float", "int", "uint"), _arg("argmax", "gt", lowest)),
    "argmin": (2, ("float", "int", "uint"), _arg("argmin", "lt", highest)),
    "logsumexp": (2, ("float",), _logsumexp),
    "welford": (3, ("float",), _welford),
}
NAMES: Final = tuple(_TABLE)


@cache
def builtin(name: str, dtypes: tuple[DType, ...]) -> Reducer | None:
    """The built-in reducer of this name for a state of these types, or None."""
    components, kinds, make = _TABLE.get(name, (0, (), None))
    if make is None or len(dtypes) != components or dtypes[0].kind not in kinds:
        return None
    if name.startswith("arg"):
        return make(dtypes) if dtypes[1] == i64 else None
    return make(dtypes) if len(set(dtypes)) == 1 else None
