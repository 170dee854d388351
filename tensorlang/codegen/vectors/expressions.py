"""Expressions over all lanes of a vectorized loop.

Uniform values stay scalars. Integers with a constant stride between lanes stay a `Ramp`
through sums, products and narrowing casts, so that contiguous accesses are recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tensorlang.codegen.folding import add, is_const, make, mul, sub
from tensorlang.codegen.multiples import CHANGES, is_uniform, quotient_is_uniform
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.integers.bounds import Known


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
    values: dict[ir.Var, ir.Expr]
    tiles: dict[ir.Buffer, ir.Buffer] = field(default_factory=dict)
    mask: ir.Expr | None = None
    multiples: dict[ir.Var, int] = field(default_factory=dict)
    known: Known = field(default_factory=Known)

    def wide(self, expr: ir.Expr) -> ir.Expr:
        """The value in all lanes, as a vector."""
        return ir.splat(self.over(expr), self.count)

    @method_by_class
    def over(self, expr: ir.Expr) -> ir.Expr:
        """The value over the lanes; a scalar if it is uniform.

        Raises:
            NotVectorizable: the expression is a vector already.
        """
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        return expr

    @over.register
    def _var(self, expr: ir.Var) -> ir.Expr:
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        return self.values.get(expr, expr)

    @over.register
    def _binary(self, expr: ir.Binary) -> ir.Expr:
        a, b = self.over(expr.a), self.over(expr.b)
        if a.dtype.lanes == b.dtype.lanes == 1:
            if a is expr.a and b is expr.b:
                return expr
            return make(expr.op, a, b, expr.contract)
        stepped = _stepped(expr.op, a, b, self.count)
        if stepped is None:
            stepped = self.divided(expr.op, a, b)
        if stepped is not None:
            return stepped
        n = self.count
        return ir.Binary(expr.op, ir.splat(a, n), ir.splat(b, n), expr.contract)

    def divided(self, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr | None:
        """Quotient or remainder of a ramp with the same quotient in all lanes."""
        if not isinstance(a, ir.Ramp) or not isinstance(b, ir.Const):
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
        return ir.Ramp(first, a.stride, a.lanes) if op == "floormod" else first

    @over.register
    def _compare(self, expr: ir.Compare) -> ir.Expr:
        a, b = self.over(expr.a), self.over(expr.b)
        if a.dtype.lanes == b.dtype.lanes == 1:
            return ir.Compare(expr.op, a, b)
        match a, b:
            case ir.Ramp(base=base), ir.Const(value=last) if expr.op in CHANGES:
                if is_uniform(a, int(last) + CHANGES[expr.op], self.multiples):
                    return ir.Compare(expr.op, base, b)
        return self.compared(expr.op, a, b)

    def compared(self, op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
        """Compare lanes; an index against a bound in i32.

        `base + lane < n` is `lane < clamp(n - base, 0, count)`, half the work of i64.
        """
        match op, a:
            case "lt", ir.Ramp(base=base, stride=ir.Const(value=1)) if b.dtype == i64:
                room = self.room(base, b)
                if room is not None:
                    left = make("min", room, ir.as_expr(self.count)).cast(i32)
                    lane = ir.ramp(ir.Const(0, i32), self.count)
                    return ir.Compare("lt", lane, ir.Splat(left, self.count))
        return ir.Compare(op, ir.splat(a, self.count), ir.splat(b, self.count))

    def room(self, base: ir.Expr, end: ir.Expr) -> ir.Expr | None:
        """`max(end - base, 0)`; None if it or a lane's index may wrap."""
        if not self.known.exact(base + (self.count - 1)):
            return None
        if self.known.exact(end - base):
            return make("max", sub(end, base), ir.as_expr(0))
        low = self.known.interval(base)[0]
        return (
            sub(make("max", end, base), base) if low is not None and low >= 0 else None
        )

    @over.register
    def _unary(self, expr: ir.Unary) -> ir.Expr:
        return replace(expr, a=self.over(expr.a))

    @over.register
    def _select(self, expr: ir.Select) -> ir.Expr:
        cond, a, b = self.over(expr.cond), self.over(expr.a), self.over(expr.b)
        if cond.dtype.lanes == a.dtype.lanes == b.dtype.lanes == 1:
            return ir.Select(cond, a, b)
        return ir.Select(cond, ir.splat(a, self.count), ir.splat(b, self.count))

    @over.register
    def _cast(self, expr: ir.Cast) -> ir.Expr:
        a = self.over(expr.a)
        target = expr.dtype.vector(a.dtype.lanes)
        if isinstance(a, ir.Ramp) and _narrows(a, expr):
            return ir.Ramp(a.base.cast(expr.dtype), a.stride.cast(expr.dtype), a.lanes)
        return ir.Cast(target, a)

    @over.register
    def _bitcast(self, expr: ir.Bitcast) -> ir.Expr:
        a = self.over(expr.a)
        return ir.Bitcast(expr.dtype.vector(a.dtype.lanes), a)

    @over.register
    def _call(self, expr: ir.Call) -> ir.Expr:
        args = tuple(self.over(arg) for arg in expr.args)
        lanes = max((arg.dtype.lanes for arg in args), default=1)
        if lanes == 1:
            return ir.Call(expr.name, args, expr.dtype)
        wide = tuple(ir.splat(arg, self.count) for arg in args)
        return ir.Call(expr.name, wide, expr.dtype.vector(self.count))

    @over.register
    def _load(self, expr: ir.Load) -> ir.Expr:
        if expr.dtype.lanes > 1:
            raise NotVectorizable
        buffer, index = self.place(expr.buffer, expr.indices[0])
        own = None if expr.mask is None else self.over(expr.mask)
        mask = both(self.mask, own)
        if mask is not None and _inside(expr.buffer, index):
            mask = own
        if mask is not None and index.dtype.lanes == 1 and mask.dtype.lanes > 1:
            mask = ir.LaneReduce("or", mask)
        if mask is not None:
            mask = ir.splat(mask, index.dtype.lanes)
        return ir.Load(buffer, (index,), mask, expr.hints)

    def place(self, buffer: ir.Buffer, index: ir.Expr) -> tuple[ir.Buffer, ir.Expr]:
        """The memory and the lanes' indices; lanes are a tile's innermost dimension."""
        over = self.over(index)
        if buffer not in self.tiles:
            return buffer, over
        count = ir.as_expr(self.count)
        match over:
            case ir.Ramp(base=base, stride=stride):
                step = add(mul(stride, count), ir.as_expr(1))
                return self.tiles[buffer], ir.Ramp(mul(base, count), step, self.count)
            case _ if over.dtype.lanes == 1:
                one = ir.as_expr(1)
                return self.tiles[buffer], ir.Ramp(mul(over, count), one, self.count)
            case _:
                lane = ir.ramp(ir.as_expr(0), self.count)
                wide = ir.Binary("mul", over, ir.Splat(count, self.count))
                return self.tiles[buffer], ir.Binary("add", wide, lane)


