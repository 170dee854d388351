"""Recursion at the end of a chunk of frames does not map memory at every call."""

from __future__ import annotations

import pytest

from tensorlang.frame_room import frame_room

resource = pytest.importorskip("resource", reason="page faults are counted by POSIX")

CALLS = 2_000
DEPTHS = range(150)  # several chunks


def recurse(depth: int) -> int:
    return recurse(depth - 1) if depth else 0


def up_and_down(depth: int) -> int:
    """Faults on pages while some frames come and go, at a depth."""
    if depth:
        return up_and_down(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        recurse(3)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_no_depth_faults_at_every_call() -> None:
    with_room = frame_room(up_and_down)
    assert max(with_room(depth) for depth in DEPTHS) < CALLS / 10


def test_a_chunk_has_room_for_the_recursion_limit() -> None:
    @frame_room
    def at(depth: int) -> int:
        return up_and_down(depth)

    assert at(800) < CALLS / 10


def test_calls_names_and_errors_are_the_functions() -> None:
    @frame_room
    def divide(a: int, /, b: int, *, c: int = 1) -> float:
        """The quotient."""
        return a / b + c

    assert divide(6, b=3) == 3
    assert divide(6, 2, c=0) == 3
    assert divide.__name__ == "divide"
    assert divide.__doc__ == "The quotient."
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    with pytest.raises(TypeError, match="'d'"):
        divide(1, 1, d=1)
