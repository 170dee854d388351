"""The content hash of a function: the key of caches and records."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from tensorlang.ir.nodes import Function
from tensorlang.ir.text.printer import show
from tensorlang.ir.text.syntax import GRAMMAR

_KEPT: Final = 1024


@lru_cache(maxsize=_KEPT)
def digest(func: Function) -> str:
    """SHA-256 of the function's text and the grammar's version, as 64 hex digits.

    Equal trees have equal digests in every process and on every machine; names are
    part of the tree.
    """
    text = f"tensorlang grammar {GRAMMAR}\n{show(func)}"
    return hashlib.sha256(text.encode()).hexdigest()
