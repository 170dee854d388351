"""Random integers, permutations and choices as IR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from tensorlang.ir import frontend
from tensorlang.ir.dtypes import DType, f32, i32, i64, u32
from tensorlang.ir.extremes import packed, packs, position_of
from tensorlang.ir.frontend import Stage, Tensor, reshaped
from tensorlang.ir.intrinsics import minimum, mulhi
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    ExprLike,
    For,
    Let,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.rows import axis_of
from tensorlang.ir.sizes import Size, require, sizes_of
from tensorlang.ops.random.definitions import Source
from tensorlang.ops.random.distributions import gumbel
from tensorlang.ops.random.formats import width_of
from tensorlang.ops.random.nests import Nest, statements

_DIGITS: Final = 8  # bits sorted by in one pass of the radix sort
BINS: Final = 1 << _DIGITS
_MOST: Final = (1 << 31) - 1
# 2, and beyond the cube root of 2^32 - 1, and its square
_LEAST: Final = (2, 1626, 2642246)
# from keys and values, and scratch buffers like them, to the statements that sort
_Sort: TypeAlias = Callable[[tuple[Buffer, Buffer], tuple[Buffer, Buffer]], Stmt]


def randint(
    source: Source,
    shape: Sequence[ExprLike],
    dtype: DType,
    base: Expr,
    by: Sequence[Expr] | None,
) -> Tensor:
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

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        low = second.elements(width, index, rows)
        if by is None:
            return low
        high = first.elements(width, index, rows)
        span, multiplier, *others = by

        def rest(value: Expr) -> Expr:
            return _remainder(value, span, others)

        return [
            rest(rest(a) * multiplier + rest(b)) for a, b in zip(high, low, strict=True)
        ]

    def value(offset: Expr) -> Expr:
        return (base + offset).cast(dtype)

    return second.drawn(shape, dtype, width, value, elements=elements)


def _remainder(value: Expr, divisor: Expr, by: Sequence[Expr]) -> Expr:
    """`value % divisor` by multiplication; see `tensorlang.ops.random.division`."""
    reciprocal, first, then = by
    high = mulhi(reciprocal, value)
    return value - ((high + ((value - high) >> first)) >> then) * divisor


def permutation(key: Source, count: Size) -> Tensor:
    """A random permutation of 0 .. n-1, by sorts by random words.

    As in JAX, each round splits the key, draws 32 bits per element from the second
    child and sorts stably by them: here, an LSD radix sort.
    """
    counts = Buffer("counts", i64, (as_expr(BINS),))

    def sorted_by(here: tuple[Buffer, Buffer], there: tuple[Buffer, Buffer]) -> Stmt:
        passes = []
        for shift in range(0, 32, _DIGITS):
            passes.append(_radix_pass(here, there, counts, shift))
            here, there = there, here
        return seq(passes)

    return permuted(key, count, sorted_by, (counts,))


def permuted(
    source: Source, count: Size, sorted_by: _Sort, scratch: tuple[Buffer, ...]
) -> Tensor:
    """The result of `permutation`, for a given sort.

    Args:
        source: The source of the sort keys.
        count: The number of elements.
        sorted_by: Gives the statements that sort keys and values, from their buffers
            and scratch buffers like them.
        scratch: Further buffers, shared by all passes.
    """
    key, n = source.keys, as_expr(count)
    out, state = Buffer("out", i32, (n,)), replace(key.buffer, name="state")
    _, second = replace(source, keys=Tensor(state)).children()
    children, split = second.keys.buffer, second.keys.stage
    assert split is not None
    sort_keys, keys_after = (Buffer(name, u32, (n,)) for name in ("bits", "bits_after"))
    after = Buffer("after", i32, (n,))

    def drawn(at: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        return second.elements(32, at, rows)

    passes = sorted_by((sort_keys, out), (keys_after, after))
    k = Var("k", i64)
    (width,) = state.shape
    round_ = seq(
        split.nest,
        For(k, width, "serial", Store(state, (k,), children[0, k])),
        statements(Nest(sort_keys, (), n, 1, drawn, lambda bits: bits)),
        passes,
    )
    copy, i = Var("c", i64), Var("i", i64)
    body = seq(
        For(copy, width, "serial", Store(state, (copy,), key[copy])),
        For(i, n, "serial", Store(out, (i,), i.cast(i32))),
        For(Var("round", i64), _rounds(n), "serial", round_),
    )
    held = (state, children, sort_keys, keys_after, after, *scratch)
    return Tensor(out, Stage(body, (*held, out), (key,)), sizes_of((count,)))


def _rounds(n: Expr) -> Expr:
    """The number of sorts that makes colliding sort keys harmless, as in JAX.

    That is ceil(3 log n / log(2^32 - 1)), by the least n for each number.
    """
    first, *others = (minimum(n, least) // least for least in _LEAST)
    return sum(others, start=first)


def _radix_pass(
    here: tuple[Buffer, Buffer],
    there: tuple[Buffer, Buffer],
    counts: Buffer,
    shift: int,
) -> Stmt:
    """One stable counting sort by the digit at `shift`: histogram, scan, scatter."""
    z, e, b, m = (Var(f"{name}{shift}", i64) for name in ("z", "e", "b", "m"))
    total = Buffer(f"total{shift}", i64, (as_expr(1),))
    held = Var(f"held{shift}", i64)
    place = Var(f"place{shift}", i64)
    here_keys, here_values = here
    (n,) = here_keys.shape
    there_keys, there_values = there

    def digit(at: Var) -> Expr:
        return ((here_keys[at] >> shift) & (BINS - 1)).cast(i64)

    count = counts[digit(e)]
    return seq(
        Alloc(total),
        For(z, as_expr(BINS), "serial", Store(counts, (z,), as_expr(0))),
        For(e, n, "serial", Store(counts, count.indices, count + 1)),
        Store(total, (as_expr(0),), as_expr(0)),
        For(
            b,
            as_expr(BINS),
            "serial",
            seq(
                Let(held, counts[b]),
                Store(counts, (b,), total[0]),
                Store(total, (as_expr(0),), total[0] + held),
            ),
        ),
        For(
            m,
            n,
            "serial",
            seq(
                Let(place, counts[digit(m)]),
                Store(counts, (digit(m),), place + 1),
                Store(there_keys, (place,), here_keys[m]),
                Store(there_values, (place,), here_values[m]),
            ),
        ),
    )


def categorical(
    source: Source, logits: Tensor, axis: int, shape: Sequence[Size] | None
) -> Tensor:
    """The class with the largest `logits + gumbel`, in independent draws.

    An element's position in the stream is its flat index in `[samples, rows, classes,
    columns]`, for logits `[rows, classes, columns]`.
    """
    at = axis_of(axis, logits.ndim)
    classes, before, behind = (
        logits.shape[at],
        logits.shape[:at],
        logits.shape[at + 1 :],
    )
    rest = (*before, *behind)
    full = rest if shape is None else tuple(shape)
    ahead = full[: max(0, len(full) - len(rest))]
    require(
        full == (*ahead, *rest) and classes > 0,
        "logits of shape {given} without axis {axis} are {rest}; a result of shape "
        "{full} must end in that, and there must be a class",
        given=logits.shape,
        axis=axis,
        rest=rest,
        full=full,
    )
    sizes = {"s": math.prod(ahead), "r": math.prod(before), "j": math.prod(behind)}
    require(
        math.prod(sizes.values()) * classes <= _MOST,
        "hashes fewer than 2^31 elements; draw in parts",
    )
    loops = [name for name, size in sizes.items() if size != 1]
    dims = [sizes["r"], classes, sizes["j"]][: 3 if "j" in loops else 2]
    flat, dtype = reshaped(logits, tuple(dims)), logits.dtype
    c, width = frontend.reduce_axis(classes, "c"), width_of("gumbel", dtype.name)

    def noisy(*i: Var) -> tuple[Expr, Expr]:
        own = dict(zip(loops, i, strict=True))
        s, r, j = (own.get(name, as_expr(0)) for name in sizes)
        index = ((s * sizes["r"] + r) * classes + c.var) * sizes["j"] + j
        (bits,) = source.elements(width, index, ())
        return flat[(r, c, j)[: len(dims)]] + gumbel(bits, dtype), c.var

    best = _largest(tuple(sizes[name] for name in loops), noisy, c)
    made = frontend.compute(best.shape, lambda *i: best[i].cast(i32), "out")
    return reshaped(made, full)


def _largest(
    shape: tuple[Expr, ...],
    valued: Callable[..., tuple[Expr, Expr]],
    axis: frontend.ReduceAxis,
) -> frontend.Tensor:
    """The argmax; value and index are packed into one number if they fit."""

    def one(*i: Var) -> frontend.Reduction:
        value, at = valued(*i)
        if not packs(value.dtype):
            return frontend.argmax(value, at, axis)
        return frontend.max(packed("argmax", value.cast(f32), at), axis)

    best = frontend.compute(shape, one, ("best", "at"))
    if isinstance(best, tuple):
        at: frontend.Tensor = best[1]
    else:
        at = frontend.compute(shape, lambda *i: position_of(best[i]), "at_best")
    return at
