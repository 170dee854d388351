"""Rotate a loop of two products of warpgroups, so that both go on during the rest.

    for t in range(n):                    wait(0); a = product(0); S(a)
        wait(t)                           for t in range(n - 1):
        a = product(t)           ->           wait_products(0)
        S(a)                                  free stage t - 1; w = T(a)
        w = T(a)                              wait(t + 1); a = product(t + 1)
        b += product(w, t)                    b += product(w, t)
        free stage t                          wait_products(1)
                                              S(a)
                                          wait_products(0)
                                          w = T(a); b += product(w, n - 1)

`S` runs while the second product goes on. `T` is what that product needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, reads, writes
from tensorlang.ir.natives import wait_products
from tensorlang.scheduling.analysis import tree


def products_in(stmts: Sequence[ir.Stmt]) -> list[int]:
    """The positions of products of warpgroups."""
    return [n for n, stmt in enumerate(stmts) if any(map(_multiplies, blocks(stmt)))]


def _multiplies(block: ir.Block) -> bool:
    return block.scope == "warpgroup" and any(
        isinstance(inner.body, ir.Reduce) for inner in blocks(block.body)
    )


@frozen
class Step:
    """The statements of an iteration of such a loop, in terms of its variable."""

    first: ir.Stmt  # product
    middle: tuple[ir.Stmt, ...]  # what comes of it
    ahead: tuple[ir.Stmt, ...]  # what the other product needs
    second: ir.Stmt  # product

    @classmethod
    def of(cls, loop: ir.For, stmts: Sequence[ir.Stmt]) -> Step:
        """The parts of an iteration.

        Raises:
            ScheduleError: it is not of this form.
        """
        found = products_in(stmts)
        if len(found) != 2 or found != [0, len(stmts) - 1]:
            raise ScheduleError(
                f"loop {loop.var.name!r} has {len(found)} products of warpgroups: two "
                "go on during what is between them, if they are its first and last "
                "statements"
            )
        first, *between, second = stmts
        used = reads(second) | writes(second)
        start = next(
            (n for n, stmt in enumerate(between) if writes(stmt) & used), len(between)
        )
        return cls(first, tuple(between[:start]), tuple(between[start:]), second)


def rotated(
    loop: ir.For,
    step: Callable[[ir.Expr], Step],
    wait: Callable[[ir.Expr], ir.Stmt],
    free: Callable[..., ir.Stmt],
    taken: set[str],
) -> ir.Stmt:
    """The rotated loop.

    Args:
        loop: The loop.
        step: The statements of an iteration.
        wait: What waits for the copies of an iteration.
        free: What frees the stage of an iteration, under conditions.
        taken: Names in use.
    """
    t, last = loop.var, loop.extent - 1
    zero = ir.as_expr(0)
    begun, now, later, ended = (step(at) for at in (zero, t, t + 1, last))
    start = ir.seq(begun.first, *begun.middle)
    end = ir.seq(*ended.ahead, ended.second)
    body = ir.seq(
        ir.Evaluate(wait_products(0)),
        free(t - 1, t > 0),
        *now.ahead,
        wait(t + 1),
        later.first,
        now.second,
        ir.Evaluate(wait_products(1)),
        *later.middle,
    )
    made = ir.seq(
        wait(zero),
        tree.rename(start, taken, "_first"),
        ir.For(t, last, loop.kind, body),
        ir.Evaluate(wait_products(0)),
        free(last - 1, last > 0),
        tree.rename(end, taken, "_last"),
        free(last),
    )
    return ir.If(loop.extent > 0, made)
