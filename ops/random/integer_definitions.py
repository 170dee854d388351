"""Random integers, permutations and choices as IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tensorlang.ir import frontend, function
from tensorlang.ir.dtypes import DType, as_dtype, f32, i32, i64, u32
from tensorlang.ir.extremes import packed, packs, position_of
from tensorlang.ir.intrinsics import mulhi
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Let,
    Param,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ops.random import words
from tensorlang.ops.random.definitions import Draw, N
from tensorlang.ops.random.distributions import gumbel
from tensorlang.ops.random.formats import width_of
from tensorlang.ops.random.impls import elements_per_hash, impl
from tensorlang.ops.random.nests import Nest, statements
from tensorlang.workload import Workload

_DIGITS: Final = 8  # bits sorted by in one pass of the radix sort
BINS: Final = 1 << _DIGITS
# from keys and values, and memory for others: how the first are sorted
_Sort: TypeAlias = Callable[[tuple[Buffer, Buffer], tuple[Buffer, Buffer]], Stmt]
_NUMBERS: Final = ("base", "span", "multiplier", "reciprocal", "first", "then")


def randint(workload: Workload) -> Function:
    """Integers `minval + offset`, offset below `span`, from two draws an element.

    As JAX: the draws of the two children of the key are the high and low half of a
    number that is reduced modulo the span, `multiplier` being 2^width modulo it, and
    `reciprocal`, `first`, `then` what divides by it. The variant `full` has the span
    2^width: the low half is the offset.
    """
    draw = Draw.of(workload.named)
    dtype = as_dtype(workload.dtypes[0])
    width = width_of("randint", dtype.name)
    number = words.UNSIGNED[width]
    scalars = tuple(Var(name, number) for name in _NUMBERS)
    base, span, multiplier, *by = scalars
    key, out = draw.key(), Buffer("out", dtype, (*draw.rows, N))
    children = Buffer("children", draw.word, (*draw.rows, as_expr(2), key.shape[-1]))

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        low = draw.elements(children, width, index, (*rows, as_expr(1)))
        if workload.named.get("variant") == "full":
            return low
        high = draw.elements(children, width, index, (*rows, as_expr(0)))

        def rest(value: Expr) -> Expr:
            return _remainder(value, span, by)

        return [
            rest(rest(a) * multiplier + rest(b)) for a, b in zip(high, low, strict=True)
        ]

    nest = Nest(
        out,
        draw.rows,
        N,
        elements_per_hash(draw.how, draw.stream, width),
        elements,
        lambda offset: (base + offset).cast(dtype),
    )
    return Function(
        "random_randint",
        (Param(key, "in"), Param(out, "out")),
        (*draw.scalars, *scalars, *draw.sizes()),
        seq(
            Alloc(children),
            statements(children_of(draw, key, children)),
            statements(nest),
        ),
    )


def _remainder(value: Expr, divisor: Expr, by: Sequence[Expr]) -> Expr:
    """`value % divisor` without a division; see `tensorlang.ops.random.division`."""
    reciprocal, first, then = by
    high = mulhi(reciprocal, value)
    return value - ((high + ((value - high) >> first)) >> then) * divisor


def children_of(draw: Draw, key: Buffer, children: Buffer) -> Nest:
    """The two keys that `split` makes of each key."""
    zero = Const(0, draw.word)

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        counter = words.split_counter(draw.how, zero, index.cast(draw.word))
        return draw.hash_at(counter, key, rows)[: draw.how.key_words]

    return Nest(
        children,
        draw.rows,
        as_expr(2),
        draw.how.key_words,
        elements,
        lambda word: word,
        by_rows=True,
        axis="two",
    )


def permutation(workload: Workload) -> Function:
    """The numbers 0 .. n-1 in random order: sorted, `rounds` times, by random words.

    Each round splits the key, draws 32 bits an element from the second child and sorts
    by them, stably, as JAX does. The sort is by radix, least digit first.
    """
    counts = Buffer("counts", i64, (as_expr(BINS),))

    def sorted_by(here: tuple[Buffer, Buffer], there: tuple[Buffer, Buffer]) -> Stmt:
        passes = []
        for shift in range(0, 32, _DIGITS):
            passes.append(_radix_pass(here, there, counts, shift))
            here, there = there, here
        return seq(passes)

    return permuted(workload, sorted_by, (counts,))


def permuted(
    workload: Workload, sorted_by: _Sort, scratch: tuple[Buffer, ...] = ()
) -> Function:
    """The function of `permutation`, by a way to sort.

    Args:
        workload: What is permuted.
        sorted_by: The statements that sort keys and values, by way of others.
        scratch: What all passes use.
    """
    draw = Draw(impl(str(workload.named["impl"])), "jax", batch=False, carries=False)
    index = as_dtype(workload.dtypes[0])
    key, out = draw.key(), Buffer("out", index, (N,))
    state = Buffer("state", draw.word, key.shape)
    children = Buffer("children", draw.word, (as_expr(2), key.shape[-1]))
    sort_keys, keys_after = (Buffer(name, u32, (N,)) for name in ("bits", "bits_after"))
    after = Buffer("after", index, (N,))
    zero = Const(0, draw.word)

    def drawn(at: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        counter = words.draw_counter(draw.how, zero, at.cast(draw.word))
        child = draw.hash_at(counter, children, (as_expr(1), *rows))
        return [words.folded(draw.how, child, 32)]

    passes = sorted_by((sort_keys, out), (keys_after, after))
    k = Var("k", i64)
    width = key.shape[-1]
    round_ = seq(
        statements(children_of(draw, state, children)),
        For(k, width, "serial", Store(state, (k,), children[0, k])),
        statements(Nest(sort_keys, (), N, 1, drawn, lambda bits: bits)),
        passes,
    )
    copy, i = Var("c", i64), Var("i", i64)
    body = seq(
        [Alloc(b) for b in (state, children, sort_keys, keys_after, after, *scratch)],
        For(copy, width, "serial", Store(state, (copy,), key[copy])),
        For(i, N, "serial", Store(out, (i,), i.cast(index))),
        For(Var("round", i64), Var("rounds", i64), "serial", round_),
    )
    return Function(
        "random_permutation",
        (Param(key, "in"), Param(out, "out")),
        (Var("rounds", i64), N),
        body,
    )


def _radix_pass(
    here: tuple[Buffer, Buffer],
    there: tuple[Buffer, Buffer],
    counts: Buffer,
    shift: int,
) -> Stmt:
    """One stable counting sort by the digit at `shift`: count, sum up, move."""
    z, e, b, m = (Var(f"{name}{shift}", i64) for name in ("z", "e", "b", "m"))
    total = Buffer(f"total{shift}", i64, (as_expr(1),))
    held = Var(f"held{shift}", i64)
    place = Var(f"place{shift}", i64)
    here_keys, here_values = here
    there_keys, there_values = there

    def digit(at: Var) -> Expr:
        return ((here_keys[at] >> shift) & (BINS - 1)).cast(i64)

    count = counts[digit(e)]
    return seq(
        Alloc(total),
        For(z, as_expr(BINS), "serial", Store(counts, (z,), as_expr(0))),
        For(e, N, "serial", Store(counts, count.indices, count + 1)),
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
            N,
            "serial",
            seq(
                Let(place, counts[digit(m)]),
                Store(counts, (digit(m),), place + 1),
                Store(there_keys, (place,), here_keys[m]),
                Store(there_values, (place,), here_values[m]),
            ),
        ),
    )


def gather(workload: Workload) -> Function:
    """`out[o, i, j] = x[o, order[i], j]`: elements as words of their width."""
    dtype = as_dtype(workload.dtypes[0])
    outer, n, inner = (frontend.size(name) for name in ("outer", "n", "inner"))
    x = frontend.placeholder((outer, n, inner), dtype, "x")
    order = frontend.placeholder((n,), as_dtype(workload.dtypes[1]), "order")
    out = frontend.compute(
        (outer, n, inner), lambda o, i, j: x[o, order[i].cast(i64), j], "out"
    )
    return function("random_gather", [x, order], [out])


def categorical(workload: Workload) -> Function:
    """The class with the largest `logits + gumbel`: logits `[rows, classes]`.

    Or `[rows, classes, columns]`, where the classes are `apart` in memory. `samples`
    draws of each; the bits of an element are those of its place in `[samples, rows,
    classes, columns]`.
    """
    draw = Draw(impl(str(workload.named["impl"])), "jax", batch=False, carries=False)
    dtype = as_dtype(workload.dtypes[0])
    sizes = [frontend.size(name) for name in ("samples", "rows", "classes", "columns")]
    samples, rows, classes, *behind = sizes if workload.named["apart"] else sizes[:3]
    key = frontend.Tensor(draw.key())
    logits = frontend.placeholder((rows, classes, *behind), dtype, "logits")
    c = frontend.reduce_axis(classes, "c")

    def noisy(s: Var, r: Var, *j: Var) -> tuple[Expr, Expr]:
        index: Expr = (s * rows + r) * classes + c.var
        for column, count in zip(j, behind, strict=True):
            index = index * count + column
        noise = gumbel(_bits(draw, key, index, dtype), dtype)
        return logits[r, c, *j] + noise, c.var

    at = _largest((samples, rows, *behind), noisy, c)
    out = frontend.compute(at.shape, lambda *i: at[i].cast(i32), "out")
    return function(
        "random_categorical", [key, logits], [out], scalars=sizes[:3] + behind
    )


def _largest(
    shape: tuple[Expr, ...],
    valued: Callable[..., tuple[Expr, Expr]],
    axis: frontend.ReduceAxis,
) -> frontend.Tensor:
    """Where the largest value is: folded as one number where both fit into it."""

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


def _bits(draw: Draw, key: frontend.Tensor, index: Expr, dtype: DType) -> Expr:
    zero = Const(0, draw.word)
    counter = words.draw_counter(draw.how, zero, index.cast(draw.word))
    hashed = draw.hash_at(counter, key.buffer, ())
    return words.folded(draw.how, hashed, width_of("gumbel", dtype.name))
