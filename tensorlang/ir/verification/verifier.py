"""Verify that a function is well formed: the static rules of nodes.py's semantics.

The rules are small functions by node type: names and scopes in `sites`, expressions in
`verify_expr`, statements in `verify_stmt`, memory in `verify_memory`, layouts in
`verify_layout`, bounds in `verify_bounds`, and rules for whole functions here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from tensorlang.errors import IRError
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Expr, Function, Load, Reduce, Reducer, Stmt, Var
from tensorlang.ir.sites import Site, check_name, outermost, uses, visit
from tensorlang.ir.verification.bounds import check_bounds
from tensorlang.ir.verification.expressions import check_expr
from tensorlang.ir.verification.memory import MemoryRules
from tensorlang.ir.verification.statements import check_buffer, check_stmt
from tensorlang.ir.visit import walk

MAX_NODES: Final = 100_000


def verify(func: Function) -> None:
    """Check that `func` is well formed; a verified function prints and parses back.

    Only accesses certain to be out of bounds are refused. Races, values and all other
    bounds are not static: the interpreter checks those.

    Raises:
        IRError: what is wrong, where, and what to do about it.
    """
    check_size(func)
    site = outermost(func)
    for rule in _FUNCTION_RULES:
        rule(func, site)
    memory = MemoryRules(func)
    reducers = ReducerRules(site)

    def check(stmt: Stmt, at: Site) -> None:
        check_stmt(stmt, at)
        memory.check(stmt, at)
        reducers.check(stmt)

    visit(func.body, site, check)
    check_bounds(func)


def check_size(func: Function) -> None:
    """A function expanded to a tree has at most `MAX_NODES` nodes."""
    if next(islice(walk(func), MAX_NODES, None), None) is not None:
        raise IRError(
            f"function {func.name!r} has more than {MAX_NODES} nodes; "
            "name what is used several times with lets, or unroll less"
        )


def check_scalars(func: Function, site: Site) -> None:
    """Scalars are single integers or floats."""
    for var in func.scalars:
        if var.dtype.is_bool or var.dtype.lanes != 1:
            raise site.fault(
                f"scalar {var.name!r} is {var.dtype}; use one integer or float"
            )


def check_params(func: Function, site: Site) -> None:
    """Parameters live in global memory; their shapes use the scalars only."""
    for buffer in func.buffers:
        if buffer.scope != "global":
            raise site.fault(
                f"parameter {buffer.name!r} lives in {buffer.scope!r} memory; "
                "a caller can only pass global memory"
            )
        if any(isinstance(n, Load) for extent in buffer.shape for n in walk(extent)):
            raise site.fault(
                f"the shape of parameter {buffer.name!r} reads memory; use scalars"
            )
        check_buffer(buffer, site)


class ReducerRules:
    """The reducers seen so far: one definition per name and types, each closed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[tuple[str, tuple[DType, ...]], Reducer] = {}

    def check(self, stmt: Stmt) -> None:
        """Check the reducer of a `Reduce` on its first occurrence."""
        if not isinstance(stmt, Reduce):
            return
        reducer = stmt.reducer
        met = self._known.setdefault((reducer.name, reducer.dtypes), reducer)
        if met != reducer:
            raise self._site.fault(
                f"two reducers are called {reducer.name!r}; rename one of them"
            )
        if met is reducer and builtin(reducer.name, reducer.dtypes) != reducer:
            check_reducer(reducer, self._site)


def check_reducer(reducer: Reducer, site: Site) -> None:
    """A reducer has valid names, a scalar state, and uses only its own variables."""
    check_name(site, "reducer", reducer.name)
    variables = reducer.left + reducer.right
    for var in variables:
        check_name(site, f"reducer {reducer.name!r}", var.name)
    if len({var.name for var in variables}) < len(variables):
        raise site.fault(f"reducer {reducer.name!r} uses one name twice; rename it")
    if any(dtype.lanes != 1 for dtype in reducer.dtypes):
        raise site.fault(f"reducer {reducer.name!r} has a vector as state; use scalars")
    own = {var.name: var for var in variables}
    _check_closed(reducer, reducer.identity, {}, site)
    _check_closed(reducer, reducer.combine, own, site)


def _check_closed(
    reducer: Reducer, exprs: tuple[Expr, ...], own: dict[str, Var], site: Site
) -> None:
    foreign = sorted(uses(exprs) - own.keys())
    if foreign:
        raise site.fault(
            f"reducer {reducer.name!r} uses {foreign[0]!r}, which is not of its state"
        )
    if any(isinstance(n, Load) for expr in exprs for n in walk(expr)):
        raise site.fault(f"reducer {reducer.name!r} reads memory; pass it as a value")
    alone = Site(f"reducer {reducer.name!r}", own, {}, set(), {}, set(), set())
    for expr in exprs:
        check_expr(expr, alone)


_FUNCTION_RULES: Final[tuple[Callable[[Function, Site], None], ...]] = (
    check_scalars,
    check_params,
)
