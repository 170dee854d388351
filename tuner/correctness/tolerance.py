"""Permitted error of float reductions, whose order is unspecified.

With n terms reduced in some order, in a type of machine epsilon e, the error grows like
sqrt(n) e for unbiased rounding, and faster for terms of one sign. Permitted is

    (16 + 4 sqrt(n)) e

relative to the result, or to the mean result if that is larger: four times the error of
a plain sum of random terms, and far below that of a lost term.
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


def reassociation(func: Function, sizes: Mapping[str, int]) -> float:
    """The permitted relative error of a function's float reductions; 0 for none.

    Includes the rounding of results to their own type.
    """
    worst = of_terms(func, sizes)
    if not worst:
        return 0.0
    results = (p.buffer.dtype for p in func.params if p.role != "in")
    return worst + max((epsilon(d) for d in results if d.is_float), default=0.0)


def of_terms(func: Function, sizes: Mapping[str, int]) -> float:
    """The permitted error of float reductions, relative to their terms; 0 for none."""
    dims = (extent for buffer in func.buffers for extent in buffer.shape)
    most = max((known_size(extent, sizes, 1) for extent in dims), default=1)
    return max(
        (
            (_CONSTANT + _GROWTH * math.sqrt(_terms(block, sizes, most))) * each
            for block, each in _rounded(func)
        ),
        default=0.0,
    )


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a float type."""
    if dtype.name == "bf16":
        return 2.0**-7
    kind: Any = dtype.numpy
    return float(np.finfo(kind).eps)


def _rounded(func: Function) -> Iterator[tuple[Block, float]]:
    """The blocks with float reductions, and the epsilons of their types."""
    for block in blocks(func.body):
        for stmt in walk(block.body):
            if isinstance(stmt, Reduce) and _rounds(stmt.reducer):
                for dtype in stmt.reducer.dtypes:
                    if dtype.is_float:
                        yield block, epsilon(dtype)


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
