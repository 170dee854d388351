"""Native intrinsics: named functions with an instruction on every backend.

`NATIVES` is the table; `native(name, *args)` builds a call with its type checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from tensorlang.errors import DTypeError, IRError
from tensorlang.ir import numeric
from tensorlang.ir.dtypes import DType, boolean, i64
from tensorlang.ir.nodes import Call, Expr, ExprLike, Load, as_expr, splat
from tensorlang.ir.numeric import Array

DTypes: TypeAlias = tuple[DType, ...]
_NOTHING: Final[Mapping[str, float]] = {}


@dataclass(frozen=True, slots=True)
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


def floats(name: str) -> Callable[[DTypes], DType]:
    """The rule: arguments of one float type, and a result of the same."""

    def result(dtypes: DTypes) -> DType:
        if not dtypes[0].is_float:
            raise DTypeError(f"{name} needs floats, got {dtypes[0]}")
        return _all_same(name, dtypes)

    return result


def _integers(name: str, *allowed: str) -> Callable[[DTypes], DType]:
    def result(dtypes: DTypes) -> DType:
        if dtypes[0].scalar.name not in allowed:
            raise DTypeError(f"{name} takes {', '.join(allowed)}, got {dtypes[0]}")
        return _all_same(name, dtypes)

    return result


def _predicate(name: str) -> Callable[[DTypes], DType]:
    def result(dtypes: DTypes) -> DType:
        return boolean.vector(floats(name)(dtypes).lanes)

    return result


def _checked(dtypes: DTypes) -> DType:
    if not dtypes[0].is_bool or dtypes[1].scalar != i64:
        raise DTypeError(f"check takes a bool and an i64 code, got {dtypes}")
    return boolean


def _waited(dtypes: DTypes) -> DType:
    if dtypes != (i64,):
        raise DTypeError(f"wait_copies takes a number of groups as i64, got {dtypes}")
    return boolean


def _prefetched(dtypes: DTypes) -> DType:
    del dtypes  # an address of any element type
    return boolean


_SIGNED: Final = ("i8", "i16", "i32", "i64")
_UNSIGNED: Final = ("u8", "u16", "u32", "u64")
_TABLE: Final = (
    Intrinsic("fma", 3, floats("fma"), numeric.fma, "a*b + c, rounded once"),
    Intrinsic("sqrt", 1, floats("sqrt"), np.sqrt, "square root, rounded once"),
    Intrinsic("floor", 1, floats("floor"), np.floor, "the largest integer not above"),
    Intrinsic("ceil", 1, floats("ceil"), np.ceil, "the smallest integer not below"),
    Intrinsic(
        "round", 1, floats("round"), np.rint, "the nearest integer, ties to even"
    ),
    Intrinsic("trunc", 1, floats("trunc"), np.trunc, "the integer towards zero"),
    Intrinsic(
        "copysign", 2, floats("copysign"), np.copysign, "magnitude of a, sign bit of b"
    ),
    Intrinsic("isnan", 1, _predicate("isnan"), np.isnan, "whether it is NaN"),
    Intrinsic("isinf", 1, _predicate("isinf"), np.isinf, "whether it is +-infinity"),
    Intrinsic(
        "popcount",
        1,
        _integers("popcount", *_SIGNED, *_UNSIGNED),
        numeric.popcount,
        "number of one bits",
    ),
    Intrinsic(
        "clz",
        1,
        _integers("clz", *_SIGNED, *_UNSIGNED),
        numeric.clz,
        "number of leading zero bits; the width for 0",
    ),
    Intrinsic(
        "mulhi",
        2,
        _integers("mulhi", "u32", "u64"),
        numeric.mulhi,
        "upper half of the double-width product",
    ),
    Intrinsic(
        "rotl",
        2,
        _integers("rotl", *_UNSIGNED),
        numeric.rotl,
        "bits rotated left by b modulo the width",
    ),
    Intrinsic(
        "prefetch",
        1,
        _prefetched,
        lambda _: np.True_,
        "requests a load's cache line; accesses no memory",
        pure=False,
    ),
    Intrinsic(
        "check",
        2,
        _checked,
        lambda cond, _: cond,
        "reports fault b if a is false, and continues",
        pure=False,
    ),
    Intrinsic(
        "commit_copies",
        0,
        lambda _: boolean,
        lambda: np.True_,
        "groups the thread's stores hinted async since the last commit",
        pure=False,
    ),
    Intrinsic(
        "wait_copies",
        1,
        _waited,
        lambda _: np.True_,
        "waits for all but the last a groups of the thread's copies",
        pure=False,
    ),
)
NATIVES: Final = {intrinsic.name: intrinsic for intrinsic in _TABLE}
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
    entry = table[name]
    if len(args) != entry.arity:
        raise IRError(f"{name} takes {entry.arity} arguments, got {len(args)}")
    if name == "prefetch" and not isinstance(args[0], Load):
        raise IRError("prefetch takes a load, such as prefetch(x[0])")
    fitted = _fit(name, args)
    return Call(name, fitted, entry.result(tuple(arg.dtype for arg in fitted)))


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
