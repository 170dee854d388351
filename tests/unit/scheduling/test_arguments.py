"""Odd arguments of primitives are refused in a sentence, whatever they are."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir import compute, function, placeholder
from tensorlang.scheduling import PRIMITIVES, Schedule
from tensorlang.scheduling.arguments import WANTED

ODD: list[tuple[str, tuple[Any, ...]]] = [
    ("vectorize", (None,)),
    ("parallel", (True,)),
    ("compute_at", ("y", None)),
    ("rfactor", ("y", ["i"])),
    ("split", ("i", None)),
    ("split", ("i", 2.5)),
    ("split", ("i", "y:i")),
    ("split", ("i", 10**30)),
    ("pad", ("y", 2)),
    ("tensorize", ((), ["a"])),
    ("hint", ("y", "y", 1, [])),
    ("reorder", ("i", 3)),
    ("partition", ("i", 1.5)),
    ("cache_read", ("y", "x", 1)),
    ("transform_layout", ("y", 3)),
    ("fuse_axes", ("y", -1)),
    ("fuse_axes", ("y", ["i", 2])),
]


@pytest.mark.parametrize(("name", "given"), ODD, ids=[f"{n}{g}"[:40] for n, g in ODD])
def test_an_odd_argument_is_refused(name: str, given: tuple[Any, ...]) -> None:
    x = placeholder((8,), "f32", "x")
    s = Schedule(function("f", [x], [compute((8,), lambda i: x[i] + 1.0, "y")]))
    before = s.function
    with pytest.raises(ScheduleError):
        getattr(s, name)(*given)
    assert s.function == before


def test_every_parameter_of_a_primitive_is_checked() -> None:
    kinds = {
        str(parameter.annotation)
        for primitive in PRIMITIVES.values()
        for parameter in list(signature(primitive).parameters.values())[1:]
    }
    assert kinds <= WANTED.keys()
