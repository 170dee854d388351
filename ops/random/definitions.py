"""Streams of random bits as IR: the source of a definition's bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.ir.definitions.sizes import sizes_of
from tensorlang.ops.random import words
from tensorlang.ops.random.impls import Impl, elements_per_hash, impl
from tensorlang.ops.random.nests import Elements, Nest, statements

if TYPE_CHECKING:
    from tensorlang.ops.kernels.tracing import KeyWords

Counter: TypeAlias = tuple[ir.Expr, ir.Expr]
Words: TypeAlias = tuple[ir.Expr, ...]


@frozen
class Source:
    """The source of a definition's bits: keys, a stream layout, and its start.

    A batch of keys has one key per row of the result, each with its own stream.
    """

    how: Impl  # hash
    keys: ir.Tensor  # words of the key `[K]`, or of one per row `[m, K]`
    stream: str = "jax"  # layout of the stream
    # counter of the first hash, high and low word; None for 0
    start: Counter | None = None
    # child of each key to use, 0 or 1, if `keys` holds pairs of children
    child: int | None = None
    wide: bool = False  # whether counters starting at 0 exceed 2^32

    @classmethod
    def of(
        cls, key: KeyWords, stream: str = "jax", start: Counter | None = None
    ) -> Source:
        """The source for a definition's key, or batch of keys."""
        held, lead = key.words, key.words.shape[:-1]
        if len(lead) > 1:
            held = ir.reshaped(held, (math.prod(lead), held.shape[-1]))
        return cls(impl(key.impl), held, stream, start)

    @classmethod
    def of_one(cls, key: KeyWords) -> Source:
        """The source for a definition's key; ArgumentError if it is a batch."""
        lead = key.words.shape[:-1]
        ir.require(
            not lead,
            "takes one key, not a batch of keys; loop over them",
            ArgumentError,
        )
        return cls.of(key)

    @property
    def word(self) -> ir.DType:
        """The word type of the hash."""
        return words.UNSIGNED[self.how.bits]

    @property
    def rows(self) -> tuple[ir.ExprLike, ...]:
        """The extents of the axes before the element axis."""
        return tuple(self.keys.shape[: -1 if self.child is None else -2])

    def counter(self, index: ir.Expr) -> Counter:
        """The counter of hash `index`, relative to the start."""
        low = index.cast(self.word)
        if self.start is not None:
            high, first = self.start
            return high, low + first
        if self.wide and self.how.bits == 32:
            return (index >> 32).cast(self.word), low
        return ir.Const(0, self.word), low

    def hash_at(self, counter: Sequence[ir.Expr], rows: Sequence[ir.Expr]) -> Words:
        """The words of H(key of this row, counter)."""
        at = (*rows, *([] if self.child is None else [self.child]))
        loaded = [self.keys[(*at, word)] for word in range(self.how.key_words)]
        return words.hash_exprs(self.how, counter, loaded)

    def elements(
        self, width: int, index: ir.Expr, rows: Sequence[ir.Expr]
    ) -> list[ir.Expr]:
        """The `width`-bit elements of hash `index`."""
        counter = words.draw_counter(self.how, *self.counter(index))
        drawn = self.hash_at(counter, rows)
        if self.stream == "jax":
            return [words.folded(self.how, drawn, width)]
        return words.pieces(self.how, drawn, width)

    def nest(self, out: ir.Buffer, count: ir.Expr, **more: Any) -> Nest:
        """The loop nest that fills `out` with the words of child keys, one per row."""

        def elements(index: ir.Expr, rows: Sequence[ir.Expr]) -> Words:
            counter = words.split_counter(self.how, *self.counter(index))
            return self.hash_at(counter, rows)[: self.how.key_words]

        rows, width = tuple(map(ir.as_expr, self.rows)), self.how.key_words
        return Nest(out, rows, count, width, elements, _same, by_rows=True, **more)

    def children(self) -> tuple[Source, Source]:
        """The sources for the two children of each key, as made by `split`."""
        extents = tuple(map(ir.as_expr, (*self.rows, 2, self.how.key_words)))
        made = ir.Buffer("children", self.word, extents)
        nest = replace(self, start=None).nest(made, ir.as_expr(2), axis="two")
        keys = ir.Tensor(made, ir.Stage(statements(nest), (made,), (self.keys,)))
        return replace(self, keys=keys, child=0), replace(self, keys=keys, child=1)

    def words(self) -> ir.Tensor:
        """The words of a child key, as a result."""
        width = ir.as_expr(self.how.key_words)
        out, at = ir.Buffer("next", self.word, (width,)), ir.Var("taken", ir.i64)
        nest = ir.For(
            at, width, "serial", ir.Store(out, (at,), self.keys[self.child, at])
        )
        return ir.Tensor(out, ir.Stage(nest, (out,), (self.keys,)), sizes_of((width,)))

    def drawn(
        self,
        shape: Sequence[ir.ExprLike],
        dtype: ir.DType | str,
        width: int,
        value: Callable[..., ir.Expr],
        *,
        elements: Elements | None = None,
        inputs: Sequence[ir.Tensor] = (),
    ) -> ir.Tensor:
        """The array of `value(bits, *inputs)`, from `width` bits per element.

        The bits are the stream's, or those that `elements` computes from the index of a
        hash and the row.
        """
        full = (*self.rows, *shape)
        rows, (*_, count) = tuple(map(ir.as_expr, self.rows)), map(ir.as_expr, full)
        source = self if full[-1] < 1 << 32 else replace(self, wide=True)
        out = ir.Buffer("out", ir.as_dtype(dtype), (*rows, count))
        nest = Nest(
            out,
            rows,
            count,
            elements_per_hash(self.how, self.stream, width),
            elements or (lambda index, rows: source.elements(width, index, rows)),
            value,
            tuple(tensor.buffer for tensor in inputs),
        )
        stage = ir.Stage(statements(nest), (out,), (self.keys, *inputs))
        return ir.Tensor(out, stage, sizes_of(full))


