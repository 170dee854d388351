"""Checked workloads from shapes, types and attributes given by a user."""

from __future__ import annotations

import math
import operator as operators
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import ir
from tensorlang.errors import DTypeError, OperatorError, ShapeError, TensorlangError

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator, Shapes
    from tensorlang.workload import Workload

_MOST_ELEMENTS: Final = 1 << 48


def requested(
    op: Operator,
    shapes: Sequence[Sequence[int]] | None = None,
    dtypes: Sequence[str] | str | None = None,
    attributes: Mapping[str, object] | None = None,
    *,
    threads: int = 0,
    shapes_by: str = "shapes=",
) -> Workload:
    """The workload of an operator for these arrays; all else as in its default.

    Args:
        shapes: A shape for each array.
        dtypes: One element type for all arrays, or one per array.
        attributes: Attributes by name.
        threads: The number of threads; 0 if the target decides.
        shapes_by: The name of the shapes option, for error messages.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit the operator.
        OperatorError: the operator is not defined for this workload.
    """
    given, kinds = checked_shapes(shapes), _checked_dtypes(dtypes)
    planned = bool(given) and _judges_shapes(op)
    usual = op.usual_shapes
    if given and usual and not planned:
        _same_count(op, usual, given)
    _allowed(op, kinds, len(given or usual))
    named = dict(attributes or {})
    try:
        found = op.workload(*given, dtypes=kinds, threads=threads, **named)
        op.function(found)
    except TensorlangError as problem:
        if not given and not usual:
            raise type(problem)(f"{problem}; give {shapes_by}") from None
        raise
    except Exception as problem:  # a user's definition may raise anything
        if planned and usual:
            _same_count(op, usual, given)
        raise OperatorError(
            f"{op.id} of {_told(given, named)} cannot be defined: "
            f"{type(problem).__name__}: {problem}"
        ) from problem
    return found


def _same_count(op: Operator, usual: Shapes, given: Shapes) -> None:
    if len(given) != len(usual):
        shapes = "1 shape" if len(usual) == 1 else f"{len(usual)} shapes"
        wanted, got = _told(usual, {}), _told(given, {})
        raise ShapeError(f"{op.id} takes {shapes}, such as {wanted}; got {got}")


def _allowed(op: Operator, kinds: tuple[str, ...] | str | None, count: int) -> None:
    """Refuse unsupported types, or a number of types other than that of arrays."""
    if isinstance(kinds, tuple) and len(kinds) != count:
        raise DTypeError(f"{op.id} takes {count} types here, got {len(kinds)}")
    able = [op.dtypes, *(kind.dtypes for kind in op.spec.arrays.values())]
    if isinstance(kinds, str) and op.dtypes and not any(kinds in each for each in able):
        raise DTypeError(f"{op.id} is for {', '.join(op.dtypes)}, not {kinds}")


def checked_shapes(shapes: object) -> Shapes:
    """Shapes as tuples of integers; an empty tuple for None.

    Raises:
        ShapeError: they are invalid, or too large for any memory.
    """
    found = () if shapes is None else whole_shapes(shapes)
    for shape in found:
        if min(shape, default=0) < 0 or math.prod(shape) > _MOST_ELEMENTS:
            raise ShapeError(f"no memory holds an array of shape {shape}")
    return found


def whole_shapes(shapes: Any) -> Shapes:
    """Shapes as tuples of integers; ShapeError if they are no shapes."""
    try:
        return tuple(tuple(map(operators.index, shape)) for shape in shapes)
    except TypeError:
        raise ShapeError(
            f"shapes={shapes!r}: give a shape for each array, such as "
            "[(64, 784), (512, 784)]"
        ) from None


def _checked_dtypes(dtypes: Any) -> tuple[str, ...] | str | None:
    """Canonical names of element types; see `tensorlang.ir.dtypes.as_dtype`."""
    if dtypes is None:
        return None
    if isinstance(dtypes, (list, tuple)):
        return tuple(ir.as_dtype(dtype).name for dtype in dtypes)
    return ir.as_dtype(dtypes).name


def _judges_shapes(op: Operator) -> bool:
    """Whether the operator itself checks the number of shapes."""
    several = any(k.optional or k.several for k in op.spec.arrays.values())
    return several or bool(op.spec.keys)


def _told(shapes: Sequence[Sequence[int]], attributes: Mapping[str, object]) -> str:
    named = [f"{name}={value!r}" for name, value in attributes.items()]
    return ", ".join([*map(str, shapes), *named]) or "its default"
