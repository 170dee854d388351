"""The scope of an expansion: its intermediate values, and shared steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType, f32, f64, i32, i64, u32, u64
from tensorlang.ir.natives import fma

_INTS: Final = {"f32": (i32, u32), "f64": (i64, u64)}
MANTISSA: Final = {"f32": 23, "f64": 52}
BIAS: Final = {"f32": 127, "f64": 1023}


@dataclass
class Scope:
    """The `Let`s of one expansion, over values of one float type (f32 or f64).

    `variable` makes one of an unused name like the given one, and of the given type.
    """

    dtype: DType
    variable: Callable[[str, DType], ir.Var]
    lets: list[ir.Let] = field(default_factory=list)

    @property
    def single(self) -> bool:
        """Whether the type is f32 (else f64)."""
        return self.dtype.scalar == f32

    @property
    def mantissa(self) -> int:
        """Bits of the stored mantissa: 23 or 52."""
        return MANTISSA[self.dtype.name]

    @property
    def bias(self) -> int:
        """The bias of the exponent: 127 or 1023."""
        return BIAS[self.dtype.name]

    @property
    def int(self) -> DType:
        """The signed integers of the same width and lanes."""
        return _INTS[self.dtype.name][0].vector(self.dtype.lanes)

    @property
    def uint(self) -> DType:
        """The unsigned integers of the same width and lanes."""
        return _INTS[self.dtype.name][1].vector(self.dtype.lanes)

    def let(self, value: ir.Expr, name: str = "t") -> ir.Var:
        """A variable bound to `value`, which has a name if it is one already."""
        if isinstance(value, ir.Var):
            return value
        var = self.variable(name, value.dtype)
        self.lets.append(ir.Let(var, value))
        return var

    def named(self, value: ir.Expr, name: str) -> ir.Var:
        """A variable of this name bound to `value`; the last one made is renamed."""
        if self.lets and value is self.lets[-1].var:
            value = self.lets.pop().value
        return self.let(value, name)

    def const(self, value: float) -> ir.Expr:
        """A constant of the float type, in all lanes."""
        return ir.splat(ir.Const(value, self.dtype.scalar), self.dtype.lanes)

    def fma(
        self, a: ir.ExprLike, b: ir.ExprLike, c: ir.ExprLike, name: str = "t"
    ) -> ir.Var:
        """`a*b + c`, rounded once, as a variable."""
        return self.let(fma(a, b, c), name)

    def horner(self, x: ir.Expr, coefficients: Sequence[float]) -> ir.Var:
        """The polynomial with these coefficients, highest power first."""
        total = self.const(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self.fma(total, x, coefficient, "poly")
        return self.let(total)

    def bits(self, x: ir.Expr) -> ir.Var:
        """The bits of a float as a signed integer."""
        return self.let(ir.Bitcast(self.int, x), "bits")

    def float(self, bits: ir.Expr, name: str = "t") -> ir.Var:
        """The float with these bits."""
        return self.let(ir.Bitcast(self.dtype, bits), name)

    def power_of_two(self, exponent: ir.Expr, name: str = "power") -> ir.Var:
        """2 to an integer power within the normal range."""
        return self.float((exponent + self.bias) << self.mantissa, name)

    def select(
        self, cond: ir.Expr, a: ir.ExprLike, b: ir.ExprLike, name: str = "t"
    ) -> ir.Var:
        """`a` where `cond` holds, else `b`, as a variable."""
        kind, lanes = self.dtype.scalar, self.dtype.lanes
        return self.let(
            ir.Select(
                cond,
                ir.splat(ir.as_expr(a, kind), lanes),
                ir.splat(ir.as_expr(b, kind), lanes),
            ),
            name,
        )

    def nearest(
        self, x: ir.Expr, name: str, scale: ir.ExprLike = 1.0
    ) -> tuple[ir.Var, ir.Var]:
        """`x * scale` rounded to an integer: as a float, and as an integer of a name.

        Adding 1.5 * 2^mantissa leaves the integer in the low bits; its magnitude must
        be below 2^(mantissa - 2). Beyond (and for NaN) both results are undefined.
        """
        magic = 1.5 * 2.0**self.mantissa
        moved = self.fma(x, scale, magic, "moved")
        whole = self.let(moved - magic, "whole")
        stored = int(np.array(magic, self.dtype.numpy).view(self.int.numpy))
        return whole, self.let(self.bits(moved) - stored, name)


def widen(scope: Scope) -> Scope:
    """A scope of f64 that appends to the same `Let`s."""
    return Scope(f64.vector(scope.dtype.lanes), scope.variable, scope.lets)
