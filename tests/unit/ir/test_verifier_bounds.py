"""Accesses that are certainly out of bounds are refused, and no others are."""

from __future__ import annotations

import pytest

from tensorlang.errors import IRError
from tensorlang.ir import compute, function, parse, placeholder, select, size, verify


def nest(shapes, loops, body):
    """The function of a body within loops such as `i < n, j < m`."""
    x, y = shapes.split(" to ")
    lines = [f"def f(x: f32[{x}], y: Out[f32[{y}]], *, n: i64, m: i64):"]
    for loop in loops.split(", "):
        var, extent = loop.split(" < ")
        lines.append("    " * len(lines) + f"for {var} in range({extent}):")
    lines += ["    " * len(lines) + line for line in body.split("\n")]
    return parse("\n".join(lines))


BLOCK = 'with block("b", vi=spatial(n, i){more}):\n    {body}'
FOLD = 'with block("b", vi=spatial(n, i), vk=reduction(9, k)):\n    {body}'


@pytest.mark.parametrize(
    ("shapes", "loops", "body", "says"),
    [
        ("n to n", "i < n", "y[i] = x[i + 1]", "x[i + 1] comes to n, outside of its"),
        ("n to n", "i < n", "y[i] = x[i - 1]", "x[i - 1] comes to -1, outside of its"),
        ("n to n", "i < n", "y[i] = x[n - i]", "x[n - i] comes to n, outside"),
        ("n to n", "i < n", "y[i + 1] = x[i]", "y[i + 1] comes to n, outside"),
        ("n to n", "i < n + 3", "y[i] = 1.0", "y[i] comes to n + 2, outside"),
        ("n to n", "i < n", "y[2 * i + 1 - i] = 1.0", "comes to n, outside"),
        ("n to n", "i < n // 2", "y[n + i] = 1.0", "comes to"),
        ("n to 4", "i < 5", "y[i] = 1.0", "comes to 4, outside of its dimension of 4"),
        ("4 to 4", "i < 4", "y[i] = x[i + 1000000000]", "comes to 1000000003, outs"),
        ("4 to 4", "i < 4", "y[i] = x[2 * i]", "comes to 6, outside"),
        ("4 to 4", "i < 4", "y[i] = x[2 - i]", "comes to -1, outside"),
        ("4, 9 to 4", "i < 4", "y[i] = x[0, 3 * i]", "dimension of 9"),
        ("n * m to n", "i < n, j < m", "y[i] = x[i * m + j + 1]", "comes to"),
        ("n to n", "i < n", "k: i64 = i + 1\ny[i] = x[k]", "x[k] comes to n, outside"),
        ("n to n", "i < n", "t: f32 = x[i + 1]\ny[i] = t * t", "x[i + 1] comes to n,"),
        ("n to n", "i < n", "y[i] = select(x[i + 1] > 0.0, 1.0, 0.0)", "comes to n,"),
        (
            "n to n",
            "i < n",
            BLOCK.format(more="", body="y[vi] = x[vi + 1]"),
            "x[vi + 1] comes to n, outside of its dimension of n",
        ),
        (
            "n, 8 to n",
            "i < n, k < 9",
            FOLD.format(body="reduce(sum, y[vi], x[vi, vk])"),
            "x[vi, vk] comes to 8, outside of its dimension of 8",
        ),
    ],
)
def test_what_leaves_its_memory_for_certain_is_refused(shapes, loops, body, says):
    with pytest.raises(IRError) as caught:
        verify(nest(shapes, loops, body))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("shapes", "loops", "body"),
    [
        ("n to n", "i < n", "if i + 1 < n:\n    y[i] = x[i + 1]"),
        ("n to n", "i < n", "y[i] = select(i > 0, x[i - 1], 0.0)"),
        ("n to n", "i < n", "t: f32 = x[i - 1]\ny[i] = select(i > 0, t * t, 0.0)"),
        (
            "n to n",
            "i < n",
            BLOCK.format(more=", where=vi + 1 < n", body="y[vi] = x[vi + 1]"),
        ),
        ("n to n", "i < n", "y[i] = x[i]\nevaluate(prefetch(x[i + 64]))"),
        ("n to n", "i < 0", "y[i + 1] = x[i + 1]"),
        ("n to n", "i < n - n", "y[n + i] = x[i]"),
        ("n to n", "i < n - m", "y[i + m] = x[i + 1]"),
        ("n to n", "i < n", "y[i] = x[i + m]"),
        ("n to n", "i < m", "y[i] = x[i]"),
        ("n to 4", "i < m", "y[i] = 1.0"),
        ("n, m to n", "i < n, j < m", "y[i] = x[j, i]"),
        ("n to n", "i < n % 16", "y[n // 16 * 16 + i] = 1.0"),
        ("n to n", "i < n, j < i", "y[j + 1] = 1.0"),
        ("n to n", "i < n, j < -i", "y[j + n] = 1.0"),
        ("n * m to n", "i < n, j < m", "y[i] = x[i * m + j]"),
        ("n, 3 to n", "i < n", "y[i] = x[i, (i + 1) % 3]"),
        ("n to n", "i < n // 2", "y[i] = x[2 * i + 1]"),
    ],
)
def test_what_may_be_right_is_accepted(shapes, loops, body):
    verify(nest(shapes, loops, body))


def test_definitions_that_read_too_far():
    x = placeholder((64, 48), "f32", "x")
    with pytest.raises(IRError, match=r"f.*x\[vi, 0\] comes to 99, outside of .* 64"):
        verify(function("f", [x], [compute((100,), lambda i: x[i, 0])]))
    line = placeholder((size("n"),), "f32", "x")
    with pytest.raises(IRError, match="comes to n, outside of its dimension of n"):
        verify(function("f", [line], [compute(line.shape, lambda i: line[i + 1])]))


def test_definitions_that_look_before_they_read():
    x = placeholder((size("n"),), "f32", "x")

    def shifted(i):
        return select(i >= 1, x[i - 1] * x[i - 1], 0.0)

    verify(function("f", [x], [compute(x.shape, shifted)]))
