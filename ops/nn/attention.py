"""Scaled dot-product attention and its gradient.

Vaswani et al., "Attention is all you need", 2017; grouped queries: Ainslie et al.,
"GQA: Training generalized multi-query transformer models", 2023.

The definition stores all scores; the algorithm `online` goes over blocks of keys and
never stores more than a block of scores (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018; Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from tensorlang import ir, lazy
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.spec.declarations import Array, moderate
from tensorlang.ops.spec.definition import algorithm, operator
from tensorlang.ops.spec.signature import Anything, Floats
from tensorlang.workload import Workload

with lazy.modules(__name__):
    from tensorlang.machine import gpus
    from tensorlang.ops.nn import attention_definitions as loops
    from tensorlang.ops.nn import attention_gradient as gradient
    from tensorlang.ops.nn import attention_online as online
    from tensorlang.ops.nn import attention_tile_gradient as tile_gradient
    from tensorlang.ops.nn import attention_tiles as tiles


_USUAL: Final = (1, 12, 512, 64)
_STEP: Final = 16  # columns of a product of fragments
_MOST: Final = 128  # columns of results that threads hold


def _has_columns(workload: Workload) -> bool:
    """Whether keys and values have numbers, as tiles of them must."""
    given = _given(workload)
    return all(shape[-1] > 0 for shape in workload.shapes[given - 2 : given])


def _given(workload: Workload) -> int:
    """The number of arrays before the mask: the gradient has `dy` first."""
    return 3 if workload.operator == attention.id else 4


def _learns_mask(workload: Workload) -> bool:
    """Whether the gradient is also that of a mask, which blocks do not give."""
    return workload.dtypes[4:5] not in ((), ("bool",))


def _share_keys(workload: Workload) -> bool:
    """Whether keys serve several queries, or not all of them are seen.

    A query with keys of its own is a product of a matrix with a vector, which reads
    them once as it is.
    """
    (_, heads, m, _), (_, groups, *_) = workload.shapes[:2]
    limited = workload.named.get("causal") is True or workload.named.get("window")
    return _has_columns(workload) and (m > 1 or heads > groups or bool(limited))


def _in_tiles(workload: Workload) -> bool:
    """Whether products of fragments serve: of f16 or bf16, and whole columns."""
    *_, (*_, depth), _, (*_, width) = workload.shapes[: _given(workload)]
    whole = depth % _STEP == 0 and width % _STEP == 0
    small = 0 < depth <= 2 * _MOST and 0 < width <= _MOST
    kinds = set(workload.dtypes[: _given(workload)])
    return kinds in ({"f16"}, {"bf16"}) and whole and small


def _in_panels(workload: Workload) -> bool:
    """Whether products of warpgroups serve: of rows of whole 128 bytes."""
    *_, (*_, depth), _, (*_, width) = workload.shapes[: _given(workload)]
    return _in_tiles(workload) and depth % gpus.PANEL == width % gpus.PANEL == 0


def _grad_in_panels(workload: Workload) -> bool:
    """Whether they serve the gradient."""
    return _in_panels(workload) and _grad_in_tiles(workload)


def _grad_in_tiles(workload: Workload) -> bool:
    """Whether they serve the gradient: threads have room for sums of both depths."""
    return (
        _in_tiles(workload)
        and workload.shapes[1][-1] <= _MOST
        and not _learns_mask(workload)
    )


def _in_blocks(workload: Workload) -> bool:
    """Whether the gradient is worth blocks: more than one key, and one number each."""
    _, _, keys, depth = workload.shapes[2]
    learns = _learns_mask(workload)
    return keys > 1 and depth > 1 and not learns and _has_columns(workload)


def _online_if(serves: Callable[[Workload], bool]) -> Callable[[Workload], str]:
    """Prefers blocks where they serve."""
    return lambda workload: "online" if serves(workload) else DIRECT


def _samples(
    dy: Array, q: Array, k: Array, v: Array, **options: object
) -> tuple[Array, ...]:
    """Inputs of the gradient whose differences are more than rounding errors.

    Gradients of equal values are 0, and of very large ones are differences of those.
    """
    del options
    moderate(dy, q, k, v)
    row = np.arange(k.shape[-2])[:, None]
    k += (row % 5 / 4).astype(k.dtype)
    v += (row % 7 / 4).astype(v.dtype)
    return dy, q, k, v


@operator(
    "nn.attention",
    shapes=(_USUAL,) * 3,
    whole=True,
    prefers=_online_if(_share_keys),
    scheduled_as="attention",
    gradient={"linear": False, "prefers": _online_if(_in_blocks), "samples": _samples},
)
def attention(  # noqa: PLR0917 - options may be given by position
    q: Floats,
    k: Floats,
    v: Floats,
    causal: bool | Literal["lower_right"] = False,
    scale: float | None = None,
    window: int | None = None,
    *,
    mask: Anything | None = None,
) -> ir.Tensor:
    """Scaled dot-product attention: `softmax(q @ k^T * scale) @ v` for each head.

    Args:
        q: Queries `[batch, heads, m, depth]`.
        k: Keys `[batch, groups, n, depth]`, at least one. With fewer heads than `q`
            has, each serves `heads / groups` consecutive heads of `q`.
        v: Values `[batch, groups, n, width]`.
        causal: Whether query `i` sees only keys up to `i`, as in PyTorch. With
            `"lower_right"`, the last query sees all keys, and query `i` those up to
            `i + n - m`: the queries are the last ones of a sequence whose earlier keys
            and values were cached.
        scale: Factor of the scores, by default `1 / sqrt(depth)`; finite in the type
            that they are computed in.
        window: The number of keys, up to its own position, that a query sees; without
            `causal` also as many after it. By default all.
        mask: Which keys a query sees, or what is added to the scores: truth values or
            floats `[batch, heads, m, n]`, with size 1, or without the first sizes,
            where it is the same for all.
        out: Output array.

    Returns:
        Array `[batch, heads, m, width]`; zeros for queries that see no keys, as padding
        is, where a softmax of minus infinities gives NaN.
    """
    problem = loops.Problem.of(q, k, v, causal, scale, window, mask)
    return problem.result(loops.attention(problem))


@algorithm(attention, "online", serves=_has_columns)
def _online(**given: Any) -> ir.Tensor:
    problem = loops.Problem.of(**given).in_lanes()
    return problem.result(online.attention(problem))


@algorithm(
    attention, "tiles", serves=_in_tiles, feature="mma", tolerance=2.0**-8, finite=True
)
def _tiles(**given: Any) -> ir.Tensor:
    """Keys that are hidden, and copies of the last value, have weights of zero."""
    problem = loops.Problem.of(**given)
    return problem.result(tiles.attention(problem))


@algorithm(
    attention,
    "group_tiles",
    serves=_in_panels,
    feature="wgmma",
    tolerance=2.0**-8,
    finite=True,
)
def _group_tiles(**given: Any) -> ir.Tensor:
    """As `tiles`, larger ones."""
    problem = loops.Problem.of(**given)
    return problem.result(tiles.attention(problem, groups=True))


_grad = attention.grad
assert _grad is not None


@algorithm(_grad, "online", serves=_in_blocks, tolerance=1e-5, finite=True)
def _online_grad(
    dy: ir.Tensor, k: ir.Tensor, v: ir.Tensor, **given: Any
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    problem = loops.Problem.of(k=k, v=v, **given).in_lanes()
    dq, dk, dv = gradient.attention_grad(problem.per_query(dy), problem)
    return problem.result(dq), ir.reshaped(dk, k.shape), ir.reshaped(dv, v.shape)


@algorithm(
    _grad,
    "tiles",
    serves=_grad_in_tiles,
    feature="mma",
    tolerance=2.0**-8,
    finite=True,
)
def _tiles_grad(
    dy: ir.Tensor, k: ir.Tensor, v: ir.Tensor, **given: Any
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    return _grad_of_tiles(loops.Problem.of(k=k, v=v, **given), dy, k, v)


@algorithm(
    _grad,
    "group_tiles",
    serves=_grad_in_panels,
    feature="wgmma",
    tolerance=2.0**-8,
    finite=True,
)
def _group_tiles_grad(
    dy: ir.Tensor, k: ir.Tensor, v: ir.Tensor, **given: Any
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    problem = loops.Problem.of(k=k, v=v, **given)
    return _grad_of_tiles(problem, dy, k, v, groups=True)


def _grad_of_tiles(
    problem: loops.Problem,
    dy: ir.Tensor,
    k: ir.Tensor,
    v: ir.Tensor,
    *,
    groups: bool = False,
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    dy = problem.per_query(dy)
    dq, dk, dv = tile_gradient.attention_grad(dy, problem, groups=groups)
    return problem.result(dq), ir.reshaped(dk, k.shape), ir.reshaped(dv, v.shape)
