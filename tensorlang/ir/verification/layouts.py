"""Check that an index map is one-to-one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.operations import COMPARISONS, INTEGERS

MAX_EXHAUSTIVE: Final = 1 << 15

_NUMPY: Final[dict[str, Callable[..., Any]]] = {
    **INTEGERS,
    **COMPARISONS,
    "min": np.minimum,
    "max": np.maximum,
    "neg": np.negative,
    "not": np.invert,
    "abs": np.abs,
}


@lru_cache(maxsize=1024)
def layout_fault(layout: ir.IndexMap, shape: tuple[ir.Expr, ...]) -> str | None:
    """Why `layout` is not one-to-one on `shape`; None if no violation is found.

    Constant shapes of up to `MAX_EXHAUSTIVE` elements are checked exhaustively; for
    others only that every index is used.
    """
    if len(layout.vars) != len(shape):
        return f"takes {len(layout.vars)} indices of a buffer with {len(shape)}"
    if len(set(layout.vars)) != len(layout.vars):
        return "names one index twice"
    used = frozenset[ir.Var]().union(*(free_vars(result) for result in layout.results))
    for var in sorted(used - set(layout.vars), key=lambda var: var.name):
        return f"uses {var.name!r}, which is none of its indices"
    for var, extent in zip(layout.vars, shape, strict=True):
        if var not in used and extent != ir.Const(1, extent.dtype):
            return f"does not use {var.name!r}, so two elements share a place"
    extents = [int(e.value) for e in shape if isinstance(e, ir.Const)]
    if len(extents) < len(shape) or not 0 < math.prod(extents) <= MAX_EXHAUSTIVE:
        return None
    return _collision(layout, extents)


def _collision(layout: ir.IndexMap, extents: list[int]) -> str | None:
    count = math.prod(extents)
    grid = np.indices(extents, dtype=np.int64).reshape(len(extents), count)
    values = dict(zip(layout.vars, grid, strict=True))
    try:
        with np.errstate(all="raise"):
            places = [
                np.broadcast_to(_evaluate(r, values), count) for r in layout.results
            ]
    except FloatingPointError:
        return "divides by zero"
    except IRError as error:
        return str(error)
    if any((place < 0).any() for place in places):
        return "has places below 0"
    if not places:
        return None if count == 1 else "sends all elements to one place"
    ordered = np.stack(places)[:, np.lexsort(places)]
    distinct = 1 + int((ordered[:, 1:] != ordered[:, :-1]).any(axis=0).sum())
    if distinct < count:
        return f"sends {count} elements to {distinct} places; they must all differ"
    return None


def _evaluate(expr: ir.Expr, values: dict[ir.Var, Any]) -> Any:
    match expr:
        case ir.Const(value=value):
            return np.int64(value)
        case ir.Var():
            return values[expr]
        case ir.Unary(op=op, a=a):
            return _NUMPY[op](_evaluate(a, values))
        case ir.Binary(op=op, a=a, b=b) | ir.Compare(op=op, a=a, b=b) if op in _NUMPY:
            return _NUMPY[op](_evaluate(a, values), _evaluate(b, values))
        case ir.Select(cond=cond, a=a, b=b):
            return np.where(*(_evaluate(part, values) for part in (cond, a, b)))
    raise IRError(f"holds {type(expr).__name__}; use integer arithmetic of the indices")
