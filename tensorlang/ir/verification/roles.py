"""Rules for roles and barrier objects, in a table by node type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tensorlang.ir.nodes import (
    Arrive,
    Barrier,
    BarrierObject,
    Call,
    Const,
    Evaluate,
    For,
    Role,
    Stmt,
    Wait,
)
from tensorlang.ir.sites import Site
from tensorlang.ir.verification.expressions import check_evaluate, check_expr
from tensorlang.ir.visit import walk

MOST_IN_FLIGHT: Final = 7  # products that a wait leaves


def check_role(stmt: Role, site: Site) -> None:
    """A role has one bool condition over a block's threads, and roles do not nest."""
    if not stmt.cond.dtype.is_bool or stmt.cond.dtype.lanes != 1:
        raise site.fault(
            f"the condition of role is {stmt.cond.dtype}; it must be one bool"
        )
    check_expr(stmt.cond, site)
    if not _in_threads(site):
        raise site.fault("a role is outside of the threads; bind a loop around it")
    if any(isinstance(outer, Role) for outer in site.around):
        raise site.fault("a role is in another role; put one after the other")


def check_barrier_object(stmt: BarrierObject, site: Site) -> None:
    """Barrier objects are declared per block, not per thread."""
    if _in_threads(site):
        raise site.fault(
            f"barrier object {stmt.name!r} is inside of the threads; "
            "declare it around them"
        )


def check_arrive(stmt: Arrive, site: Site) -> None:
    """An arrival is at a declared object; its copies do not synchronize."""
    _check_object(stmt.name, site)
    check_expr(stmt.index, site)
    below = () if stmt.copies is None else walk(stmt.copies)
    for inner in below:
        if isinstance(inner, Role | Arrive | Wait | Barrier):
            word = type(inner).__name__.lower()
            raise site.fault(
                f"the copies that arrive at {stmt.name!r} hold a {word}; "
                "they run asynchronously and cannot wait"
            )


def check_wait(stmt: Wait, site: Site) -> None:
    """A wait is at a declared object."""
    _check_object(stmt.name, site)
    check_expr(stmt.index, site)
    check_expr(stmt.phase, site)


def check_products_wait(stmt: Evaluate, site: Site) -> None:
    """Products of warpgroups are waited for in a role, but for a constant number."""
    if not isinstance(stmt.expr, Call) or stmt.expr.name != "wait_products":
        return
    (left,) = stmt.expr.args
    if not isinstance(left, Const) or not 0 <= left.value <= MOST_IN_FLIGHT:
        raise site.fault(
            f"{stmt.expr!r} does not leave a constant number of products in flight; "
            f"leave 0 to {MOST_IN_FLIGHT}"
        )
    if not any(isinstance(outer, Role) for outer in site.around):
        raise site.fault(
            f"{stmt.expr!r} is outside of a role; put it in that of the products"
        )


def _check_object(name: str, site: Site) -> None:
    if name not in site.barriers:
        raise site.fault(f"no barrier object {name!r} is declared around here")
    if not _in_threads(site):
        raise site.fault(f"{name!r} is used outside of the threads")


def _in_threads(site: Site) -> bool:
    return any(
        isinstance(outer, For) and outer.thread.startswith("thread.")
        for outer in site.around
    )


RULES: Final[dict[type[Stmt], tuple[Callable[[Any, Site], None], ...]]] = {
    Role: (check_role,),
    BarrierObject: (check_barrier_object,),
    Arrive: (check_arrive,),
    Wait: (check_wait,),
    Evaluate: (check_evaluate, check_products_wait),
}
