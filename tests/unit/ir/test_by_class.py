"""Functions by the class of their argument: fallbacks, later classes, methods."""

from __future__ import annotations

import pytest

from tensorlang.ir.by_class import by_class, method_by_class


class Base:
    pass


class Derived(Base):
    pass


def test_the_nearest_class_decides() -> None:
    @by_class
    def name(node: object, end: str) -> str:
        """The name of a class."""
        return f"any {type(node).__name__}{end}"

    @name.register
    def _(node: Base, end: str) -> str:
        return f"base {type(node).__name__}{end}"

    assert name(1, "!") == "any int!"
    assert name(Base(), "!") == "base Base!"
    assert name(Derived(), "?") == "base Derived?"
    assert name.__doc__ == "The name of a class."


def test_a_function_registered_after_a_call_counts() -> None:
    @by_class
    def name(node: object) -> str:
        return f"any {type(node).__name__}"

    assert name(Derived()) == "any Derived"

    @name.register
    def _(node: Base | int) -> str:
        return f"known {type(node).__name__}"

    assert [name(Derived()), name(1), name("")] == [
        "known Derived",
        "known int",
        "any str",
    ]


def test_methods_are_found_by_their_argument() -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[Base] = []

        @method_by_class
        def hear(self, node: object) -> int:
            raise TypeError(type(node).__name__)

        @hear.register
        def _(self, node: Base) -> int:
            self.heard.append(node)
            return len(self.heard)

    one, other = Listener(), Listener()
    assert [one.hear(Base()), one.hear(Derived()), other.hear(Base())] == [1, 2, 1]
    with pytest.raises(TypeError, match="int"):
        one.hear(3)


def test_deep_recursion() -> None:
    """Each level counts twice towards Python's limit of 1000: two functions."""

    @by_class
    def depth(node: object) -> int:
        raise TypeError(type(node).__name__)

    @depth.register
    def _(node: tuple) -> int:
        return depth(node[0]) + 1 if node else 0

    nested: tuple[object, ...] = ()
    for _ in range(380):
        nested = (nested,)
    assert depth(nested) == 380
