"""Defaults of contractions for published CPUs fit registers, caches and threads."""

from math import ceil
from pathlib import Path

import pytest

from tensorlang import machine
from tensorlang.ir.dtypes import DType
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.schedules.contraction.choice import candidates, choice, far, sizes_of
from tensorlang.schedules.contraction.model import Product, cycles, dot_cycles, terms
from tensorlang.schedules.contraction.space import OF_BLOCKS, Blocks
from tensorlang.schedules.cost.core import Level, modelled
from tensorlang.schedules.cost.traffic import Operand, moved
from tensorlang.schedules.tiling import nearest
from tensorlang.scheduling import Knobs
from tensorlang.targets import Target, get

MACHINES = sorted((Path(__file__).parents[2] / "data/machines").glob("*.json"))
THREADS = (1, 4)
SIZES = [(1024, 1024, 1024), (256, 256, 16384), (4096, 4096, 4096), (96, 640, 900)]


def product(m, n, k, *, transposed=True, open_rows=False):
    right = Operand("kn", "k", 4 * k, 4) if transposed else Operand("kn", "n", 4 * n, 4)
    left, result = Operand("km", "k", 4 * k, 4), Operand("mn", "n", 4 * n, 4)
    return Product(1, m, n, k, left, right, result, open_rows)


@pytest.fixture(params=MACHINES, ids=lambda path: path.stem)
def found(request):
    return machine.load(request.param)


@pytest.fixture(params=THREADS)
def core(request, found):
    target = Target(
        threads=request.param,
        vector_bits=8 * found.vector_bytes,
        vector_registers=found.vector_registers,
    )
    return modelled(found, target, DType("f32"))


@pytest.mark.parametrize("size", SIZES)
def test_tiles_fit_the_registers_and_hide_the_latency(core, size):
    best = choice(core, product(*size, transposed=False), dots=False)
    sums = best.rows * best.vectors
    assert sums + best.vectors + 1 <= core.registers
    assert sums >= core.products * core.latency


@pytest.mark.parametrize("registers", [4, 8])
def test_few_registers_have_a_tile(found, registers):
    target = Target(vector_bits=128, vector_registers=registers)
    few = modelled(found, target, DType("f32"))
    best = choice(few, product(64, 128, 128), dots=False)
    assert best.rows * best.vectors + best.vectors + 1 <= registers


@pytest.mark.parametrize("lanes_along", ["columns", "depth"])
def test_knobs_of_a_second_product_have_one_name(lanes_along):
    op, knobs = find("nn.dense_grad"), Knobs(pinned={"lanes_along": lanes_along})
    asked = op.workload((130, 65), (130, 13), (13, 65), layout="io")
    schedule(op, asked, get("llvm"), "direct", knobs)
    assert {f"dw_{name}" for name in OF_BLOCKS} <= {*knobs.values}
    assert ("blocks" in knobs.values) == (lanes_along == "columns")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_strips_of_a_block_fit_the_second_cache(core, size, transposed):
    best = choice(core, product(*size, transposed=transposed), dots=False)
    depth = nearest(size[2], best.blocks.depth or size[2])
    strip = 4 * depth * best.vectors * core.lanes
    packed_once = best.blocks.packing == "before"
    if size == SIZES[1] and strip > core.levels[1].capacity:
        pytest.xfail("on Zen 3 four strips, 1024 deep, are measured to be faster")
    assert strip <= core.levels[1].capacity or packed_once


def test_an_open_number_of_rows_is_also_one_that_no_cache_holds(core):
    *_, most = sizes_of(core, product(1, 512, 2048, open_rows=True))
    assert 4 * most.rows * most.depth >= max(each.capacity for each in core.levels)
    assert sizes_of(core, product(8, 512, 2048)) == [product(8, 512, 2048)]


@pytest.mark.parametrize("rows", [48, 16384])
def test_depth_is_cut_for_one_strip_and_for_several(core, rows):
    found = [how for _, how in candidates(core, product(rows, 4096, 1 << 16))]
    assert {how.strips for how in found if how.depth} >= {1, 4}
    assert any(how.depth and how.rows_packed for how in found)


