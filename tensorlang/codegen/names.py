"""Fresh names `hint`, `hint_1`, `hint_2`, ... in constant time each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from tensorlang.ir.contents import names
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Binary, Const, Function, Node, Var
from tensorlang.ir.visit import rename

_DIVISIONS: Final = {"floordiv": "div", "floormod": "mod"}


class Names:
    """The names in use in a function."""

    def __init__(self, function: Function) -> None:
        self.taken = names(function)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """An unused name, reserved from now on."""
        number = self._next.get(hint, 0)
        name = hint if number == 0 else f"{hint}_{number}"
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self._next[hint] = number + 1
        self.taken.add(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Context at whose end the names reserved in it are free again."""
        kept = self.taken.copy(), self._next.copy()
        yield
        self.taken, self._next = kept

    def var(self, hint: str, dtype: DType) -> Var:
        """A variable with a fresh name."""
        return Var(self.fresh(hint), dtype)


def digits_of(node: Node) -> str:
    """A name for digits of a variable, `x_div_8_mod_4` for `x // 8 % 4`; else empty."""
    if (
        isinstance(node, Binary)
        and node.op in _DIVISIONS
        and isinstance(node.b, Const)
        and node.b.value >= 0
    ):
        of = node.a.name if isinstance(node.a, Var) else digits_of(node.a)
        return f"{of}_{_DIVISIONS[node.op]}_{node.b.value}" if of else ""
    return ""


def rename_reserved(
    function: Function, used: Names, reserved: Collection[str]
) -> Function:
    """Rename the function's variables and buffers that have reserved names.

    The reserved names are marked as used.
    """
    clashing = sorted(used.taken.intersection(reserved))
    used.taken.update(reserved)
    renamed = {name: used.fresh(name) for name in clashing}
    return rename(function, renamed) if renamed else function
