"""Reductions that the threads of a block do together: right, and free of races."""

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import CodegenError, InterpreterError, ScheduleError
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Barrier, Seq, seq
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import transform, walk
from tensorlang.scheduling import Schedule
from tensorlang.targets import get

GPU = get("cuda:sm_80")
PLAIN_GPU = replace(GPU, features=())  # lanes of a warp exchange nothing
TARGETS = pytest.mark.parametrize("target", [GPU, PLAIN_GPU], ids=["warps", "tree"])
PLAIN = """
def fold(x: {t}[m, {n}], y: Out[{t}[m]], *, m: i64):
    for i in range(m):
        for k in range({n}):
            with block("y", vi=spatial(m, i), vk=reduction({n}, k)):
                reduce({name}, y[vi], x[vi, vk])
"""
SEVERAL = """
def fold(x: f32[m, {n}], {outs}, *, m: i64):
    for i in range(m):
        for k in range({n}):
            with block("y", vi=spatial(m, i), vk=reduction({n}, k)):
                reduce({name}, ({states}), ({values}))
"""
ROWS = """
def rows(x: f32[m, 48], y: Out[f32[m, 48]], *, m: i64):
    total = alloc(f32[m])
    for i in range(m):
        for k in range(48):
            with block("total", vi=spatial(m, i), vk=reduction(48, k)):
                reduce(sum, total[vi], x[vi, vk])
    for j in range(m):
        for c in range(48):
            with block("y", wi=spatial(m, j), wk=spatial(48, c)):
                y[wi, wk] = x[wi, wk] / total[wi]
"""
RNG = np.random.default_rng(3)


def scheduled(text, threads=32, rows=1, lanes=1):
    s = Schedule(parse(text), GPU)
    outer, row = s.split("i", [None, rows])
    k, thread, lane = s.split("k", [None, threads, lanes])
    s.reorder(thread, k, lane)
    s.bind(outer, "block.x")
    s.bind(row, "thread.y")
    s.bind(thread, "thread.x")
    s.vectorize(lane)
    return s


def both(func, *arrays, target=GPU, **scalars):
    """Run as scheduled and as lowered; the second report."""
    run(func, *arrays, **scalars)
    kept = [array.copy() for array in arrays]
    for array in arrays[1:]:
        array[...] = 0
    report = run(lower(func, target), *(a.reshape(-1) for a in arrays), **scalars)
    for array, before in zip(arrays, kept, strict=True):
        # sums of numbers near 1 that cancel, added in another order
        np.testing.assert_allclose(array, before, rtol=1e-5, atol=1e-5)
    return report


@TARGETS
@pytest.mark.parametrize("threads", [1, 2, 8, 32, 64, 96])
@pytest.mark.parametrize("n", [1, 37, 100])
def test_sums_of_any_length_by_any_number_of_threads(threads, n, target):
    s = scheduled(PLAIN.format(t="f32", n=n, name="sum"), threads)
    x, y = RNG.normal(size=(3, n)).astype("f4"), np.zeros(3, "f4")
    both(s.function, x, y, m=3, target=target)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)


@TARGETS
@pytest.mark.parametrize(("rows", "threads"), [(1, 64), (2, 32), (3, 16), (4, 8)])
def test_several_rows_in_wide_loads(rows, threads, target):
    s = scheduled(PLAIN.format(t="f32", n=48, name="max"), threads, rows, 4)
    x, y = RNG.normal(size=(7, 48)).astype("f4"), np.zeros(7, "f4")
    report = both(s.function, x, y, m=7, target=target)
    np.testing.assert_array_equal(y, x.max(1))
    assert sum(report.bank_conflicts.values()) == 0


