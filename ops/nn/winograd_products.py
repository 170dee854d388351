"""Products of constant matrices and vectors of expressions, with shared terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tensorlang import ir

if TYPE_CHECKING:
    from tensorlang.ops.nn.multi_store import Indices
    from tensorlang.ops.nn.winograd_matrices import Matrix


def transformed(
    matrix: Matrix, read: Callable[[int, int], ir.Expr], place: Callable[[int], Indices]
) -> list[tuple[Indices, ir.Expr]]:
    """The stores of `M grid M^T`, in row-major order.

    Args:
        matrix: M.
        read: Gives an element of the grid, by row and column.
        place: Gives the indices of the element of this number.
    """
    side = range(len(matrix[0]))
    columns = [product(matrix, [read(row, column) for row in side]) for column in side]
    rows = [product(matrix, row) for row in zip(*columns, strict=True)]
    values = (value for row in rows for value in row)
    return [(place(number), value) for number, value in enumerate(values)]


def product(matrix: Matrix, values: Sequence[ir.Expr]) -> list[ir.Expr]:
    """`M v`, with terms shared by rows computed once.

    Two rows that differ only in signs become a sum and a difference; so do two columns.
    """
    pairs = _column_pairs(matrix)
    if pairs:
        return _by_columns(matrix, values, pairs)
    made: list[ir.Expr] = []
    at = 0
    while at < len(matrix):
        row, other = matrix[at], matrix[at + 1] if at + 1 < len(matrix) else None
        if other is not None and _alike(row, other):
            same = [a if a == b else 0.0 for a, b in zip(row, other, strict=True)]
            odd = [a if a != b else 0.0 for a, b in zip(row, other, strict=True)]
            even_sum, odd_sum = _product(same, values), _product(odd, values)
            made += [even_sum + odd_sum, even_sum - odd_sum]
            at += 2
        else:
            made.append(_product(row, values))
            at += 1
    return made


def _alike(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether rows differ in the signs of some, but not all, elements."""
    same = [x == y for x, y in zip(a, b, strict=True) if x or y]
    return all(abs(x) == abs(y) for x, y in zip(a, b, strict=True)) and (
        any(same) and not all(same)
    )


def _column_pairs(matrix: Matrix) -> list[int]:
    """Indices of columns that differ from the next one only in signs."""
    columns = list(zip(*matrix, strict=True))
    if len(matrix) >= len(columns):
        return []
    firsts = range(1, len(columns) - 2, 2)
    return [at for at in firsts if _alike(columns[at], columns[at + 1])]


def _by_columns(
    matrix: Matrix, values: Sequence[ir.Expr], pairs: Sequence[int]
) -> list[ir.Expr]:
    taken = {at + n for at in pairs for n in (0, 1)}
    given = [v for at, v in enumerate(values) if at not in taken]
    for at in pairs:
        given += [values[at] + values[at + 1], values[at] - values[at + 1]]
    made = []
    for row in matrix:
        factors = [c for at, c in enumerate(row) if at not in taken]
        for at in pairs:
            same = row[at] == row[at + 1]
            factors += [row[at], 0.0] if same else [0.0, row[at]]
        made.append(_product(factors, given))
    return made


def _product(factors: Sequence[float], values: Sequence[ir.Expr]) -> ir.Expr:
    """The sum of factors times values, factors 1 and -1 first."""
    terms = [(c, v) for c, v in zip(factors, values, strict=True) if c]
    terms.sort(key=lambda term: abs(term[0]) != 1)
    terms.sort(key=lambda term: term[0] != 1)
    (first, value), *others = terms
    sum_: ir.Expr = value if first == 1 else ir.as_expr(first, ir.f32) * value
    for factor, value in others:
        if factor == 1:
            sum_ = sum_ + value
        elif factor == -1:
            sum_ = sum_ - value
        else:
            sum_ = ir.fma(ir.as_expr(factor, ir.f32), value, sum_)
    return sum_
