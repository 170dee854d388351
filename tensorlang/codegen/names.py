"""Fresh names in large numbers: `hint`, `hint_1`, `hint_2`, ... each in one step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tensorlang.ir.contents import names
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Buffer, Function, IndexMap, Node, Reducer, Var
from tensorlang.ir.visit import rebuild, rewriter


class Names:
    """The names in use in a function, and the numbers tried so far."""

    def __init__(self, function: Function) -> None:
        self.taken = names(function)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A name nothing uses; it is used from now on."""
        number = self._next.get(hint, 0)
        name = hint if number == 0 else f"{hint}_{number}"
        while name in self.taken:
            number += 1
            name = f"{hint}_{number}"
        self._next[hint] = number + 1
        self.taken.add(name)
        return name

    def var(self, hint: str, dtype: DType) -> Var:
        """A variable of a fresh name."""
        return Var(self.fresh(hint), dtype)


def give_way(function: Function, used: Names, reserved: Collection[str]) -> Function:
    """The function with its variables and buffers of reserved names renamed.

    The reserved names count as used from now on.
    """
    clashing = sorted(used.taken.intersection(reserved))
    used.taken.update(reserved)
    renamed = {name: used.fresh(name) for name in clashing}

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Reducer | IndexMap):  # their names are their own
            return node
        made = rebuild(node, visit)
        if isinstance(made, Var | Buffer) and made.name in renamed:
            return replace(made, name=renamed[made.name])
        return made

    return rebuild(function, visit) if renamed else function
