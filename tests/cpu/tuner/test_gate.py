"""The gate: what is right passes, what is nearly right does not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ShapeError, TuningError
from tensorlang.ir.definitions.frontend import compute, max, reduce_axis, sum
from tensorlang.ir.intrinsics import exp
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ops import (
    find,
    operator,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.operator import Operator
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.tuner.correctness import reference
from tensorlang.tuner.correctness.expected import differing, within
from tensorlang.tuner.correctness.gate import Gate, Wrong
from tensorlang.tuner.correctness.guarded import EDGES, Guarded
from tensorlang.tuner.correctness.ragged import KINDS, small_variants
from tensorlang.tuner.correctness.tolerance import reassociation, sums_ones
from tensorlang.tuner.correctness.widen import widened

FLOATS = ("f64", "f32", "f16", "bf16")


@operator("test_gate.row_sum")
def row_sum(x: Any) -> Any:
    k = reduce_axis(int(x.shape[1]), "k")  # split below as one length can be
    return compute((x.shape[0],), lambda i: sum(x[i, k], k), name="y")


@operator("test_gate.row_max")
def row_max(x: Any) -> Any:
    k = reduce_axis(int(x.shape[1]), "k")
    return compute((x.shape[0],), lambda i: max(x[i, k], k), name="y")


@operator("test_gate.double")
def double(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i] + x[i], name="y")


@operator("test_gate.invert")
def invert(x: Any) -> Any:
    return compute(x.shape, lambda i: ~x[i], name="y")


@operator("test_gate.exponential")
def exponential(x: Any) -> Any:
    return compute(x.shape, lambda i: exp(x[i]), name="y")


def split_up(op: Operator, *shape: int, dtype: str = "f32") -> tuple[Gate, Any]:
    """The gate, and the kernel of a reduction that eight partial ones make."""
    workload = op.workload(shape, dtypes=dtype)
    s = Schedule(op.function(workload), targets.host())
    (name,) = {loop for loop in s.loops("y") if loop.startswith("k")}
    _, inner = s.split(name, [None, 8])
    s.rfactor("y", inner)
    return Gate(op, workload, 0.0), build(s)


def ways(text: str, **replaced: str) -> Any:
    for old, new in replaced.items():
        text = text.replace(old, new)
    return build(parse(text))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_a_reduction_may_be_folded_in_another_order(dtype: str) -> None:
    gate, kernel = split_up(row_sum, 64, 1024, dtype=dtype)
    assert 0 <= gate.check(kernel, gate.full) <= 1


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_reduction_that_loses_a_term_is_wrong(dtype: str) -> None:
    gate = Gate(row_sum, row_sum.workload((64, 1024), dtypes=dtype), 0.0)
    text = """
def rows(x: T[64, 1024], y: Out[T[64]]):
    for i in range(64):
        y[i] = T(0.0)
        for k in range(1023):
            y[i] = y[i] + x[i, k]
