"""Derivatives of elementwise expressions, by reverse-mode differentiation.

The contribution of a subexpression to the gradient is a *slope*: a sum of products of
factors with integer powers. In this form constants combine, factors cancel, and common
factors are found again; so a derived gradient is about as short as a handwritten one. A
condition splits a slope in two: the branch not taken contributes nothing, rather than 0
times its value.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from tensorlang.errors import OperatorError
from tensorlang.frozen import frozen
from tensorlang.ir import intrinsics
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import DType
from tensorlang.ir.visit import children, fresh, substitute

# factors with their powers, in order of first occurrence
Product: TypeAlias = "tuple[tuple[ir.Expr, int], ...]"


@frozen
class Sum:
    """Products with their coefficients."""

    terms: tuple[tuple[Product, float], ...] = ()


@frozen
class Branch:
    """One slope where a condition holds, another one elsewhere."""

    cond: ir.Expr
    then: Slope
    other: Slope


Slope: TypeAlias = Sum | Branch
Rule: TypeAlias = Callable[[Slope], Slope]
ZERO: Final = Sum()
# a factor of the chain rule: a coefficient and a product
Factor: TypeAlias = "tuple[float, Product]"


def derivative(
    element: Callable[..., object],
    seeds: Sequence[ir.Expr | None],
    operands: Sequence[ir.Expr | None],
    floats: Sequence[bool],
    attributes: Mapping[str, object],
) -> tuple[ir.Expr | None, ...]:
    """The gradients of the operands of a definition, from those of its results.

    Args:
        element: Maps the operands and attributes to a result, or several.
        seeds: The gradient of each result, None if not needed.
        operands: The operands, None for omitted ones.
        floats: Which operands may have a gradient.
        attributes: The other arguments of the definition.

    Returns:
        A gradient, or None, for each operand that may have one.
    """
    # derivatives of derivatives already use such names
    used = [e for e in (*seeds, *operands) if isinstance(e, ir.Expr)]
    taken = {var.name for var in set[ir.Var]().union(*map(free_vars, used))}
    held = {
        ir.Var(fresh("operand", taken), value.dtype): value
        for value in operands
        if value is not None
    }
    stand_ins = iter(held)
    given = [value if value is None else next(stand_ins) for value in operands]
    made = element(*given, **attributes)
    several = made if isinstance(made, tuple) else (made,)
    needed = [  # omitted operands have no gradient
        (ir.as_expr(result), seed)
        for result, seed in zip(several, seeds, strict=True)
        if result is not None and seed is not None
    ]
    wrt = [var for var, may in zip(given, floats, strict=True) if may]
    there = [var for var in wrt if var is not None]
    found = dict(zip(there, gradients(needed, there), strict=True))
    return tuple(None if var is None else substitute(found[var], held) for var in wrt)


def gradients(
    results: Sequence[tuple[ir.Expr, ir.Expr]], wrt: Sequence[ir.Expr]
) -> list[ir.Expr]:
    """The gradients with respect to `wrt`, from those of the results.

    Args:
        results: Expressions of the variables, each with its gradient.
        wrt: The variables or other subexpressions: floats, or any type that is only
            moved.

    Raises:
        OperatorError: a subexpression has no derivative.
    """
    slopes: dict[ir.Expr, Slope] = {}
    for result, seed in results:
        coefficient, product = factor(seed)
        _add(slopes, result, Sum(((product, coefficient),)))
    for node in reversed(_between([result for result, _ in results], set(wrt))):
        if node in slopes and node not in wrt:
            for part, slope in _contributions(node, slopes[node]):
                _add(slopes, part, slope)
    return [written(slopes.get(var, ZERO), var.dtype) for var in wrt]


def _between(results: Iterable[ir.Expr], wrt: set[ir.Expr]) -> list[ir.Expr]:
    """The float subexpressions between variables and results, in topological order."""
    order: dict[ir.Expr, bool] = {}
    moved = {var.dtype for var in wrt}

    def visit(node: ir.Expr) -> bool:
        if node not in order:
            below = [visit(c) for c in children(node) if isinstance(c, ir.Expr)]
            may = node.dtype.is_float or node.dtype in moved
            order[node] = node in wrt or (any(below) and may)
        return order[node]

    for result in results:
        visit(result)
    return [node for node, needed in order.items() if needed]


def _add(slopes: dict[ir.Expr, Slope], node: ir.Expr, slope: Slope) -> None:
    slopes[node] = plus(slopes.get(node, ZERO), slope)


def _contributions(node: ir.Expr, slope: Slope) -> Iterable[tuple[ir.Expr, Slope]]:
    """The contributions of a node's slope to the slopes of its operands."""
    match node:
        case ir.Binary(op="add", a=a, b=b):
            return (a, slope), (b, slope)
        case ir.Binary(op="sub", a=a, b=b):
            return (a, slope), (b, times(slope, (-1.0, ())))
        case ir.Binary(op="mul", a=a, b=b):
            return (a, times(slope, factor(b))), (b, times(slope, factor(a)))
        case ir.Binary(op="div", a=a, b=b):
            up = times(slope, factor(b, -1))
            return (a, up), (b, times(times(up, factor(node)), (-1.0, ())))
        case ir.Unary(op="neg", a=a):
            return ((a, times(slope, (-1.0, ()))),)
        case ir.Unary(op="abs", a=a):
            return ((a, times(slope, factor(_sign(a)))),)
        case ir.Select(cond=cond, a=a, b=b):
            return (a, branch(cond, slope, ZERO)), (b, branch(cond, ZERO, slope))
        case ir.Cast(a=a) if a.dtype.is_float:
            narrow = written(slope, node.dtype).cast(a.dtype)
            return ((a, Sum((_product({narrow: 1}),))),)
        case ir.Call(name=name, args=args) if name in _CALLS:
            made = _CALLS[name](slope, node, *args)
            return zip(args, made if isinstance(made, tuple) else (made,), strict=False)
    raise OperatorError(
        f"{type(node).__name__} {node} has no derivative; give the operator a gradient "
        "of its own, or gradient=False"
    )


