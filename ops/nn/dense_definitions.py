"""Dense layers and matrix products as loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.ir import compute, reduce_axis
from tensorlang.ir.dtypes import f32, u32
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.frontend import sum as total
from tensorlang.ir.nodes import Const, Expr, Select
from tensorlang.ir.tf32 import tf32
from tensorlang.ops.assembling import NARROW, stored, wide
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.random import words
from tensorlang.ops.random.definitions import Draw
from tensorlang.ops.random.impls import impl

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorlang.ir.frontend import Reduction
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
    tolerance: float = 0.0,
    rounded: Callable[[Expr], Expr] = wide,
) -> Tensor:
    """y[i, j] = dropout(activation(sum over k of x[i, k] w[j, k] + b[j])) + residual.

    `w` is [out, in] (`oi`), [in, out] (`io`), or packed in strips of columns:
    [strip, in, column of the strip] (`packed`), of `columns` columns in all. Factors
    are `rounded`, whatever `tolerance` would allow.
    """
    del tolerance
    rest = b, residual, key, None if activation == "none" else activation
    if rest == (None,) * len(rest) and x.dtype.name not in NARROW:
        return product(x, w, layout, columns, "y", rounded)
    products = product(x, w, layout, columns, "products", rounded)

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


def dense_tf32(*operands: Tensor | None, **given: Any) -> Tensor:
    """As `dense`, of f32 that is rounded to tf32 before it is multiplied."""
    return dense(*operands, **given, rounded=tf32)  # type: ignore[arg-type]


def product(  # noqa: PLR0917 - what and how
    x: Tensor,
    w: Tensor,
    layout: str,
    columns: int,
    name: str = "products",
    rounded: Callable[[Expr], Expr] = wide,
) -> Tensor:
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
        lambda i, j: total(rounded(x[i, k]) * rounded(weight(j)), k),
        name,
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

    def of_weight(column: Expr, k: Expr) -> Reduction:
        return total(wide(dy[i, column]) * wide(x[i, k]), i)

    def turned(k: Expr, column: Expr) -> Reduction:
        return of_weight(column, k)

    of_w = of_weight if layout == "oi" else turned
    return (
        _rounded(x.shape, lambda i, k: total(wide(dy[i, j]) * weight(k), j), x, "dx"),
        _rounded(w.shape, of_w, x, "dw"),
        _rounded((columns,), lambda j: total(wide(dy[also, j]), also), x, "db"),
    )


def _rounded(
    shape: tuple[Expr, ...], sums: Callable[..., Any], like: Tensor, name: str
) -> Tensor:
    """Sums in the type of the inputs: f32 of narrow ones, rounded once."""
    if like.dtype.name not in NARROW:
        exact: Tensor = compute(shape, sums, name)
        return exact
    found = compute(shape, sums, f"{name}_sum")
    made: Tensor = compute(shape, lambda *i: stored(found[i], like.dtype), name)
    return made
