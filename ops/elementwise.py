"""Elementwise operators: broadcasting, and dimensions that run alike as one.

The definition of such an operator is a function on scalar expressions: what it computes
for one element holds for all. f16 and bf16 are computed in f32 and rounded once.

Neighbouring dimensions that every input either has or is broadcast along become one:
arrays of one shape have one dimension, a row added to a matrix two. All are symbolic,
so a kernel serves every size. Operands that are Python numbers are scalars of the
kernel; which ones is the attribute `numbers` (see `tensorlang.ops.operands`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ops.tensors import (
    FLOATS,
    Names,
    Plan,
    Shape,
    TensorOperator,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Front
    from tensorlang.ops.tensors import Usual
    from tensorlang.workload import Workload

NUMBERS: Final = "numbers"
_LONG: Final = 1 << 24


def elementwise(
    id: str,
    define: str,
    *,
    operands: tuple[str, ...] = ("x",),
    alike: bool = False,
    condition: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    scalars: Mapping[str, float] | None = None,
    **options: Any,
) -> Callable[[Front], TensorOperator]:
    """An elementwise operator of arrays that broadcast to one shape.

    Args:
        id: Its canonical id.
        define: `module:function` from scalar expressions (of f32 or wider), scalars and
            attributes to one expression, or to several.
        operands: The names of the function's positional parameters.
        alike: Whether all arrays have to have one shape, as in a gradient.
        condition: Which operand is an array of bool, whatever type the others have.
        attributes: Static attributes with their defaults.
        scalars: Numbers given at each call beside the operands, with usual values.
        options: As for `tensor_operator`.
    """

    def plan(
        shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
    ) -> Plan:
        check_types(id, dtypes, condition)
        result = same(id, operands, shapes) if alike else broadcast(id, shapes)
        return Plan(collapse(shapes, result), dtypes, (result,), static(asked))

    return tensor_operator(
        id,
        define,
        plan=plan,
        names=dimension_names,
        shapes=((_LONG,),) * len(operands),
        dtypes=usual_types(operands, condition, options.get("allowed", FLOATS)),
        attributes=attributes,
        scalars=usual_scalars(operands, scalars or {}),
        lift=_lifted,
        **options,
    )


def usual_types(
    operands: tuple[str, ...], condition: int | None, allowed: tuple[str, ...] = FLOATS
) -> tuple[str, ...]:
    """The types of the default workload: f32, or i32 where no floats are taken."""
    kind = "f32" if "f32" in allowed else "i32"
    return tuple("bool" if at == condition else kind for at in range(len(operands)))


def usual_scalars(operands: tuple[str, ...], fixed: Mapping[str, float]) -> Usual:
    """The scalars of a workload: the operands that are numbers, and the fixed ones."""

    def usual(workload: Workload) -> Mapping[str, Any]:
        numbers: Any = workload.named.get(NUMBERS, ())
        kind = workload.dtypes[-1]
        value = True if kind == "bool" else 3 if kind[0] in "iu" else 0.5
        return {operands[at]: value for at in numbers} | dict(fixed)

    return usual


def static(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a workload: `numbers` only where there are any."""
    return {k: v for k, v in asked.items() if k != NUMBERS or v}


def check_types(id: str, dtypes: tuple[str, ...], condition: int | None) -> None:
    """Whether the condition is of bool, and all others of one type.

    Raises:
        DTypeError: they are not.
    """
    if condition is None:
        of_one_type(id, dtypes)
        return
    if dtypes[condition] != "bool":
        raise DTypeError(
            f"{id}: the condition is an array of bool, not of {dtypes[condition]}; "
            "compare it with something first"
        )
    of_one_type(id, dtypes[:condition] + dtypes[condition + 1 :])


def same(id: str, operands: tuple[str, ...], shapes: tuple[Shape, ...]) -> Shape:
    """The shape that all arrays have.

    Raises:
        ShapeError: they differ; names the first two that do.
    """
    for name, shape in zip(operands, shapes, strict=False):
        if shape != shapes[0]:
            raise ShapeError(
                f"{id}: {operands[0]} has shape {shapes[0]}, {name} has {shape}; "
                "they must be the same"
            )
    return shapes[0]


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


def _lifted(body: Callable[..., Any]) -> Callable[..., Any]:
    """A function on tensors that does to each element what `body` does to scalars."""
    from tensorlang.ops.lifting import lifted  # noqa: PLC0415 - only to build

    return lifted(body)
