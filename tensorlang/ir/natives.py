"""Native intrinsics: named functions with an instruction on every backend.

`NATIVES` is the table; `native(name, *args)` builds a call with its type checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from tensorlang.errors import DTypeError, IRError
from tensorlang.frozen import frozen
from tensorlang.ir import numeric
from tensorlang.ir.dtypes import DType, boolean, i64
from tensorlang.ir.nodes import Call, Expr, ExprLike, Load, as_expr, splat
from tensorlang.ir.numeric import Array

DTypes: TypeAlias = tuple[DType, ...]
# from the function's name and its arguments' types to the result's type
Rule: TypeAlias = Callable[[str, DTypes], DType]
_NOTHING: Final[Mapping[str, float]] = {}


@frozen
class Intrinsic:
    """A named function of scalars, applied lane by lane.

    `result` maps the arguments' types to the result's, or raises `DTypeError`. `numpy`
    defines the semantics of natives, on arrays of those types. `ulp` holds the error
    bound by element type of functions expanded by `tensorlang.ir.math`; natives are
    exact or correctly rounded and have none. Impure ones appear in an `Evaluate`.
    """

    name: str
    arity: int
    result: Callable[[DTypes], DType]
    numpy: Callable[..., Array] | None
    doc: str
    ulp: Mapping[str, float] = field(default_factory=lambda: _NOTHING)
    pure: bool = True

    @property
    def expands(self) -> bool:
        """Whether lowering replaces it by arithmetic, unlike natives."""
        return bool(self.ulp)


def _all_same(name: str, dtypes: DTypes) -> DType:
    for other in dtypes[1:]:
        if other != dtypes[0]:
            raise DTypeError(f"{name} needs arguments of one type: {dtypes}")
    return dtypes[0]


def floats(name: str, dtypes: DTypes) -> DType:
    """The rule: arguments of one float type, and a result of the same."""
    if not dtypes[0].is_float:
        raise DTypeError(f"{name} needs floats, got {dtypes[0]}")
    return _all_same(name, dtypes)


def _integers(*allowed: str) -> Rule:
    def result(name: str, dtypes: DTypes) -> DType:
        if dtypes[0].scalar.name not in allowed:
            raise DTypeError(f"{name} takes {', '.join(allowed)}, got {dtypes[0]}")
        return _all_same(name, dtypes)

    return result


def _predicate(name: str, dtypes: DTypes) -> DType:
    return boolean.vector(floats(name, dtypes).lanes)


def _checked(name: str, dtypes: DTypes) -> DType:
    if not dtypes[0].is_bool or dtypes[1].scalar != i64:
        raise DTypeError(f"{name} takes a bool and an i64 code, got {dtypes}")
    return boolean


def _waited(name: str, dtypes: DTypes) -> DType:
    if dtypes != (i64,):
        raise DTypeError(f"{name} takes a number of groups as i64, got {dtypes}")
    return boolean


def _of_any(_name: str, _dtypes: DTypes) -> DType:
    return boolean


# group stores hinted `async`, and wait for groups
COPY_SYNCS: Final = ("commit_copies", "wait_copies")


def call(table: Mapping[str, Intrinsic], name: str, *args: ExprLike) -> Call:
    """`Call` of an entry of `table`; Python numbers take the first argument's type.

    Raises:
        IRError: no such intrinsic, or a wrong number of arguments.
        DTypeError: the arguments' types do not fit it.
    """
    if name not in table:
        raise IRError(
            f"{name!r} is not an intrinsic; these are {', '.join(sorted(table))}"
        )
    known = table[name]
    if len(args) != known.arity:
        raise IRError(f"{name} takes {known.arity} arguments, got {len(args)}")
    if name == "prefetch" and not isinstance(args[0], Load):
        raise IRError("prefetch takes a load, such as prefetch(x[0])")
    fitted = _fit(name, args)
    return Call(name, fitted, known.result(tuple(arg.dtype for arg in fitted)))


def _fit(name: str, args: tuple[ExprLike, ...]) -> tuple[Expr, ...]:
    known = [arg.dtype for arg in args if isinstance(arg, Expr)]
    if name == "check":
        return as_expr(args[0]), as_expr(args[1], i64)
    kind = known[0].scalar if known else None
    lanes = max((dtype.lanes for dtype in known), default=1)
    fitted = (as_expr(arg, kind) for arg in args)
    return tuple(splat(arg, lanes) if arg.dtype.lanes == 1 else arg for arg in fitted)


def native(name: str, *args: ExprLike) -> Call:
    """The call of a native intrinsic (see `call`)."""
    return call(NATIVES, name, *args)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Call:
    """`a*b + c` of floats, rounded once."""
    return native("fma", a, b, c)


def sqrt(x: ExprLike) -> Call:
    """The square root, correctly rounded; NaN below zero."""
    return native("sqrt", x)


def floor(x: ExprLike) -> Call:
    """The largest integer not above `x`."""
    return native("floor", x)


def ceil(x: ExprLike) -> Call:
    """The smallest integer not below `x`."""
    return native("ceil", x)


def round(x: ExprLike) -> Call:
    """The nearest integer, ties to even."""
    return native("round", x)


def trunc(x: ExprLike) -> Call:
    """`x` rounded towards zero."""
    return native("trunc", x)


def copysign(a: ExprLike, b: ExprLike) -> Call:
    """The magnitude of `a` with the sign bit of `b`."""
    return native("copysign", a, b)


def isnan(x: ExprLike) -> Call:
    """Whether `x` is not a number."""
    return native("isnan", x)


def isinf(x: ExprLike) -> Call:
    """Whether `x` is plus or minus infinity."""
    return native("isinf", x)


def popcount(x: ExprLike) -> Call:
    """The number of one bits of an integer, in its own type."""
    return native("popcount", x)


def clz(x: ExprLike) -> Call:
    """The number of leading zero bits of an integer; its width for 0."""
    return native("clz", x)


def mulhi(a: ExprLike, b: ExprLike) -> Call:
    """The upper half of the double-width product of two u32 or two u64."""
    return native("mulhi", a, b)


def rotl(x: ExprLike, amount: ExprLike) -> Call:
    """The bits of an unsigned `x` rotated left by `amount`, modulo its width."""
    return native("rotl", x, amount)


def prefetch(load: ExprLike) -> Call:
    """Request the cache line of a load, without accessing memory."""
    return native("prefetch", load)


def check(cond: ExprLike, code: ExprLike) -> Call:
    """Report fault `code` (i64, not 0) if `cond` is false; execution continues."""
    return native("check", cond, code)


def commit_copies() -> Call:
    """Group the thread's stores hinted async since the last commit."""
    return native("commit_copies")