def _same(word: ir.Expr) -> ir.Expr:
    return word


def children(
    key: KeyWords, counts: Sequence[ir.Size] = (), start: Counter | None = None
) -> KeyWords:
    """The children of a key, or of each key of a batch: row i is H(key, start + i)."""
    source = Source.of(key, "packed", start)
    rows = tuple(map(ir.as_expr, source.rows))
    (count,) = map(ir.as_expr, counts or (1,))
    width = source.how.key_words
    out = ir.Buffer("out", source.word, (*rows, count, ir.as_expr(width)))
    stage = ir.Stage(statements(source.nest(out, count)), (out,), (source.keys,))
    made = ir.Tensor(out, stage, sizes_of(out.shape))
    return replace(key, words=ir.reshaped(made, (*source.rows, *counts, width)))


def child(key: KeyWords, number: ir.Expr) -> KeyWords:
    """The child of this number, or that of each key of a batch."""
    word = words.UNSIGNED[impl(key.impl).bits]
    high = (number >> 32).cast(word) if word.bits == 32 else ir.Const(0, word)
    return children(key, (), (high, number.cast(word)))


def hashed(how: Impl, key: ir.Tensor, counter: ir.Tensor) -> ir.Tensor:
    """H(key, counter[i]) for each counter, with one key for all, or one per counter."""
    sizes = (counter.shape[0], how.words)
    out = ir.Buffer("out", counter.dtype, tuple(map(ir.as_expr, sizes)))

    def elements(index: ir.Expr, _: tuple[ir.Expr, ...]) -> Words:
        at = (index,) if key.ndim == 2 else ()
        loaded = [key[(*at, k)] for k in range(how.key_words)]
        counters = [counter[index, k] for k in range(how.words)]
        return words.hash_exprs(how, counters, loaded)

    nest = Nest(out, (), out.shape[0], how.words, elements, _same, by_rows=True)
    stage = ir.Stage(statements(nest), (out,), (key, counter))
    return ir.Tensor(out, stage, sizes_of(sizes))
