"""Dense layers: matrix products with fused epilogues.

The number of rows is an open size, except that few rows have kernels of their own: that
of a single row and that of many are built together. The gradient is derived, with that
of a bias that it does not take; it has kernels for one row and for many, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.nn import bf16_parts
from tensorlang.ops.nn.dense_shapes import Activation, check_bias, from_sizes, sizes_of
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.packing import STRIP
from tensorlang.ops.spec.definition import algorithm, operator
from tensorlang.ops.spec.signature import NARROW, Floats, Key, Packed, Share
from tensorlang.targets import Target
from tensorlang.workload import Workload

with lazy.modules(__name__):
    from tensorlang.ir import tf32 as rounding
    from tensorlang.ops.random import definitions as draws
    from tensorlang.ops.spec import demands
    from tensorlang.schedules.contraction import matrix_model as model


Layout: TypeAlias = Literal["oi", "io"]
Sizes: TypeAlias = tuple[Any, int, int]
Factor: TypeAlias = "Callable[[Any, Any], ir.Expr]"
Products: TypeAlias = "Callable[[Factor, Factor, Sizes, str], ir.Tensor]"
TF32_TOLERANCE: Final = 2.0**-10  # two roundings to 10 fraction bits
_MANY: Final = 64  # representative row count for all but one
_USUAL: Final = (1024, 1024)
_BITS: Final = 9  # of a word that an f32 uniform discards


def _other_rows(workload: Workload) -> tuple[Workload, ...]:
    """The workload of the other kernel: one row, or many; none for few."""
    op = dense if workload.operator == dense.id else dense_grad
    named = list(zip(op.spec.slots(workload.named), workload.shapes, strict=True))
    given = math.prod(dict(named)["x"][:-1])
    if 1 < given <= demands.FEW:
        return ()
    rows = _MANY if given == 1 else 1
    shapes = (
        (rows, shape[-1]) if name in ("dy", "x", "residual") else shape
        for name, shape in named
    )
    return (workload.with_shapes(*shapes),)


@operator(
    "nn.dense",
    shapes=(_USUAL,) * 2,
    whole=True,
    shorthand=from_sizes,
    variants=_other_rows,
)
def dense(
    x: Floats,
    w: Floats | Packed,
    b: Floats | None = None,
    *,
    activation: Activation | None = None,
    layout: Layout = "oi",
    residual: Floats | None = None,
    dropout: Share = 0.0,
    key: Key | None = None,
    tolerance: float | None = None,
) -> ir.Tensor:
    """Fused dense layer: `dropout(activation(x @ w.T + b)) + residual`.

    One pass over the result, without intermediate arrays. A deep reduction is split
    into parts, each accumulated in a pass of its own.

    Args:
        x: Floats `[..., in]`.
        w: Weight `[out, in]`, or `[in, out]` with `layout="io"`, or a `PackedWeight`.
        b: Bias `[out]`, or None.
        activation: None, `relu`, `gelu`, `gelu_tanh`, `silu`, `sigmoid` or `tanh`.
        layout: Layout of `w`, `"oi"` or `"io"`; not used for a packed weight.
        residual: `[..., out]`, added last, or None.
        dropout: Probability of dropping an element, 0 <= dropout < 1, with the mask of
            `nn.dropout` for the result's shape.
        key: Random key for dropout; consumed.
        tolerance: Error allowed in addition to that of f32, relative to the result or
            to the mean result: from 2**-10, tensor cores may round f32 to tf32.
            Relative to the sum of absolute products, CPUs with bf16 matrix units may
            compute f32 by three products of bf16 from 2**-15, by four from 2**-16, by
            six from 2**-23, where that is faster (`tensorlang.ops.nn.bf16_parts` has
            the bounds); these take subnormal numbers for 0.
        out: Output array, `[..., out]`.

    Raises:
        KeyReuseError: the key was used before.
        ArgumentError, DTypeError, ShapeError: an argument does not fit.
    """
    ir.require(
        tolerance is None or tolerance >= 0,
        f"tolerance is None or a relative error from 0, not {tolerance!r}",
        ArgumentError,
    )
    return _layer(x, w, b, activation, layout, residual, dropout, key, _plain(ir.wide))


def _plain(rounded: Callable[[ir.Expr], ir.Expr]) -> Products:
    """Products of factors, each rounded."""

    def sums(x: Factor, w: Factor, sizes: Sizes, name: str) -> ir.Tensor:
        k = ir.reduce_axis(sizes[2], "k")
        return ir.compute(
            sizes[:2], lambda i, j: ir.sum(rounded(x(i, k)) * rounded(w(j, k)), k), name
        )

    return sums


def _in_tf32(tolerance: float, **given: Any) -> ir.Tensor:
    """`dense` with f32 operands rounded to tf32 before multiplication."""
    del tolerance
    return _layer(**given, sums=_plain(rounding.tf32))


def _in_parts(split: bf16_parts.Split) -> Callable[..., ir.Tensor]:
    """`dense` of f32 by products of bf16."""

    def define(tolerance: float, **given: Any) -> ir.Tensor:
        del tolerance
        return _layer(**given, sums=partial(bf16_parts.products, split=split))

    return define


def _allows_tf32(workload: Workload) -> bool:
    """Whether the tolerance allows tf32 and the operands are unpacked f32."""
    allowed: Any = workload.named["tolerance"]
    changes = workload.dtypes[0] == "f32" and not workload.named["w"]
    return changes and allowed is not None and allowed >= TF32_TOLERANCE


algorithm(dense, "tf32", serves=_allows_tf32, tolerance=TF32_TOLERANCE, feature="mma")(
    _in_tf32
)


def _allows(split: bf16_parts.Split, workload: Workload) -> bool:
    """Whether the tolerance allows a split, and the operands are unpacked f32."""
    allowed: Any = workload.named["tolerance"]
    changes = workload.dtypes[0] == "f32" and not workload.named["w"]
    return changes and allowed is not None and allowed >= split.error


def _faster(
    split: bf16_parts.Split, workload: Workload, target: Target, _: Collection[int]
) -> bool:
    """Whether the model of contractions predicts that a split is faster than f32."""
    shapes = dict(zip(dense.spec.slots(workload.named), workload.shapes, strict=True))
    *lead, depth = shapes["x"]
    columns = math.prod(shapes["w"]) // max(depth, 1)
    sizes = (math.prod(lead), columns, depth)
    return 0 not in sizes and model.parts_are_faster(target, sizes, len(split.products))


for _split in bf16_parts.SPLITS:
    algorithm(
        dense,
        f"bf16x{len(_split.products)}",
        serves=partial(_allows, _split),
        tolerance=_split.error,
        feature="amx_bf16",
        faster=partial(_faster, _split),
    )(_in_parts(_split))


def _layer(  # noqa: PLR0917 - the parameters of `dense`
    x: ir.Tensor,
    w: ir.Tensor | Packed,
    b: ir.Tensor | None,
    activation: str | None,
    layout: str,
    residual: ir.Tensor | None,
    dropout: Any,
    key: Any,
    sums: Products,
) -> ir.Tensor:
    weight, columns, depth = _weight(w, layout)
    shape, rows = (*x.shape[:-1], columns), math.prod(x.shape[:-1])
    _check_shapes(x, w, b, residual, columns, depth, layout)
    _check_key(dropout, key)
    given = ir.reshaped(x, (rows, depth))
    added = residual and ir.reshaped(residual, (rows, columns))
    bare = (b, activation, residual, key) == (None,) * 4 and x.dtype.name not in NARROW
    products = sums(
        lambda i, k: given[i, k],
        weight,
        (rows, columns, depth),
        "y" if bare else "products",
    )
    if bare:
        return ir.reshaped(products, shape)

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        value: ir.Expr = products[i, j]
        if b is not None:
            value = value + ir.wide(b[j])
        value = activated(value, activation)
        if dropout is not None:
            value = _dropped(value, key, i * columns + j, dropout)
        if added is not None:
            value = value + ir.wide(added[i, j])
        return ir.stored(value, x.dtype)

    return ir.reshaped(ir.compute((rows, columns), element, "y"), shape)


def _weight(
    w: ir.Tensor | Packed, layout: str
) -> tuple[Callable[[Any, Any], ir.Expr], int, int]:
    """An accessor `(column, k)` of a weight's elements, its columns and its depth.

    Raises:
        ShapeError: not a weight of a dense layer.
    """
    columns, depth = sizes_of(w, STRIP, layout=layout)

    def at(j: Any, k: Any) -> ir.Expr:
        if not isinstance(w, ir.Tensor):
            return w.array[j // STRIP, k, j % STRIP]
        return w[j, k] if layout == "oi" else w[k, j]

    return at, columns, depth


def _check_shapes(  # noqa: PLR0917 - operands of a layer
    x: ir.Tensor,
    w: ir.Tensor | Packed,
    b: ir.Tensor | None,
    residual: ir.Tensor | None,
    columns: int,
    depth: int,
    layout: str,
) -> None:
    """Check that the arrays belong to one layer; ShapeError if a shape does not fit."""
    array, kind = (
        (w, repr(layout)) if isinstance(w, ir.Tensor) else (w.array, "'packed'")
    )
    ir.require(
        x.ndim > 0 and x.shape[-1] == depth,
        f"x of shape {x.shape} does not end in the {depth} inputs of a weight of "
        f"shape {array.shape} (layout {kind})",
    )
    check_bias(b, columns)
    shape = (*x.shape[:-1], columns)
    ir.require(
        residual is None or (residual.ndim == x.ndim and residual.shape == shape),
        f"the residual has shape {residual and residual.shape}, the result {shape}",
    )


def _check_key(dropout: object, key: Any) -> None:
    """Check the key of dropout."""
    several = key is not None and key.words.ndim > 1
    ir.require(
        not several and (dropout is None or key is not None),
        f"dropout takes one Key as key=, not {'a batch' if several else 'NoneType'}",
        ArgumentError,
    )


def _dropped(value: ir.Expr, key: Any, index: ir.Expr, left: ir.Expr) -> ir.Expr:
    """Apply element `index` of the mask of `nn.dropout` with the JAX stream."""
    (bits,) = draws.Source.of(key).elements(32, index, ())
    uniform = (bits >> ir.as_expr(_BITS, ir.u32)).cast(ir.f32) * 2.0**-23
    nothing = ir.as_expr(0.0, value.dtype)
    return ir.select(uniform < left.cast(ir.f32), value / left, nothing)


@operator(
    "nn.dense_grad",
    shapes=(_USUAL,) * 3,
    whole=True,
    variants=_other_rows,
    meanings={"w": "Weight of the forward call, not packed.", "layout": "Its layout."},
)
def dense_grad(
    dy: Floats, x: Floats, w: Floats, *, layout: Layout = "oi"
) -> tuple[ir.Tensor, ...]:
    """The gradients `(dx, dw, db)` of `nn.dense` without activation and dropout.

    Args:
        dy: The gradient of the result, `[..., out]`.
        x: Input of the forward call, `[..., in]`.
        out: Three output arrays.
    """
    columns, depth = sizes_of(w, STRIP, layout=layout)
    ir.require(
        x.ndim > 0
        and x.shape[-1] == depth
        and dy.ndim == x.ndim
        and dy.shape == (*x.shape[:-1], columns),
        f"dy of shape {dy.shape}, x of {x.shape} and w of {w.shape} (layout "
        f"{layout!r}) are not of one dense layer",
    )
    bias = ir.placeholder((columns,), w.dtype, "b")
    y = dense.body(x, w, bias, layout=layout, dropout=None)
    return ir.adjoint([y], [dy], [x, w, bias], ["dx", "dw", "db"])
