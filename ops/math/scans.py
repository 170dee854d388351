"""Running sums along an axis, and their gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ShapeError
from tensorlang.ops.math.folding import fold_names
from tensorlang.ops.rows import one_axis, rows_of
from tensorlang.ops.signature import ANY
from tensorlang.ops.tensors import (
    FLOATS,
    Plan,
    Shape,
    TensorOperator,
    axis_of,
    call,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.math.scan_definitions"
_NARROW: Final = ("f16", "bf16")
_LONG: Final = 1 << 15  # elements from which on a row is cut into parts
_CHUNKED: Final = 1 << 8  # and on devices into chunks


def _in_chunks(workload: Workload) -> bool:
    """Whether rows are long enough to be cut, of numbers that keep their digits."""
    return workload.dtypes[0] not in _NARROW and _is_cut(workload)


def _in_narrow_chunks(workload: Workload) -> bool:
    """The same of numbers whose sums are rounded to few digits."""
    return workload.dtypes[0] in _NARROW and _is_cut(workload)


def _is_cut(workload: Workload) -> bool:
    (shape,) = workload.shapes
    return len(shape) == len("mn") and shape[1] >= _CHUNKED


def _plan(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    (shape,) = shapes
    row = rows_of(shape, axis_of(id, asked.get("axis", -1), len(shape)))
    long = len(row) == 2 and row[1] > _LONG
    rest = {k: v for k, v in asked.items() if k != "axis"}
    return Plan((row,), dtypes, (shape,), rest | {"long": long})


def _operator(
    name: str, allowed: tuple[str, ...], *, reverse: bool
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    return tensor_operator(
        f"math.{name}",
        f"{_HERE}:cumsum",
        plan=partial(_plan, f"math.{name}"),
        names=fold_names,
        shapes=((512, 4096),),
        attributes={"reverse": reverse},
        allowed=allowed,
        aliases=(name,),
        scheduled_as="scan",
    )


@_operator("cumsum", ANY, reverse=False)
def cumsum(x: Any, axis: int = -1, *, target: Any = None, out: Any = None) -> Launch:
    """The sums of all elements up to each, along an axis.

    f32 is summed in f64 and rounded at each element; integers and truths come out as
    64-bit integers. A result is the same with any number of threads.

    Args:
        x: Numbers or truths, of one dimension or more.
        axis: The axis along which it sums.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = {"axis": one_axis("math.cumsum", axis), "reverse": False}
    return call(cumsum, (x,), given, (), target, out)


@_operator("cumsum_grad", FLOATS, reverse=True)
def cumsum_grad(
    dy: Any, x: Any, axis: int = -1, *, target: Any = None, out: Any = None
) -> Launch:
    """The gradient of `math.cumsum`: the sums of dy from each element on.

    Args:
        dy: The gradient of the result.
        x: As for `math.cumsum`; only its shape counts.
        axis: As for `math.cumsum`.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    if getattr(dy, "shape", None) != getattr(x, "shape", None):
        raise ShapeError(
            f"math.cumsum_grad: dy has shape {getattr(dy, 'shape', ())}, x has "
            f"{getattr(x, 'shape', ())}; they must be the same"
        )
    given = {"axis": one_axis("math.cumsum_grad", axis), "reverse": True}
    return call(cumsum_grad, (dy,), given, (), target, out)


_CHUNKS: Final = "tensorlang.ops.math.chunked_scans"
# whether lanes exchange values by shuffles: name, definition and feature
_EXCHANGES: Final = (
    ("chunks", "cumsum", "shuffle"),
    ("chunks_in_memory", "cumsum_through_memory", ""),
)
# of sums in f64, rounded to f32; and of those in f32, of which a few round otherwise
_SUMS: Final = (("", _in_chunks, 1e-6), ("narrow_", _in_narrow_chunks, 2**-7))
for _each in (cumsum, cumsum_grad):
    for _prefix, _serves, _tolerance in _SUMS:
        for _name, _define, _feature in _EXCHANGES:
            tensor_algorithm(
                _each,
                _prefix + _name,
                f"{_CHUNKS}:{_define}",
                _serves,
                tolerance=_tolerance,
                feature=_feature,
            )
