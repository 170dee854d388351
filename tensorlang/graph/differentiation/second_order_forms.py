"""The gradient kernels expressed by differentiable operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang.errors import GraphError
from tensorlang.graph.differentiation.gradient_rules import by_channel, unbroadcast
from tensorlang.graph.values import Argument, OpResult, Tensor, Value
from tensorlang.ops import find, math, nn

# ------------------------------------------------------------ whole gradients


def _like(dy: Tensor, operand: Argument) -> OpResult:
    return unbroadcast(dy, operand) if isinstance(operand, Value) else None


def _matmul(
    dy: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool
) -> OpResult:
    if min(a.ndim, b.ndim) < 2:
        raise GraphError(
            "second-order gradients of matmul are only supported for matrices"
        )
    if transpose_a:
        da = math.matmul(b, dy, transpose_a=transpose_b, transpose_b=True)
    else:
        da = math.matmul(dy, b, transpose_b=not transpose_b)
    if transpose_b:
        db = math.matmul(dy, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = math.matmul(a, dy, transpose_a=not transpose_a)
    return _like(da, a), _like(db, b)


def _dense(dy: Tensor, x: Tensor, w: Tensor, layout: str) -> OpResult:
    dx = nn.dense(dy, w, layout="io" if layout == "oi" else "oi")
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True)
    return dx, dw, math.sum(dy, tuple(range(dy.ndim - 1)))


def _convolution(rank: int) -> Callable[..., OpResult]:
    def gradient(dy: Tensor, x: Tensor, w: Tensor, **given: Argument) -> OpResult:
        rest = {name: given[name] for name in WINDOW}
        if given["activation"] is not None or not _first(rest["layout"]):
            raise GraphError(
                "second-order gradients of convolutions are only supported for "
                "channels first"
            )
        data, weight = (find(f"nn.conv{rank}d_grad_{w}") for w in ("data", "weight"))
        dx = data(dy, w, x.shape[x.ndim - rank :], **rest)
        db = by_channel(dy, rest["layout"], rank)
        return dx, weight(dy, x, w.shape[2:], **rest), db

    return gradient


WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")


def _first(layout: str | None) -> bool:
    return layout is None or layout.index("C") == 1


DECOMPOSED: Final[dict[str, Callable[..., OpResult]]] = {
    "math.matmul": _matmul,
    "nn.dense": _dense,
    **{f"nn.conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
}
