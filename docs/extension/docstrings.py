"""Convert docstrings to what Sphinx reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def literal_blocks(lines: Iterable[str]) -> Iterator[str]:
    """A docstring with `::` before code: text indented more than its paragraph."""
    base, code, before = 0, False, ""
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line:
            code = code and indent > base
            if not (code or before) and indent > base:
                code = True
                yield from (" " * base + "::", "")
            if not code:
                base = indent
        yield line
        before = line
