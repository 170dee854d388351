"""Elementwise definitions, from the computation of one element.

Operands broadcast as in NumPy. f16 and bf16 are computed in f32 and rounded once.
Dimensions that every operand has or is broadcast along are merged: a row added to a
matrix leaves two, whatever their ranks. A result may have the shape of an operand that
was broadcast: it is summed, like gradients are. Sums along rows are chunked in two
stages, which occupies all threads and keeps sums short enough for their type.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from tensorlang.errors import ArgumentError, OperatorError
from tensorlang.ir.definitions.frontend import (
    Body,
    Tensor,
    compute,
    reduce_axis,
    reshaped,
)
from tensorlang.ir.definitions.frontend import sum as fold
from tensorlang.ir.definitions.sizes import TRACED, require, sizes_of
from tensorlang.ir.dtypes import DType, boolean, f32
from tensorlang.ir.nodes import Binary, Expr, ExprLike, Select, Var, as_expr

NARROW: Final = ("f16", "bf16")
_ONE: Final[Mapping[str, str]] = {"y": ""}
_NONE: Final[Mapping[str, str]] = {}
_ROWS: Final = 256  # of a chunk
# from an index of the full shape to the value of a result
_Values: TypeAlias = Callable[[Sequence[ExprLike]], Expr]
Shape: TypeAlias = tuple[Any, ...]


def wide(value: Expr) -> Expr:
    """The value in its compute type: f32 for f16 and bf16."""
    return value.cast(f32) if value.dtype.name in NARROW else value


def stored(value: Expr, dtype: DType) -> Expr:
    """The value converted to an array's type; bools stay bools."""
    return value if value.dtype == boolean else value.cast(dtype)


def elementwise_tensors(
    body: Callable[..., Any],
    operands: Sequence[str],
    outputs: Mapping[str, str] = _ONE,
    seeds: Mapping[str, str] = _NONE,
) -> Callable[..., Any]:
    """Lift an elementwise body to a definition on tensors.

    Args:
        body: Maps operands by position, and attributes, to an element or several;
            omitted operands, and results that do not exist, are None.
        operands: The names of its operands.
        outputs: Its results, each with the operand whose shape it has, if not the full
            one.
        seeds: The operands required to have the shape of another one, or the full
            shape.
    """

    def definition(**given: Any) -> Any:
        held = {name: given.pop(name) for name in operands}
        arrays = {n: v for n, v in held.items() if isinstance(v, Tensor)}
        of = _Operands(arrays, seeds)
        numbers = {n: _number(v, of.dtype) for n, v in held.items() if n not in arrays}

        def values(index: Sequence[ExprLike]) -> tuple[Expr | None, ...]:
            elements = numbers | of.at(index)
            made = body(*(elements[name] for name in operands), **given)
            return made if isinstance(made, tuple) else (made,)

        def result(n: int, index: Sequence[ExprLike]) -> Expr:
            value = values(index)[n]
            assert value is not None
            return value

        first = values([as_expr(0)] * of.rank)
        nothing = all(value is None for value in first)
        if nothing or len(first) != len(outputs):
            raise OperatorError(
                f"its definition returned {'nothing' if nothing else len(first)} where "
                f"its annotation says {len(outputs)} element(s); return an element, or "
                "a tuple of them, and annotate it so"
            )
        there = [
            (n, name, like)
            for n, (value, (name, like)) in enumerate(
                zip(first, outputs.items(), strict=True)
            )
            if value is not None and (not like or like in of.views)
        ]
        whole = {n: name for n, name, like in there if not of.along.get(like)}
        made = _whole(of, whole, values)
        for n, name, like in there:
            if n not in made:
                made[n] = _Sum(of, like, functools.partial(result, n)).named(name)
        results = tuple(
            reshaped(made[n], of.shapes.get(like, of.whole)) for n, _, like in there
        )
        return results if len(results) > 1 else results[0]

    return definition


def _number(value: Expr | None, dtype: DType) -> Expr | None:
    return value if value is None else wide(stored(value, dtype))


class _Operands:
    """The arrays of an elementwise definition, viewed in as few dimensions as possible.

    Attributes:
        shapes: The callers' shapes, by name.
        whole: The shape they broadcast to.
        extents: The same, with dimensions merged that all have or are broadcast along.
        views: The arrays in these dimensions.
        along: The dimensions that each array is broadcast along.
        dtype: The type of the arrays that are no conditions.
    """

    def __init__(self, arrays: dict[str, Tensor], seeds: Mapping[str, str]) -> None:
        require(arrays, "one of the operands has to be an array", ArgumentError)
        self.shapes = {name: array.shape for name, array in arrays.items()}
        rest = [shape for name, shape in self.shapes.items() if name not in seeds]
        self.whole = broadcast(rest or list(self.shapes.values()))
        for name, like in seeds.items():
            self._check(name, like)
        kinds = [array.dtype for array in arrays.values()]
        self.dtype = next((k for k in reversed(kinds) if not k.is_bool), kinds[0])
        self._see(arrays)

    def _check(self, name: str, like: str) -> None:
        found, wanted = self.shapes.get(name), self.shapes.get(like, self.whole)
        others = [other for other in self.shapes if other != name]
        of = f"{others[0]} has" if len(others) == 1 else "what it is the gradient of"
        require(
            found is None or found == wanted, f"{name} has shape {found}, {of} {wanted}"
        )

    def _see(self, arrays: dict[str, Tensor]) -> None:
        """View the arrays in as few dimensions as possible."""
        rank = len(self.whole)
        padded = {name: _padded(shape, rank) for name, shape in self.shapes.items()}
        ones = {name: [n == 1 for n in shape] for name, shape in padded.items()}
        real = [at for at, extent in enumerate(self.whole) if extent != 1]
        runs = [
            list(run)
            for _, run in groupby(real, lambda at: [of[at] for of in ones.values()])
        ]
        self.along = {
            name: [n for n, run in enumerate(runs) if of[run[0]]]
            for name, of in ones.items()
        }
        single = () if runs else (elements(()),)
        self.extents = single or _products(self.whole, runs)
        self.views = {
            name: reshaped(arrays[name], single or _products(shape, runs))
            for name, shape in padded.items()
        }

    @property
    def rank(self) -> int:
        """The number of dimensions of the views."""
        return len(self.extents)

    def at(self, index: Sequence[ExprLike]) -> dict[str, Expr]:
        """The arrays' elements at an index, in their compute types."""
        places = {
            name: tuple(0 if n in along else i for n, i in enumerate(index))
            for name, along in self.along.items()
        }
        return {name: wide(view[places[name]]) for name, view in self.views.items()}


