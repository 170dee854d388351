"""`Kernel.each`: kernels that update flat arrays, on several sets in one launch."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import compute, function, placeholder, reduce_axis, scalar, size
from tensorlang.ir import sum as total
from tensorlang.ir.nodes import Load, as_expr
from tensorlang.runtime.cpu.wrapper import INLINE_BYTES
from tensorlang.schedules.streaming import Stream, loop_named, stream
from tensorlang.schedules.tiling import in_lanes
from tensorlang.scheduling import Schedule

LARGE = INLINE_BYTES


@pytest.fixture(scope="module")
def add():
    """y += rate * x, chunks of 256 to threads."""
    n, rate = size("n"), scalar("rate")
    x, y = placeholder((n,), "f32", "x"), placeholder((n,), "f32", "y")
    new = compute((n,), lambda i: y[i] + rate * x[i], "new")
    s = Schedule(function("add", [x], [], inplace=[(y, new)], scalars=[rate]))
    stream(s, "i", Stream(lanes=16, chunk=16, nontemporal=False))
    return build(s)


def arrays(*shapes):
    return tuple(np.ones(shape, np.float32) for shape in shapes)


@pytest.mark.parametrize(
    "shapes",
    [
        [],
        [5],
        [()],
        [0, 7],
        [(3, 4), (), (2, 2, 2)],
        [LARGE, 1, (100, 300), 513],
        [256] * 300,
        [LARGE] * 5,
    ],
)
def test_every_set_is_updated_once(add, shapes):
    x, y = arrays(*shapes), arrays(*shapes)
    assert add.each(x, y, 2.0) is True
    for updated, shape in zip(y, shapes, strict=True):
        assert updated.shape == np.empty(shape).shape
        assert (updated == 3).all()


def read_only():
    array = np.ones(5, np.float32)
    array.flags.writeable = False
    return (array,)


@pytest.mark.parametrize(
    ("x", "y", "rate"),
    [
        (arrays(5, 6), arrays(5), 2.0),
        (arrays(5), arrays(4), 2.0),
        (arrays((2, 3)), arrays((3, 2)), 2.0),
        (arrays(5), read_only(), 2.0),
        (arrays(5), (np.ones(10, np.float32)[::2],), 2.0),
        (arrays(5), (np.ones(5),), 2.0),
        (arrays(5, 5), (*arrays(5), None), 2.0),
        (list(arrays(5)), arrays(5), 2.0),
        (arrays(5), arrays(5), 2),
    ],
)
def test_what_does_not_fit_is_left_as_it_was(add, x, y, rate):
    assert add.each(x, y, rate) is False
    assert all(a is None or (a == 1).all() for a in y)


def test_a_set_that_overlaps_itself_is_left_as_it_was(add):
    base = np.ones(20, np.float32)
    assert add.each((base[:10],), (base[9:19],), 2.0) is False
    assert (base == 1).all()


def test_arrays_that_are_only_read_may_be_written_nowhere(add):
    x = read_only()
    assert add.each(x, arrays(5), 2.0) is True


@pytest.mark.parametrize("n", [100, 8 * LARGE])
def test_sets_that_overlap_each_other_go_in_turn(add, n):
    x, y = np.ones(n, np.float32), np.ones(n, np.float32)
    assert add.each((x, x, y), (y, y, x), 1.0) is True
    assert (y == 3).all()
    assert (x == 4).all()


def test_a_kernel_with_a_workspace_takes_one_set_at_a_time():
    n = size("n")
    x, y = placeholder((n,), "f32", "x"), placeholder((n,), "f32", "y")
    twice = compute((n,), lambda i: x[i] + x[i], "twice")
    new = compute((n,), lambda i: y[i] + twice[i], "new")
    s = Schedule(function("kept", [x], [], inplace=[(y, new)]))
    in_lanes(s, loop_named(s, "i"), 16)
    kernel = build(s)
    x, y = arrays(5), arrays(5)
    assert kernel.each(x, y) is False
    kernel(*x, *y)
    assert (y[0] == 3).all()


def test_a_kernel_with_outputs_takes_one_set_at_a_time():
    n = size("n")
    x = placeholder((n,), "f32", "x")
    kernel = build(function("same", [x], [compute((n,), lambda i: x[i], "y")]))
    assert kernel.each(arrays(3), arrays(3)) is False


@pytest.fixture(scope="module")
def squares():
    """The sums of squares of parts of 16: how many follows from the length."""
    n = size("n")
    x, k = placeholder((n,), "f32", "x"), reduce_axis(16, "k")

    def part(p):
        at = p * 16 + k.var
        value = Load(x.buffer, (at,), as_expr(at < n))
        return total(value * value, k)

    return build(function("squares", [x], [compute(((n + 15) // 16,), part, "y")]))


@pytest.mark.parametrize(
    "shapes", [[], [5], [0, 7], [(3, 4), (), 16, 17], [LARGE, 1, (100, 300)], [256] * 9]
)
def test_results_may_have_lengths_of_their_own(squares, shapes):
    x = arrays(*shapes)
    y = tuple(np.full(-(-a.size // 16), np.nan, np.float32) for a in x)
    assert squares.each(x, y) is True
    for read, written in zip(x, y, strict=True):
        assert written.sum() == read.size
        assert (written[:-1] == 16).all()


@pytest.mark.parametrize("length", [0, 1, 3])
def test_results_of_another_length_are_left_as_they_were(squares, length):
    y = (np.ones(length, np.float32),)
    assert squares.each(arrays(17), y) is False
    assert (y[0] == 1).all()
