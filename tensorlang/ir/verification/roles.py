"""Rules for roles and barrier objects, in a table by node type."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from tensorlang.ir.contents import reads, writes
from tensorlang.ir.nodes import (
    Arrive,
    Barrier,
    BarrierObject,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    For,
    If,
    Reduce,
    Role,
    Seq,
    Stmt,
    Wait,
    While,
    seq,
)
from tensorlang.ir.sites import Site
from tensorlang.ir.verification.expressions import check_evaluate, check_expr
from tensorlang.ir.visit import walk

Buffers: TypeAlias = frozenset[Buffer]
Products: TypeAlias = tuple[Block, ...]
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
    if left := _sums(_in_flight(stmt.body, (), site)):
        raise site.fault(
            f"products that add to {_named(left)} are in flight where their role ends; "
            "put evaluate(wait_products(0)) after their loop"
        )


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


def check_copies_wait(stmt: Evaluate, site: Site) -> None:
    """Groups of copies are waited for but for a constant number of them."""
    if not isinstance(stmt.expr, Call) or stmt.expr.name != "wait_copies":
        return
    (left,) = stmt.expr.args
    if not isinstance(left, Const) or left.value < 0:
        raise site.fault(
            f"{stmt.expr!r} does not leave a constant number of groups of copies "
            "pending; leave 0 or more"
        )


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


def _in_flight(
    stmt: Stmt, flying: Products, site: Site, *, later: bool = False
) -> Products:
    """The products that go on after a statement, in order.

    Products are over at once, but for those in a loop whose steps wait for them
    (`later`).

    Raises:
        VerificationError: an instruction of threads reads such sums.
    """
    run = partial(_in_flight, site=site, later=later)
    match stmt:
        case Evaluate(expr=Call(name="wait_products", args=(left,))):
            kept = int(left.value) if isinstance(left, Const) else 0
            return flying[max(len(flying) - kept, 0) :]
        case Block(scope="warpgroup") if any(isinstance(n, Reduce) for n in walk(stmt)):
            return (*flying, stmt) if later else flying
        case Seq():
            for part in stmt.stmts:
                flying = run(part, flying)
            return flying
        case For(body=body) | While(body=body):
            run = partial(_in_flight, site=site, later=later or _waits(body))
            if isinstance(stmt, While):
                body = seq(Evaluate(stmt.cond), body)
            after = run(body, flying)
            return _either(flying, after, run(body, after))
        case If():
            both = [stmt.then, *([stmt.orelse] if stmt.orelse else [])]
            return _either(flying, *(run(part, flying) for part in both))
    if read := reads(stmt) & _sums(flying):
        raise site.fault(
            f"{_named(read)} is read while products that add to it are in flight; put "
            "evaluate(wait_products(0)) before"
        )
    return flying


def _either(*flying: Products) -> Products:
    """Those that may be in flight after one of several ways."""
    return tuple(dict.fromkeys(block for way in flying for block in way))


def _sums(flying: Products) -> Buffers:
    """What products in flight add to."""
    return frozenset[Buffer]().union(*map(writes, flying))


def _waits(body: Stmt) -> bool:
    """Whether a step of a loop waits for products, which go on until then."""
    parts = body.stmts if isinstance(body, Seq) else (body,)
    calls = (part.expr for part in parts if isinstance(part, Evaluate))
    return any(isinstance(x, Call) and x.name == "wait_products" for x in calls)


def _named(buffers: Buffers) -> str:
    return ", ".join(sorted(buffer.name for buffer in buffers))


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
    Evaluate: (check_evaluate, check_products_wait, check_copies_wait),
}
