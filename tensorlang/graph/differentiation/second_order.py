"""Second-order gradients: `<op>_grad` expressed by differentiable operators.

The gradient of `<op>_grad` is derived from its definition, like any other
(`tensorlang.ops.derived_gradients`). Here are those that tuned kernels compute:
products are rebuilt from plain operators, which are differentiated in turn, and the
gradient of a linear operator's gradient is the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang.errors import GraphError
from tensorlang.graph.differentiation.autodiff import backward
from tensorlang.graph.differentiation.autodiff_forms import detached
from tensorlang.graph.differentiation.gradient_rules import by_channel, unbroadcast
from tensorlang.graph.differentiation.gradients import Gradients, Site, rule
from tensorlang.graph.values import Argument, OpResult, Tensor, Value
from tensorlang.ops import find, math, nn

_WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")

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
        rest = {name: given[name] for name in _WINDOW}
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


def _first(layout: str | None) -> bool:
    return layout is None or layout.index("C") == 1


_DECOMPOSED: Final[dict[str, Callable[..., OpResult]]] = {
    "math.matmul": _matmul,
    "nn.dense": _dense,
    **{f"nn.conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
}


@rule(*(f"{id}_grad" for id in _DECOMPOSED))
def _decomposed(site: Site) -> Gradients:
    """Decompose into operators on detached values, and differentiate these."""
    named = site.named
    inputs = {k: detached(v) if isinstance(v, Value) else v for k, v in named.items()}
    made = _DECOMPOSED[site.node.id.removesuffix("_grad")](**inputs)
    results = made if isinstance(made, tuple) else (made,)
    # scalar operands have no gradient
    differentiable = [value for value in results if value is not None]
    wrt = {inputs[k]: v for k, v in named.items() if v in site.wanted}
    found = backward(differentiable[: len(site.dys)], site.dys, tuple(wrt))
    return [(value, found.get(inner)) for inner, value in wrt.items()]


# ------------------------------------------------------------ linear operators

_LINEAR: Final = (
    *("math.sum", "math.mean", "math.cumsum", "nn.global_avg_pool"),
    *(f"nn.avg_pool{rank}d" for rank in (1, 2, 3)),
    *(f"nn.adaptive_avg_pool{rank}d" for rank in (1, 2, 3)),
)


@rule(*(f"{id}_grad" for id in _LINEAR))
def _linear(site: Site) -> Gradients:
    given = {k: v for k, v in site.named.items() if k not in ("dy", "x")}
    op = find(site.node.id.removesuffix("_grad"))
    if op is math.mean and 0 in site.dy.shape:
        op = math.sum  # 0, as each of no elements contributes 0 / 0
    return [(site.named["dy"], op(site.dy, **given))]


@rule("nn.dropout_grad")
def _dropout(site: Site) -> Gradients:
    given = {k: v for k, v in site.named.items() if k != "dy"}
    return [(site.named["dy"], nn.dropout_grad(site.dy, **given))]


@rule("nn.embedding_grad")
def _embedding(site: Site) -> Gradients:
    return [(site.named["dy"], nn.embedding(site.named["ids"], site.dy))]


@rule(*(f"nn.conv{rank}d_grad_data" for rank in (1, 2, 3)))
def _data(site: Site) -> Gradients:
    """Linear in `dy` and in the weight."""
    named, id = site.named, site.node.id.removesuffix("_grad_data")
    rest = {name: named[name] for name in _WINDOW}
    dy, w = named["dy"], named["w"]
    by_weight = find(f"{id}_grad_weight")(dy, site.dy, w.shape[2:], **rest)
    return [(dy, find(id)(site.dy, w, **rest)), (w, by_weight)]


@rule(*(f"nn.conv{rank}d_grad_weight" for rank in (1, 2, 3)))
def _weight(site: Site) -> Gradients:
    """Linear in `dy` and in the image."""
    named, id = site.named, site.node.id.removesuffix("_grad_weight")
    rest = {name: named[name] for name in _WINDOW}
    dy, x = named["dy"], named["x"]
    size = x.shape[x.ndim - site.dy.ndim + 2 :]
    by_image = find(f"{id}_grad_data")(dy, site.dy, size, **rest)
    return [(dy, find(id)(x, site.dy, **rest)), (x, by_image)]