def test_sums_wait_where_they_have_left_the_caches_of_a_core(core):
    """Of a few rows they stay in a cache, of many they come back for each block."""

    def waits(rows):
        size, how = product(rows, 512, 4096), Blocks("nkm", depth=512)
        return terms(core, size, 4, 2, how)["sums in memory"] / rows

    assert waits(1 << 20) > waits(16) + 0.5 * core.transfer / 4 / core.threads


def test_every_thread_gets_its_share_of_large_products(core):
    best = choice(core, product(1024, 1024, 1024), dots=False)
    strips = 1024 // (best.vectors * core.lanes)
    many = nearest(strips, best.blocks.strips)
    chunks = {"n": strips // many, "m": ceil(1024 / best.rows / best.blocks.tiles)}
    assert chunks[best.blocks.order[0]] >= core.threads


def test_contiguous_columns_of_one_row_are_not_packed(core):
    best = choice(core, product(1, 1024, 1024, transposed=False), dots=False)
    assert best.blocks.packing == "none"
    assert best.rows == 1


def test_few_rows_read_transposed_weights_in_place(core):
    """Lanes along the reduction save the transposition."""
    assert choice(core, product(4, 1024, 1024), dots=True).by_depth


def test_times_grow_with_sizes_and_fall_with_threads(found):
    def spent(threads, *size):
        target = Target(
            threads=threads,
            vector_bits=8 * found.vector_bytes,
            vector_registers=found.vector_registers,
        )
        core = modelled(found, target, DType("f32"))
        return cycles(core, product(*size), 6, 2, Blocks("nkm"))

    assert spent(1, 256, 1024, 512) < spent(1, 512, 1024, 512)
    assert spent(1, 256, 1024, 512) < spent(1, 256, 2048, 512)
    assert spent(1, 256, 1024, 512) < spent(1, 256, 1024, 1024)
    assert (
        spent(4, 512, 1024, 512) < spent(2, 512, 1024, 512) < spent(1, 512, 1024, 512)
    )


def test_no_kernel_is_faster_than_its_arithmetic(core):
    size = product(200, 300, 500)
    least = 200 * 300 * 500 / core.lanes / core.products / core.threads
    for how in (Blocks("nkm"), Blocks("mnk", 4, 4, 128, "before")):
        assert cycles(core, size, 6, 2, how) > least
    assert dot_cycles(core, size, 4, 3) > least


def test_choices_are_the_same_each_time(core):
    size = product(512, 768, 300, open_rows=True)
    assert choice(core, size, dots=True) == choice.__wrapped__(core, size, dots=True)


@pytest.mark.parametrize("n", [1, 17])
@pytest.mark.parametrize("k", [1, 70])
@pytest.mark.parametrize("open_rows", [False, True])
def test_any_size_has_a_choice(core, n, k, open_rows):
    best = choice(core, product(128, n, k, open_rows=open_rows), dots=True)
    assert best.rows > 0


def test_what_fits_a_cache_comes_into_it_once():
    """A product of 64 x 64 x 64 in tiles of 16 x 16, in caches of two sizes."""
    held = machine.Cache(1, 48 << 10, ways=12)
    levels = Level(held, 48 << 10, 1.0), Level(held, 1 << 10, 1.0)
    operands = [Operand("km", "k", 256, 4), Operand("kn", "n", 0, 4)]
    loops = (("n", 4.0), ("m", 4.0))
    tile = {"m": 16.0, "n": 16.0, "k": 64.0}
    assert moved(loops, tile, operands, levels) == [[0, 0], [4 << 14, 4 << 14]]


def test_a_matrix_times_a_vector_is_far_beyond_every_cache(core):
    largest = max(level.capacity for level in core.levels)
    depth = 4 * ceil(largest / 4096)
    assert far(core, product(1, 1024, depth))
    assert not far(core, product(1, 128, depth))
    assert far(core, product(1024, 1, depth))
