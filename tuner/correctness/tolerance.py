"""Permitted error of float reductions, whose order is unspecified.

With n terms reduced in some order, in a type of machine epsilon e, the error grows like
sqrt(n) e for unbiased rounding, and faster for terms of one sign. Permitted is

    (16 + 4 sqrt(n)) e

relative to the result, or to the mean result if that is larger: four times the error of
a plain sum of random terms. A lost one of n random terms is 1 / sqrt(n), which exceeds
that unless there are many terms for the type: 32 in bf16, 250 in f16, 2^21 in f32. Then
a lost term is only seen where sums are exact in any order, as those of a few ones are,
for which n is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tensorlang.ir.contents import blocks
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Binary, Block, Call, Function, Reduce, Reducer
from tensorlang.ir.simplification.simplify import known_size
from tensorlang.ir.visit import walk

_CONSTANT: Final = 16.0
_GROWTH: Final = 4.0
_EXACT: Final = ("min", "max")


def reassociation(
    func: Function, sizes: Mapping[str, int], *, exact: bool = False
) -> float:
    """The permitted relative error of a function's float reductions; 0 for none.

    Includes the rounding of results to their own type.

    Args:
        func: The function.
        sizes: Its symbolic sizes.
        exact: Whether the sums of its terms are exact in any order.
    """
    worst = of_terms(func, sizes, exact=exact)
    if not worst:
        return 0.0
    results = (p.buffer.dtype for p in func.params if p.role != "in")
    return worst + max((epsilon(d) for d in results if d.is_float), default=0.0)


def of_terms(func: Function, sizes: Mapping[str, int], *, exact: bool = False) -> float:
    """The permitted error of float reductions, relative to their terms; 0 for none."""
    growth = 0.0 if exact else _GROWTH
    return max(
        (
            (_CONSTANT + growth * math.sqrt(terms)) * each
            for terms, each in _rounded(func, sizes)
        ),
        default=0.0,
    )


def most_terms(func: Function, sizes: Mapping[str, int]) -> int:
    """The largest number of terms of a float reduction; 0 without one."""
    return max((terms for terms, _ in _rounded(func, sizes)), default=0)


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a float type."""
    if dtype.name == "bf16":
        return 2.0**-7
    kind: Any = dtype.numpy
    return float(np.finfo(kind).eps)


def _rounded(func: Function, sizes: Mapping[str, int]) -> Iterator[tuple[int, float]]:
    """The numbers of terms of float reductions, and the epsilons of their types."""
    dims = (extent for buffer in func.buffers for extent in buffer.shape)
    most = max((known_size(extent, sizes, 1) for extent in dims), default=1)
    for block in blocks(func.body):
        for stmt in walk(block.body):
            if isinstance(stmt, Reduce) and _rounds(stmt.reducer):
                for dtype in stmt.reducer.dtypes:
                    if dtype.is_float:
                        yield _terms(block, sizes, most), epsilon(dtype)


def _rounds(reducer: Reducer) -> bool:
    """Whether the order of a reduction affects a float result."""
    return any(
        node.dtype.is_float and (isinstance(node, Call) or node.op not in _EXACT)
        for part in reducer.combine
        for node in walk(part)
        if isinstance(node, (Binary, Call))
    )


def _terms(block: Block, sizes: Mapping[str, int], most: int) -> int:
    """The number of terms a block reduces; the maximum for a data-dependent extent."""
    extents = [axis.extent for axis in block.axes if axis.kind == "reduction"]
    return math.prod(known_size(extent, sizes, most) for extent in extents)