"""
    with pytest.raises(Wrong, match=r"of 64 elements of y of .* are wrong"):
        gate.check(ways(text, T=dtype), gate.full)
    whole = ways(text.replace("1023", "1024"), T=dtype)
    assert gate.check(whole, gate.full) <= 1


@operator("test_gate.product")
def product(x: Any, w: Any) -> Any:
    k = reduce_axis(x.shape[1], "k")
    return compute(
        (x.shape[0], w.shape[0]), lambda i, j: sum(x[i, k] * w[j, k], k), name="y"
    )


@operator("test_gate.length")
def length(x: Any) -> Any:
    k = reduce_axis(int(x.shape[1]), "k")
    return compute((x.shape[0],), lambda i: sum(x[i, k] * x[i, k], k), name="y")


@pytest.mark.parametrize(
    ("op", "rows", "dtype", "kept"),
    [
        (row_sum, 64, "f16", 2047),
        (row_sum, 64, "bf16", 1024),
        (row_sum, 2048, "bf16", 1920),  # one large run
        (product, 40, "bf16", 1024),
        (product, 40, "bf16", 1920),
        (length, 64, "bf16", 1024),
        (length, 64, "bf16", 2000),
    ],
)
def test_lost_terms_are_wrong_where_rounding_hides_them(
    op: Operator, rows: int, dtype: str, kept: int
) -> None:
    shapes = ((rows, 2048),) * (2 if op is product else 1)
    workload = op.workload(*shapes, dtypes=dtype)
    gate, text = Gate(op, workload, 0.0), show(op.function(workload))
    assert "in range(2048)" in text
    lossy = build(parse(text.replace("in range(2048)", f"in range({kept})")))
    runs = [run for run in gate.full.runs if "zeros but for" in run.named]
    with pytest.raises(Wrong, match=r"are wrong, given zeros but for"):
        gate.check(lossy, replace(gate.full, runs=tuple(runs)))
    assert gate.check(build(parse(text)), gate.full) <= 1
    for case in gate.small:
        assert gate.check(build(op.function(case.workload)), case) <= 1


@operator("test_gate.tenth")
def tenth(x: Any) -> Any:
    k = reduce_axis(x.shape[1], "k")
    return compute((x.shape[0],), lambda i: sum(x[i, k] * 0.1, k), name="y")


@pytest.mark.parametrize("terms", [80, 2000])
def test_a_single_sum_may_cancel(terms: int) -> None:
    gate = Gate(tenth, tenth.workload((1, terms), dtypes="f16"), 0.0)
    host = targets.host()
    for case in (*gate.small, gate.full):
        made = building.schedule(tenth, case.workload, host, "direct", Knobs())
        assert gate.check(build(made), case) <= 1


@pytest.mark.parametrize("rows", [1, 64])
def test_a_lost_one_of_many_terms_is_wrong(rows: int) -> None:
    workload = row_sum.workload((rows, 1 << 16), dtypes="f32")
    gate = Gate(row_sum, workload, 0.0)
    text = show(row_sum.function(workload))
    text = re.sub(r", (x\[\w+, vk\])", r", select(vk == 777, 0.0, \1)", text)
    assert "select" in text
    runs = [run for run in gate.full.runs if "zeros but for" in run.named]
    with pytest.raises(Wrong, match=r"are wrong, given zeros but for"):
        gate.check(build(parse(text)), replace(gate.full, runs=tuple(runs)))


@operator("test_gate.scaled_length")
def scaled_length(x: Any) -> Any:
    k = reduce_axis(int(x.shape[1]), "k")
    return compute((x.shape[0],), lambda i: sum(x[i, k] * x[i, k] / 3.0, k), name="y")


def test_sums_are_exact_only_of_ones() -> None:
    def is_exact(op: Operator, dtype: str = "f32") -> bool:
        return sums_ones(op.function(op.workload((4, 50), dtypes=dtype)))

    assert all(is_exact(op, dtype) for op in (row_sum, length) for dtype in FLOATS)
    assert not any(is_exact(op) for op in (scaled_length, tenth))
    library = ("math.mean", "nn.dense", "nn.softmax", "math.var", "nn.layer_norm")
    found = [sums_ones(op.function(op.default)) for op in map(find, library)]
    assert found == [True, True, False, False, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_that_agree_by_luck_are_not_exact(dtype: str) -> None:
    gate, kernel = split_up(scaled_length, 1, 2000, dtype=dtype)
    assert gate.check(kernel, gate.full) <= 1


@operator("test_gate.total")
def total(x: Any) -> Any:
    k = reduce_axis(x.shape[0], "k")
    return compute((1,), lambda _: sum(x[k].cast("i64"), k), "y")


@operator("test_gate.dot")
def dot(a: Any, b: Any) -> Any:
    k = reduce_axis(a.shape[0], "k")
    return compute((1,), lambda _: sum(a[k].cast("i32") * b[k].cast("i32"), k), "y")


@pytest.mark.parametrize(
    ("op", "dtype", "value", "kind"),
    [
        (total, "i16", "cast(f32, {x}[i])", "f32"),
        (total, "u16", "cast(f32, {x}[i])", "f32"),
        (dot, "i8", "cast(f32, cast(i32, {x}[i]) * cast(i32, {b}[i]))", "f32"),
    ],
)
def test_an_accumulator_of_too_few_bits_is_found(
    op: Operator, dtype: str, value: str, kind: str
) -> None:
    shapes = ((3000,),) if op is total else ((3000,), (3000,))
    gate = Gate(op, op.workload(*shapes, dtypes=dtype), 0.0)
    names = ("x",) if op is total else ("a", "b")
    read = value.format(x=names[0], b=names[-1])
    given = "".join(f"{name}: {dtype}[n], " for name in names)
    result = "i64" if op is total else "i32"
    kernel = ways(f"""