# ----------------------------------------------------------------------- calculating


def factor(expr: ir.Expr, power: int = 1) -> Factor:
    """A factor as a coefficient and the powers of its parts."""
    coefficient, powers = 1.0, Counter[ir.Expr]()
    waiting = [(expr, power)]
    while waiting:
        part, n = waiting.pop()
        match part:
            case ir.Const(value=value) if value != 0:
                coefficient *= float(value) ** n
            case ir.Unary(op="neg", a=a):
                coefficient = -coefficient
                waiting.append((a, n))
            case ir.Binary(op="mul", a=a, b=b):
                waiting += [(b, n), (a, n)]
            case ir.Binary(op="div", a=a, b=b):
                waiting += [(b, -n), (a, n)]
            case _:
                powers[part] += n
    return coefficient, _product(powers)[0]


def _product(
    powers: dict[ir.Expr, int], coefficient: float = 1.0
) -> tuple[Product, float]:
    """A product after cancellation; e^z over e^z + 1 is the sigmoid of z."""
    for part, n in list(powers.items()):
        if isinstance(part, ir.Call) and part.name == "exp" and n > 0:
            below = ir.Binary("add", part, ir.as_expr(1.0, part.dtype))
            if powers.get(below) == -n:
                del powers[below]
                powers[part] = 0
                powers[intrinsics.sigmoid(part.args[0])] = n
    return tuple((part, n) for part, n in powers.items() if n), coefficient


def times(slope: Slope, by: Factor) -> Slope:
    """A slope multiplied by a factor."""
    if isinstance(slope, Branch):
        return Branch(slope.cond, times(slope.then, by), times(slope.other, by))
    coefficient, product = by
    made = []
    for held, c in slope.terms:
        powers = dict(held)
        for part, n in product:
            powers[part] = powers.get(part, 0) + n
        made.append(_product(powers, c * coefficient))
    return Sum(tuple(made))


def plus(a: Slope, b: Slope) -> Slope:
    """The sum of two slopes."""
    if isinstance(a, Branch) and isinstance(b, Branch) and a.cond == b.cond:
        return branch(a.cond, plus(a.then, b.then), plus(a.other, b.other))
    if ZERO in (a, b):
        return b if a == ZERO else a
    terms: dict[frozenset[tuple[ir.Expr, int]], tuple[Product, float]] = {}
    for product, coefficient in (*_terms(a), *_terms(b)):
        first, held = terms.get(frozenset(product), (product, 0.0))
        terms[frozenset(product)] = first, held + coefficient
    return Sum(tuple(term for term in terms.values() if term[1]))


def branch(cond: ir.Expr, then: Slope, other: Slope) -> Slope:
    """One slope where a condition holds, another one elsewhere."""
    return then if then == other else Branch(cond, then, other)


def _terms(slope: Slope) -> tuple[tuple[Product, float], ...]:
    """The terms of a sum; a branch is a single term."""
    if isinstance(slope, Sum):
        return slope.terms
    return ((((written(slope, _dtype(slope)), 1),), 1.0),)


def _dtype(slope: Slope) -> DType:
    while isinstance(slope, Branch):
        slope = slope.other if slope.then == ZERO else slope.then
    return slope.terms[0][0][0][0].dtype


# --------------------------------------------------------------------------- writing


def written(slope: Slope, dtype: DType) -> ir.Expr:
    """A slope as an expression."""
    if isinstance(slope, Branch):
        sides = written(slope.then, dtype), written(slope.other, dtype)
        return ir.Select(slope.cond, *sides)
    return _sum([(dict(product), c) for product, c in slope.terms], dtype)


def _sum(terms: Sequence[tuple[dict[ir.Expr, int], float]], dtype: DType) -> ir.Expr:
    """A sum, with factors shared by several terms factored out."""
    shared = Counter((part, n > 0) for powers, _ in terms for part, n in powers.items())
    (part, above), uses = max(
        shared.items(), key=lambda item: item[1], default=((None, True), 0)
    )
    if part is None or uses < 2:
        return _added(terms, dtype)
    inside, rest = [], []
    for powers, c in terms:
        power = powers.get(part, 0)
        if power > 0 if above else power < 0:
            left = {**powers, part: power - (1 if above else -1)}
            inside.append(({p: n for p, n in left.items() if n}, c))
        else:
            rest.append((powers, c))
    inner = _sum(inside, dtype)
    made = part * inner if above else inner / part
    return made + _sum(rest, dtype) if rest else made


