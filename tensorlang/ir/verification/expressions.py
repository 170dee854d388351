"""Rules for expressions that depend on their site, or on the intrinsics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import collectives_in
from tensorlang.ir.dtypes import DType
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.sites import Site, check_declared, check_in_scope
from tensorlang.ir.visit import children

MAX_DEPTH: Final = 128
MAX_LANES: Final = 4096
# calls whose argument is a memory address
_ADDRESSED: Final = ("prefetch", "ldmatrix_x4", "ldmatrix_x4_trans")


def check_expr(expr: ir.Expr, site: Site, depth: int = 1) -> None:
    """Check an expression and its subexpressions by the rules of their node types.

    Raises:
        IRError: the violated rule, and where.
    """
    if depth > MAX_DEPTH:
        raise site.fault(
            f"an expression nests deeper than {MAX_DEPTH}; name parts of it with lets"
        )
    check_lanes(expr.dtype, site)
    rule = _RULES.get(type(expr))
    if rule is not None:
        rule(expr, site)
    for child in operands(expr):
        check_expr(child, site, depth + 1)


def operands(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The child expressions of `expr`."""
    return (child for child in children(expr) if isinstance(child, ir.Expr))


def evaluated(stmt: ir.Stmt) -> Iterator[ir.Expr]:
    """The expressions that a statement itself evaluates whenever it is reached."""
    for child in children(stmt):
        if isinstance(child, ir.Expr):
            yield child
        elif isinstance(stmt, ir.Block) and not isinstance(child, ir.Stmt):
            yield from (part for part in children(child) if isinstance(part, ir.Expr))


def check_lanes(dtype: DType, site: Site) -> None:
    """A vector has at most `MAX_LANES` lanes."""
    if dtype.lanes > MAX_LANES:
        raise site.fault(f"{dtype} has too many lanes; at most {MAX_LANES}")


def check_access(
    buffer: ir.Buffer, indices: tuple[ir.Expr, ...], mask: ir.Expr | None, site: Site
) -> int:
    """The lanes of an access, whose buffer is in scope and whose lanes agree."""
    check_declared(buffer, site)
    counts = {index.dtype.lanes for index in indices} | {1}
    if mask is not None:
        counts.add(mask.dtype.lanes)
    if len(counts) > 2:
        raise site.fault(
            f"an access to {buffer.name!r} mixes lanes {sorted(counts)}; "
            "give all indices and the mask one number of lanes"
        )
    for index, extent in zip(indices, buffer.shape, strict=True):
        check_inside(buffer, index, extent, site)
    lanes = max((index.dtype.lanes for index in indices), default=1)
    if mask is not None and mask.dtype.lanes > lanes:
        raise site.fault(
            f"an access to {buffer.name!r} of {lanes} lanes has a mask of "
            f"{mask.dtype.lanes}; use a mask of {lanes}"
        )
    return lanes


def check_inside(
    buffer: ir.Buffer, index: ir.Expr, extent: ir.Expr, site: Site
) -> None:
    """A constant index is within its dimension, if that is constant."""
    if not isinstance(index, ir.Const):
        return
    beyond = isinstance(extent, ir.Const) and index.value >= extent.value
    if index.value < 0 or beyond:
        raise site.fault(
            f"{buffer.name!r} is accessed at {index.value}, outside of its dimension "
            f"of {extent!r}; index it from 0 to one below"
        )


def check_divisor(expr: ir.Binary, site: Site) -> None:
    """A constant divisor is not 0, a constant shift less than the operand's width."""
    by = expr.b.value if isinstance(expr.b, ir.Splat) else expr.b
    if not isinstance(by, ir.Const):
        return
    if expr.op in ("floordiv", "floormod") and by.value == 0:
        raise site.fault(f"{expr!r} divides by 0")
    if expr.op in ("shl", "shr") and not 0 <= by.value < expr.dtype.bits:
        raise site.fault(
            f"{expr!r} shifts {expr.dtype.scalar} by {by.value}; "
            f"shift by 0 to {expr.dtype.bits - 1}"
        )


def check_operation(op: str, dtype: DType, site: Site) -> None:
    """A reducing operation is defined on the element type."""
    allowed = {
        "float": op in ("add", "mul", "min", "max"),
        "bool": op in ("and", "or", "xor"),
    }.get(dtype.kind, True)
    if not allowed:
        raise site.fault(
            f"{op!r} does not reduce {dtype.scalar}; choose another operation"
        )


def check_call(call: ir.Call, site: Site) -> None:
    """An intrinsic exists, accepts these arguments and returns this type."""
    entry = INTRINSICS.get(call.name)
    if entry is None:
        raise site.fault(
            f"{call.name!r} is not an intrinsic; see tensorlang.ir.intrinsics"
        )
    if len(call.args) != entry.arity:
        raise site.fault(
            f"{call.name} takes {entry.arity} arguments, not {len(call.args)}"
        )
    try:
        result = entry.result(tuple([arg.dtype for arg in call.args]))
    except IRError as error:
        raise site.fault(str(error)) from None
    if result != call.dtype:
        raise site.fault(
            f"{call.name} gives {result} here, but the call says {call.dtype}"
        )
    if call.name in _ADDRESSED and not isinstance(call.args[0], ir.Load):
        raise site.fault(f"{call.name} takes a load, such as {call.name}(x[0])")


def check_purity(call: ir.Call, site: Site) -> None:
    """An intrinsic with an effect is the whole expression of an `Evaluate`."""
    entry = INTRINSICS.get(call.name)
    if entry is not None and not entry.pure:
        raise site.fault(
            f"{call.name} has an effect; make it the whole of an evaluate(...)"
        )


def check_evaluate(stmt: ir.Evaluate, site: Site) -> None:
    """An `Evaluate` may contain an impure call, only at the top of its expression."""
    if not isinstance(stmt.expr, ir.Call):
        check_expr(stmt.expr, site)
        return
    check_call(stmt.expr, site)
    for arg in stmt.expr.args:
        check_expr(arg, site)


def check_atomic(stmt: ir.AtomicUpdate, site: Site) -> None:
    """An atomic update's operation is defined on the element type."""
    check_operation(stmt.op, stmt.buffer.dtype, site)


def check_together(parts: Iterable[ir.Node | None], where: str, site: Site) -> None:
    """No collective is placed where only some lanes may reach it."""
    for part in parts:
        for entry in () if part is None else collectives_in(part):
            raise site.fault(
                f"{entry.name} is for all lanes of a {entry.scope}, and is "
                f"{where}; bind it with a let before"
            )


def _load(load: ir.Load, site: Site) -> None:
    check_access(load.buffer, load.indices, load.mask, site)
    if load.mask is not None:
        check_together(load.indices, "below the mask of a load", site)


def _select(expr: ir.Select, site: Site) -> None:
    check_together((expr.a, expr.b), "in a branch of a select", site)


def _call(call: ir.Call, site: Site) -> None:
    check_call(call, site)
    check_purity(call, site)


def _lane_reduce(expr: ir.LaneReduce, site: Site) -> None:
    check_operation(expr.op, expr.vector.dtype, site)


_RULES: Final[dict[type[ir.Expr], Callable[[Any, Site], None]]] = {
    ir.Var: check_in_scope,
    ir.Load: _load,
    ir.Select: _select,
    ir.Binary: check_divisor,
    ir.Call: _call,
    ir.LaneReduce: _lane_reduce,
}