def f({given}y: Out[{result}[1]], *, n: i64):
    q = alloc({kind}[1])
    q[0] = 0.0
    for i in range(n):
        q[0] = q[0] + {read}
    y[0] = cast({result}, q[0])
""")

    def check() -> None:
        for case in (*gate.small, gate.full):
            gate.check(kernel, case)

    with pytest.raises(Wrong, match=r"are wrong, given"):
        check()


def test_a_maximum_has_no_rounding_and_no_tolerance() -> None:
    func = row_max.function(row_max.workload((8, 100), dtypes="f32"))
    assert reassociation(func, {}) == 0.0
    gate, kernel = split_up(row_max, 8, 96)
    assert gate.check(kernel, gate.full) == 0.0


def test_the_tolerance_grows_with_the_terms_and_the_type() -> None:
    def allowed(terms: int, dtype: str) -> float:
        workload = row_sum.workload((4, terms), dtypes=dtype)
        return reassociation(row_sum.function(workload), row_sum.sizes(workload))

    eps = np.finfo(np.float32).eps
    assert allowed(1024, "f32") == pytest.approx((16 + 4 * 32 + 1) * eps)
    assert allowed(4096, "f32") > allowed(1024, "f32")
    assert allowed(64, "bf16") > allowed(64, "f16") > allowed(64, "f32")
    assert allowed(64, "i32") == 0.0


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64", "i8", "u64"])
def test_without_a_reduction_every_bit_counts(dtype: str) -> None:
    gate = Gate(double, double.workload((1000,), dtypes=dtype), 0.0)
    text = """
def twice(x: T[n], y: Out[T[n]], *, n: i64):
    for i in range(n):
        y[i] = x[i] + x[i]
"""
    right = ways(text, T=dtype)
    for case in (*gate.small, gate.full):
        assert gate.check(right, case) == 0.0
    nearly = ways(
        text, **{"T": dtype, "x[i] + x[i]": "select(i == 7, x[i], x[i] + x[i])"}
    )
    with pytest.raises(Wrong, match=r"1 of 1000 elements of y .*, at \[7\]"):
        gate.check(nearly, gate.full)


def test_booleans_pass_through_the_gate() -> None:
    gate = Gate(invert, invert.workload((1000,), dtypes="bool"), 0.0)
    made = building.schedule(
        invert,
        invert.workload((1000,), dtypes="bool"),
        targets.host(),
        "direct",
        Knobs(),
    )
    assert gate.check(build(made), gate.full) == 0.0


def test_shapes_are_ragged_of_one_element_and_empty() -> None:
    workload = row_sum.workload((1 << 15, 784), dtypes="f32")
    shapes = [next(small_variants(row_sum, workload, kind)).shapes[0] for kind in KINDS]
    assert shapes == [(2053, 13), (1, 13), (0, 13)]
    gate = Gate(double, double.workload((1 << 15,), dtypes="f32"), 0.0)
    assert [case.workload.shapes[0][0] for case in gate.small] == [2053, 1, 0]


def test_of_shapes_that_are_not_defined_larger_ones_are_tried() -> None:
    @operator("test_gate.only_large")
    def only_large(x: Any) -> Any:
        if x.shape[0].value < 300:
            raise ShapeError("at least 300 elements are needed")
        return compute(x.shape, lambda i: x[i], name="y")

    gate = Gate(only_large, only_large.workload((1000,), dtypes="f32"), 0.0)
    assert [case.workload.shapes for case in gate.small] == [((1000,),)]


def test_a_definition_that_nothing_checks_is_refused() -> None:
    @operator("test_gate.unwritten")
    def unwritten(x: Any) -> Any:
        n = x.shape[0].value
        return parse(f"""
