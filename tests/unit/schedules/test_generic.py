"""The generic schedule: any program keeps its meaning; stages go by kind."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tensorlang import targets
from tensorlang.errors import ArgumentError
from tensorlang.ir import (
    adjoint,
    argmax,
    compute,
    function,
    intrinsic,
    parse,
    placeholder,
    reduce_axis,
    run,
    select,
    show,
    size,
    sum,
)
from tensorlang.ir.contents import loops
from tensorlang.schedules.generic import generic
from tensorlang.schedules.library import schedules_for
from tensorlang.schedules.stages import kind_of, stages
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import enclosing_loops, find_block

TARGET = targets.Target(threads=2, vector_bits=512, vector_registers=32)
MACHINE = Path(__file__).parents[2] / "data/machines/zen5.json"


def scheduled(func, **pinned):
    s = Schedule(func, TARGET)
    generic(s, Knobs(pinned=pinned))
    return s


def test_random_programs_keep_their_meaning(programs):
    changed = []

    @seed(0)
    @settings(
        max_examples=150,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def check(data):
        case = data.draw(programs.nests())
        pinned = {
            "lanes": data.draw(st.sampled_from([8, 16])),
            "chunk": 16,
            "partials": data.draw(st.sampled_from([8, 16])),
            "rows": data.draw(st.sampled_from([1, 2, 4])),
        }
        made = scheduled(case.func, **pinned)
        changed.append(made.function != case.func)
        programs.sound(made.function, case, programs.outcomes(case.func, case))

    check()
    assert len(changed) >= 150
    assert changed.count(True) >= 100


def matmul(m, n, k, *, transposed=True):
    x = placeholder((m, k), "f32", "x")
    w = placeholder((n, k) if transposed else (k, n), "f32", "w")
    r = reduce_axis(k, "k")

    def value(i, j):
        return sum(x[i, r] * (w[j, r] if transposed else w[r, j]), r)

    return function("matmul", [x, w], [compute((m, n), value, "y")])


def elementwise(*shape):
    x, z = placeholder(shape, "f32", "x"), placeholder(shape, "f32", "z")
    y = compute(shape, lambda i, j: x[i, j] * z[i, j] + 1.0, "y")
    return function("elementwise", [x, z], [y])


def row_sums(m, n):
    x, k = placeholder((m, n), "f32", "x"), reduce_axis(n, "k")
    return function("row_sums", [x], [compute((m,), lambda i: sum(x[i, k], k), "y")])


def row_argmax(m, n):
    x, k = placeholder((m, n), "f32", "x"), reduce_axis(n, "k")
    pair = compute((m,), lambda i: argmax(x[i, k], k.var, k), ("top", "at"))
    return function("row_argmax", [x], list(pair))


def column_sums(m, n):
    x, k = placeholder((m, n), "f32", "x"), reduce_axis(m, "k")
    y = compute((n,), lambda j: sum(x[k, j], k), "y")
    return function("column_sums", [x], [y])


def total(n):
    x, k = placeholder((n,), "f32", "x"), reduce_axis(n, "k")
    return function("total", [x], [compute((), lambda: sum(x[k], k), "y")])


def variance(m, n):
    x, k = placeholder((m, n), "f32", "x"), reduce_axis(n, "k")
    r = reduce_axis(n, "r")
    s = compute((m,), lambda i: sum(x[i, k], k), "s")
    d = compute((m, n), lambda i, j: x[i, j] - s[i] / float(n), "d")
    y = compute((m,), lambda i: sum(d[i, r] * d[i, r], r), "y")
    return function("variance", [x], [y])


@pytest.mark.parametrize(
    ("func", "kinds"),
    [
        (elementwise(3, 4), ["injective"]),
        (row_sums(3, 4), ["reduction"]),
        (row_argmax(3, 4), ["reduction"]),
        (matmul(3, 4, 5), ["contraction"]),
        (variance(3, 4), ["reduction", "injective", "reduction"]),
    ],
)
def test_kinds_of_stages(func, kinds):
    assert [kind_of(stage) for stage in stages(func)] == kinds


@pytest.mark.parametrize(
    "text",
    [
        """
def scan(x: f32[9], y: Out[f32[9]]):
    s = alloc(f32[1])
    s[0] = 0.0
    for i in range(9):
        with block("y", vi=ordered(9, i)):
            s[0] = s[0] + x[vi]
            y[vi] = s[0]
""",
        """
def bare(x: f32[9], y: Out[f32[9]]):
    for i in range(9):
        y[i] = x[i]
