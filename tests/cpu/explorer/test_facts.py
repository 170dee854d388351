"""Facts: trip counts, bytes, operations and limits against formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang import machine, records
from tensorlang.cli import configuration, options
from tensorlang.explorer.loop_table import loops_of
from tensorlang.explorer.page import page
from tensorlang.explorer.roofline import roofline
from tensorlang.ir.digest import digest
from tensorlang.ir.text.parser import parse
from tensorlang.machine import Cache, Instruction, limits
from tensorlang.machine.gpus import gpu_of
from tensorlang.record_files import Record
from tensorlang.targets import host, to_compile

N, K, M = 64, 784, 512
TILED = """
def f(x: f32[n, 12], t: i64[5], y: Out[f32[n]], *, n: i64):
    for i_0 in parallel((n + 3) // 4):
        for i_1 in range(4):
            if i_0 * 4 + i_1 < n:
                for j in range(i_1 + 1):
                    y[i_0 * 4 + i_1] = x[i_0 * 4 + i_1, j * 2]
    for a in range(n - n // 4 * 4):
        for b in range(0):
            y[a] = 0.0
    for c in range(5):
        for d in range(t[c]):
            y[c] = x[t[c], 0]
"""


def leaves(rows):
    """The loops with none inside."""
    following = [*rows[1:], replace(rows[0], depth=0)]
    return [a for a, b in zip(rows, following, strict=True) if b.depth <= a.depth]


def test_loops_of_given_sizes():
    rows = {row.name: row for row in loops_of(parse(TILED), {"n": 10})}
    assert [(r.depth, r.kind) for r in rows.values()][:3] == [
        (0, "parallel"),
        (1, "serial"),
        (2, "serial"),
    ]
    counted = {name: (row.trips, row.total, row.exact) for name, row in rows.items()}
    assert counted == {
        "i_0": ((3, 3), 3, True),
        "i_1": ((4, 4), 12, True),
        "j": ((1, 4), 48, False),  # guarded, and a triangle
        "a": ((2, 2), 2, True),
        "b": ((0, 0), 0, True),
        "c": ((5, 5), 5, True),
        "d": ((0, None), None, False),
    }
    # four rows, of which the columns 0 to 6 are around 0, 2, 4, 6
    assert rows["i_0"].touched == {"x": 4 * 7 * 4, "y": 4 * 4}
    assert rows["i_1"].touched == {"x": 4, "y": 4}
    assert rows["a"].touched == {}  # nothing runs
    # four rows of at most four iterations each
    assert rows["i_0"].uses == {"x": 16 / 28, "y": 16 / 4}
    assert rows["i_1"].uses == {"x": 1.0, "y": 1.0}
    assert rows["d"].uses == {"x": 0.1, "t": 1.0, "y": 1.0}
    # where data decides, all of it may be accessed
    assert rows["d"].touched == {"x": 10 * 4, "t": 8, "y": 4}


def test_dense_by_formula(subject):
    found = subject("dense", f"{N}x{K},{M}x{K}")
    work = limits.work_of(found.definition, found.sizes)
    assert work == limits.Work(2 * N * K * M, 0, 4 * (N * K + M * K), 4 * N * M)
    rows = loops_of(found.schedule.function, found.sizes)
    outer = rows[0]
    assert (outer.depth, outer.kind, outer.exact) == (0, "parallel", True)
    assert outer.touched == {
        "x": 4 * N * K,
        "w": 4 * M * K // outer.total,
        "y": 4 * N * M // outer.total,
    }
    # each row of x meets all columns of w's share, each column all rows
    columns = M // outer.total
    assert outer.uses["x"] == pytest.approx(columns)
    assert outer.uses["w"] == pytest.approx(N, rel=1.0)
    summed, inside = 0, None
    for row in rows:
        if inside is not None and row.depth <= inside:
            inside = None
        if inside is None and row.name.split("_")[0] == "k" and "x" in row.touched:
            inside = row.depth
        if inside is not None and row in leaves(rows):
            assert row.exact
            summed += row.total
    assert summed == N * K * M


def test_softmax_by_formula(subject):
    found = subject("softmax", "128x1000")
    size = 128 * 1000
    work = limits.work_of(found.definition, found.sizes)
    assert work.bytes == 2 * 4 * size
    rows = loops_of(found.schedule.function, found.sizes)
    assert rows[0].trips == (128, 128)
    assert rows[0].touched == {"x": 4 * 1000, "y": 4 * 1000}
    passes = [row.total for row in leaves(rows)]
    assert sum(passes) == 3 * size  # maximum, exponentials and their sum, quotients


@pytest.fixture
def measured(monkeypatch):
    """A function that puts a measured machine in place of this one."""

    def put(**changes):
        made = replace(
            machine.published(),
            cores=2,
            instructions=(
                Instruction("fma", "f32", 100e9),
                Instruction("fma", "f64", 50e9),
            ),
            caches=(
                Cache(1, 1 << 15, bandwidth=400e9),
                Cache(2, 1 << 22, 64, 8, 2, 8e10),
            ),
            memory_bandwidth=10e9,
            memory_bandwidth_all=15e9,
            scaling=1.5,
            measured=(
                *("fma f32", "fma f64", "scaling", "L1", "L2"),
                *("memory_bandwidth", "memory_bandwidth_all"),
            ),
        )
        made = replace(made, **changes)
        monkeypatch.setattr(limits.machine, "of", lambda _target: made)

    return put


def limits_of(found, threads, seconds=0.0):
    target = replace(found.kernel.target, threads=threads)
    return limits.limits_of(found.definition, found.sizes, target, seconds)


def test_dense_is_limited_by_arithmetic(subject, measured):
    found = subject("dense", f"{N}x{K},{M}x{K}")
    measured()
    one, two = (limits_of(found, threads, 1e-3) for threads in (1, 2))
    flop, size = 2 * N * K * M, 4 * (N * K + M * K + N * M)
    assert (one.tightest.name, two.tightest.name) == ("fma f32", "fma f32")
    assert one.tightest.seconds == pytest.approx(flop / 100e9)
    assert two.tightest.seconds == pytest.approx(flop / 150e9)
    assert one.reached == pytest.approx(flop / 100e9 / 1e-3)
    assert one.known[1].name == "L2"  # which holds all three
    assert one.known[1].seconds == pytest.approx(size / 80e9)
    plot = roofline(one)
    (x, y), peak = plot.point, plot.roof[-1][1]
    assert plot.roof[1][1] == peak < y
    assert plot.roof[1][0] < x < plot.width  # right of the ridge


def test_what_no_cache_holds_comes_from_memory(subject, measured):
    found = subject("softmax", "128x1000")
    measured(caches=(Cache(1, 1 << 15, bandwidth=400e9),))
    one, four = (limits_of(found, threads).tightest for threads in (1, 4))
    assert (one.name, one.rate, four.rate) == ("memory", 10e9, 15e9)
    assert one.seconds == pytest.approx(2 * 4 * 128 * 1000 / 10e9)


def test_limits_that_nobody_measured_are_as_published(subject, measured):
    found = subject("dense", "8x8,8x8")
    measured(measured=("fma f32", "L1"))  # an instruction for f64 says nothing here
    assert limits_of(found, 1, 1e-3).reached > 0
    assert limits_of(found, 2).tightest.source == "published"  # two need the scaling
    measured(measured=())
    guessed = limits_of(found, 1, 1e-3)
    assert (guessed.is_measured, guessed.reached) == (False, 0.0)
    assert "at the published rate" in page(found)


def test_a_gpu_is_limited_by_its_data_sheet(subject, measured):
    measured()
    target = to_compile("cuda:sm_90a")
    gpu = gpu_of(target)
    found = subject("dense", f"{N}x{K},{M}x{K}")
    own = limits.limits_of(found.definition, found.sizes, target)
    assert own.work == limits_of(found, 1).work
    fma, memory = own.known
    assert fma.rate == 2 * gpu.processors * gpu.clock * gpu.singles
    assert (memory.rate, memory.source) == (gpu.memory, "published")
    halves = subject("dense", f"{N}x{K},{M}x{K}", dtype="bf16")
    products = limits.limits_of(halves.definition, halves.sizes, target).known[0]
    assert (products.name, products.rate) == ("tensor cores", gpu.peak)
    other = replace(target, arch="sm_75", device="")
    unknown = limits.limits_of(found.definition, found.sizes, other)
    assert (unknown.tightest, roofline(unknown)) == (None, None)
    assert "not known" in unknown.said


def test_integers_and_empty_arrays(subject, measured):
    found, none = subject("random.bits", "1000"), subject("softmax", "0x1000")
    adds = Instruction("integer", "u32", 200e9)
    measured(instructions=(adds,), measured=("integer u32", "L1"))
    bits = limits_of(found, 1)
    assert bits.work.floats == 0 < bits.work.integers
    assert bits.tightest.name == "integer u32"
    assert bits.tightest.seconds == pytest.approx(bits.work.integers / 200e9)
    measured()  # as by an older probe, without a rate of integers
    assert limits_of(found, 1).tightest.name == "L1"
    empty = limits_of(none, 1, 1e-6)
    assert empty.work == limits.Work(0, 0, 0, 0)
    assert roofline(empty) is None


def test_a_time_below_the_limit_is_no_fraction_of_it(subject, measured):
    measured()
    said = limits_of(subject("dense", f"{N}x{K},{M}x{K}"), 1, 1e-6).said
    assert "not known well enough: a call was measured below it" in said


def test_a_page_states_the_limit_and_the_measured_time(subject, measured):
    found = replace(subject("dense", f"{N}x{K},{M}x{K}"), measured=2e-3)
    measured(name=host().fingerprint)
    text = page(found)
    for said in ("51,380,224", "1,806,336, 131,072", "2,000.00 µs", "<svg", "fma f32"):
        assert said in text


@pytest.fixture
def own_records(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path))
    records.forget()
    yield
    records.forget()


@pytest.mark.parametrize(
    ("changes", "shape", "seconds"),
    [
        ({}, "8x100", 1e-3),
        ({}, "8x120", 0.0),  # its nearest record says nothing of its time
        ({"static": True}, "8x100", 0.0),
        ({"unverified": True}, "8x100", 0.0),
    ],
)
def test_the_time_is_that_of_a_record_of_the_same_call(
    own_records, subject, changes, shape, seconds
):
    del own_records
    op, target = options.operator("softmax"), host()
    workload = replace(options.workload(op, "8x100"), threads=target.threads)
    chosen = configuration.choose(op, workload, target)
    assert chosen.record is None
    made = Record(
        workload=workload,
        target=target.fingerprint,
        architecture=records.architecture(target),
        algorithm=chosen.algorithm,
        schedule="generic",
        knobs=tuple(sorted(chosen.knobs.values.items())),
        ir=digest(chosen.schedule.function),
        generator="1",
        seconds=1e-3,
        spread=0.0,
        default_seconds=1e-3,
        roofline=0.0,
        error=0.0,
        date="2026-01-01",
    )
    records.add(replace(made, **changes))
    records.forget()
    assert subject("softmax", shape).measured == seconds
