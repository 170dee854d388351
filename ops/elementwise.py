"""Elementwise operators: broadcasting, and dimensions that run alike as one.

The definition of such an operator is a function on scalar expressions: what it computes
for one element holds for all. f16 and bf16 are computed in f32 and rounded once.

Neighbouring dimensions that every input either has or is broadcast along become one:
arrays of one shape have one dimension, a row added to a matrix two. All are symbolic,
so a kernel serves every size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.ops.tensors import (
    Names,
    Plan,
    Shape,
    TensorOperator,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ops.operator import Front
    from tensorlang.workload import Workload


def elementwise(
    id: str,
    define: str,
    *,
    inputs: int = 1,
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Front], TensorOperator]:
    """An elementwise operator of `inputs` arrays that broadcast to one shape.

    Args:
        id: Its canonical id.
        define: `module:function` from scalar expressions (of f32 or wider), scalars and
            attributes to one expression, or to several.
        inputs: The number of arrays.
        attributes: Static attributes with their defaults.
        options: As for `tensor_operator`.
    """

    def plan(
        shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
    ) -> Plan:
        of_one_type(id, dtypes)
        result = broadcast(id, shapes)
        return Plan(collapse(shapes, result), dtypes, (result,), asked)

    return tensor_operator(
        id,
        define,
        plan=plan,
        names=dimension_names,
        shapes=((1 << 24,),) * inputs,
        attributes=attributes,
        lift=lifted,
        **options,
    )


def broadcast(id: str, shapes: tuple[Shape, ...]) -> Shape:
    """The shape that all shapes broadcast to, as in NumPy.

    Raises:
        ShapeError: they do not.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise ShapeError(f"{id}: shapes {listed} do not broadcast") from None


def collapse(shapes: tuple[Shape, ...], result: Shape) -> tuple[Shape, ...]:
    """The shapes with runs of dimensions that behave alike made one.

    All get the same number of dimensions, 1 where one is broadcast:
    (8, 4, 5) with (4, 5) become (8, 20) and (1, 20).
    """
    rank = len(result)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    real = [at for at in range(rank) if result[at] != 1]
    runs = [
        list(run)
        for _, run in groupby(real, lambda at: tuple(s[at] == 1 for s in padded))
    ]
    return tuple(
        tuple(math.prod(shape[at] for at in run) for run in runs or [[]])
        for shape in padded
    )


def dimension_names(workload: Workload) -> Names:
    """Every dimension symbolic, but for the 1 of a broadcast."""
    rank = len(workload.shapes[0])
    present = [any(shape[at] != 1 for shape in workload.shapes) for at in range(rank)]
    return tuple(
        tuple(
            None if shape[at] == 1 and (present[at] or rank > 1) else f"n{at}"
            for at in range(rank)
        )
        for shape in workload.shapes
    )


def lifted(body: Callable[..., Any]) -> Callable[..., Any]:
    """A function on tensors that does to each element what `body` does to scalars."""

    def tensors(*arrays: Tensor, **given: Any) -> Any:
        from tensorlang.ir import compute  # noqa: PLC0415 - only to build
        from tensorlang.ir.nodes import Const  # noqa: PLC0415 - only to build
        from tensorlang.ops.assembling import stored, wide  # noqa: PLC0415 - the same

        dims = list(zip(*[x.shape for x in arrays], strict=True))
        shape = [
            next((d for d in of if not isinstance(d, Const)), of[0]) for of in dims
        ]

        def element(*i: Any) -> Any:
            values = []
            for x in arrays:
                at = zip(x.shape, i, strict=True)
                place = tuple(0 if isinstance(dim, Const) else n for dim, n in at)
                values.append(wide(x[place]))
            made = body(*values, **given)
            if isinstance(made, tuple):
                return tuple(stored(value, arrays[0].dtype) for value in made)
            return stored(made, arrays[0].dtype)

        return compute(shape, element, "y")

    return tensors
