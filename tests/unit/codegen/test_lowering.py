"""Each pass on a small nest: the text it leaves, and that it still means the same."""

import numpy as np
import pytest

from tensorlang.codegen.lower import lower
from tensorlang.codegen.simt import lower as simt
from tensorlang.errors import CodegenError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.targets import Target

TARGET = Target(features=("fma",), threads=4, vector_bits=512, vector_registers=32)


def lowered(program, golden=None):
    function = lower(parse(program), TARGET)
    text = show(function)
    assert parse(text) == function
    verify(function)
    if golden is not None:
        golden(text)
    return function


def same(program, *arrays, golden=None, scalars=None):
    """Lowered code, run by one thread, leaves the same bits in every array."""
    function = lowered(program, golden)
    want = [array.copy() for array in arrays]
    got = [array.copy() for array in arrays]
    scalars = scalars or {}
    run(parse(program), *want, **scalars)
    run(function, *(array.reshape(-1) for array in got), tid=0, team=1, **scalars)
    for mine, meant in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, meant)


def whole(*shape):
    """Small whole numbers as f32: their sums are exact in any order."""
    rng = np.random.default_rng(3)
    return rng.integers(-4, 5, shape).astype(np.float32)


def test_init_goes_before_the_outermost_reduction_loop(golden):
    same(
        """
def f(x: f32[6, 40], w: f32[40, 24], y: Out[f32[6, 24]]):
    for k0 in range(5):
        for i in range(6):
            for j in range(24):
                for k1 in range(8):
                    with block("dot", vi=spatial(6, i), vj=spatial(24, j),
                               vk=reduction(40, k0 * 8 + k1)):
                        reduce(sum, y[vi, vj], x[vi, vk] * w[vk, vj])
""",
        whole(6, 40),
        whole(40, 24),
        np.zeros((6, 24), np.float32),
        golden=golden,
    )


def test_only_the_first_part_of_a_cut_reduction_sets_its_state(golden):
    same(
        """
def f(x: f32[6, 40], y: Out[f32[6]]):
    for i in range(6):
        for k0 in range(32):
            with block("main", vi=spatial(6, i), vk=reduction(40, k0)):
                reduce(sum, y[vi], x[vi, vk])
        for k1 in range(8):
            with block("tail", vj=spatial(6, i), vl=reduction(40, 32 + k1)):
                reduce(sum, y[vj], x[vj, vl])
""",
        whole(6, 40),
        np.zeros(6, np.float32),
        golden=golden,
    )


def test_a_cut_at_a_size_sets_the_state_once(golden):
    same(
        """
def f(x: f32[3, n], y: Out[f32[3]], *, n: i64):
    for i in range(3):
        for k0 in range(n // 8 * 8):
            with block("main", vi=spatial(3, i), vk=reduction(n, k0)):
                reduce(sum, y[vi], x[vi, vk])
        for k1 in range(n % 8):
            with block("tail", vj=spatial(3, i), vl=reduction(n, n // 8 * 8 + k1)):
                reduce(sum, y[vj], x[vj, vl])
""",
        whole(3, 21),
        np.zeros(3, np.float32),
        golden=golden,
        scalars={"n": 21},
    )


def test_a_loop_that_is_spatial_and_reduced_guards_the_init(golden):
    same(
        """
def f(x: f32[6, 40], y: Out[f32[6]]):
    for f0 in range(30):
        for f1 in range(8):
            with block("sum", vi=spatial(6, (f0 * 8 + f1) // 40),
                       vk=reduction(40, (f0 * 8 + f1) % 40)):
                reduce(sum, y[vi], x[vi, vk])
""",
        whole(6, 40),
        np.zeros(6, np.float32),
        golden=golden,
    )


def test_guards_of_the_point_stay_with_the_init(golden):
    same(
        """
def f(x: f32[7, 21], y: Out[f32[7]]):
    for k0 in range(3):
        for i0 in range(2):
            for i1 in range(4):
                for k1 in range(8):
                    with block("sum", vi=spatial(7, i0 * 4 + i1),
                               vk=reduction(21, k0 * 8 + k1),
                               where=(i0 * 4 + i1 < 7) & (k0 * 8 + k1 < 21)):
                        reduce(sum, y[vi], x[vi, vk])
""",
        whole(7, 21),
        np.zeros(7, np.float32),
        golden=golden,
    )


def test_fused_vectorized_rows(golden):
    same(
        """
def f(x: f32[6, 40], y: Out[f32[6, 40]]):
    for f0 in range(15):
        for v in vectorized(16):
            with block("b", vi=spatial(6, (f0 * 16 + v) // 40),
                       vj=spatial(40, (f0 * 16 + v) % 40)):
                y[vi, vj] = x[vi, vj] * 2.0
""",
        whole(6, 40),
        np.zeros((6, 40), np.float32),
        golden=golden,
    )