def both(a: ir.Expr | None, b: ir.Expr | None) -> ir.Expr | None:
    """The conjunction of two masks; None means all lanes."""
    if a is None or b is None:
        return b if a is None else a
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return ir.Binary("and", ir.splat(a, lanes), ir.splat(b, lanes))


def _inside(buffer: ir.Buffer, index: ir.Expr) -> bool:
    """Whether a constant index is in the bounds of a constant shape."""
    (extent,) = buffer.shape
    return (
        isinstance(extent, ir.Const)
        and isinstance(index, ir.Const)
        and 0 <= index.value < extent.value
    )


def _narrows(ramp: ir.Ramp, cast: ir.Cast) -> bool:
    source = ramp.base.dtype
    return cast.dtype.is_integer and cast.dtype.bits <= source.bits


def _stepped(op: str, a: ir.Expr, b: ir.Expr, count: int) -> ir.Expr | None:
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
    elif op == "shl" and isinstance(base_b, ir.Const) and is_const(step_b, 0):
        if not 0 <= base_b.value < a.dtype.bits:
            return None
        factor = ir.Const(1 << int(base_b.value), a.dtype.scalar)
        base, step = mul(base_a, factor), mul(step_a, factor)
    else:
        return None
    return ir.Splat(base, count) if is_const(step, 0) else ir.Ramp(base, step, count)


def _steps(expr: ir.Expr) -> tuple[ir.Expr, ir.Expr] | None:
    """Base and stride of a ramp or a uniform value."""
    match expr:
        case ir.Ramp(base=base, stride=stride):
            return base, stride
        case ir.Splat(value=value):
            return value, ir.Const(0, value.dtype)
        case _ if expr.dtype.lanes == 1:
            return expr, ir.Const(0, expr.dtype)
        case _:
            return None
