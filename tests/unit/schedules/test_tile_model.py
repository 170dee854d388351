"""Defaults of convolutions for published CPUs fit registers, caches and threads."""

from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang import machine
from tensorlang.ir.dtypes import DType
from tensorlang.schedules.convolution.model import Work, choose
from tensorlang.schedules.convolution.tiles import Tile
from tensorlang.schedules.cost.core import modelled
from tensorlang.schedules.cost.tiles import Nest, fastest, shared, tile_cycles
from tensorlang.schedules.cost.traffic import Operand
from tensorlang.targets import Target

MACHINES = sorted((Path(__file__).parents[2] / "data/machines").glob("*.json"))
LINES = Work(64, 64.0, 56, 58, 56, [(1, 576)], units=1, bytes=4)
WORKS = {
    "3x3": LINES,
    "prime outputs": Work(37, 20.0, 23, 27, 23, [(1, 425)], units=1, bytes=4),
    "phases": Work(3, 66.0, 112, 115, 115, [(1, 576), (2, 768)], units=1, bytes=4),
    "one pixel": Work(1, 1.0, 1, 1, 1, [(1, 1)], units=1, bytes=4),
    "depthwise": Work(1, 1.1, 28, 30, 28, [(1, 9)], units=32, bytes=4),
    "1x1": Work(256, 64.0, 1, 3136, 3136, [(1, 64)], units=1, bytes=4, scratch=False),
}


@pytest.fixture(params=MACHINES, ids=lambda path: path.stem)
def found(request):
    return machine.load(request.param)


def core_of(found, threads):
    target = Target(
        threads=threads,
        vector_bits=8 * found.vector_bytes,
        vector_registers=found.vector_registers,
    )
    return modelled(found, target, DType("f32"))


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
@pytest.mark.parametrize("threads", [1, 4])
def test_tiles_of_convolutions_fit_the_registers(found, work, threads):
    core = core_of(found, threads)
    tile, lines = choose(work, core)
    assert (tile.rows + 1) * tile.vectors < core.registers
    assert tile.rows in work.tile_rows
    assert lines in work.cuts


def test_registers_hold_sums_and_vectors_and_a_factor(found):
    core = core_of(found, 1)
    assert core.holds(4, 3)  # 12 + 3 + 1
    assert core.holds(3, 4) == (core.registers > 16)  # 12 + 4 + 1
    assert core.registers > 16 or core.tile(3, 4, 7.0) > core.tile(6, 2, 8.0)


def test_images_larger_than_the_caches_of_a_core_are_read_once(found):
    core = core_of(found, 1)

    def spent(pixels, *, first):
        sizes = {"pitch": pixels, "last": pixels, "planes": 512, "lines": 1}
        sizes |= {"parts": [(1, 512)], "outputs": 128, "pixels_first": first}
        work = replace(WORKS["1x1"], **sizes)
        return work.nest(core, Tile(4, 2, core.lanes), 1).cycles(core)

    assert spent(1 << 16, first=True) < spent(1 << 16, first=False)
    assert spent(2 * core.lanes, first=True) >= spent(2 * core.lanes, first=False)


def test_sums_hide_the_latency(found):
    core = core_of(found, 1)
    tile, _ = choose(LINES, core)
    assert tile.rows * tile.vectors >= core.products * core.latency


def test_every_thread_gets_lines_or_outputs(found):
    core = core_of(found, 4)
    tile, lines = choose(replace(LINES, outputs=8), core)
    assert (8 // tile.rows) * (56 // lines) >= 4


def test_no_convolution_is_faster_than_its_arithmetic(found):
    core = core_of(found, 2)
    tile = Tile(4, 2, core.lanes)
    least = 64 * 56 * 56 * 576 / core.lanes / core.products / core.threads
    assert LINES.nest(core, tile, 56).cycles(core) > least


def test_pruned_search_finds_the_fastest(found):
    core = core_of(found, 2)
    sizes = [(rows, vectors) for rows in (1, 2, 4, 8) for vectors in (1, 2, 3)]

    def nest(size):
        return LINES.nest(core, Tile(*size, core.lanes), 28)

    assert fastest(core, sizes, nest) == min(sizes, key=lambda n: nest(n).cycles(core))
    assert fastest(core, [], nest) is None


def test_one_thread_computes_what_is_not_worth_more(found):
    core = core_of(found, 4)
    assert shared(core, 10.0, 4) == 10.0
    assert shared(core, 1e9, 4) < 1e9
    assert shared(core, 1e9, 3) == shared(core, 1e9, 3.0) > shared(core, 1e9, 4)


def test_images_out_of_the_caches_cost_their_traffic(found):
    core = core_of(found, 1)
    busy = tile_cycles(core, 4, 2, 9)
    loops, tile = (("m", 1e6),), {"m": 16.0, "k": 9.0}

    def cycles(*operands):
        return Nest(busy, 1, loops, tile, operands).cycles(core)

    assert cycles() == busy
    assert cycles(Operand("m", "m", 0, 4)) > busy