def _added(terms: Sequence[tuple[dict[ir.Expr, int], float]], dtype: DType) -> ir.Expr:
    """Add products, subtracting those with a negative coefficient."""
    total: ir.Expr | None = None
    for powers, c in sorted(terms, key=lambda term: term[1] < 0):
        if total is None:
            total = _written(powers, c, dtype)
        elif c > 0:
            total = total + _written(powers, c, dtype)
        else:
            total = total - _written(powers, -c, dtype)
    return ir.as_expr(0, dtype) if total is None else total


def _written(powers: dict[ir.Expr, int], coefficient: float, dtype: DType) -> ir.Expr:
    """A product: its first factor times all others."""
    above = [part for part, n in powers.items() for _ in range(n)]
    below = [part for part, n in powers.items() for _ in range(-n)]
    if not above[1:]:  # at most one factor to divide: multiply by the inverse
        deep = {part for part, n in powers.items() if n < -1}
        inverse = {part: 1.0 / part for part in deep}
        above += [inverse[part] for part in below if part in deep]
        below = [part for part in below if part not in deep]
    if not above:
        above, coefficient = [ir.as_expr(coefficient, dtype)], 1.0
    first, *rest = above
    if coefficient == -1:
        first, coefficient = -first, 1.0
    value = functools.reduce(operator.mul, rest) if rest else first
    if coefficient != 1 and not rest and len(below) == 1:
        below, coefficient = [below[0] * (1 / coefficient)], 1.0
    if coefficient != 1:
        value = value * coefficient
    for part in below:
        value = value / part
    return first * value if rest else value


# ------------------------------------------------------------- functions of one operand


def _by(*parts: ir.Expr, below: ir.Expr | None = None, times_: float = 1.0) -> Rule:
    def rule(slope: Slope) -> Slope:
        for part in parts:
            slope = times(slope, factor(part))
        if below is not None:
            slope = times(slope, factor(below, -1))
        return times(slope, (times_, ()))

    return rule


def _sign(x: ir.Expr) -> ir.Expr:
    """1 above 0, -1 below, else 0."""
    one, zero = ir.as_expr(1.0, x.dtype), ir.as_expr(0.0, x.dtype)
    return ir.Select(x > zero, one, ir.Select(x < zero, -one, zero))


# by name: from the call and its operand to the factor of slopes
_FUNCTIONS: Final[dict[str, Callable[[ir.Expr, ir.Expr], Rule]]] = {
    "exp": lambda y, _: _by(y),
    "exp2": lambda y, _: _by(y, times_=math.log(2)),
    "expm1": lambda _, x: _by(intrinsics.exp(x)),
    "log": lambda _, x: _by(below=x),
    "log2": lambda _, x: _by(below=x, times_=1 / math.log(2)),
    "log1p": lambda _, x: _by(below=x + 1.0),
    "sqrt": lambda y, _: _by(below=y, times_=0.5),
    "sin": lambda _, x: _by(intrinsics.cos(x)),
    "cos": lambda _, x: _by(intrinsics.sin(x), times_=-1.0),
    "tanh": lambda y, _: _by(1.0 - y * y),
    "sigmoid": lambda y, _: _by(y, 1.0 - y),
    "erf": lambda _, x: _by(intrinsics.exp(-(x * x)), times_=2 / math.sqrt(math.pi)),
    "erfinv": lambda y, _: _by(intrinsics.exp(y * y), times_=math.sqrt(math.pi) / 2),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda *_: lambda _: ZERO),
}


def _pow(slope: Slope, y: ir.Expr, a: ir.Expr, b: ir.Expr) -> tuple[Slope, Slope]:
    """No base gradient if b is 0, and no exponent gradient if a is 0 and b >= 0."""
    base = times(times(slope, factor(b)), factor(intrinsics.pow(a, b - 1.0)))
    exponent = times(times(slope, factor(y)), factor(intrinsics.log(a)))
    return (
        branch(b.equal(0.0), ZERO, base),
        branch(a.equal(0.0) & (b >= 0.0), ZERO, exponent),
    )


def _fma(
    slope: Slope, _: ir.Expr, a: ir.Expr, b: ir.Expr, _c: ir.Expr
) -> tuple[Slope, ...]:
    return times(slope, factor(b)), times(slope, factor(a)), slope


def _of_one(
    rule: Callable[[ir.Expr, ir.Expr], Rule],
) -> Callable[[Slope, ir.Expr, ir.Expr], Slope]:
    return lambda slope, y, x: rule(y, x)(slope)


_CALLS: Final[dict[str, Callable[..., Slope | tuple[Slope, ...]]]] = {
    "pow": _pow,
    "fma": _fma,
    **{name: _of_one(rule) for name, rule in _FUNCTIONS.items()},
}
