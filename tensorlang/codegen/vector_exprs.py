"""Expressions over all lanes of a vectorized loop.

Uniform values stay scalars. Integers with a constant stride between lanes stay a `Ramp`
through sums, products and narrowing casts, so that contiguous accesses are recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tensorlang.codegen.folding import add, is_const, make, mul, sub
from tensorlang.codegen.multiples import CHANGES, is_uniform, quotient_is_uniform
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.integers.bounds import Known
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    LaneReduce,
    Load,
    Ramp,
    Select,
    Splat,
    Unary,
    Var,
    as_expr,
    splat,
)


class NotVectorizable(Exception):  # noqa: N818 - a signal between passes
    """The loop runs serially instead."""


@dataclass
class Lanes:
    """The state for rewriting a loop's body over `count` lanes.

    `values` maps variables to their new values, `tiles` buffers allocated in the loop
    to their widened memory; `mask` holds the active lanes, `known` the ranges of
    integers.
    """

    count: int
    values: dict[Var, Expr]
    tiles: dict[Buffer, Buffer] = field(default_factory=dict)
    mask: Expr | None = None
    multiples: dict[Var, int] = field(default_factory=dict)
    known: Known = field(default_factory=Known)

    def wide(self, expr: Expr) -> Expr:
        """The value in all lanes, as a vector."""
        return splat(self.over(expr), self.count)

    @method_by_class
    def over(self, expr: Expr) -> Expr:
        """The value over the lanes; a scalar if it is uniform.

        Raises:
            NotVectorizable: the expression is a vector already.
        """
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        return expr

    @over.register
    def _var(self, expr: Var) -> Expr:
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        return self.values.get(expr, expr)

    @over.register
    def _binary(self, expr: Binary) -> Expr:
        a, b = self.over(expr.a), self.over(expr.b)
        if a.dtype.lanes == b.dtype.lanes == 1:
            return (
                expr
                if a is expr.a and b is expr.b
                else make(expr.op, a, b, expr.contract)
            )
        stepped = _stepped(expr.op, a, b, self.count)
        if stepped is None:
            stepped = self.divided(expr.op, a, b)
        if stepped is not None:
            return stepped
        n = self.count
        return Binary(expr.op, splat(a, n), splat(b, n), expr.contract)

    def divided(self, op: str, a: Expr, b: Expr) -> Expr | None:
        """Quotient or remainder of a ramp with the same quotient in all lanes."""
        if not isinstance(a, Ramp) or not isinstance(b, Const):
            return None
        if op == "shr" and 0 <= b.value < a.base.dtype.bits:
            divisor = 1 << int(b.value)
        elif op in ("floordiv", "floormod"):
            divisor = int(b.value)
        else:
            return None
        if not quotient_is_uniform(a, divisor, self.multiples):
            return None
        first = make(op, a.base, b)
        return Ramp(first, a.stride, a.lanes) if op == "floormod" else first

    @over.register
    def _compare(self, expr: Compare) -> Expr:
        a, b = self.over(expr.a), self.over(expr.b)
        if a.dtype.lanes == b.dtype.lanes == 1:
            return Compare(expr.op, a, b)
        match a, b:
            case Ramp(base=base), Const(value=last) if expr.op in CHANGES:
                if is_uniform(a, int(last) + CHANGES[expr.op], self.multiples):
                    return Compare(expr.op, base, b)
        return self.compared(expr.op, a, b)

    def compared(self, op: str, a: Expr, b: Expr) -> Expr:
        """Compare lanes; an index against a bound in i32.

        `base + lane < n` is `lane < clamp(n - base, 0, count)`, half the work of i64.
        """
        match op, a:
            case "lt", Ramp(base=base, stride=Const(value=1)) if b.dtype == i64:
                room = self.room(base, b)
                if room is not None:
                    left = make("min", room, as_expr(self.count)).cast(i32)
                    lane = Ramp(Const(0, i32), Const(1, i32), self.count)
                    return Compare("lt", lane, Splat(left, self.count))
        return Compare(op, splat(a, self.count), splat(b, self.count))

    def room(self, base: Expr, end: Expr) -> Expr | None:
        """`max(end - base, 0)`; None if it or a lane's index may wrap."""
        if not self.known.exact(base + (self.count - 1)):
            return None
        if self.known.exact(end - base):
            return make("max", sub(end, base), as_expr(0))
        low = self.known.interval(base)[0]
        return (
            sub(make("max", end, base), base) if low is not None and low >= 0 else None
        )

    @over.register
    def _unary(self, expr: Unary) -> Expr:
        return replace(expr, a=self.over(expr.a))

    @over.register
    def _select(self, expr: Select) -> Expr:
        cond, a, b = self.over(expr.cond), self.over(expr.a), self.over(expr.b)
        if cond.dtype.lanes == a.dtype.lanes == b.dtype.lanes == 1:
            return Select(cond, a, b)
        return Select(cond, splat(a, self.count), splat(b, self.count))

    @over.register
    def _cast(self, expr: Cast) -> Expr:
        a = self.over(expr.a)
        target = expr.dtype.vector(a.dtype.lanes)
        if isinstance(a, Ramp) and _narrows(a, expr):
            return Ramp(a.base.cast(expr.dtype), a.stride.cast(expr.dtype), a.lanes)
        return Cast(target, a)

    @over.register
    def _bitcast(self, expr: Bitcast) -> Expr:
        a = self.over(expr.a)
        return Bitcast(expr.dtype.vector(a.dtype.lanes), a)

    @over.register
    def _call(self, expr: Call) -> Expr:
        args = tuple(self.over(arg) for arg in expr.args)
        lanes = max((arg.dtype.lanes for arg in args), default=1)
        if lanes == 1:
            return Call(expr.name, args, expr.dtype)
        wide = tuple(splat(arg, self.count) for arg in args)
        return Call(expr.name, wide, expr.dtype.vector(self.count))

    @over.register
    def _load(self, expr: Load) -> Expr:
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        buffer, index = self.place(expr.buffer, expr.indices[0])
        own = None if expr.mask is None else self.over(expr.mask)
        mask = both(self.mask, own)
        if mask is not None and _inside(expr.buffer, index):
            mask = own
        if mask is not None and index.dtype.lanes == 1 and mask.dtype.lanes > 1:
            mask = LaneReduce("or", mask)
        if mask is not None:
            mask = splat(mask, index.dtype.lanes)
        return Load(buffer, (index,), mask, expr.hints)

    def place(self, buffer: Buffer, index: Expr) -> tuple[Buffer, Expr]:
        """The memory and the lanes' indices; lanes are a tile's innermost dimension."""
        over = self.over(index)
        if buffer not in self.tiles:
            return buffer, over
        count = as_expr(self.count)
        match over:
            case Ramp(base=base, stride=stride):
                step = add(mul(stride, count), as_expr(1))
                return self.tiles[buffer], Ramp(mul(base, count), step, self.count)
            case _ if over.dtype.lanes == 1:
                one = as_expr(1)
                return self.tiles[buffer], Ramp(mul(over, count), one, self.count)
            case _:
                lane = Ramp(as_expr(0), as_expr(1), self.count)
                wide = Binary("mul", over, Splat(count, self.count))
                return self.tiles[buffer], Binary("add", wide, lane)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two masks; None means all lanes."""
    if a is None or b is None:
        return b if a is None else a
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return Binary("and", splat(a, lanes), splat(b, lanes))


def _inside(buffer: Buffer, index: Expr) -> bool:
    """Whether a constant index is in the bounds of a constant shape."""
    (extent,) = buffer.shape
    return (
        isinstance(extent, Const)
        and isinstance(index, Const)
        and 0 <= index.value < extent.value
    )


def _narrows(ramp: Ramp, cast: Cast) -> bool:
    source = ramp.base.dtype
    return cast.dtype.is_integer and cast.dtype.bits <= source.bits


def _stepped(op: str, a: Expr, b: Expr, count: int) -> Expr | None:
    """Apply `op` to ramps and uniform integers; None if the result is no ramp."""
    if not a.dtype.is_integer or op not in ("add", "sub", "mul", "shl"):
        return None
    one, two = _steps(a), _steps(b)
    if one is None or two is None:
        return None
    (base_a, step_a), (base_b, step_b) = one, two
    if op in ("add", "sub"):
        base, step = make(op, base_a, base_b), make(op, step_a, step_b)
    elif op == "mul" and (is_const(step_a, 0) or is_const(step_b, 0)):
        base = mul(base_a, base_b)
        step = add(mul(step_a, base_b), mul(base_a, step_b))
    elif op == "shl" and isinstance(base_b, Const) and is_const(step_b, 0):
        if not 0 <= base_b.value < a.dtype.bits:
            return None
        factor = Const(1 << int(base_b.value), a.dtype.scalar)
        base, step = mul(base_a, factor), mul(step_a, factor)
    else:
        return None
    return Splat(base, count) if is_const(step, 0) else Ramp(base, step, count)


def _steps(expr: Expr) -> tuple[Expr, Expr] | None:
    """Base and stride of a ramp or a uniform value."""
    match expr:
        case Ramp(base=base, stride=stride):
            return base, stride
        case Splat(value=value):
            return value, Const(0, value.dtype)
        case _ if expr.dtype.lanes == 1:
            return expr, Const(0, expr.dtype)
        case _:
            return None
