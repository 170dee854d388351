"""Names as kernels show them, with numbers only where two are visible at one place.

    for u in range(n):          for u in range(n):
        at: i64 = u * 4             at: i64 = u * 4
        y[at] = 1.0                 y[at] = 1.0
    for v in range(n):      ->  for v in range(n):
        at_1: i64 = v * 4           at: i64 = v * 4
        y[at_1] = 2.0               y[at] = 2.0

Code generation keeps the names apart: what is known of a variable is found by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count
from typing import Final, TypeGuard

from tensorlang.ir.contents import allocations, names
from tensorlang.ir.nodes import Alloc, For, Function, Let, Seq, Stmt
from tensorlang.ir.visit import rename, statements, walk_statements

_SHARED: Final = "_shared"
_WORD: Final = re.compile(r"\b[A-Za-z_]\w*\b(?!\()")
_NUMBERED: Final = re.compile(r"(\w+?(?:_(?:div|mod|by)_\d+)*)((?:_\d+)*)")
_TAILS: Final = re.compile(r"(?:_tail)+(?![a-z])")


def as_shown(function: Function) -> Function:
    """A lowered function as it is shown."""
    return rename(function, short_names(function))


def in_text(text: str, shown: dict[str, str]) -> str:
    """A kernel's source with names as they are shown; functions keep theirs."""
    if not shown:
        return text
    return _WORD.sub(lambda word: shown.get(word[0], word[0]), text)


def short_names(function: Function) -> dict[str, str]:
    """How names of a lowered function are shown, of those that differ.

    A loop's number comes from its schedule. The number of a value or of a tile in
    registers is its own only if the same name without it is in the function: others
    have theirs from a definition. So it is with `_tail`; the tail of a loop's tail is
    one, too. A tile of shared memory of which each thread accesses a part is not
    `_shared`, but a `_register`.
    """
    statements = list(walk_statements(function.body))
    loops = {stmt.var.name for stmt in statements if isinstance(stmt, For)}
    values = {stmt.var.name for stmt in statements if isinstance(stmt, Let)}
    values |= {stmt.buffer.name for stmt in statements if _is_register(stmt)}
    taken = names(function)
    tiles = dict(_registers(function, taken))
    hints = {name: _hint(name) for name in loops}
    for hint_of in (_hint, _whole):
        hints |= {name: hint_of(name) for name in values if hint_of(name) in values}
    for old, new in tiles.items():
        at = {n: hint for n, hint in hints.items() if hint.startswith(f"{old}_")}
        hints |= {name: hint.replace(old, new, 1) for name, hint in at.items()}
    while True:
        walk = _Walk(hints, taken - hints.keys() | {*tiles.values()})
        walk.visit(function.body)
        if not walk.clashing:
            shown = walk.shown | tiles
            return {name: new for name, new in shown.items() if name != new}
        hints = {n: hint for n, hint in hints.items() if n not in walk.clashing}


def _registers(function: Function, taken: set[str]) -> Iterator[tuple[str, str]]:
    """New names of tiles that are in registers, though their names say otherwise."""
    for buffer in allocations(function.body):
        new = f"{buffer.name.removesuffix(_SHARED)}_register"
        misnamed = buffer.scope == "register" and buffer.name.endswith(_SHARED)
        if misnamed and new not in taken:
            yield buffer.name, new


def _is_register(stmt: Stmt) -> TypeGuard[Alloc]:
    return isinstance(stmt, Alloc) and stmt.buffer.scope == "register"


def _hint(name: str) -> str:
    """`at` for `at_1`, and for `at_1_2`, a copy's name; `n_div_4` for `n_div_4_1`."""
    match = _NUMBERED.fullmatch(_TAILS.sub("_tail", name))
    return match[1] if match else name


def _whole(name: str) -> str:
    """`at` for `at_tail_1`: the name of the same value where it is no tail's."""
    return _hint(_TAILS.sub("", name))


class _Walk:
    """A walk in program order.

    Attributes:
        shown: The names that were given.
        clashing: Those of values that are bound in several places, and do not fit all.
    """

    def __init__(self, hints: dict[str, str], fixed: set[str]) -> None:
        self._hints, self._fixed = hints, fixed
        self._visible: dict[str, str] = {}  # what is shown -> what it is
        self.shown: dict[str, str] = {}
        self.clashing: set[str] = set()

    def visit(self, stmt: Stmt) -> None:
        """Give names to what is bound at and below a statement."""
        before = self._visible.copy()
        if isinstance(stmt, For):
            self._name(stmt.var.name)
        for inner in _in_scope(stmt):
            if isinstance(inner, Let):
                self._name(inner.var.name)
            elif _is_register(inner):
                self._name(inner.buffer.name)
            else:
                self.visit(inner)
        self._visible = before

    def _name(self, name: str) -> None:
        if name not in self._hints:
            return
        if name not in self.shown:
            hint = self._hints[name]
            numbered = (f"{hint}_{number}" for number in count(1))
            self.shown[name] = next(filter(self._is_free, chain([hint], numbered)))
        shown = self.shown[name]
        if self._visible.setdefault(shown, name) != name:
            self.clashing.add(name)

    def _is_free(self, name: str) -> bool:
        return name not in self._fixed and name not in self._visible


def _in_scope(stmt: Stmt) -> Iterator[Stmt]:
    """The statements of a scope; braces enclose those of each but a sequence."""
    for inner in statements(stmt):
        if isinstance(inner, Seq):
            yield from _in_scope(inner)
        else:
            yield inner
