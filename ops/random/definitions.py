"""The random operators as IR: one kernel for every shape, symbolic in its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ir.dtypes import DType, as_dtype, i64
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.nodes import Buffer, Expr, Function, Param, Stmt, Var, as_expr
from tensorlang.ops.random import words
from tensorlang.ops.random.distributions import (
    DISTRIBUTIONS,
    Formula,
    Numbers,
    parameters,
)
from tensorlang.ops.random.formats import result_of, width_of
from tensorlang.ops.random.impls import STREAMS, Impl, elements_per_hash, impl
from tensorlang.ops.random.nests import Nest, Value, statements
from tensorlang.workload import Workload

N: Final = Var("n", i64)
KEYS: Final = Var("m", i64)


@dataclass(frozen=True, slots=True)
class Draw:
    """Where the bits of a kernel come from: hash, stream, counter, keys.

    A `batch` has one key a row of the result, each with a stream of its own.
    """

    how: Impl
    stream: str
    batch: bool
    carries: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Draw:
        """From a workload's attributes.

        Raises:
            ArgumentError: there is no such hash or stream.
        """
        stream = given["stream"]
        if stream not in STREAMS:
            raise ArgumentError(f"stream {stream!r} is none of {', '.join(STREAMS)}")
        return cls(impl(given["impl"]), stream, given["batch"], given["carries"])

    @property
    def word(self) -> DType:
        """The hash's word."""
        return words.UNSIGNED[self.how.bits]

    @property
    def rows(self) -> tuple[Expr, ...]:
        """The extents before the element axis."""
        return (KEYS,) if self.batch else ()

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The counter of the first hash, high and low word."""
        return Var("high", self.word), Var("low", self.word)

    def sizes(self) -> tuple[Var, ...]:
        """The symbolic sizes."""
        return (KEYS, N) if self.batch else (N,)

    def key(self) -> Buffer:
        """The parameter that holds the key, or one key a row."""
        name = "keys" if self.batch else "key"
        return Buffer(name, self.word, (*self.rows, as_expr(self.how.key_words)))

    def hash(self, key: Buffer, index: Expr, rows: Sequence[Expr]) -> tuple[Expr, ...]:
        """The words of the hash number `index`, counted from the first."""
        at = words.counter_at(self.how, index, *self.scalars, carries=self.carries)
        return self.hash_at(words.draw_counter(self.how, *at), key, rows)

    def hash_at(
        self, counter: Sequence[Expr], key: Buffer | Tensor, rows: Sequence[Expr]
    ) -> tuple[Expr, ...]:
        """The words of H(key of the row, counter)."""
        loaded = [key[(*rows, word)] for word in range(self.how.key_words)]
        return words.hash_exprs(self.how, counter, loaded)

    def elements(
        self, key: Buffer, width: int, index: Expr, rows: Sequence[Expr]
    ) -> list[Expr]:
        """The `width`-bit elements that the hash number `index` yields."""
        drawn = self.hash(key, index, rows)
        if self.stream == "jax":
            return [words.folded(self.how, drawn, width)]
        return words.pieces(self.how, drawn, width)

    def nest(
        self,
        key: Buffer,
        out: Buffer,
        width: int,
        value: Value,
        inputs: tuple[Buffer, ...] = (),
    ) -> Stmt:
        """The loops that fill `out` with `value(bits, *inputs)`."""
        return statements(
            Nest(
                out,
                self.rows,
                N,
                elements_per_hash(self.how, self.stream, width),
                lambda index, rows: self.elements(key, width, index, rows),
                value,
                inputs,
            )
        )


def elementwise(workload: Workload) -> Function:
    """The kernel of a distribution: `out[i]` from the bits of element i.

    Parameters: key words `[K]` (or `[m, K]`), out `[n]` (or `[m, n]`); scalars: the
    counter's high and low word, then the distribution's, then the sizes.
    """
    name = str(workload.named.get("variant", workload.operator.split(".")[1]))
    chosen = DISTRIBUTIONS[name]
    return drawn(workload, name, chosen.value, chosen.scalars)


def drawn(
    workload: Workload, name: str, formula: Formula, numbers: Numbers = ()
) -> Function:
    """The kernel of a distribution called `name`: its formula, and its scalars."""
    draw = Draw.of(workload.named)
    dtype = as_dtype(workload.dtypes[0])
    key = draw.key()
    out = Buffer("out", as_dtype(result_of(name, dtype.name)), (*draw.rows, N))
    scalars = parameters(numbers, dtype)
    by_name = {var.name: var for var in scalars}

    def value(bits: Expr) -> Expr:
        return formula(bits, dtype, **by_name)

    body = draw.nest(key, out, width_of(name, dtype.name), value)
    return Function(
        workload.operator.replace(".", "_"),
        (Param(key, "in"), Param(out, "out")),
        (*draw.scalars, *scalars, *draw.sizes()),
        body,
    )


def split(workload: Workload) -> Function:
    """Children of a key, or of each of many: row i is H(key, i), words of a key."""
    draw = Draw.of(workload.named | {"stream": "packed"})
    key, width = draw.key(), draw.how.key_words
    out = Buffer("out", draw.word, (*draw.rows, N, as_expr(width)))

    def elements(index: Expr, rows: tuple[Expr, ...]) -> Sequence[Expr]:
        at = words.counter_at(draw.how, index, *draw.scalars, carries=draw.carries)
        counter = words.split_counter(draw.how, *at)
        return draw.hash_at(counter, key, rows)[:width]

    nest = Nest(out, draw.rows, N, width, elements, lambda bits: bits, by_rows=True)
    return Function(
        "random_split",
        (Param(key, "in"), Param(out, "out")),
        (*draw.scalars, *draw.sizes()),
        statements(nest),
    )


def hash(workload: Workload) -> Function:
    """The bare hash: `out[i, :] = H(key, counter[i, :])`, one key or one a row."""
    given = workload.named
    how = impl(str(given["impl"]))
    word = words.UNSIGNED[how.bits]
    rows: tuple[Expr, ...] = (N,) if given["batch"] else ()
    name = "keys" if given["batch"] else "key"
    key = Buffer(name, word, (*rows, as_expr(how.key_words)))
    counter = Buffer("counter", word, (N, as_expr(how.words)))
    out = Buffer("out", word, (N, as_expr(how.words)))

    def elements(index: Expr, _: tuple[Expr, ...]) -> Sequence[Expr]:
        at = (index,) if given["batch"] else ()
        loaded = [key[(*at, k)] for k in range(how.key_words)]
        counters = [counter[index, k] for k in range(how.words)]
        return words.hash_exprs(how, counters, loaded)

    nest = Nest(out, (), N, how.words, elements, lambda bits: bits, by_rows=True)
    params = (Param(key, "in"), Param(counter, "in"), Param(out, "out"))
    return Function("random_hash", params, (N,), statements(nest))