""",
    ],
)
def test_what_is_not_recognised_stays(text):
    func = parse(text)
    assert scheduled(func).function == func


GOLDENS = {
    "elementwise": elementwise(100, 1000),
    "row_sums": row_sums(100, 1003),
    "column_sums": column_sums(1000, 100),
    "total": total(1_000_000),
    "contraction": matmul(30, 50, 70),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_generic_schedule_text(golden, monkeypatch, name):
    monkeypatch.setenv("TENSORLANG_MACHINE", str(MACHINE))
    golden(show(scheduled(GOLDENS[name]).function) + "\n")


def test_symbolic_sizes_stream(programs):
    n = size("n")
    x = placeholder((n, 3), "f32", "x")
    func = function("f", [x], [compute((n, 3), lambda i, j: x[i, j] + 1.0, "y")])
    made = scheduled(func, lanes=8, chunk=16)
    text = show(made.function)
    assert "parallel" in text
    assert "vectorized(8)" in text
    case = programs.Case(func, ({"n": 1}, {"n": 43}, {"n": 200}))
    programs.sound(made.function, case, programs.outcomes(func, case))


def test_sums_over_several_loops_of_any_length_have_lanes_along_rows(programs):
    m, n = size("m"), size("n")
    x = placeholder((8, m, n), "f32", "x")
    j, k = reduce_axis(m, "j"), reduce_axis(n, "k")
    func = function("f", [x], [compute((8,), lambda i: sum(x[i, j, k], (j, k)), "y")])
    made = scheduled(func, partials=8)
    assert re.search(r"for k_\d+ in vectorized\(8\)", show(made.function))
    assert "parallel" in show(made.function)
    case = programs.Case(func, ({"m": 1, "n": 3}, {"m": 3, "n": 8}, {"m": 2, "n": 21}))
    programs.sound(made.function, case, programs.outcomes(func, case))


def test_short_loops_whose_iterations_are_told_apart_are_unrolled(programs):
    n = size("n")
    x = placeholder((4, n), "f32", "x")

    def element(i, gate, j):
        first = intrinsic("exp", x[i, j])
        return select(gate.equal(0), first, select(gate.equal(1), x[i, j], 0.0))

    func = function("f", [x], [compute((4, 3, n), element, "y")])
    made = scheduled(func)
    assert re.search(r"for gate in unrolled\(3\):\n +for j_1", show(made.function))
    case = programs.Case(func, ({"n": 3}, {"n": 16}, {"n": 37}))
    programs.sound(made.function, case, programs.outcomes(func, case))


@pytest.mark.parametrize(
    ("gathered", "kinds"),
    [(0, ["parallel", "serial", "vectorized"]), (1, ["parallel", "serial"])],
)
def test_what_is_apart_from_ordered_loops_is_parallel(programs, gathered, kinds):
    """Gradients of gathers: strips of columns, or rows, to threads."""
    shape = (90, 64)
    x, ids = placeholder(shape, "f32", "x"), placeholder(shape, "i64", "ids")

    def element(i, j):
        at = [i, j]
        at[gathered] = ids[at[gathered], 0] % shape[gathered]
        return x[tuple(at)]

    dy = placeholder(shape, "f32", "dy")
    (dx,) = adjoint([compute(shape, element, "y")], [dy], [x], ["dx"])
    func = function("f", [dy, ids], [dx])
    made = scheduled(func).function
    assert [loop.kind for loop in enclosing_loops(find_block(made, "dx_0"))] == kinds
    case = programs.Case(func, ({},))
    programs.sound(made, case, programs.outcomes(func, case))


def test_cheap_producers_are_inlined_and_dear_ones_are_not():
    assert "d = alloc" not in show(scheduled(variance(8, 64)).function)
    x = placeholder((8, 64), "f32", "x")
    e = compute((8, 64), lambda i, j: intrinsic("exp", x[i, j]), "e")
    y = compute((8, 64), lambda i, j: e[i, j] + e[i, (j + 1) % 64], "y")
    assert "e = alloc" in show(scheduled(function("f", [x], [y])).function)


def test_pinned_knobs_are_obeyed():
    made = scheduled(matmul(64, 64, 64), rows=4, vectors=3)
    assert 'alloc(f32[4, 48], scope="register")' in show(made.function)
    knobs = Knobs()
    generic(Schedule(matmul(64, 64, 64), TARGET), knobs)
    blocks = {"blocks", "block_strips", "block_tiles", "block_depth", "strips_first"}
    tile = {"rows", "vectors", "lanes_along"}
    assert knobs.domains.keys() == tile | blocks | {"packing", "rows_packed"}


def test_pinned_knobs_out_of_their_domain_are_refused():
    """Instead of a simpler schedule, which would hide the mistake."""
    with pytest.raises(ArgumentError, match=r"knob 'rows' is one of .*, not 99"):
        scheduled(matmul(64, 64, 64), rows=99)


def test_a_sliding_window_has_its_results_in_lanes():
    x, k = placeholder((9, 100), "f32", "x"), reduce_axis(5, "k")
    sums = compute((9, 96), lambda i, j: sum(x[i, j + k], k), "y")
    text = show(scheduled(function("windows", [x], [sums])).function)
    assert re.search(r"for j_1 in vectorized.*\n.*block", text)


def test_scheduled_stages_run_without_a_fault():
    import numpy as np

    x = np.arange(6 * 100, dtype=np.float32).reshape(6, 100) % 7
    out = np.zeros(6, np.float32)
    run(scheduled(variance(6, 100), partials=16).function, x, out)
    np.testing.assert_allclose(out, x.var(1) * 100, rtol=1e-5)


def test_loops_of_both_cases_are_bound():
    func = parse("""
def f(x: f32[n, n], y: InOut[f32[n, n]], *, n: i64):
    if n > 4:
        for i in range(n):
            for j in range(i):
                with block("y", vi=spatial(n, i), vj=spatial(n, j)):
                    y[vi, vj] = x[vi, vj]
    else:
        for i_1 in range(n):
            for j_1 in range(i_1):
                with block("y_1", vi=spatial(n, i_1), vj=spatial(n, j_1)):
                    y[vi, vj] = x[vj, vi]
""")
    (entry,) = schedules_for("generic", "direct", "simt")
    made = entry.run(func, targets.get("cuda:sm_80")).function
    bound = Counter(loop.thread for loop in loops(made) if loop.thread)
    assert bound == {"block.x": 2, "thread.x": 2}
