"""Costs: operations where they are done, bytes that must move."""

from __future__ import annotations

import pytest

from tensorlang.errors import IRError
from tensorlang.ir import cost as costs
from tensorlang.ir.cost import cost, cost_at
from tensorlang.ir.text.parser import parse
from tensorlang.ops import find

DENSE = """
def dense(x: f32[n, k], w: f32[m, k], y: Out[f32[n, m]], *, n: i64, m: i64, k: i64):
    for i in range(n):
        for j in range(m):
            for l in range(k):
                with block("y", a=spatial(n, i), b=spatial(m, j), c=reduction(k, l)):
                    with init():
                        y[a, b] = 0.0
                    reduce(sum, y[a, b], x[a, c] * w[b, c])
"""

SOFTMAX = """
def softmax(x: f32[n, k], y: Out[f32[n, k]], *, n: i64, k: i64):
    top = alloc(f32[n])
    total = alloc(f32[n])
    for i in range(n):
        for j in range(k):
            with block("top", a=spatial(n, i), b=reduction(k, j)):
                with init():
                    top[a] = f32("-inf")
                reduce(max, top[a], x[a, b])
    for i in range(n):
        for j in range(k):
            with block("total", a=spatial(n, i), b=reduction(k, j)):
                with init():
                    total[a] = 0.0
                reduce(sum, total[a], exp(x[a, b] - top[a]))
    for i in range(n):
        for j in range(k):
            with block("y", a=spatial(n, i), b=spatial(k, j)):
                y[a, b] = exp(x[a, b] - top[a]) / total[a]
"""


def at(text: str, **sizes: int) -> tuple[int, int, int, int]:
    return cost(parse(text)).at(sizes)


@pytest.mark.parametrize("guard", ["n - i * 4", "i + 1"])
def test_inner_loops_may_be_as_long_as_outer_ones_say(guard: str) -> None:
    func = parse(f"""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range((n + 3) // 4):
        for t in range(i + 2):
            for j in range(min({guard}, 4)):
                with block("y", a=spatial(n, i * 4 + j), b=reduction(n, t)):
                    reduce(sum, y[a], x[b] * x[a])
""")
    runs = sum(
        min(10 - i * 4 if "n" in guard else i + 1, 4) * (i + 2) for i in range(3)
    )
    assert cost_at(func, {"n": 10}) == (2 * runs, 0, 40, 40)
    with pytest.raises(IRError, match="sizes that were not given"):
        cost(func).at({"n": 10})


def test_loops_as_long_as_data_say_have_no_known_work() -> None:
    func = parse("""
def f(ends: i64[4], x: f32[9], y: Out[f32[4]]):
    for i in range(4):
        for t in range(ends[i]):
            with block("y", a=spatial(4, i), b=reduction(9, t)):
                reduce(sum, y[a], x[b])
""")
    with pytest.raises(IRError, match="depends"):
        cost_at(func, {})


def test_attention_by_blocks_does_the_work_of_the_keys_that_are_seen() -> None:
    op = find("nn.attention")

    def floats(**attributes: object) -> int:
        workload = op.workload(*((2, 4, 128, 32),) * 3, **attributes)
        return cost_at(op.function(workload, "online"), op.sizes(workload))[0]

    products = 2 * 2 * 2 * 4 * 128 * 128 * 32
    assert products < floats() < 1.2 * products
    assert 0.7 * floats() < floats(causal=True) < 0.8 * floats()  # of four blocks three


