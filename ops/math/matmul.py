"""Matrix products of any batch, and their gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ShapeError
from tensorlang.ops.tensors import (
    Names,
    Plan,
    Shape,
    broadcast,
    call,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.math.matmul_definitions"
_TRANSPOSES: Final = {"transpose_a": False, "transpose_b": False}


def _plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], given: dict[str, Any]
) -> Plan:
    of_one_type("math.matmul", dtypes)
    a, b = shapes
    m, k, n, batch = _sizes(a, b, given)
    result = (*batch, m, n)
    if len(b) == 2 and not given["transpose_a"]:  # all rows of a, one after the other
        return Plan(((1, math.prod(batch) * m, k), (1, *b)), dtypes, (result,), given)
    return Plan((_batched(a, batch), _batched(b, batch)), dtypes, (result,), given)


def _sizes(
    a: Shape, b: Shape, given: dict[str, Any]
) -> tuple[int, int, int, tuple[int, ...]]:
    """The sizes m, k, n of a product, and its batch.

    Raises:
        ShapeError: the arrays are not of one product.
    """
    if len(a) < 2 or len(b) < 2:
        raise ShapeError(
            f"math.matmul takes arrays of 2 dimensions or more, not {a} and {b}; "
            "reshape a vector to a matrix"
        )
    m, k = a[-2:][::-1] if given["transpose_a"] else a[-2:]
    depth, n = b[-2:][::-1] if given["transpose_b"] else b[-2:]
    if k != depth:
        raise ShapeError(
            f"math.matmul: {a} by {b} (transpose_a={given['transpose_a']}, "
            f"transpose_b={given['transpose_b']}): {k} columns meet {depth} rows"
        )
    return m, k, n, broadcast("math.matmul", (a[:-2], b[:-2]))


def _batched(shape: Shape, batch: Shape) -> Shape:
    """`[batch, rows, columns]`; a batch of 1 stands for all."""
    own = math.prod(shape[:-2])
    if own not in (1, math.prod(batch)):
        raise ShapeError(
            f"math.matmul: a batch {shape[:-2]} that broadcasts to {batch} in part is "
            "not supported; expand it with numpy.broadcast_to(...).copy()"
        )
    return (own, *shape[-2:])


def _names(workload: Workload) -> Names:
    """Batch and rows of `a` are symbolic; depth and columns are not."""
    (ba, *_), (bb, *_) = workload.shapes
    transposed = workload.named["transpose_a"]
    a = (None if ba == 1 else "t", *((None, "m") if transposed else ("m", None)))
    return a, (None if bb == 1 else "t", None, None)


@tensor_operator(
    "math.matmul",
    f"{_HERE}:matmul",
    plan=_plan,
    names=_names,
    shapes=((1024, 1024), (1024, 1024)),
    attributes=_TRANSPOSES,
    aliases=("matmul",),
    scheduled_as="",
)
def matmul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The products of matrices: of the last two dimensions, the others are a batch.

    Args:
        a: Floats `[..., m, k]`, or `[..., k, m]` with `transpose_a`.
        b: `[..., k, n]`, or `[..., n, k]` with `transpose_b`; its batch is that of `a`,
            or one matrix serves all.
        transpose_a: Whether `a` is given transposed.
        transpose_b: Whether `b` is.
        target: Where to compute.
        out: Where the result goes, `[..., m, n]`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    given = {"transpose_a": bool(transpose_a), "transpose_b": bool(transpose_b)}
    return call(matmul, (a, b), given, (), target, out)


def _grad_plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], given: dict[str, Any]
) -> Plan:
    of_one_type("math.matmul_grad", dtypes)
    dy, a, b = shapes
    m, _, n, batch = _sizes(a, b, given)
    if dy != (*batch, m, n):
        raise ShapeError(
            f"math.matmul_grad: dy has shape {dy}, the product {(*batch, m, n)}"
        )
    canonical = (_batched(dy, batch), _batched(a, batch), _batched(b, batch))
    return Plan(canonical, dtypes, (a, b), given)


def _grad_names(workload: Workload) -> Names:
    a, b = _names(workload.with_shapes(*workload.shapes[1:]))
    dy = "t" if workload.shapes[0][0] != 1 else None
    return (dy, "m", None), a, b


@tensor_operator(
    "math.matmul_grad",
    f"{_HERE}:matmul_grad",
    plan=_grad_plan,
    names=_grad_names,
    shapes=((1024, 1024), (1024, 1024), (1024, 1024)),
    attributes=_TRANSPOSES,
    scheduled_as="",
)
def matmul_grad(
    dy: Any,
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients (da, db) of `matmul`.

    Args:
        dy: The gradient of the result, `[..., m, n]`.
        a: As `matmul` took it.
        b: As `matmul` took it; one matrix for a whole batch gets the sum.
        transpose_a: As `matmul` was told.
        transpose_b: As `matmul` was told.
        target: Where to compute.
        out: Where the two results go.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    given = {"transpose_a": bool(transpose_a), "transpose_b": bool(transpose_b)}
    return call(matmul_grad, (dy, a, b), given, (), target, out)
