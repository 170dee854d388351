"""Fresh names in large numbers: `hint`, `hint_1`, `hint_2`, ... each in one step."""

from __future__ import annotations

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Function, Var
from tensorlang.ir.visit import names


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