@pytest.mark.parametrize("n", [1025, 3000, 10**9])
def test_triangles_of_any_length_have_a_known_work(n: int) -> None:
    triangle = parse("""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        for j in range(i + 1):
            y[i] = x[i] * x[j]
""")
    assert cost_at(triangle, {"n": n})[0] == pytest.approx(n * (n + 1) // 2, rel=1e-5)
    rest = parse("""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range((n + 3) // 4):
        for j in range(min(n - i * 4, 4)):
            y[i * 4 + j] = x[i * 4 + j] * x[j]
""")
    assert cost_at(rest, {"n": n})[0] == pytest.approx(n, rel=1e-4)


def test_few_iterations_of_a_deep_nest_are_counted(monkeypatch) -> None:
    counted = []
    inside = costs._statement
    monkeypatch.setattr(
        costs, "_statement", lambda *args: counted.append(1) or inside(*args)
    )
    pyramid = parse("""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        for j in range(i + 1):
            for k in range(j + 1):
                y[i] = x[k] * x[j]
""")
    n = 10_000
    work = n * (n + 1) * (n + 2) // 6
    assert cost_at(pyramid, {"n": n})[0] == pytest.approx(work, rel=0.01)
    assert len(counted) < 4 * 1024


def test_long_causal_attention_does_half_of_the_work() -> None:
    op = find("nn.attention")

    def floats(**attributes: object) -> int:
        workload = op.workload(*((1, 1, 65_600, 64),) * 3, **attributes)
        return cost_at(op.function(workload, "online"), op.sizes(workload))[0]

    assert floats(causal=True) == pytest.approx(floats() / 2, rel=0.01)


def test_a_dense_product_is_two_operations_a_term() -> None:
    floats, integers, read, written = at(DENSE, n=5, m=7, k=11)
    assert floats == 2 * 5 * 7 * 11
    assert integers == 0
    assert (read, written) == (4 * (5 * 11 + 7 * 11), 4 * 5 * 7)


def test_a_softmax_is_a_max_two_differences_two_exps_a_sum_and_a_quotient() -> None:
    floats, _, read, written = at(SOFTMAX, n=3, k=10)
    assert floats == 7 * 3 * 10
    assert read == written == 4 * 3 * 10


def test_the_cost_stays_an_expression_in_the_sizes() -> None:
    counted = cost(parse(DENSE))
    assert counted.at({"n": 1, "m": 1, "k": 1})[0] == 2
    with pytest.raises(IRError, match=r"sizes that were not given: .*k"):
        counted.at({"n": 2, "m": 2})


@pytest.mark.parametrize(
    ("value", "operations"),
    [
        ("s * s", 1),  # with no loop: once
        ("a[i] * s", 10),  # with the outer loop
        ("a[i] * s + b[j]", 10 + 10 * 20),  # its product is ready outside of the inner
        ("b[j] * s", 10 * 20),  # the outer loop is around the inner
        ("y[i, j] * s", 10 * 20),  # what is written may be another each time
    ],
)
def test_an_operation_counts_in_the_loops_it_varies_with(
    value: str, operations: int
) -> None:
    text = f"""
def f(a: f32[10], b: f32[20], y: InOut[f32[10, 20]], *, s: f32):
    for i in range(10):
        for j in range(20):
            y[i, j] = {value}
"""
    assert at(text)[0] == operations


def test_names_and_axes_vary_with_what_they_stand_for() -> None:
    text = """
def f(a: u32[10], y: Out[u32[10, 20]], *, s: u32):
    for i in range(10):
        for j in range(20):
            with block("y", vi=spatial(10, i), vj=spatial(20, j)):
                t: u32 = s + u32(1)
                v: u32 = a[vi] * t
                y[vi, vj] = v ^ cast(u32, vj)
"""
    assert at(text)[1] == 1 + 10 + 10 * 20


def test_a_threefry_element_is_73_integer_operations() -> None:
    """Of one word in JAX's stream, with 20 rounds of add, rotation and xor.

    Five times the key is added to both words: 10. The first counter word is index + low
    + key: 2; the other is the same for all elements. The two words are folded: 1. What
    depends on the key alone (its parity, its sums with round numbers) is done once.
    """
    op = find("random.bits")
    counted = op.cost((1000,))
    few, many = (counted.at({"n0": n})[1] for n in (1000, 2000))
    assert many - few == 1000 * (20 * 3 + 5 * 2 + 2 + 1)
    assert few - 73_000 < 10


def test_the_packed_stream_yields_two_words_a_hash() -> None:
    op = find("random.bits")
    few, many = (op.cost((n,), stream="packed").at({"n0": n})[1] for n in (1000, 2000))
    assert many - few == 500 * 72


def test_a_fused_multiply_add_is_two_operations_and_lanes_count() -> None:
    text = """
def f(x: f32[8], y: Out[f32[8]]):
    y[ramp(0, 1, 8)] = fma(x[ramp(0, 1, 8)], x[ramp(0, 1, 8)], splat(1.0, 8))
"""
    assert at(text.replace("1.0", "f32(1.0)"))[0] == 16
