"""Classes made by `@frozen` are immutable dataclasses with slots."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from dataclasses import FrozenInstanceError, field
from typing import ClassVar

import pytest

from tensorlang.frozen import frozen


@frozen
class Point:
    x: int
    y: float = 2.0
    note: str = field(default="", repr=False, compare=False)
    seen: list[int] = field(default_factory=list, compare=False)
    kind: ClassVar[str] = "point"


@frozen
class Named(Point):
    """One more field, by name only, and one that is computed."""

    name: str = field(default="n", kw_only=True)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


@frozen
class Empty:
    pass


@frozen
class One:
    value: float


@frozen(eq=False)
class Itself:
    value: int


@frozen
class Odd:
    """Its own methods stay."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.value % 2 == other.value % 2

    def __hash__(self) -> int:
        return self.value % 2

    def __repr__(self) -> str:
        return "odd"


def test_fields_and_defaults() -> None:
    point = Point(1)
    assert (point.x, point.y, point.note, point.seen) == (1, 2.0, "", [])
    assert point.seen is not Point(1).seen
    assert [each.name for each in dataclasses.fields(Point)] == [
        *("x", "y", "note", "seen")
    ]
    assert Point.__match_args__ == ("x", "y", "note", "seen")
    assert not hasattr(point, "__dict__")
    assert repr(point) == "Point(x=1, y=2.0, seen=[])"
    assert Point.__init__.__annotations__["y"] == "float"


def test_subclasses_add_fields() -> None:
    named = Named(1, 3.0, name="abc")
    assert (named.size, named.y) == (3, 3.0)
    assert dataclasses.replace(named, name="ab").size == 2
    assert named != Point(1, 3.0)
    with pytest.raises(TypeError):
        Named(1, 3.0, "", [], "abc")  # type: ignore[misc]


def test_equal_if_the_fields_are() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1)) == hash((1, 2.0))
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2.0)
    assert Empty() == Empty()
    nan = float("nan")
    assert One(nan) == One(nan)  # as tuples are
    assert hash(One(1.0)) == hash((1.0,))
    assert Itself(1) != Itself(1)
    assert len({Odd(1), Odd(3), Odd(2)}) == 2
    assert repr(Odd(1)) == "odd"


@pytest.mark.parametrize("name", ["x", "other"])
def test_nothing_is_assigned_or_deleted(name: str) -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match=f"assign to field '{name}'"):
        setattr(point, name, 2)
    with pytest.raises(FrozenInstanceError, match=f"delete field '{name}'"):
        delattr(point, name)


@pytest.mark.parametrize("each", [Point(1, 5.0, "a", [1]), Named(2, name="x"), Empty()])
def test_copies(each: Point) -> None:
    for made in (pickle.loads(pickle.dumps(each)), copy.deepcopy(each)):
        assert made == each
        assert repr(made) == repr(each)


@frozen
class Clashing:
    """Fields of names that its constructor might use."""

    absent: list[int] = field(default_factory=list)
    set_absent: int = 1
    new_absent: int = 2
    default_set_absent: int = 3
    hash: int = 4
    self: int = 5


def test_any_name_is_a_field() -> None:
    made = Clashing([7], self=8)
    assert dataclasses.astuple(made) == ([7], 1, 2, 3, 4, 8)
    assert Clashing().absent == []


@frozen
class Partly:
    kept: int
    unhashed: int = field(default=0, hash=False)
    only_hashed: int = field(default=0, hash=True, compare=False)


def test_fields_may_be_compared_without_being_hashed() -> None:
    assert Partly(1, 2) != Partly(1, 3)
    assert hash(Partly(1, 2)) == hash(Partly(1, 3)) == hash((1, 0))
    assert Partly(1, 2) == Partly(1, 2, 5)


def test_signatures_and_types_are_those_of_the_module() -> None:
    shown = str(inspect.signature(Point, eval_str=True))
    assert "seen: list[int] = <factory>" in shown
    hints = typing.get_type_hints(Point.__init__)
    assert hints["seen"] == list[int]
    for method in (Point.__init__, Point.__eq__, Point.__hash__):
        assert method.__module__ == Point.__module__
        assert method.__qualname__ == f"Point.{method.__name__}"
