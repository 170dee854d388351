"""Limits on IR text, checked on the raw characters before parsing.

Text comes from records, bug reports and third parties. Python's parser is safe on what
passes: small, ASCII, shallow, with short numbers and plain strings.
"""

from __future__ import annotations

import re
from typing import Final

from tensorlang.errors import ParseError

MAX_CHARACTERS: Final = 1 << 20
MAX_LINES: Final = 30_000
MAX_TOKENS: Final = 200_000
MAX_BRACKETS: Final = 150
MAX_INDENT: Final = 64 * 4
MAX_CHAIN: Final = 1500
MAX_NUMBER: Final = 40
MAX_STRING: Final = 200

_TOKEN: Final = re.compile(
    r"""(?P<string>"[^"\\\n]*"|'[^'\\\n]*')
      | (?P<comment>\#[^\n]*)
      | (?P<opening>[(\[{])
      | (?P<closing>[)\]}])
      | (?P<number>\.?[0-9](?:[eE][+-]?|[\w.])*)
      | (?P<operator>[-+~*/%&|^<>=!@]|\b(?:not|and|or|if|else|lambda|await|in|is)\b)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<comma>,)
      | (?P<newline>\n)
      | (?P<semicolon>;)
      | (?P<foreign>["'\\])
    """,
    re.VERBOSE | re.ASCII,
)
_NUMBER: Final = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INDENT: Final = re.compile(rf"^ {{{MAX_INDENT + 1},}}", re.MULTILINE)
_CONTROL: Final = re.compile(r"[^\n -~]")
_LONGEST: Final = {"number": MAX_NUMBER, "string": MAX_STRING}


def fault(line: int, column: int, message: str) -> ParseError:
    """The error at a location, with 1-based line and column."""
    return ParseError(f"line {line}, column {column}: {message}")


def check(text: str) -> None:
    """ParseError, with line and column, for text too large, too deep or not plain."""
    if len(text) > MAX_CHARACTERS:
        raise fault(
            1, 1, f"the text has {len(text)} characters; at most {MAX_CHARACTERS} pass"
        )
    if text.count("\n") > MAX_LINES:
        raise fault(MAX_LINES + 1, 1, f"the text has more than {MAX_LINES} lines")
    for pattern, message in (
        (_CONTROL, "the text is plain ASCII without tabs and control characters"),
        (_INDENT, f"indented by more than {MAX_INDENT} spaces; nest fewer statements"),
    ):
        if found := pattern.search(text):
            raise _at(text, found.start(), message)
    _check_nesting(text)


def _check_nesting(text: str) -> None:
    chains = [0]  # operators so far, for each open bracket
    for number, token in enumerate(_TOKEN.finditer(text)):
        kind = token.lastgroup or ""
        if kind == "operator":
            chains[-1] += 1
        elif kind == "opening":
            chains.append(0)
        elif kind == "closing" and len(chains) > 1:
            chains.pop()
        elif kind == "comma" or (kind == "newline" and len(chains) == 1):
            chains[-1] = 0
        problem = _token_fault(kind, token[0])
        if number >= MAX_TOKENS:
            problem = f"the text has more than {MAX_TOKENS} words and signs"
        elif chains[-1] > MAX_CHAIN:
            problem = f"more than {MAX_CHAIN} operators in a row; name parts of it"
        elif len(chains) > MAX_BRACKETS + 1:
            problem = f"brackets nest deeper than {MAX_BRACKETS}; name parts of it"
        if problem:
            raise _at(text, token.start(), problem)


def _token_fault(kind: str, word: str) -> str | None:
    if kind in _LONGEST and len(word) > _LONGEST[kind]:
        return f"a {kind} has at most {_LONGEST[kind]} characters"
    if kind == "number" and not _NUMBER.fullmatch(word):
        return f"{word!r} is no number: write decimals such as 12, 0.5, 1e-3"
    if kind == "semicolon":
        return "there is one statement a line, without ';'"
    if kind == "foreign":
        return "strings are plain, on one line, without escapes"
    return None


def _at(text: str, position: int, message: str) -> ParseError:
    line = text.count("\n", 0, position) + 1
    return fault(line, position - text.rfind("\n", 0, position), message)
