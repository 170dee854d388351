"""What dense layers have in common: the sizes of weights, checks, and shorthands."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tensorlang import ir
from tensorlang.ops.spec.signature import Packed

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
        ir.require(w.ndim == 2, f"the weight is a matrix, not of shape {w.shape}")
        columns, depth = map(int, w.shape if layout == "oi" else w.shape[::-1])
        return columns, depth
    shape = w.array.shape
    ir.require(
        len(shape) == 3
        and shape[0] == -(-w.columns // lanes)
        and shape[2] == lanes * group,
        f"an array of shape {shape} holds no packed weight of {w.columns} columns; "
        "nn.prepack makes one",
    )
    return w.columns, int(shape[1]) * group - w.spare


def check_bias(b: ir.Tensor | None, columns: int) -> None:
    """Check that a bias, if any, has one value per column.

    Raises:
        ShapeError: it has another shape.
    """
    ir.require(
        b is None or (b.ndim == 1 and b.shape[0] == columns),
        f"the bias has shape {b and b.shape}, not ({columns},)",
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
        f"x of shape {x.shape} does not end in the {depth} inputs of a weight with "
        f"{columns} columns",
    )
    ir.require(
        (scales.ndim == 1 and (scales.shape[0] == columns or scales.shape[0] == 1))
        or (
            scales.ndim == 2
            and scales.shape[0] == columns
            and scales.shape[1] > 0
            and depth % int(scales.shape[1]) == 0
        ),
        f"scales of shape {scales.shape} are neither (1,), ({columns},) nor "
        f"({columns}, groups) with groups that divide {depth} inputs",
    )
    check_bias(b, columns)
