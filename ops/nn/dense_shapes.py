"""What dense layers have in common: the sizes of weights, checks, and shorthands."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tensorlang import ir
from tensorlang.ops.signature import Packed

Activation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def from_sizes(given: Shapes) -> Shapes:
    """The shapes of x and w for a shorthand MxNxK."""
    if len(given) == 1 and len(given[0]) == 3:
        rows, columns, depth = given[0]
        return (rows, depth), (columns, depth)
    return given


def sizes_of(
    w: ir.Tensor | Packed, lanes: int, group: int = 1, layout: str = "oi"
) -> tuple[int, int]:
    """The columns and the depth of a weight.

    Args:
        w: A matrix, or a packed weight.
        lanes: The columns of a strip of a packed weight.
        group: The adjacent inputs that are stored together in it.
        layout: `"oi"` or `"io"`, of a matrix.

    Raises:
        ShapeError: not a matrix, or not packed for so many columns.
    """
    if isinstance(w, ir.Tensor):
        ir.require(w.ndim == 2, "the weight is a matrix, not of shape {w}", w=w.shape)
        columns, depth = map(int, w.shape if layout == "oi" else w.shape[::-1])
        return columns, depth
    shape = w.array.shape
    ir.require(
        len(shape) == 3
        and shape[0] == -(-w.columns // lanes)
        and shape[2] == lanes * group,
        "an array of shape {shape} holds no packed weight of {columns} columns; "
        "nn.prepack makes one",
        shape=shape,
        columns=w.columns,
    )
    return w.columns, int(shape[1]) * group - w.spare


def check_bias(b: ir.Tensor | None, columns: int) -> None:
    """Check that a bias, if any, has one value per column.

    Raises:
        ShapeError: it has another shape.
    """
    ir.require(
        b is None or (b.ndim == 1 and b.shape[0] == columns),
        "the bias has shape {b}, not ({columns},)",
        b=b and b.shape,
        columns=columns,
    )


def check_quantized(
    x: ir.Tensor, columns: int, depth: int, scales: ir.Tensor, b: ir.Tensor | None
) -> None:
    """Check that arrays belong to one layer of integer weights, of `depth` inputs.

    Raises:
        ShapeError: a shape does not fit.
    """
    ir.require(
        x.ndim > 0 and x.shape[-1] == depth,
        "x of shape {x} does not end in the {depth} inputs of a weight with {columns} "
        "columns",
        x=x.shape,
        depth=depth,
        columns=columns,
    )
    ir.require(
        (scales.ndim == 1 and (scales.shape[0] == columns or scales.shape[0] == 1))
        or (
            scales.ndim == 2
            and scales.shape[0] == columns
            and scales.shape[1] > 0
            and depth % int(scales.shape[1]) == 0
        ),
        "scales of shape {scales} are neither (1,), ({columns},) nor ({columns}, "
        "groups) with groups that divide {depth} inputs",
        scales=scales.shape,
        columns=columns,
        depth=depth,
    )
    check_bias(b, columns)
