"""Tokeniser of program text, with limits on length and nesting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from tensorlang.errors import ParseError
from tensorlang.frozen import frozen

MAX_CHARACTERS: Final = 1 << 22
MAX_TOKENS: Final = 500_000
MAX_DEPTH: Final = 60  # open brackets and braces
MAX_WORD: Final = 400  # characters of a name, number or string

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \n]+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<dots>\.\.\.)
      | (?P<number>-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf\b|nan\b))
      | (?P<value>%[0-9]+)
      | (?P<weight>@(?:[A-Za-z0-9_.]+|"(?:[^"\\\n]|\\.)*"))
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<mark>->|[()\[\]{},:=*+<>])
    """,
    re.VERBOSE | re.ASCII,
)
_OPENING: Final = "([{"
_CLOSING: Final = ")]}"


@frozen
class Token:
    """A token."""

    kind: str  # `string`, `number`, `value`, `weight`, `word`, `mark`, `dots` or `end`
    text: str  # source text
    line: int  # counted from 1
    column: int  # counted from 1

    def wrong(self, message: str) -> ParseError:
        """An error at this token."""
        return ParseError(f"line {self.line}, column {self.column}: {message}")


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, followed by an end token.

    Raises:
        ParseError: invalid characters, or the text is too long or too deep.
    """
    if len(text) > MAX_CHARACTERS:
        raise ParseError(
            f"the text has {len(text)} characters; the limit is {MAX_CHARACTERS}"
        )
    at, line, start, depth, count = 0, 1, 0, 0, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        here = Token("mark", text[at : at + 1], line, at - start + 1)
        if found is None:
            raise here.wrong(f"{here.text!r} is not a token")
        word, kind = found.group(), str(found.lastgroup)
        at = found.end()
        if kind == "space":
            if "\n" in word:
                line += word.count("\n")
                start = found.start() + word.rindex("\n") + 1
            continue
        if len(word) > MAX_WORD:
            raise here.wrong(f"a token of {len(word)} characters; at most {MAX_WORD}")
        depth += (word in _OPENING) - (word in _CLOSING)
        count += 1
        if depth > MAX_DEPTH:
            raise here.wrong(f"more than {MAX_DEPTH} brackets are open")
        if count > MAX_TOKENS:
            raise here.wrong(f"the text has more than {MAX_TOKENS} tokens")
        yield Token(kind, word, line, here.column)
    yield Token("end", "the end of the text", line, at - start + 1)


def unquoted(token: Token) -> str:
    """The value of a string token; ParseError if an escape is invalid."""
    try:
        made = json.loads(token.text[token.text.index('"') :])
    except ValueError:
        raise token.wrong(f"{token.text} is not a string") from None
    return str(made)
