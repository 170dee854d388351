"""Cross-entropy of logits and the numbers of the right classes, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops import lazy
from tensorlang.ops.definition import Body, Definition, operator
from tensorlang.ops.signature import Floats, Indices, Number, Scalar

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor
    from tensorlang.ops.nn import cross_entropy_definitions as definitions
else:
    definitions = lazy.module("tensorlang.ops.nn.cross_entropy_definitions")

_IGNORED: Final = -100
_USUAL: Final = ((512, 4096), (512,))


def _wrong_label(args: Sequence[Any]) -> str:
    """What to say of a kernel's arguments, the ignored label last."""
    from tensorlang.runtime.device_arrays import on_host  # noqa: PLC0415 - runtime

    at = next(n for n, a in enumerate(args) if a.dtype.kind in "iu")
    labels, classes, ignored = on_host(args[at]), args[at - 1].shape[1], args[-1]
    fine = (labels >= 0) & (labels < classes)
    wrong = labels[~(fine | (labels == ignored))]
    if not wrong.size:
        return ""
    return (
        f"a label is {wrong[0]}; {classes} classes are counted from 0, and {ignored} "
        f"is ignored ({wrong.size} are out of range)"
    )


def _operator(name: str, *before: tuple[int, ...]) -> Callable[[Body], Definition]:
    meant = ("logits", "labels", "reduction", "ignore_index", "label_smoothing", "axis")
    return operator(
        f"nn.{name}",
        aliases=(name,),
        shapes=(*before, *_USUAL),
        usual={"label_smoothing": 0.1} if before else {},
        scheduled_as="rows",
        whole=True,
        faults=_wrong_label,
        meanings=dict.fromkeys(meant, "As for `nn.cross_entropy`.") if before else None,
    )


@_operator("cross_entropy")
def cross_entropy(
    logits: Floats,
    labels: Indices,
    reduction: Literal["mean", "sum", "none"] = "mean",
    *,
    ignore_index: Scalar = _IGNORED,
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """The negative logarithm of the probability that softmax gives the right class.

    Args:
        logits: Floats; one axis runs over the classes.
        labels: The right classes, i32 or i64, in the shape of the logits without that
            axis.
        reduction: `mean` over the labels that are not ignored, `sum`, or `none`.
        ignore_index: A label whose loss is 0.
        label_smoothing: The share of the target that all classes have alike.
        axis: The axis of the classes; 1 where it is not said, 0 of one dimension.

    Raises:
        KernelError: a label is no class.
    """
    given = _laid(logits, labels, axis, ir.as_expr(ignore_index), label_smoothing)
    made = definitions.loss(given, reduction)
    return given.rows.folded(made, keepdims=False) if reduction == "none" else made


@_operator("cross_entropy_grad", ())
def cross_entropy_grad(
    dy: Floats | Number,
    logits: Floats,
    labels: Indices,
    reduction: Literal["mean", "sum", "none"] = "mean",
    *,
    ignore_index: Scalar = _IGNORED,
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> Tensor:
    """The gradient of `nn.cross_entropy` for the logits.

    Args:
        dy: The gradient of the result: a number, an array of shape (), or with `none`
            one of the labels' shape.
        out: Where the result goes; may be `logits`.

    Raises:
        KernelError: a label is no class.
    """
    given = _laid(logits, labels, axis, ir.as_expr(ignore_index), label_smoothing)
    each, shape = reduction == "none", getattr(dy, "shape", ())
    wanted = labels.shape if each else ()
    ir.require(
        len(shape) == len(wanted) and shape == wanted,
        "dy has shape {dy}, nn.cross_entropy gives {wanted}",
        dy=shape,
        wanted=wanted,
    )
    weight = given.rows.a_row(dy) if isinstance(dy, ir.Tensor) and each else dy
    return given.rows.whole(definitions.gradient(given, weight, reduction))


def _laid(
    logits: Tensor, labels: Tensor, axis: int | None, ignored: Expr, smoothing: float
) -> definitions.Labelled:
    """Logits as rows of classes, each with its label."""
    ir.require(
        0.0 <= smoothing <= 1.0,
        "label_smoothing is from 0 to 1, not {given}",
        ArgumentError,
        given=smoothing,
    )
    at = min(logits.ndim - 1, 1) if axis is None else axis
    rows = ir.rows.along(logits, at, fixed=True)
    wanted = rows.shape(keepdims=False)
    ir.require(
        labels.ndim == len(wanted) and labels.shape == wanted,
        "logits of shape {logits} have a class for each of {wanted}, the labels have "
        "shape {labels}",
        logits=logits.shape,
        wanted=wanted,
        labels=labels.shape,
    )
    ir.require(
        not rows.is_empty,
        "logits of shape {logits} have no classes",
        logits=logits.shape,
    )
    return definitions.Labelled(rows, rows.a_row(labels), ignored, smoothing)
