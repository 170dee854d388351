"""Code as HTML, by Pygments: for the explorer's pages and for notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pygments import highlight
from pygments.filter import Filter
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import Error, Name, Operator, Punctuation, Text, Whitespace

_STYLES: Final = (("light", "friendly"), ("dark", "github-dark"))
_UNCOLOURED: Final = (
    *(Whitespace, Punctuation, Operator, Error),
    *(Name, Name.Variable, Name.Constant),  # registers are constants to the lexer
)
_SPAN: Final = re.compile(r'<span class="(\w+)[^"]*">')  # rewritten to be shorter


class _Plain(Filter):  # type: ignore[misc]  # the library has no types
    """Leaves frequent kinds of tokens without a colour, which halves a page."""

    def filter(
        self, lexer: object, stream: Iterable[tuple[object, str]]
    ) -> Iterator[tuple[object, str]]:
        """The tokens, with those that are not worth a colour as text."""
        del lexer
        for kind, text in stream:
            plain = kind in _UNCOLOURED or text.strip() == ";"  # a comment to the lexer
            yield (Text if plain else kind), text


def highlighted(lines: Sequence[str], language: str) -> list[str]:
    """Lines as HTML, escaped."""
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    lexer.add_filter(_Plain())
    lexer.add_filter("tokenmerge")
    made = highlight("\n".join(lines), lexer, HtmlFormatter(nowrap=True))
    found = _SPAN.sub(r"<b class=\1>", made).replace("</span>", "</b>").split("\n")
    return found[: len(lines)]


def style_sheets() -> str:
    """The colours of highlighted text, for light and dark pages."""
    return "\n".join(
        HtmlFormatter(style=style, nobackground=True).get_style_defs(
            f"[data-theme={theme}] code"
        )
        for theme, style in _STYLES
    )
