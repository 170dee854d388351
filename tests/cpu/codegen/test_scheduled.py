"""Randomly scheduled programs, compiled: the definition's bits, and nothing outside."""

import random

import numpy as np
import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.schedule import Schedule

MARGIN = 4096
STEPS = ["split", "split", "split", "fuse", "reorder", "parallel", "vectorize"]
STEPS += ["vectorize", "unroll", "partition", "decompose_reduction", "rfactor"]
STEPS += ["cache_write"]
PROGRAMS = [
    """
def product(x: f32[n, 37], w: f32[37, 21], y: Out[f32[n, 21]], *, n: i64):
    for i in range(n):
        for j in range(21):
            for k in range(37):
                with block("y", vi=spatial(n, i), vj=spatial(21, j),
                           vk=reduction(37, k)):
                    reduce(sum, y[vi, vj], x[vi, vk] * w[vk, vj])
""",
    """
def largest(x: f32[n, 50], m: Out[f32[n]], p: Out[i64[n]], *, n: i64):
    for i in range(n):
        for k in range(50):
            with block("m", vi=spatial(n, i), vk=reduction(50, k)):
                reduce(argmax, (m[vi], p[vi]), (x[vi, vk], vk))
""",
    """
def chain(x: f32[n, 19], y: Out[f32[n, 19]], *, n: i64):
    t = alloc(f32[n, 19])
    for i in range(n):
        for j in range(19):
            with block("t", vi=spatial(n, i), vj=spatial(19, j)):
                t[vi, vj] = x[vi, vj] * 2.0 + 1.0
    for i2 in range(n):
        for j2 in range(19):
            with block("y", vi2=spatial(n, i2), vj2=spatial(19, j2)):
                y[vi2, vj2] = select(t[vi2, vj2] > 0.0, t[vi2, vj2], 3.0)
""",
]


def draw(rng, schedule):
    """One random step; most are legal somewhere."""
    names = [loop.var.name for loop in loops(schedule.function.body)]
    made = [block.name for block in blocks(schedule.function.body)]
    loop, block = rng.choice(names), rng.choice(made)
    step = rng.choice(STEPS)
    args = {
        "split": (loop, (None, rng.choice([2, 3, 4, 8, 16]))),
        "fuse": tuple(names[:2]),
        "reorder": tuple(rng.sample(names, min(2, len(names)))),
        "partition": (loop, rng.choice([2, 4, 16])),
        "decompose_reduction": (block, loop),
        "rfactor": (block, loop),
        "cache_write": (block, loop),
    }
    schedule.apply(step, *args.get(step, (loop,)))


def arrays(function, n, seed):
    rng = np.random.default_rng(seed)
    for param in function.params:
        shape = [
            int(e.value) if isinstance(e, Const) else n for e in param.buffer.shape
        ]
        yield rng.integers(-4, 5, shape).astype(param.buffer.dtype.numpy)


def fenced(array):
    """A copy of an array between two margins, and all of that memory."""
    memory = np.full(array.nbytes + 2 * MARGIN, 171, np.uint8)
    inner = memory[MARGIN : MARGIN + array.nbytes].view(array.dtype)
    copy = inner.reshape(array.shape)
    copy[...] = array
    return copy, memory


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules(build, seed):
    rng = random.Random(seed)
    function = parse(PROGRAMS[seed % len(PROGRAMS)])
    schedule = Schedule(function)
    for _ in range(rng.randint(2, 7)):
        try:
            draw(rng, schedule)
        except ScheduleError:
            continue
    kernel = build(schedule.function)
    text = show(schedule.function)
    for n in (0, 1, 17):
        want = list(arrays(function, n, seed))
        copies = [fenced(array) for array in want]
        run(function, *want)
        kernel(*(copy for copy, _ in copies), n=n, team=3)
        for (copy, memory), meant in zip(copies, want, strict=True):
            np.testing.assert_array_equal(copy, meant, err_msg=text)
            edges = np.concatenate([memory[:MARGIN], memory[-MARGIN:]])
            assert (edges == 171).all(), text