def wait_copies(groups: ExprLike) -> Call:
    """Wait for all but the last `groups` (i64) of the thread's groups of copies."""
    return native("wait_copies", groups)


def wait_products(groups: ExprLike) -> Call:
    """Wait, in a role, for all but a warpgroup's last `groups` (0 to 7) products."""
    return native("wait_products", groups)


def entry(
    function: Callable[..., Call],
    rule: Rule,
    numpy: Callable[..., Array] | None,
    ulp: Mapping[str, float] = _NOTHING,
    *,
    pure: bool = True,
) -> Intrinsic:
    """The intrinsic that a function calls: its name, its parameters, its docstring."""
    name, arity = function.__name__, function.__code__.co_argcount
    doc = str(function.__doc__)
    return Intrinsic(name, arity, partial(rule, name), numpy, doc, ulp, pure)


_UNSIGNED: Final = ("u8", "u16", "u32", "u64")
_ANY_INTEGERS: Final = _integers("i8", "i16", "i32", "i64", *_UNSIGNED)
_TABLE: Final = (
    entry(fma, floats, numeric.fma),
    entry(sqrt, floats, np.sqrt),
    entry(floor, floats, np.floor),
    entry(ceil, floats, np.ceil),
    entry(round, floats, np.rint),
    entry(trunc, floats, np.trunc),
    entry(copysign, floats, np.copysign),
    entry(isnan, _predicate, np.isnan),
    entry(isinf, _predicate, np.isinf),
    entry(popcount, _ANY_INTEGERS, numeric.popcount),
    entry(clz, _ANY_INTEGERS, numeric.clz),
    entry(mulhi, _integers("u32", "u64"), numeric.mulhi),
    entry(rotl, _integers(*_UNSIGNED), numeric.rotl),
    entry(prefetch, _of_any, lambda _: np.True_, pure=False),
    entry(check, _checked, lambda cond, _: cond, pure=False),
    entry(commit_copies, _of_any, lambda: np.True_, pure=False),
    entry(wait_copies, _waited, lambda _: np.True_, pure=False),
    entry(wait_products, _waited, lambda _: np.True_, pure=False),
)
NATIVES: Final = {intrinsic.name: intrinsic for intrinsic in _TABLE}
