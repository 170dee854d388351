"""What a block moves: sectors of device memory, passes over the banks, loads once."""

import pytest

from tensorlang import targets
from tensorlang.codegen.simt.host import launches
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.text.parser import parse
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.tuner.static.accesses import traffic

TARGET = targets.get("cuda:sm_90a")


def moved(text, **sizes):
    (launch,) = launches(lower(parse(text), TARGET))
    found = traffic(launch, sizes)
    return found, {buffer.name: count for buffer, count in found.sectors.items()}


def copy(index, extent=1 << 20):
    return moved(f"""
def copy(x: f32[{extent}], y: Out[f32[{extent}]]):
    for b in bound(16, "block.x"):
        for t in bound(64, "thread.x"):
            y[b * 64 + t] = x[{index}]
""")


@pytest.mark.parametrize(
    ("index", "sectors"),
    [
        ("b * 64 + t", 8),  # neighbours
        ("0", 2),  # the same word for all of a warp
        ("t * 2", 16),  # every other word
        ("t * 8", 64),  # a sector a thread
        ("t * 4096", 64),
        ("63 - t", 8),
        ("t // 32 * 4096 + t % 32", 8),
    ],
)
def test_sectors_of_device_memory(index, sectors):
    _, by = copy(index)
    assert by == {"y": 8, "x": sectors}


def test_wide_accesses_count_their_bytes():
    found, by = moved("""
def copy(x: f32[4096], y: Out[f32[4096]]):
    for b in bound(16, "block.x"):
        for t in bound(64, "thread.x"):
            for i in vectorized(4):
                y[b * 256 + t * 4 + i] = x[b * 256 + t * 4 + i]
""")
    assert by == {"y": 32, "x": 32}
    assert found.loads == 2
    assert found.moved == 2 * 64 * 16


def test_an_index_from_data_may_hit_any_sector():
    _, by = moved("""
def gather(x: f32[4096], at: i32[64], y: Out[f32[64]]):
    for t in bound(64, "thread.x"):
        y[t] = x[cast(i64, at[t] & i32(4095))]
""")
    assert by == {"x": 64, "at": 8, "y": 8}


def test_loops_multiply_and_guards_divide():
    found, by = moved("""
def folded(x: f32[64, 100], y: Out[f32[64]]):
    for t in bound(64, "thread.x"):
        s = alloc(f32[1], scope="register")
        s[0] = 0.0
        for k in range(100):
            s[0] = s[0] + x[t, k]
        if t < 32:
            y[t] = s[0]
        if t >= 32:
            y[t] = s[0]
""")
    assert by == {"x": 6400, "y": 8}
    assert found.loads == 200


@pytest.mark.parametrize(
    ("count", "mean", "busiest"), [("b + 1", 4.5, 4.5), ("b // 7", 1 / 8, 1)]
)
def test_loops_whose_length_is_that_of_a_block(count, mean, busiest):
    found, by = moved(f"""
def triangle(x: f32[64, 8], y: Out[f32[8, 64]]):
    for b in bound(8, "block.x"):
        for t in bound(64, "thread.x"):
            s = alloc(f32[1], scope="register")
            s[0] = 0.0
            for k in range({count}):
                s[0] = s[0] + x[t, k]
            y[b, t] = s[0]
""")
    assert by == {"x": 64 * mean, "y": 8}
    assert found.loads == 2 * busiest


@pytest.mark.parametrize(
    ("index", "passes"),
    [("63 - t", 2), ("0", 2), ("t % 8 * 8 + t // 8", 4), ("t % 2 * 32 + t // 2", 4)],
)
def test_passes_over_the_banks(index, passes):
    found, _ = moved(f"""
def turned(x: f32[64], y: Out[f32[64]]):
    for b in bound(1, "block.x"):
        s = alloc(f32[64], scope="shared")
        for t in bound(64, "thread.x"):
            s[t] = x[t]
        for t in bound(64, "thread.x"):
            y[t] = s[{index}]
""")
    assert found.passes == 2 + passes
    assert found.barriers == 1


def test_what_stands_twice_is_loaded_once():
    found, by = moved("""
def twice(x: f32[64], y: Out[f32[64]], z: Out[f32[64]]):
    for t in bound(64, "thread.x"):
        y[t] = x[t] * x[t]
        z[t] = x[t] + 1.0
""")
    assert by["x"] == 8
    assert found.loads == 2


@pytest.mark.parametrize("persistent", [False, True])
def test_roles_are_counted_by_their_copies_and_products(persistent):
    dense = find("nn.dense")
    workload = dense.workload((1280, 4096), (4096, 4096), dtypes="bf16")
    knobs = {"warpgroups": 2, "group_columns": 256, "few_rows": 0}
    knobs["persistent"] = persistent
    func = default(dense, workload, TARGET, knobs)[0].function
    (launch,) = launches(lower(func, TARGET))
    found = traffic(launch, {"n0": 1280})
    tiles = 2 if persistent else 1  # of the first of 132 blocks, which have 160
    steps = tiles * 4096 / 64
    assert found.products == steps * 2 * 4 * 4  # 8 warps, k in sixteens
    assert set(found.multiplied.values()) == {steps * 64 * 256 * 64}
    assert set(found.steps.values()) == {steps}
    assert found.stages == 3
    by = {buffer.name: 32 * count for buffer, count in found.sectors.items()}
    each = (160 / 132 if persistent else 1) * 2  # tiles of a block, bytes
    assert by == {
        "x": pytest.approx(each * 128 * 4096),
        "w": pytest.approx(each * 256 * 4096),
        "y": pytest.approx(each * 128 * 256),
    }
    products = steps * 4 * 2 * (64 + 256) * 32 / 128
    assert found.passes >= products + steps * 64 * (128 + 256) * 2 / 128