def _padded(shape: Shape, rank: int) -> Shape:
    """A shape with leading ones."""
    ones = sizes_of([1] * (rank - len(shape)))
    assert ones is not None
    return (*ones, *shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to, as in NumPy.

    Raises:
        ShapeError: they do not.
    """
    rank = max(map(len, shapes))
    whole = []
    for extents in zip(*(_padded(shape, rank) for shape in shapes), strict=True):
        real = [extent for extent in extents if extent != 1] or extents[:1]
        whole.append(real[0])
        require(
            all(extent == real[0] for extent in real),
            f"shapes {' and '.join(map(str, shapes))} do not broadcast",
        )
    return tuple(whole)


def elements(shape: Shape, name: str = "n") -> Any:
    """The number of elements of a shape, dynamic even if it is 1."""
    count = math.prod(shape)
    facts = TRACED.get()
    assert facts is not None
    return facts.symbol(name, 1) if count == 1 else count


def _products(shape: Shape, runs: Iterable[Sequence[int]]) -> Shape:
    parts = ([shape[at] for at in run] for run in runs)
    return tuple(functools.reduce(operator.mul, part) for part in parts)


# ----------------------------------------------------------------- computing results


def _whole(
    of: _Operands, outputs: Mapping[int, str], values: Callable[..., Any]
) -> dict[int, Tensor]:
    """The results of full shape, in one pass."""
    if not outputs:
        return {}

    def element(*i: Var) -> Body:
        made = values(i)
        return tuple(stored(made[n], of.dtype) for n in outputs)

    made = compute(of.extents, element, tuple(outputs.values()))
    several = made if isinstance(made, tuple) else (made,)
    return dict(zip(outputs, several, strict=True))


class _Sum:
    """A result that is summed over the dimensions an operand was broadcast along."""

    def __init__(self, of: _Operands, like: str, value: _Values) -> None:
        self._of, self._like, self._value = of, like, value
        self._folded = of.along[like]

    def named(self, name: str) -> Tensor:
        """The sums; 0 for empty dimensions."""
        of = self._of
        along_rows = self._folded[-1] != of.rank - 1
        total = self._chunked() if along_rows else self._at_once()
        none = (of.extents[n].equal(0) for n in self._folded)
        empty = functools.reduce(operator.or_, none)

        def rounded(*i: Var) -> Expr:
            found = total[i]
            return stored(Select(empty, as_expr(0.0, found.dtype), found), of.dtype)

        return compute(total.shape, rounded, name)

    def _at_once(self) -> Tensor:
        """Sum in a single stage."""
        of = self._of
        axes = {n: reduce_axis(of.extents[n], f"r{n}") for n in self._folded}
        kept = [n for n in range(of.rank) if n not in axes]

        def element(*i: Var) -> Body:
            place = dict(zip(kept, i, strict=True))
            place |= {n: axis.var for n, axis in axes.items()}
            value = self._value([place[n] for n in range(of.rank)])
            return fold(value, list(axes.values()))

        shape = [of.extents[n] for n in kept]
        return compute(shape, element, f"sum_{self._like}")

    def _chunked(self) -> Tensor:
        """Two-stage chunked sum over rows.

        The last chunk rereads the last row beyond the end, and adds 0.
        """
        of, (first, *others) = self._of, self._folded
        rows = of.extents[first]
        row = reduce_axis(Binary("min", as_expr(rows), as_expr(_ROWS)), "row")
        axes = {n: reduce_axis(of.extents[n], f"r{n}") for n in others}
        kept = [n for n in range(of.rank) if n != first and n not in axes]
        parts, shape = (rows + (_ROWS - 1)) // _ROWS, [of.extents[n] for n in kept]

        def partial(*i: Var) -> Body:
            at_row = i[0] * _ROWS + row.var
            place: dict[int, Expr] = dict(zip(kept, i[1:], strict=True))
            place |= {n: axis.var for n, axis in axes.items()}
            place[first] = Binary("min", at_row, as_expr(rows - 1))
            value = self._value([place[n] for n in range(of.rank)])
            inside = Select(at_row < rows, value, as_expr(0.0, value.dtype))
            return fold(inside, [row, *axes.values()])

        sums = compute([parts, *shape], partial, f"sum_{self._like}")
        part = reduce_axis(parts, "part")
        return compute(
            shape, lambda *i: fold(sums[part.var, *i], part), f"all_{self._like}"
        )
