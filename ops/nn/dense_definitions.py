"""Dense layers and matrix products as loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir import compute, reduce_axis
from tensorlang.ir.dtypes import f32, u32
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.frontend import sum as total
from tensorlang.ir.nodes import Const, Expr, Select
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.random import words
from tensorlang.ops.random.definitions import Draw
from tensorlang.ops.random.impls import impl

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Var

_BITS = 9  # of a word that an f32 uniform does not use


def dense(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    residual: Tensor | None = None,
    key: Tensor | None = None,
    *,
    keep: Var | None = None,
    layout: str,
    columns: int,
    activation: str,
    how: str,
) -> Tensor:
    """y[i, j] = dropout(activation(sum over k of x[i, k] w[j, k] + b[j])) + residual.

    `w` is [out, in] (`oi`), [in, out] (`io`), or packed in strips of columns:
    [strip, in, column of the strip] (`packed`), of `columns` columns in all.
    """
    products = product(x, w, layout, columns)

    def element(i: Expr, j: Expr) -> Expr:
        value: Expr = products[i, j]
        if b is not None:
            value = value + wide(b[j])
        value = activated(value, activation)
        if key is not None and keep is not None:
            value = _dropped(value, key, i * columns + j, keep, how)
        if residual is not None:
            value = value + wide(residual[i, j])
        return stored(value, x.dtype)

    y: Tensor = compute((x.shape[0], columns), element, "y")
    return y


def product(x: Tensor, w: Tensor, layout: str, columns: int) -> Tensor:
    """The sums over k alone, in the type that is accumulated in."""
    k = reduce_axis(x.shape[1], "k")

    def weight(j: Expr) -> Expr:
        if layout == "oi":
            return w[j, k]
        if layout == "io":
            return w[k, j]
        strip = w.shape[2]
        return w[j // strip, k, j % strip]

    products: Tensor = compute(
        (x.shape[0], columns),
        lambda i, j: total(wide(x[i, k]) * wide(weight(j)), k),
        "products",
    )
    return products


def _dropped(value: Expr, key: Tensor, index: Expr, keep: Var, how: str) -> Expr:
    """As `nn.dropout` with the JAX stream: element `index` of the mask."""
    chosen = impl(how)
    draw = Draw(chosen, "jax", batch=False, carries=False)
    counter = words.draw_counter(chosen, Const(0, draw.word), index.cast(draw.word))
    bits = words.folded(chosen, draw.hash_at(counter, key, ()), 32)
    uniform = (bits >> Const(_BITS, u32)).cast(f32) * 2.0**-23
    return Select(uniform < keep.cast(f32), value / keep, Const(0.0, value.dtype))


def dense_grad(
    dy: Tensor, x: Tensor, w: Tensor, *, layout: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, w and b."""
    m, columns = dy.shape
    j, i, also = reduce_axis(columns, "j"), reduce_axis(m, "i"), reduce_axis(m, "r")

    def weight(k: Expr) -> Expr:
        return wide(w[j, k] if layout == "oi" else w[k, j])

    dx = compute(x.shape, lambda i, k: total(wide(dy[i, j]) * weight(k), j), "dx_sum")
    if layout == "oi":
        dw = compute(
            w.shape, lambda j, k: total(wide(dy[i, j]) * wide(x[i, k]), i), "dw_sum"
        )
    else:
        dw = compute(
            w.shape, lambda k, j: total(wide(x[i, k]) * wide(dy[i, j]), i), "dw_sum"
        )
    db = compute((columns,), lambda j: total(wide(dy[also, j]), also), "db_sum")
    return _rounded(dx, x, "dx"), _rounded(dw, x, "dw"), _rounded(db, x, "db")


def _rounded(sums: Tensor, like: Tensor, name: str) -> Tensor:
    """The sums in the type of the inputs; where that is theirs, just renamed."""
    made: Tensor = compute(sums.shape, lambda *i: stored(sums[i], like.dtype), name)
    return made
