"""Parsers of specs, sizes, constants and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np

from tensorlang.errors import ParseError, TensorlangError
from tensorlang.graph.networks.leaves import constant
from tensorlang.graph.specs import Dim, Extent, KeySpec, Spec, TensorSpec
from tensorlang.graph.text.tokens import Token, tokens, unquoted
from tensorlang.graph.values import Argument, Value
from tensorlang.ops import random
from tensorlang.ops.random.impls import impl

T = TypeVar("T")
_NAMED: Final = {"None": None, "True": True, "False": False}
_LEFT_OUT: Final = "the text omits a value here"


class Reader:
    """A position in a token stream, with parsers that advance it."""

    def __init__(self, text: str) -> None:
        self.words = list(tokens(text))
        self.at = 0
        self.values: dict[str, Value] = {}  # values of names in scope

    # ---------------------------------------------------------------- words

    @property
    def here(self) -> Token:
        """The current token."""
        return self.words[self.at]

    def next(self) -> Token:
        """Return the current token and advance."""
        token = self.here
        self.at = min(self.at + 1, len(self.words) - 1)
        return token

    def take(self, text: str) -> bool:
        """Advance over a token if it has this text; whether it had."""
        found = self.here.text == text and self.here.kind in ("mark", "word", "dots")
        self.at += found
        return found

    def expect(self, text: str) -> Token:
        """Advance over a token of this text; ParseError if it is another."""
        token = self.here
        if not self.take(text):
            raise token.wrong(f"expected {text!r}, not {token.text!r}")
        return token

    def word(self, what: str) -> Token:
        """A name; ParseError if it is another token."""
        if self.here.kind != "word":
            raise self.here.wrong(f"expected {what}, not {self.here.text!r}")
        return self.next()

    def several(self, close: str, read: Callable[[], T]) -> tuple[list[T], bool]:
        """A comma-separated list up to a closing token, and whether a comma ends it."""
        made: list[T] = []
        comma = False
        while not self.take(close):
            if made and not comma:
                self.expect(",")
                if self.take(close):
                    return made, True
            made.append(read())
            comma = False
        return made, comma

    # ---------------------------------------------------------------- specs

    def spec(self) -> Spec:
        """A type: `f32[batch, 3]`, `key<threefry2x32>`; ParseError if malformed."""
        token = self.word("a type such as f32[3]")
        with located(token):
            if token.text == "key":
                self.expect("<")
                how = self.word("a hash").text
                self.expect(">")
                impl(how)
                return KeySpec(self.shape(), how)
            return TensorSpec(self.shape(), token.text)

    def shape(self) -> tuple[Extent, ...]:
        """Extents in brackets; `()` without brackets."""
        if not self.take("["):
            return ()
        return tuple(self.several("]", self.extent)[0])

    def extent(self) -> Extent:
        """A size: `3`, `batch`, `2*batch+1`, `batch-1`."""
        made = self._product()
        while self.take("+") or self._less():
            made = made + self._product()
        return made

    def _less(self) -> bool:
        """Whether a subtracted number follows."""
        return self.here.kind == "number" and self.here.text.startswith("-")

    def _product(self) -> Extent:
        made = self._factor()
        while self.take("*"):
            made = made * self._factor()
        return made

    def _factor(self) -> Extent:
        token = self.next()
        if token.kind == "number" and token.text.lstrip("-").isdigit():
            return int(token.text)
        if token.kind == "word" and token.text.isidentifier():
            return Dim.named(token.text)
        raise token.wrong(f"expected a size, not {token.text!r}")

    # ------------------------------------------------------------ arguments

    def argument(self) -> Argument:
        """A value, a constant, or an attribute; ParseError if malformed."""
        token = self.next()
        if token.kind in ("value", "weight"):
            return self.named(token)
        if token.kind == "string":
            return unquoted(token)
        if token.kind == "number":
            return self._number(token)
        if token.text == "(":
            made, _ = self.several(")", self.argument)
            return tuple(made)
        if token.text == "[":
            return self.several("]", self.argument)[0]
        if token.kind == "word":
            return self._word(token)
        raise token.wrong(
            _LEFT_OUT if token.text == "<" else f"{token.text!r} is not an argument"
        )

    def _word(self, token: Token) -> Argument:
        if token.text in _NAMED:
            return _NAMED[token.text]
        if self.here.text in ("(", "[") and token.text not in self.values:
            return self.constant(token)
        if token.text in ("inf", "nan"):
            return float(token.text)
        return self.named(token) if token.text in self.values else self._size(token)

    def _size(self, token: Token) -> Extent:
        if "." in token.text:
            raise token.wrong(f"{token.text} is undefined")
        self.at -= 1
        return self.extent()

    def _number(self, token: Token) -> Extent | float:
        if not token.text.lstrip("-").isdigit():
            return float(token.text)
        if self.here.text in ("*", "+"):
            self.at -= 1
            return self.extent()
        return int(token.text)

    def named(self, token: Token) -> Value:
        """The value of a name; ParseError if the name is undefined."""
        if token.text not in self.values:
            raise token.wrong(f"{token.text} is undefined")
        return self.values[token.text]

    def constant(self, kind: Token) -> Value:
        """An array or key with its numbers."""
        shape = self.shape()
        self.expect("(")
        if self.take("..."):
            raise kind.wrong(f"{_LEFT_OUT}: the numbers of {kind.text}{list(shape)}")
        numbers, _ = self.several(")", self.next)
        with located(kind):
            return _constant(kind, shape, numbers)


def _constant(kind: Token, shape: Sequence[Extent], numbers: list[Token]) -> Value:
    """The array or key of these numbers."""
    whole = tuple(extent for extent in shape if isinstance(extent, int))
    if len(whole) < len(shape):
        raise kind.wrong("a constant has a static shape")
    is_key = kind.text.startswith(("threefry", "philox"))
    how = impl(kind.text) if is_key else None
    dtype = how.dtype if how else TensorSpec((), kind.text).numpy
    whole = (*whole, how.key_words) if how else whole
    if len(numbers) != int(np.prod(whole, dtype=np.int64)):
        raise kind.wrong(f"{len(numbers)} numbers do not fill {kind.text}{list(whole)}")
    data = np.array([_element(n, dtype) for n in numbers], dtype).reshape(whole)
    return constant(random.wrap_key_data(data, impl=how.name) if how else data)


def _element(token: Token, dtype: np.dtype) -> bool | np.ndarray:
    """An element of a constant; ParseError if its type cannot represent it."""
    truths = {"True": True, "False": False}
    if dtype.kind == "b" and token.text in truths:
        return truths[token.text]
    try:
        made = int(token.text) if dtype.kind in "iu" else float(token.text)
        return np.array(made, dtype)
    except (ValueError, OverflowError):
        raise token.wrong(f"{token.text} is not representable as {dtype}") from None


@contextmanager
def located(token: Token) -> Iterator[None]:
    """Context that adds the line to errors."""
    try:
        yield
    except ParseError:
        raise
    except TensorlangError as problem:
        if str(problem).startswith("line "):
            raise
        raise type(problem)(f"line {token.line}: {problem}") from problem