def test_a_packed_layout_is_applied(golden):
    same(
        """
def f(w: f32[50, 12], y: Out[f32[12, 50]]):
    p = alloc(f32[50, 12], layout=lambda n, k: (n // 16, k, n % 16))
    for n in range(50):
        for k in range(12):
            p[n, k] = w[n, k]
    for k1 in range(12):
        for n1 in range(50):
            y[k1, n1] = p[n1, k1]
""",
        whole(50, 12),
        np.zeros((12, 50), np.float32),
        golden=golden,
    )


def test_lane_reduction_keeps_one_partial_result_a_lane(golden):
    same(
        """
def f(x: f32[6, 40], y: Out[f32[6]]):
    for i in range(6):
        for k0 in range(3):
            for k1 in vectorized(16):
                with block("sum", vi=spatial(6, i), vk=reduction(40, k0 * 16 + k1),
                           where=k0 * 16 + k1 < 40):
                    reduce(sum, y[vi], x[vi, vk])
""",
        whole(6, 40),
        np.zeros(6, np.float32),
        golden=golden,
    )


def test_tuple_states_fold_across_lanes(golden):
    same(
        """
def f(x: f32[6, 16], y: Out[f32[6]], p: Out[i64[6]]):
    for i in range(6):
        for k in vectorized(4):
            with block("am", vi=spatial(6, i), vk=reduction(16, k)):
                reduce(argmax, (y[vi], p[vi]), (x[vi, vk], vk))
""",
        whole(6, 16)[:, ::-1].copy(),
        np.zeros(6, np.float32),
        np.zeros(6, np.int64),
        golden=golden,
    )


def test_unrolled_copies_get_names_of_their_own(golden):
    same(
        """
def f(x: f32[8], y: Out[f32[8]]):
    for i in range(4):
        for u in unrolled(2):
            h: f32 = x[i * 2 + u] * 2.0
            t = alloc(f32[1], scope="register")
            t[0] = h
            if u == 0:
                y[i * 2 + u] = t[0]
            else:
                y[i * 2 + u] = t[0] + h
""",
        whole(8),
        np.zeros(8, np.float32),
        golden=golden,
    )


def test_masks_and_tiles_of_a_vectorized_body(golden):
    same(
        """
def f(x: f32[30], y: Out[f32[30]]):
    for i in range(2):
        for v in vectorized(16):
            if i * 16 + v < 30:
                t = alloc(f32[2], scope="register")
                for k in range(2):
                    t[k] = x[i * 16 + v] * cast(f32, k + 1)
                h: f32 = t[0] + t[1]
                if h > 0.0:
                    y[i * 16 + v] = h
                else:
                    y[i * 16 + v] = 0.0
""",
        whole(30),
        np.zeros(30, np.float32),
        golden=golden,
    )


@pytest.mark.parametrize("largest", [1.0, 1e6, np.inf])
def test_what_few_lanes_need_stands_under_a_branch(largest):
    program = """
def f(x: f32[30], y: Out[f32[30]]):
    for v in vectorized(16):
        y[v] = sin(x[v])
    for v in vectorized(16):
        if v < 14:
            y[v + 16] = cos(x[v + 16])
"""
    x = whole(30)
    x[[3, 20, 29]] = largest, -largest, np.nan
    same(program, x, np.zeros(30, np.float32))
    assert show(lowered(program)).count('if lane_reduce("or", ') == 2


def test_stores_that_fill_each_others_gaps_are_joined(golden):
    same(
        """
def f(x: u32[32], y: Out[u32[64]]):
    for i in range(2):
        for v in vectorized(16):
            a: u32 = x[i * 16 + v] + u32(1)
            y[(i * 16 + v) * 2] = a
            y[(i * 16 + v) * 2 + 1] = a ^ u32(7)
""",
        np.arange(32, dtype=np.uint32),
        np.zeros(64, np.uint32),
        golden=golden,
    )


def test_loads_that_fill_each_others_gaps_are_joined(golden):
    same(
        """
def f(x: u32[64], y: Out[u32[32]], z: InOut[u32[64]]):
    for i in range(2):
        for v in vectorized(16):
            y[i * 16 + v] = x[(i * 16 + v) * 2 + 1] - x[(i * 16 + v) * 2]
            z[(i * 16 + v) * 2 + 1] = z[(i * 16 + v) * 2] + u32(1)
""",
        np.arange(64, dtype=np.uint32) ** 2,
        np.zeros(32, np.uint32),
        np.arange(64, dtype=np.uint32),
        golden=golden,
    )


