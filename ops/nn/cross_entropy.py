"""Cross-entropy of logits and the numbers of the right classes, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, KernelError, ShapeError
from tensorlang.ops.binding import number
from tensorlang.ops.dispatch import own
from tensorlang.ops.indices import index_type
from tensorlang.ops.rows import NAMES, one_axis, rows_of
from tensorlang.ops.tensors import Plan, Shape, axis_of, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch, Operator
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.cross_entropy_definitions"
_REDUCTIONS: Final = ("mean", "sum", "none")
_IGNORED: Final = -100
_USUAL: Final = ((512, 4096), (512,))
_SCALARS: Final[dict[str, Any]] = {"ignored": np.int64(_IGNORED), "smoothing": 0.1}


def _plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    _, result, canonical, rest = _laid("nn.cross_entropy", shapes, dtypes, asked)
    shown = result if asked.get("reduction", "mean") == "none" else ()
    return Plan(canonical, dtypes, (shown,), rest)


def _plan_grad(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    id, (dy, *others) = "nn.cross_entropy_grad", shapes
    logits, result, canonical, rest = _laid(id, tuple(others), dtypes[1:], asked)
    shown = result if asked.get("reduction", "mean") == "none" else ()
    if dy != shown:
        raise ShapeError(f"{id}: dy has shape {dy}, nn.cross_entropy gives {shown}")
    if dtypes[0] != dtypes[1]:
        raise DTypeError(
            f"{id}: dy is {dtypes[0]} and the logits {dtypes[1]}; cast one of them"
        )
    inner = canonical[1] if shown else ()
    rest.pop("smoothed", None)
    return Plan((inner, *canonical), dtypes, (logits,), rest)


def _laid(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> tuple[Shape, Shape, tuple[Shape, Shape], dict[str, Any]]:
    """Shape of logits and of labels, both in canonical form, other attributes."""
    logits, labels = shapes
    axis = asked.get("axis")
    if axis is None:
        axis = min(len(logits) - 1, 1)
    at = axis_of(id, axis, len(logits))
    rest = logits[:at] + logits[at + 1 :]
    if labels != rest:
        raise ShapeError(
            f"{id}: logits of shape {logits} have a class for each of {rest}, the "
            f"labels have shape {labels}"
        )
    index_type(id, dtypes[1])
    row = rows_of(logits, at)
    if not logits[at]:
        raise ShapeError(f"{id}: logits of shape {logits} have no classes")
    given = {k: v for k, v in asked.items() if k != "axis"}
    if 0 in logits:
        row = (0, logits[at])
    return logits, rest, (row, (row[0], *row[2:])), given


def _names(workload: Workload) -> Names:
    """Rows are symbolic; there may be a dy before logits and labels."""
    *before, logits, _ = workload.shapes
    row = (NAMES[0], *NAMES[2 : len(logits)])
    return (*(row if dy else () for dy in before), NAMES[: len(logits)], row)


def _checked(id: str, reduction: Any, smoothing: Any) -> float:
    """The smoothing.

    Raises:
        ArgumentError: it is out of its range, or there is no such reduction.
    """
    if reduction not in _REDUCTIONS:
        raise ArgumentError(
            f"{id}: reduction is 'mean', 'sum' or 'none', not {reduction!r}"
        )
    share = number(id, "label_smoothing", smoothing)
    if not 0.0 <= share <= 1.0:
        raise ArgumentError(f"{id}: label_smoothing is from 0 to 1, not {smoothing!r}")
    return share


@dataclass(frozen=True, slots=True, eq=False)
class _Explained:
    """A launch that says, where its kernel reports a fault, which label was wrong."""

    kernel: Callable[..., Any]
    id: str
    classes: int
    ignored: int

    def __call__(self, *args: Any) -> None:
        try:
            self.kernel(*args)
        except KernelError as error:
            from tensorlang.runtime.device_arrays import on_host  # noqa: PLC0415

            labels = on_host(next(a for a in args if a.dtype.kind in "iu"))
            fine = (labels >= 0) & (labels < self.classes)
            wrong = labels[~(fine | (labels == self.ignored))]
            if not wrong.size:
                raise
            made = KernelError(
                f"{self.id}: a label is {wrong[0]}; {self.classes} classes are counted "
                f"from 0, and {self.ignored} is ignored ({wrong.size} are out of range)"
            )
            made.code = error.code
            raise made from None


def _explained(
    op: Operator, launch: Launch, logits: Any, axis: int | None, ignored: int
) -> Launch:
    kernel, arguments, result = launch
    at = min(len(logits.shape) - 1, 1) if axis is None else axis
    return _Explained(kernel, op.id, logits.shape[at], ignored), arguments, result


def _type_of(id: str, logits: Any) -> np.dtype[Any]:
    """The element type of an array of any library."""
    if type(logits) is not np.ndarray:
        from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - runtime

        logits = seen(logits, f"{id}: logits")
    kind: np.dtype[Any] = logits.dtype
    return kind


def _whole(id: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{id}: ignore_index is a whole number, not {value!r}")
    return int(value)


@tensor_operator(
    "nn.cross_entropy",
    f"{_HERE}:cross_entropy",
    plan=_plan,
    names=_names,
    shapes=_USUAL,
    dtypes=("f32", "i64"),
    attributes={"reduction": "mean", "smoothed": False},
    scalars=_SCALARS,
    aliases=("cross_entropy",),
    scheduled_as="rows",
)
def cross_entropy(
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    *,
    ignore_index: int = _IGNORED,
    label_smoothing: float = 0.0,
    axis: int | None = None,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The negative logarithm of the probability that softmax gives the right class.

    Args:
        logits: Floats; one axis runs over the classes.
        labels: The right classes, i32 or i64, in the shape of the logits without that
            axis.
        reduction: `mean` over the labels that are not ignored, `sum`, or `none`.
        ignore_index: A label whose loss is 0.
        label_smoothing: The share of the target that all classes have alike.
        axis: The axis of the classes; 1 where it is not said, 0 of one dimension.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        KernelError: a label is no class.
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.cross_entropy"
    share = _checked(id, reduction, label_smoothing)
    ignored = _whole(id, ignore_index)
    at = None if axis is None else one_axis(id, axis)
    given = {"reduction": reduction, "axis": at, "smoothed": share > 0.0}
    launch = call(cross_entropy, (logits, labels), given, (ignored, share), target, out)
    return _explained(cross_entropy, launch, logits, at, ignored)


@tensor_operator(
    "nn.cross_entropy_grad",
    f"{_HERE}:cross_entropy_grad",
    plan=_plan_grad,
    names=_names,
    shapes=((), *_USUAL),
    dtypes=("f32", "f32", "i64"),
    attributes={"reduction": "mean", "smoothed": False},
    scalars=_SCALARS,
    aliases=("cross_entropy_grad",),
    scheduled_as="rows",
)
def cross_entropy_grad(
    dy: Any,
    logits: Any,
    labels: Any,
    reduction: str = "mean",
    *,
    ignore_index: int = _IGNORED,
    label_smoothing: float = 0.0,
    axis: int | None = None,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `nn.cross_entropy` for the logits.

    Args:
        dy: The gradient of the result: a number, an array of shape (), or with `none`
            one of the labels' shape.
        logits: As for `nn.cross_entropy`.
        labels: As for `nn.cross_entropy`.
        reduction: As for `nn.cross_entropy`.
        ignore_index: As for `nn.cross_entropy`.
        label_smoothing: As for `nn.cross_entropy`.
        axis: As for `nn.cross_entropy`.
        target: Where to compute.
        out: Where the result goes; may be `logits`.

    Raises:
        KernelError: a label is no class.
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.cross_entropy_grad"
    own(dy, logits, labels)
    share = _checked(id, reduction, label_smoothing)
    ignored = _whole(id, ignore_index)
    at = None if axis is None else one_axis(id, axis)
    if isinstance(dy, (int, float)):
        dy = np.asarray(dy, _type_of(id, logits))
    given = {"reduction": reduction, "axis": at, "smoothed": share > 0.0}
    arrays = (dy, logits, labels)
    launch = call(cross_entropy_grad, arrays, given, (ignored, share), target, out)
    return _explained(cross_entropy_grad, launch, logits, at, ignored)
