"""Second-order gradients: `<op>_grad` expressed by differentiable operators.

The gradient of `<op>_grad` is derived from its definition, like any other
(`tensorlang.ops.derived_gradients`). Here are those that tuned kernels compute:
products are rebuilt from plain operators, which are differentiated in turn, and the
gradient of a linear operator's gradient is the operator itself.
"""

from __future__ import annotations

from typing import Final

from tensorlang.graph.differentiation.autodiff import backward
from tensorlang.graph.differentiation.autodiff_forms import detached
from tensorlang.graph.differentiation.gradients import Gradients, Site, rule
from tensorlang.graph.differentiation.second_order_forms import DECOMPOSED, WINDOW
from tensorlang.graph.values import Value
from tensorlang.ops import find, math, nn


@rule(*(f"{id}_grad" for id in DECOMPOSED))
def _decomposed(site: Site) -> Gradients:
    """Decompose into operators on detached values, and differentiate these."""
    named = site.named
    inputs = {k: detached(v) if isinstance(v, Value) else v for k, v in named.items()}
    made = DECOMPOSED[site.node.id.removesuffix("_grad")](**inputs)
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
    rest = {name: named[name] for name in WINDOW}
    dy, w = named["dy"], named["w"]
    by_weight = find(f"{id}_grad_weight")(dy, site.dy, w.shape[2:], **rest)
    return [(dy, find(id)(site.dy, w, **rest)), (w, by_weight)]


@rule(*(f"nn.conv{rank}d_grad_weight" for rank in (1, 2, 3)))
def _weight(site: Site) -> Gradients:
    """Linear in `dy` and in the image."""
    named, id = site.named, site.node.id.removesuffix("_grad_weight")
    rest = {name: named[name] for name in WINDOW}
    dy, x = named["dy"], named["x"]
    size = x.shape[x.ndim - site.dy.ndim + 2 :]
    by_image = find(f"{id}_grad_data")(dy, site.dy, size, **rest)
    return [(dy, find(id)(x, site.dy, **rest)), (x, by_image)]