def unwritten(x: f32[{n}], y: Out[f32[{n}]]):
    t = alloc(f32[{n}])
    for i in range({n}):
        y[i] = t[i] + x[i]
""")

    gate = Gate(unwritten, unwritten.workload((1000,), dtypes="f32"), 0.0)
    for look in (lambda: gate.small, lambda: gate.full):
        with pytest.raises(TuningError, match=r"accepts none of 4.*nothing wrote it"):
            look()


def test_what_is_only_read_stays_as_it_was() -> None:
    gate = Gate(double, double.workload((100,), dtypes="u32"), 0.0)
    right = ways("""
def twice(x: u32[n], y: Out[u32[n]], *, n: i64):
    for i in range(n):
        y[i] = x[i] + x[i]
""")

    class Scribbling:
        signature = right.signature

        @staticmethod
        def launch(x: Any, y: Any) -> None:
            right.launch(x, y)
            x[3] += 1

    with pytest.raises(Wrong, match="wrote into x, which is only read"):
        gate.check(Scribbling(), gate.full)  # type: ignore[arg-type]


def test_a_reference_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(double, double.workload((100,), dtypes="u32"), 0.0)
    other = ways("""
def twice(x: u32[n], y: Out[u32[n]], *, n: i64):
    for i in range(n):
        y[i] = x[i] + u32(1)
