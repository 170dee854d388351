"""Permitted error of float reductions, whose order is unspecified.

With n terms reduced in some order, in a type of machine epsilon e, the error grows like
sqrt(n) e for unbiased rounding, and faster for terms of one sign. Permitted is

    (16 + 4 sqrt(n)) e

relative to the result, or to the mean result if that is larger: four times the error of
a plain sum of random terms. A lost one of n positive terms is 1 / n, which exceeds that
unless there are many terms for the type: 7 in bf16, 33 in f16, 15,000 in f32. Then a
lost term is only seen where sums are exact in any order, as those of a few ones are,
which leave only the rounding of the result, e / 2.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

import numpy as np

from tensorlang.ir.contents import blocks
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    AtomicUpdate,
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Function,
    Let,
    Load,
    Reduce,
    Reducer,
    Select,
    Store,
    Unary,
    Var,
)
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
    return worst + coarsest(func, sizes) if worst else 0.0


def coarsest(func: Function, sizes: Mapping[str, int]) -> float:
    """The largest epsilon of a function's float results and reductions, or 0."""
    results = (p.buffer.dtype for p in func.params if p.role != "in")
    found = [epsilon(dtype) for dtype in results if dtype.is_float]
    return max((*found, *(each for _, each in _rounded(func, sizes))), default=0.0)


def of_terms(func: Function, sizes: Mapping[str, int]) -> float:
    """The permitted error of float reductions, relative to their terms; 0 for none."""
    return max(
        (
            (_CONSTANT + _GROWTH * math.sqrt(terms)) * each
            for terms, each in _rounded(func, sizes)
        ),
        default=0.0,
    )


def most_terms(func: Function, sizes: Mapping[str, int]) -> int:
    """The largest number of terms of a float reduction; 0 without one."""
    return max((terms for terms, _ in _rounded(func, sizes)), default=0)


def sums_ones(func: Function) -> bool:
    """Whether the terms of all float sums are whole where inputs are 0, 1 or -1.

    They are products or differences of elements; no sum is a term of another.
    """
    body = list(walk(func.body))
    reduces = [n for n in body if isinstance(n, Reduce)]
    rounded: set[Buffer | Var] = {p.buffer for p in func.params if p.role != "in"}
    rounded.update(func.scalars)
    rounded.update(buffer for each in reduces for buffer in each.buffers)
    rounded.update(n.buffer for n in body if isinstance(n, AtomicUpdate))
    made: list[tuple[Buffer | Var, Expr]] = []
    made += [(n.buffer, n.value) for n in body if isinstance(n, Store)]
    made += [(n.var, n.value) for n in body if isinstance(n, Let)]
    while more := [to for to, value in made if not _is_whole(value, rounded)]:
        rounded.update(more)
        made = [(to, value) for to, value in made if to not in rounded]
    return all(
        _adds(each.reducer) and all(_is_whole(value, rounded) for value in each.values)
        for each in reduces
        if _rounds(each.reducer)
    )


def _adds(reducer: Reducer) -> bool:
    return all(isinstance(n, Binary) and n.op == "add" for n in reducer.combine)


def _is_whole(value: Expr, rounded: Container[Buffer | Var]) -> bool:
    """Whether a float is whole where all but the rounded values are."""
    match value:
        case Const():
            return value.value in (0, 1, -1)
        case Load():
            return value.buffer not in rounded
        case Var():
            return value not in rounded
        case Cast():
            kind = value.a.dtype
            return kind.is_bool or (kind.is_float and _is_whole(value.a, rounded))
        case Unary():
            return _is_whole(value.a, rounded)
        case Select():
            return _is_whole(value.a, rounded) and _is_whole(value.b, rounded)
        case Binary(op="add" | "sub" | "mul" | "min" | "max"):
            return _is_whole(value.a, rounded) and _is_whole(value.b, rounded)
    return False


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
