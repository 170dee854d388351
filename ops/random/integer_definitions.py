"""Random integers, permutations and choices as IR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.ir.definitions.sizes import sizes_of
from tensorlang.ir.natives import mulhi
from tensorlang.ops.random.continuous import standard_gumbel
from tensorlang.ops.random.definitions import Source
from tensorlang.ops.random.formats import width_of
from tensorlang.ops.random.nests import Nest, statements

_DIGITS: Final = 8  # bits sorted by in one pass of the radix sort
BINS: Final = 1 << _DIGITS
_MOST: Final = (1 << 31) - 1
# 2, and beyond the cube root of 2^32 - 1, and its square
_LEAST: Final = (2, 1626, 2642246)
# from keys and values, and scratch buffers like them, to the statements that sort
_Sort: TypeAlias = Callable[
    [tuple[ir.Buffer, ir.Buffer], tuple[ir.Buffer, ir.Buffer]], ir.Stmt
]


def randint(
    source: Source,
    shape: Sequence[ir.ExprLike],
    dtype: ir.DType,
    base: ir.Expr,
    by: Sequence[ir.Expr] | None,
) -> ir.Tensor:
    """Integers `base + offset`, offset below a span, from two draws per element.

    As in JAX, the draws of the key's two children are the high and low half of a number
    that is reduced modulo the span.

    Args:
        source: The source of the bits.
        shape: The result's shape.
        dtype: The result's element type.
        base: The minimum.
        by: The span, 2^width modulo it, and the magic numbers for division by it; None
            if the span is 2^width, where the low half is the offset.
    """
    width = width_of("randint", dtype.name)
    first, second = source.children()

    def elements(index: ir.Expr, rows: tuple[ir.Expr, ...]) -> Sequence[ir.Expr]:
        low = second.elements(width, index, rows)
        if by is None:
            return low
        high = first.elements(width, index, rows)
        span, multiplier, *others = by

        def rest(value: ir.Expr) -> ir.Expr:
            return _remainder(value, span, others)

        return [
            rest(rest(a) * multiplier + rest(b)) for a, b in zip(high, low, strict=True)
        ]

    def value(offset: ir.Expr) -> ir.Expr:
        return (base + offset).cast(dtype)

    return second.drawn(shape, dtype, width, value, elements=elements)


def _remainder(value: ir.Expr, divisor: ir.Expr, by: Sequence[ir.Expr]) -> ir.Expr:
    """`value % divisor` by multiplication; see `tensorlang.ops.random.division`."""
    reciprocal, first, then = by
    high = mulhi(reciprocal, value)
    return value - ((high + ((value - high) >> first)) >> then) * divisor


def permutation(key: Source, count: ir.Size) -> ir.Tensor:
    """A random permutation of 0 .. n-1, by sorts by random words.

    As in JAX, each round splits the key, draws 32 bits per element from the second
    child and sorts stably by them: here, an LSD radix sort.
    """
    counts = ir.Buffer("counts", ir.i64, (ir.as_expr(BINS),))

    def sorted_by(
        here: tuple[ir.Buffer, ir.Buffer], there: tuple[ir.Buffer, ir.Buffer]
    ) -> ir.Stmt:
        passes = []
        for shift in range(0, 32, _DIGITS):
            passes.append(_radix_pass(here, there, counts, shift))
            here, there = there, here
        return ir.seq(passes)

    return permuted(key, count, sorted_by, (counts,))


def permuted(
    source: Source, count: ir.Size, sorted_by: _Sort, scratch: tuple[ir.Buffer, ...]
) -> ir.Tensor:
    """The result of `permutation`, for a given sort.

    Args:
        source: The source of the sort keys.
        count: The number of elements.
        sorted_by: Gives the statements that sort keys and values, from their buffers
            and scratch buffers like them.
        scratch: Further buffers, shared by all passes.
    """
    key, n = source.keys, ir.as_expr(count)
    out, state = ir.Buffer("out", ir.i32, (n,)), replace(key.buffer, name="state")
    _, second = replace(source, keys=ir.Tensor(state)).children()
    children, split = second.keys.buffer, second.keys.stage
    assert split is not None
    sort_keys, keys_after = (
        ir.Buffer(name, ir.u32, (n,)) for name in ("bits", "bits_after")
    )
    after = ir.Buffer("after", ir.i32, (n,))

    def drawn(at: ir.Expr, rows: tuple[ir.Expr, ...]) -> Sequence[ir.Expr]:
        return second.elements(32, at, rows)

    passes = sorted_by((sort_keys, out), (keys_after, after))
    k = ir.Var("k", ir.i64)
    (width,) = state.shape
    round_ = ir.seq(
        split.nest,
        ir.For(k, width, "serial", ir.Store(state, (k,), children[0, k])),
        statements(Nest(sort_keys, (), n, 1, drawn, lambda bits: bits)),
        passes,
    )
    copy, i = ir.Var("c", ir.i64), ir.Var("i", ir.i64)
    body = ir.seq(
        ir.For(copy, width, "serial", ir.Store(state, (copy,), key[copy])),
        ir.For(i, n, "serial", ir.Store(out, (i,), i.cast(ir.i32))),
        ir.For(ir.Var("round", ir.i64), _rounds(n), "serial", round_),
    )
    held = (state, children, sort_keys, keys_after, after, *scratch)
    return ir.Tensor(out, ir.Stage(body, (*held, out), (key,)), sizes_of((count,)))


def _rounds(n: ir.Expr) -> ir.Expr:
    """The number of sorts that makes colliding sort keys harmless, as in JAX.

    That is ceil(3 log n / log(2^32 - 1)), by the least n for each number.
    """
    first, *others = (ir.minimum(n, least) // least for least in _LEAST)
    return sum(others, start=first)


def _radix_pass(
    here: tuple[ir.Buffer, ir.Buffer],
    there: tuple[ir.Buffer, ir.Buffer],
    counts: ir.Buffer,
    shift: int,
) -> ir.Stmt:
    """One stable counting sort by the digit at `shift`: histogram, scan, scatter."""
    z, e, b, m = (ir.Var(f"{name}{shift}", ir.i64) for name in ("z", "e", "b", "m"))
    total = ir.Buffer(f"total{shift}", ir.i64, (ir.as_expr(1),))
    held = ir.Var(f"held{shift}", ir.i64)
    place = ir.Var(f"place{shift}", ir.i64)
    here_keys, here_values = here
    (n,) = here_keys.shape
    there_keys, there_values = there

    def digit(at: ir.Var) -> ir.Expr:
        return ((here_keys[at] >> shift) & (BINS - 1)).cast(ir.i64)

    count = counts[digit(e)]
    return ir.seq(
        ir.Alloc(total),
        ir.For(z, ir.as_expr(BINS), "serial", ir.Store(counts, (z,), ir.as_expr(0))),
        ir.For(e, n, "serial", ir.Store(counts, count.indices, count + 1)),
        ir.Store(total, (ir.as_expr(0),), ir.as_expr(0)),
        ir.For(
            b,
            ir.as_expr(BINS),
            "serial",
            ir.seq(
                ir.Let(held, counts[b]),
                ir.Store(counts, (b,), total[0]),
                ir.Store(total, (ir.as_expr(0),), total[0] + held),
            ),
        ),
        ir.For(
            m,
            n,
            "serial",
            ir.seq(
                ir.Let(place, counts[digit(m)]),
                ir.Store(counts, (digit(m),), place + 1),
                ir.Store(there_keys, (place,), here_keys[m]),
                ir.Store(there_values, (place,), here_values[m]),
            ),
        ),
    )


def categorical(
    source: Source, logits: ir.Tensor, axis: int, shape: Sequence[ir.Size] | None
) -> ir.Tensor:
    """The class with the largest `logits + gumbel`, in independent draws.

    An element's position in the stream is its flat index in `[samples, rows, classes,
    columns]`, for logits `[rows, classes, columns]`.
    """
    at = ir.rows.axis_of(axis, logits.ndim)
    classes = logits.shape[at]
    before = logits.shape[:at]
    behind = logits.shape[at + 1 :]
    rest = (*before, *behind)
    full = rest if shape is None else tuple(shape)
    ahead = full[: max(0, len(full) - len(rest))]
    ir.require(
        full == (*ahead, *rest) and classes > 0,
        f"logits of shape {logits.shape} without axis {axis} are {rest}; a result of "
        f"shape {full} must end in that, and there must be a class",
    )
    sizes = {"s": math.prod(ahead), "r": math.prod(before), "j": math.prod(behind)}
    ir.require(
        math.prod(sizes.values()) * classes <= _MOST,
        "hashes fewer than 2^31 elements; draw in parts",
    )
    loops = [name for name, size in sizes.items() if size != 1]
    dims = [sizes["r"], classes, sizes["j"]][: 3 if "j" in loops else 2]
    flat, dtype = ir.reshaped(logits, tuple(dims)), logits.dtype
    c, width = ir.frontend.reduce_axis(classes, "c"), width_of("gumbel", dtype.name)

    def noisy(*i: ir.Var) -> tuple[ir.Expr, ir.Expr]:
        own = dict(zip(loops, i, strict=True))
        s, r, j = (own.get(name, ir.as_expr(0)) for name in sizes)
        index = ((s * sizes["r"] + r) * classes + c.var) * sizes["j"] + j
        (bits,) = source.elements(width, index, ())
        return flat[(r, c, j)[: len(dims)]] + standard_gumbel(bits, dtype), c.var

    best = _largest(tuple(sizes[name] for name in loops), noisy, c)
    made = ir.frontend.compute(best.shape, lambda *i: best[i].cast(ir.i32), "out")
    return ir.reshaped(made, full)


def _largest(
    shape: tuple[ir.Expr, ...],
    valued: Callable[..., tuple[ir.Expr, ir.Expr]],
    axis: ir.frontend.ReduceAxis,
) -> ir.frontend.Tensor:
    """The argmax; value and index are packed into one number if they fit."""

    def one(*i: ir.Var) -> ir.frontend.Reduction:
        value, at = valued(*i)
        if not ir.extremes.packs(value.dtype):
            return ir.frontend.argmax(value, at, axis)
        return ir.frontend.max(
            ir.extremes.packed("argmax", value.cast(ir.f32), at), axis
        )

    best = ir.frontend.compute(shape, one, ("best", "at"))
    if isinstance(best, tuple):
        at: ir.frontend.Tensor = best[1]
    else:
        at = ir.frontend.compute(
            shape, lambda *i: ir.extremes.position_of(best[i]), "at_best"
        )
    return at