def test_what_is_read_backwards_is_read_forwards_and_turned_round(golden):
    same(
        """
def f(x: f32[40], y: Out[f32[32]], z: InOut[f32[64]]):
    for i in range(2):
        for v in vectorized(16):
            y[i * 16 + v] = x[39 - (i * 16 + v)]
            z[i * 16 + v] = z[63 - (i * 16 + v)] + 1.0
""",
        np.arange(40, dtype=np.float32),
        np.zeros(32, np.float32),
        np.arange(64, dtype=np.float32),
        golden=golden,
    )


def test_every_third_element_is_taken_from_vectors_side_by_side(golden):
    same(
        """
def f(x: f32[49], y: Out[f32[16]]):
    for i in range(2):
        for v in vectorized(8):
            y[i * 8 + v] = x[(i * 8 + v) * 3 + 1]
""",
        np.arange(49, dtype=np.float32),
        np.zeros(16, np.float32),
        golden=golden,
    )


STAGES = """
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    s = alloc(f32[1])
    for i in parallel(n):
        t[i] = x[i] * 2.0
    for i1 in range(n):
        with block("b", vi=reduction(n, i1)):
            reduce(sum, s[0], t[vi])
    for r in range(2):
        for i2 in parallel(n):
            y[i2] = t[i2] - s[0]
        for i3 in parallel(n):
            t[i3] = y[n - 1 - i3]
"""


def test_barriers_stand_where_stages_depend(golden):
    same(STAGES, whole(9), np.zeros(9, np.float32), golden=golden, scalars={"n": 9})


def test_threads_share_a_parallel_loop():
    program = """
def f(x: f32[11, 5], y: Out[f32[11]]):
    for i in parallel(11):
        for k in range(5):
            with block("b", vi=spatial(11, i), vk=reduction(5, k)):
                reduce(sum, y[vi], x[vi, vk])
"""
    function, x = lowered(program), whole(11, 5)
    for team in (1, 3, 16):
        y = np.zeros(11, np.float32)
        for tid in range(team):
            part = np.zeros(11, np.float32)
            run(function, x.reshape(-1), part, tid=tid, team=team, checks=frozenset())
            y += part
        np.testing.assert_array_equal(y, x.sum(1))


def test_work_without_parallel_loops_is_thread_zeros():
    program = """
def f(y: InOut[f32[4]]):
    for i in range(4):
        y[i] = y[i] + 1.0
"""
    function = lowered(program)
    for tid, want in ((0, 1.0), (1, 0.0)):
        y = np.zeros(4, np.float32)
        run(function, y, tid=tid, team=2)
        np.testing.assert_array_equal(y, np.full(4, want, np.float32))


def test_names_of_lowering_are_free_for_others():
    program = """
def f(team: f32[n], y: Out[f32[n]], *, n: i64, tid: i64):
    for useful_threads in parallel(n):
        y[useful_threads] = team[useful_threads] + cast(f32, tid)
"""
    function = lowered(program)
    assert [scalar.name for scalar in function.scalars] == ["n", "tid_1", "tid", "team"]
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for tid in range(2):
        run(function, x, y, tid_1=3, tid=tid, team=2)
    np.testing.assert_array_equal(y, x + 3)


def test_loops_bound_to_gpu_indices_are_refused():
    program = """
def f(y: Out[f32[4]]):
    for i in bound(4, "thread.x"):
        y[i] = 1.0
"""
    with pytest.raises(CodegenError, match=r"loop i is bound to thread\.x"):
        lower(parse(program), TARGET)


def test_scratch_between_the_teams_loops_is_shared(golden):
    same(
        """
def f(x: f32[6], y: Out[f32[6]]):
    s = alloc(f32[1], scope="register")
    for k in range(6):
        with block("sum", vo=spatial(1, 0), vk=reduction(6, k)):
            reduce(sum, s[vo], x[vk])
    h: f32 = s[0] * 2.0
    for i in parallel(6):
        y[i] = x[i] + h
""",
        whole(6),
        np.zeros(6, np.float32),
        golden=golden,
    )


def test_a_parallel_loop_that_never_runs():
    program = """
def f(y: InOut[f32[2]], *, n: i64):
    for i in parallel(n - 3):
        y[i] = 1.0
"""
    function, y = lowered(program), np.zeros(2, np.float32)
    for tid in range(3):
        run(function, y, n=1, tid=tid, team=3)
    assert not y.any()


@pytest.mark.parametrize(
    ("way", "target"),
    [(lower, TARGET), (simt.lower, Target(kind="opencl", device="a GPU"))],
)
def test_approximations_of_cuda_are_refused_elsewhere(way, target):
    program = parse("""
def f(x: f32[8], y: Out[f32[8]]):
    for i in range(8):
        y[i] = approximate_exp2(x[i])
""")
    with pytest.raises(CodegenError, match=r"approximate_exp2: .* CUDA GPUs, which"):
        way(program, target)