""")
    monkeypatch.setattr(reference, "build", lambda *_: other)
    with pytest.raises(TuningError, match="is not what the interpreter makes of it"):
        _ = gate.full


@pytest.mark.parametrize("edge", EDGES)
def test_guarded_arrays_notice_writes_next_to_them(edge: Any) -> None:
    held = Guarded((3, 5), np.dtype(np.float32), edge)
    held.array[...] = 7.0
    assert held.intact
    outside = held._pattern[-1:] if edge == "after" else held._pattern[:1]
    outside[0] ^= 1
    assert not held.intact


@pytest.mark.parametrize("shape", [(), (0,), (1024,), (3, 0, 5), (4097,)])
def test_guarded_arrays_have_any_shape(shape: tuple[int, ...]) -> None:
    for edge in EDGES:
        held = Guarded(shape, np.dtype(np.float64), edge)
        held.poison()
        assert held.array.shape == shape
        assert held.array.flags.c_contiguous
        assert held.intact


def test_which_nan_it_is_is_the_devices_own() -> None:
    expected = np.array([0xFFC00000, 0, 0x7FC00000, 5], np.uint32)
    got = np.array([0x7FFFFFFF, 0x80000000, 5, 0x7FFFFFFF], np.uint32)
    floats = differing(got.view(np.float32), expected.view(np.float32))
    assert floats.tolist() == [False, True, True, True]
    assert differing(got, expected).all()


F32 = np.dtype(np.float32)


def judged(wide: list[float], narrow: list[float], got: list[float]) -> list[bool]:
    """Whether each number is wrong, where a hundredth is allowed."""
    expected = within(np.array(wide), np.array(narrow, F32), F32, 0.01)
    wrong = expected.wrong(np.array(got, F32))
    return [False] * len(got) if wrong is None else wrong.tolist()


def test_errors_are_relative_and_infinities_equal_themselves() -> None:
    inf, nan = np.inf, np.nan
    wide = [1.0, 1.0, -2.0, 0.0, 0.0, inf, -inf, nan, 1.0, nan]
    got = [1.009, 1.02, -2.1, 0.005, 0.02, inf, inf, nan, nan, 1.0]
    wrong = [False, True, True, False, True, False, True, False, True, True]
    assert judged(wide, wide, got) == wrong


def test_where_the_reference_itself_is_off_more_is_allowed() -> None:
    assert judged([1.0], [1.0], [1.05]) == [True]
    assert judged([1.0], [1.05], [1.19]) == [False]
    assert judged([1.0, 0.9], [1.05, 0.9], [1.0, 1.05]) == [False, False]
    assert judged([1.0, 0.9], [1.05, 0.9], [1.3, 1.3]) == [True, True]


def test_where_its_types_overflow_a_result_is_right_or_overflows() -> None:
    """Or there is nothing left of it, as of what is divided by an infinity."""
    inf, nan = np.inf, np.nan
    got = [1.0, 0.0, nan, -inf, 7.0, -1.0]
    wrong = [False, False, False, False, True, True]
    assert judged([1.0] * 6, [inf] * 6, got) == wrong
    assert judged([1e39, 1e300], [inf, inf], [inf, 5.0]) == [False, True]


def test_a_few_huge_numbers_allow_the_others_nothing() -> None:
    wide = [1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1e30]
    assert judged(wide, wide, [1.05, *wide[1:]])[0]


@pytest.mark.parametrize(("terms", "missing"), [(75, 2000), (2000, 8000)])
def test_large_terms_that_cancel_may_be_added_in_another_order(
    terms: int, missing: float
) -> None:
    """The reference's own error is small, as it adds them one after the other."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(1000, terms)).astype(np.float32)
    for row in range(40):
        size = generator.uniform(3e7, 6e7)
        x[row, -2:] = size, generator.uniform(2e4, 9e4) - size
    workload = row_sum.workload(x.shape)
    gate = Gate(row_sum, workload, 0.0)
    plain = reference.Reference(
        row_sum, workload, gate.tolerance, declared=0.0, finite=False
    )
    (run,) = plain.case([("large terms", lambda _: [x])]).runs
    for each in (x, x[:, ::-1], np.roll(x, 1, axis=1), np.roll(x, terms // 2, axis=1)):
        found = np.add.accumulate(each, axis=1)[:, -1]
        assert run.expected[0].wrong(found) is None
        found[:40] += missing
        assert run.expected[0].wrong(found)[:40].all()


@pytest.mark.parametrize("op", [row_sum, row_max, exponential])
def test_widened_functions_are_whole_and_in_double_precision(op: Operator) -> None:
    shape = (4, 9) if op is not exponential else (9,)
    func = widened(op.function(op.workload(shape, dtypes="bf16")))
    assert func is not None
    verify(func)
    assert {p.buffer.dtype.name for p in func.params} == {"f64"}


def test_functions_that_look_at_bits_are_not_widened() -> None:
    normal = find("random.normal")
    assert widened(normal.function(normal.workload())) is None
    assert widened(find("random.bits").function(find("random.bits").workload())) is None


@pytest.mark.parametrize("name", ["uniform", "normal", "bernoulli", "randint", "bits"])
def test_the_library_passes_its_own_gate(name: str) -> None:
    op = find(f"random.{name}")
    workload = op.workload((20_001,))
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    made = building.schedule(op, workload, targets.host(), "direct", Knobs())
    kernel = build(made)
    for case in (*gate.small, gate.full):
        assert gate.check(kernel, case) <= 1
        value = case.runs[0].expected[0].value
        if value.size > 100 and name != "bits":  # the scalars to measure with are usual
            assert np.unique(value.astype(np.float64)).size > 1


@pytest.mark.parametrize("name", ["nn.dense", "nn.batch_norm_train", "math.cumsum"])
def test_references_are_shared_out_among_threads_as_they_are(name: str) -> None:
    op = find(name)
    func = op.function(op.default)
    shared = reference.parallelised(func)
    assert "in parallel(" in show(shared)
    arrays, scalars = arguments(op, op.default, seed=5)
    results = [[array.copy() for array in arrays] for _ in range(2)]
    for plain, held in zip((func, shared), results, strict=True):
        build(plain, targets.host()).launch(*held, *scalars)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["math.argmax", "math.argmin"])
def test_what_has_no_value_of_nothing_is_not_asked_for_it(name: str) -> None:
    """Of a length of 0 another kernel is made: that of a row never meets one."""
    op = find(name)
    workload = op.workload((4096,))
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    assert [case.workload.shapes for case in gate.small] == [((5,),), ((1,),)]
    kernel = op.build(workload)
    for case in (*gate.small, gate.full):
        assert gate.check(kernel, case) == 0.0


def test_what_has_one_of_nothing_is_asked_for_it() -> None:
    op = find("math.exp")
    gate = Gate(op, op.workload((4096,)), 0.0)
    assert [case.workload.shapes for case in gate.small][-1] == ((0,),)
