"""Recombine digits of a thread index.

    t // 32 * 64 + t % 32 // 4 * 8 + t % 4 * 2     ->     t * 2

The rows and columns of a fragment are digits of the lane; together they are the lane.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly, term
from tensorlang.ir.nodes import Const, Expr, For
from tensorlang.ir.semantics import evaluate


def rejoined(index: Expr, threads: Iterable[For]) -> Expr:
    """The index, with terms of one thread index replaced by a multiple of it."""
    form = linear(index)
    for loop in threads:
        form = _joined(form, loop)
    return index if form == linear(index) else form.expr()


def _joined(form: Poly, loop: For) -> Poly:
    digits = form.only(lambda atom: free_vars(atom) == {loop.var})
    if len(digits) < 2 or not isinstance(loop.extent, Const):
        return form
    numbers = np.arange(int(loop.extent.value))
    values = evaluate(digits.expr(), {loop.var: numbers})
    if (values != values[0] + numbers * (values[1] - values[0])).any():
        return form
    step, start = int(values[1] - values[0]), int(values[0])
    return (form - digits + term(loop.var, step)).shifted(start)
