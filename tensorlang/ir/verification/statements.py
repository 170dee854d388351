"""Rules for statements, one small function each, in a table by node type."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.sites import Site, uses
from tensorlang.ir.verification.expressions import (
    check_access,
    check_atomic,
    check_expr,
    check_lanes,
    check_together,
)
from tensorlang.ir.verification.layouts import layout_fault
from tensorlang.ir.verification.roles import RULES as ROLE_RULES
from tensorlang.ir.visit import children, walk

MAX_ELEMENTS: Final = 1 << 48
MAX_EXTENT: Final = 1 << 48
_THREAD: Final = re.compile(r"[a-z]{1,16}\.[xyz]", re.ASCII)


def check_stmt(stmt: ir.Stmt, site: Site) -> None:
    """Check one statement, without its children, by all rules of its type.

    Raises:
        IRError: the violated rule, and where.
    """
    for rule in _RULES.get(type(stmt), ()):
        rule(stmt, site)


def check_sequence(stmt: ir.Seq, site: Site) -> None:
    """A sequence does not have just one statement: equal texts are equal trees."""
    if len(stmt.stmts) == 1:
        raise site.fault("a Seq of one statement; build it with seq(...)")


def check_let(stmt: ir.Let, site: Site) -> None:
    """The value of a `let` is well formed."""
    check_lanes(stmt.var.dtype, site)
    check_expr(stmt.value, site)


def check_alloc(stmt: ir.Alloc, site: Site) -> None:
    """A temporary has a valid shape and layout; registers have a constant size."""
    buffer = stmt.buffer
    check_buffer(buffer, site)
    varies = not all(isinstance(extent, ir.Const) for extent in buffer.shape)
    if varies and buffer.scope in ("register", "shared"):
        raise site.fault(
            f"{buffer.name!r} is in {buffer.scope!r} memory and its size varies; "
            "only global and private memory can have a size known at run time"
        )


def check_buffer(buffer: ir.Buffer, site: Site) -> None:
    """Dimensions are in scope and not negative, the layout is one-to-one."""
    for extent in buffer.shape:
        check_expr(extent, site)
    _check_size(buffer, site)
    if buffer.layout is None:
        return
    problem = layout_fault(buffer.layout, buffer.shape)
    if problem:
        raise site.fault(f"the layout of {buffer.name!r} {problem}")


def _check_size(buffer: ir.Buffer, site: Site) -> None:
    extents = [int(e.value) for e in buffer.shape if isinstance(e, ir.Const)]
    if any(extent < 0 for extent in extents):
        raise site.fault(f"{buffer.name!r} has a dimension below 0: {extents}")
    if math.prod(max(extent, 1) for extent in extents) > MAX_ELEMENTS:
        raise site.fault(
            f"{buffer.name!r} has {extents} elements; at most 2^48 are possible"
        )


def check_loop(stmt: ir.For, site: Site) -> None:
    """A loop counter is a scalar integer, with an extent within limits."""
    if not stmt.var.dtype.is_integer or stmt.var.dtype.lanes != 1:
        raise site.fault(
            f"loop {stmt.var.name!r} counts in {stmt.var.dtype}; use an integer type"
        )
    check_expr(stmt.extent, site)
    if isinstance(stmt.extent, ir.Const) and stmt.extent.value > MAX_EXTENT:
        raise site.fault(f"loop {stmt.var.name!r} runs beyond 2^48 iterations")


def check_thread(stmt: ir.For, site: Site) -> None:
    """A bound loop names a thread index that no loop around it has."""
    if stmt.kind != "bound":
        return
    if not _THREAD.fullmatch(stmt.thread):
        raise site.fault(
            f"loop {stmt.var.name!r} is bound to {stmt.thread!r}; "
            "use an index such as 'block.x' or 'thread.y'"
        )
    for outer in site.around:
        if isinstance(outer, ir.For) and outer.thread == stmt.thread:
            raise site.fault(
                f"loops {outer.var.name!r} and {stmt.var.name!r} are both bound to "
                f"{stmt.thread!r}; bind one of them to another index"
            )


def check_condition(stmt: ir.While | ir.If, site: Site) -> None:
    """The condition of a branch or `while` is one bool."""
    _one_bool(stmt.cond, site, type(stmt).__name__.lower())


def _one_bool(cond: ir.Expr, site: Site, what: str) -> None:
    if not cond.dtype.is_bool or cond.dtype.lanes != 1:
        raise site.fault(
            f"the condition of {what} is {cond.dtype}; it must be one bool"
        )
    check_expr(cond, site)


def check_store(stmt: ir.Store, site: Site) -> None:
    """A store has as many values as addresses, and one mask lane for each."""
    lanes = check_access(stmt.buffer, stmt.indices, stmt.mask, site)
    mask = () if stmt.mask is None else (stmt.mask,)
    if mask:
        check_together((stmt.value,), "below the mask of a store", site)
    for expr in (*stmt.indices, stmt.value, *mask):
        check_expr(expr, site)
    _same_lanes(stmt.buffer, lanes, stmt.value, site)


def _same_lanes(buffer: ir.Buffer, lanes: int, value: ir.Expr, site: Site) -> None:
    if value.dtype.lanes != lanes:
        raise site.fault(
            f"{buffer.name!r} is written at {lanes} places with {value.dtype.lanes} "
            f"values; splat the value or make the index a ramp"
        )


def check_reduce(stmt: ir.Reduce, site: Site) -> None:
    """A reduction has as many values as addresses."""
    for expr in stmt.indices + stmt.values:
        check_expr(expr, site)
    for buffer, value in zip(stmt.buffers, stmt.values, strict=True):
        lanes = check_access(buffer, stmt.indices, None, site)
        _same_lanes(buffer, lanes, value, site)


def check_state(stmt: ir.Reduce, site: Site) -> None:
    """The index of a state does not depend on the reduction axes."""
    axes = () if site.block is None else site.block.axes
    folded = {axis.var.name for axis in axes if axis.kind == "reduction"}
    moving = sorted(folded & uses(stmt.indices))
    if moving:
        raise site.fault(
            f"the state {stmt.buffers[0].name!r} is indexed by the reduction axis "
            f"{moving[0]!r}; index it by spatial axes"
        )


def check_update(stmt: ir.AtomicUpdate, site: Site) -> None:
    """An atomic update has as many values as addresses."""
    lanes = check_access(stmt.buffer, stmt.indices, None, site)
    for expr in (*stmt.indices, stmt.value):
        check_expr(expr, site)
    _same_lanes(stmt.buffer, lanes, stmt.value, site)


def check_axes(stmt: ir.Block, site: Site) -> None:
    """Each axis has an integer type, shared by its extent, and valid expressions."""
    for axis in stmt.axes:
        dtype = axis.var.dtype
        if not dtype.is_integer or dtype.lanes != 1 or axis.extent.dtype != dtype:
            raise site.fault(
                f"axis {axis.var.name!r} of block {stmt.name!r} is {dtype} with an "
                f"extent of {axis.extent.dtype}; use one integer type"
            )
        check_expr(axis.extent, site)
        check_expr(axis.value, site)


def check_where(stmt: ir.Block, site: Site) -> None:
    """The `where` of a block is one bool over the enclosing loops."""
    if stmt.where is not None:
        _one_bool(stmt.where, site, f"block {stmt.name!r}")


def check_folding(stmt: ir.Block, site: Site) -> None:
    """A block with reduction axes contains a `Reduce` or an `init`."""
    folded = [axis.var.name for axis in stmt.axes if axis.kind == "reduction"]
    if not folded or stmt.init is not None:
        return
    if not any(isinstance(inner, ir.Reduce) for inner in walk(stmt.body)):
        raise site.fault(
            f"block {stmt.name!r} has the reduction axis {folded[0]!r} but no reduce "
            "and no init; make the axis ordered, or use reduce(...)"
        )
    states = Counter(state.name for state in _folded_into(stmt.body))
    twice = [name for name, count in states.items() if count > 1]
    if twice:
        raise site.fault(
            f"block {stmt.name!r} folds into {twice[0]!r} twice, and which of the two "
            "starts it is not said; give the block an init, or fold once"
        )


def _folded_into(stmt: ir.Stmt) -> Iterator[ir.Buffer]:
    """The states of a block's own reductions, excluding nested blocks."""
    if isinstance(stmt, ir.Reduce):
        yield from stmt.buffers
    for inner in children(stmt):
        if isinstance(inner, ir.Stmt) and not isinstance(inner, ir.Block):
            yield from _folded_into(inner)


def check_barrier(stmt: ir.Barrier, site: Site) -> None:
    """A barrier names a known group of threads."""
    if stmt.scope not in ("team", *ir.EXECUTION_SCOPES):
        raise site.fault(
            f"a barrier of {stmt.scope!r}; use team, {', '.join(ir.EXECUTION_SCOPES)}"
        )


_RULES: Final[dict[type[ir.Stmt], tuple[Callable[[Any, Site], None], ...]]] = {
    ir.Seq: (check_sequence,),
    ir.Let: (check_let,),
    ir.Alloc: (check_alloc,),
    ir.For: (check_loop, check_thread),
    ir.While: (check_condition,),
    ir.If: (check_condition,),
    ir.Store: (check_store,),
    ir.Reduce: (check_reduce, check_state),
    ir.AtomicUpdate: (check_update, check_atomic),
    ir.Block: (check_axes, check_where, check_folding),
    ir.Barrier: (check_barrier,),
    **ROLE_RULES,
}