@TARGETS
@pytest.mark.parametrize("threads", [16, 32, 64])
def test_tuples(threads, target):
    x = RNG.normal(size=(2, 75)).astype("f4")
    outs = "a: Out[f32[m]], b: Out[i64[m]]"
    given = {"n": 75, "outs": outs, "states": "a[vi], b[vi]", "values": "x[vi, vk], vk"}
    s = scheduled(SEVERAL.format(name="argmax", **given), threads)
    a, b = np.zeros(2, "f4"), np.zeros(2, "i8")
    both(s.function, x, a, b, m=2, target=target)
    np.testing.assert_array_equal(b, x.argmax(1))

    given |= {"outs": "a: Out[f32[m]], b: Out[f32[m]]", "values": "x[vi, vk], 1.0"}
    s = scheduled(SEVERAL.format(name="logsumexp", **given), threads)
    a, b = np.zeros(2, "f4"), np.zeros(2, "f4")
    both(s.function, x, a, b, m=2, target=target)
    np.testing.assert_allclose(a + np.log(b), np.log(np.exp(x).sum(1)), rtol=1e-5)

    given |= {"outs": ", ".join(f"{c}: Out[f32[m]]" for c in "abc")}
    given |= {"states": "a[vi], b[vi], c[vi]", "values": "1.0, x[vi, vk], 0.0"}
    s = scheduled(SEVERAL.format(name="welford", **given), threads)
    a, b, c = (np.zeros(2, "f4") for _ in range(3))
    both(s.function, x, a, b, c, m=2, target=target)
    np.testing.assert_allclose(b, x.mean(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(c / a, x.var(1), rtol=1e-4)


def test_along_another_index():
    s = Schedule(parse(PLAIN.format(t="f32", n=40, name="sum")), GPU)
    blocks, column = s.split("i", [None, 32])
    groups, _ = s.split("k", [8, None])
    s.bind(blocks, "block.x")
    s.bind(column, "thread.x")
    s.bind(groups, "thread.y")
    x, y = RNG.normal(size=(50, 40)).astype("f4"), np.zeros(50, "f4")
    report = both(s.function, x, y, m=50)
    np.testing.assert_allclose(y, x.sum(1), rtol=1e-5, atol=1e-5)
    assert sum(report.bank_conflicts.values()) == 0


def rows_of(rows, threads):
    s = Schedule(parse(ROWS), GPU)
    (a, i), (b, j) = s.split("i", [None, rows]), s.split("j", [None, rows])
    s.merge(a, b)
    s.merge(i, j)
    s.store_at("total", i)
    for loop in ("k", "c"):
        step, thread = s.split(loop, [None, threads])
        s.reorder(thread, step)
        s.bind(thread, "thread.x")
    s.bind(a, "block.x")
    if rows > 1:
        s.bind(i, "thread.y")
    return s.function


@TARGETS
@pytest.mark.parametrize(("rows", "threads"), [(1, 16), (3, 8), (2, 32), (1, 64)])
def test_what_only_threads_read_is_a_register(rows, threads, target):
    func = rows_of(rows, threads)
    x, y = RNG.uniform(1, 2, size=(7, 48)).astype("f4"), np.zeros((7, 48), "f4")
    both(func, x, y, m=7, target=target)
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-5)
    scopes = {b.name: b.scope for b in allocations(lower(func, target))}
    assert scopes["total"] == scopes["total_part"] == "register"


@TARGETS
def test_each_barrier_is_needed(target):
    text = PLAIN.format(t="f32", n=100, name="sum")
    func = lower(scheduled(text, 96, 2).function, target)
    count = sum(isinstance(node, Barrier) for node in walk(func))
    assert count == (1 if target is GPU else 4)
    x, y = RNG.normal(size=(4, 100)).astype("f4"), np.zeros(4, "f4")
    for number in range(count):
        left = iter(range(count))

        def without(node, number=number, left=left):
            if not isinstance(node, Seq):
                return node
            kept = (
                stmt
                for stmt in node.stmts
                if not isinstance(stmt, Barrier) or next(left) != number
            )
            return seq(*kept)

        with pytest.raises(InterpreterError, match=r"written|race|read"):
            run(transform(func, without), x.reshape(-1), y, m=4)


def test_what_is_refused():
    s = Schedule(parse(PLAIN.format(t="f32", n=8, name="sum")), GPU)
    with pytest.raises(ScheduleError, match="iterations meet in one element"):
        s.bind("k", "block.x")
    text = ROWS.replace("48", "n").replace("m: i64", "m: i64, n: i64")
    with pytest.raises(ScheduleError, match="iterations meet in one element"):
        Schedule(parse(text), GPU).bind("k", "thread.x")
    mixed = """
def mixed(x: f32[8], y: Out[f32[()]], z: Out[f32[8]]):
    for k in bound(8, "thread.x"):
        with block("y", vk=reduction(8, k)):
            reduce(sum, y[()], x[vk])
        with block("z", wk=spatial(8, k)):
            z[wk] = x[wk]
"""
    with pytest.raises(CodegenError, match="contains other statements"):
        lower(parse(mixed), GPU)
