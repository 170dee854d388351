"""Cross-entropy of logits and class indices or shares, and its gradient.

The gradient is that of the loss of each row, derived; it checks the labels, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from tensorlang import ir, lazy, runtime
from tensorlang.errors import ArgumentError
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import FLOATS, Arrays, Floats, Number, Scalar

with lazy.modules(__name__):
    from tensorlang.ops.nn import cross_entropy_definitions as definitions

Labels: TypeAlias = Annotated[
    "ir.Tensor", Arrays("labels", ("i64", "i32", *FLOATS), usual="i64")
]
_IGNORED: Final = -100
_USUAL: Final = ((512, 4096), (512,))


def _wrong_label(args: Sequence[Any]) -> str:
    """The error message for a kernel's arguments, the last of which is ignore_index."""
    at = next(n for n, a in enumerate(args) if a.dtype.kind in "iu")
    labels = runtime.device_arrays.on_host(args[at])
    classes, ignored = args[at - 1].shape[1], args[-1]
    fine = (labels >= 0) & (labels < classes)
    wrong = labels[~(fine | (labels == ignored))]
    if not wrong.size:
        return ""
    return (
        f"a label is {wrong[0]}; {classes} classes are counted from 0, and {ignored} "
        f"is ignored ({wrong.size} are out of range)"
    )


def _operator(
    name: str, *before: tuple[int, ...], **options: Any
) -> Callable[[Body], Operator]:
    return operator(
        f"nn.{name}",
        shapes=(*before, *_USUAL),
        usual={"label_smoothing": 0.1} if before else {},
        scheduled_as="rows",
        whole=True,
        faults=_wrong_label,
        gradient={"linear": False, "faults": _wrong_label} if before else None,
        **options,
    )


@_operator("cross_entropy")
def cross_entropy(
    logits: Floats,
    labels: Labels,
    reduction: Literal["mean", "sum", "none"] = "mean",
    *,
    weight: Floats | None = None,
    ignore_index: Scalar = _IGNORED,
    label_smoothing: float = 0.0,
    axis: int | None = None,
) -> ir.Tensor:
    """Cross-entropy loss: `-log(softmax(logits)[label])`.

    Args:
        logits: Floats; `axis` runs over the classes.
        labels: Class indices, int32 or int64, of the shape of `logits` without `axis`;
            or the share of each class, floats of the shape of `logits`.
        reduction: `mean` over the labels that are not ignored, by weight, `sum`, or
            `none` for the loss of each label. The mean over shares has no weights.
        weight: The factor of the loss of each class, or None; with class indices it is
            a constant, which has no gradient.
        ignore_index: Label whose loss is 0; no shares are ignored.
        label_smoothing: Share of the target distributed evenly over all classes, from
            0 to 1.
        axis: The class axis; by default 1, or 0 for one-dimensional logits.

    Raises:
        KernelError: a label is out of range.
    """
    given = _laid(logits, labels, weight, ignore_index, label_smoothing, axis)
    made = definitions.loss(given, reduction)
    return given.rows.folded(made, keepdims=False) if reduction == "none" else made


@_operator("cross_entropy_grad", (), parameters_of=cross_entropy)
def cross_entropy_grad(
    dy: Floats | Number,
    logits: Floats,
    labels: Labels,
    reduction: Literal["mean", "sum", "none"] = "mean",
    **given: Any,
) -> object:
    """The gradient of `nn.cross_entropy` for the logits.

    Of shares of classes it has those of the shares and of the weights, too. The weights
    of classes that are given by index are constants.

    Args:
        dy: The gradient of the result: a number or an array of shape (); with
            reduction `none`, an array of the shape of `logits` without `axis`.
        out: Output array; may be `logits`.

    Raises:
        KernelError: a label is out of range.
    """
    laid = _laid(logits, labels, **given)
    each, shape = reduction == "none", getattr(dy, "shape", ())
    wanted = laid.rows.shape(keepdims=False) if each else ()
    ir.require(
        len(shape) == len(wanted) and shape == wanted,
        f"dy has shape {shape}, nn.cross_entropy gives {wanted}",
    )
    of_row = laid.rows.a_row(dy) if isinstance(dy, ir.Tensor) and each else dy
    shares = definitions.shares(laid, of_row, reduction)
    wrt = {"dx": logits}
    if labels.dtype.is_float:
        wrt["dlabels"] = labels
        if given["weight"] is not None:
            wrt["dweight"] = given["weight"]
    losses = [definitions.losses(laid)]
    found = ir.adjoint(losses, [shares], [*wrt.values()], [*wrt])
    return found if len(found) > 1 else found[0]


def _laid(  # noqa: PLR0917 - the operator's parameters
    logits: ir.Tensor,
    labels: ir.Tensor,
    weight: ir.Tensor | None,
    ignore_index: Scalar,
    label_smoothing: float,
    axis: int | None,
) -> definitions.Labelled:
    """Logits as rows over the classes, with their labels."""
    ir.require(
        0.0 <= label_smoothing <= 1.0,
        f"label_smoothing is from 0 to 1, not {label_smoothing}",
        ArgumentError,
    )
    at = min(logits.ndim - 1, 1) if axis is None else axis
    rows = ir.rows.along(logits, at, fixed=True)
    shared = labels.dtype.is_float
    wanted = logits.shape if shared else rows.shape(keepdims=False)
    ir.require(
        labels.ndim == len(wanted) and labels.shape == wanted,
        f"logits of shape {logits.shape} have a class for each of {wanted}, the "
        f"labels have shape {labels.shape}",
    )
    ir.require(not rows.is_empty, f"logits of shape {logits.shape} have no classes")
    classes = (logits.shape[at % logits.ndim] if logits.ndim else 1,)
    ir.require(
        weight is None or (weight.ndim == 1 and weight.shape == classes),
        f"logits of shape {logits.shape} have weights of {classes}, not "
        f"{weight and weight.shape}",
    )
    laid = ir.reshaped(labels, rows.array.shape) if shared else rows.a_row(labels)
    of = weight and ir.reshaped(weight, (int(weight.shape[0]),))
    ignored = ir.as_expr(ignore_index)
    return definitions.Labelled(rows, laid, ignored, label_smoothing, of)
