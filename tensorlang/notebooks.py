"""What notebooks show of kernels, schedules, graphs and searches.

`card` is an HTML fragment that stands for an object: it needs nothing from outside,
styles only itself, and follows the notebook's colours, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final, TypeAlias

from tensorlang import lazy

with lazy.modules(__name__):  # loads Pygments
    from tensorlang import highlighting

# of a text: its heading, the language it is in, and itself
Listing: TypeAlias = tuple[str, str, str]

# target's kind -> the language of its source
LANGUAGES: Final = {"llvm": "llvm", "opencl": "c", "cuda": "cuda"}
_MOST_LINES: Final = 300  # of a listing in a notebook, which keeps them in its file
_CARD: Final = """<style>
.tensorlang-card { font-size: 13px; --c: #6b6b6b; --k: #0b57d0; --n: #9a3412; }
.tensorlang-card th, .tensorlang-card td { text-align: left; padding: 1px 8px; }
.tensorlang-card pre { overflow: auto; max-height: 30em; margin: 4px 0; }
.tensorlang-card pre b { font-weight: inherit; }
.tensorlang-card pre [class^=c] { color: var(--c); }
.tensorlang-card pre [class^=k] { color: var(--k); }
.tensorlang-card pre [class^=m] { color: var(--n); }
.tensorlang-card summary { cursor: pointer; }
@media (prefers-color-scheme: dark) {
  .tensorlang-card { --c: #9a9a9a; --k: #79b8ff; --n: #ffab70; }
}
[data-jp-theme-light=true] .tensorlang-card, .vscode-light .tensorlang-card {
  --c: #6b6b6b; --k: #0b57d0; --n: #9a3412;
}
[data-jp-theme-light=false] .tensorlang-card, .vscode-dark .tensorlang-card {
  --c: #9a9a9a; --k: #79b8ff; --n: #ffab70;
}
</style>"""


def card(title: str, facts: Mapping[str, object], listings: Iterable[Listing]) -> str:
    """An object in a notebook: its title, facts about it, and texts that unfold."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td><bdi>{escape(str(value))}</bdi></td></tr>"
        for name, value in facts.items()
    )
    texts = "".join(map(_listing, listings))
    head = f"<strong><bdi>{escape(title)}</bdi></strong>"
    return (
        f'{_CARD}<div class="tensorlang-card">{head}<table>{rows}</table>{texts}</div>'
    )


def _listing(listing: Listing) -> str:
    title, language, text = listing
    lines = text.splitlines()
    shown = highlighting.highlighted(lines[:_MOST_LINES], language)
    if (more := len(lines) - _MOST_LINES) > 0:
        shown.append(f"… {more:,} more lines")
    count = "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
    head = f"<summary>{escape(title)}, {count}</summary>"
    body = "\n".join(shown)
    return f"<details>{head}<pre><code>{body}</code></pre></details>"
