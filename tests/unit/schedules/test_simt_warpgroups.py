"""Products of warpgroups: the schedule, run with every check; and its faults."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import (
    ArgumentError,
    InterpreterError,
    IRError,
    ScheduleError,
)
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.schedules.simt import warpgroups as module

HOPPER = targets.to_compile("cuda:sm_90a")
SMALL = {"warpgroups": 1, "group_columns": 64, "ring": 2, "few_rows": 0}


def scheduled(m, n, k, knobs=SMALL, target=HOPPER):
    workload = find("nn.dense").workload((m, k), (n, k), dtypes="bf16")
    return default(find("nn.dense"), workload, target, knobs)[0].function


def error_of(func, m, n, k):
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-4, 5, (rows, k)) for rows in (m, n))
    x, w = (a.astype(ml_dtypes.bfloat16) for a in (x, w))
    y = np.zeros((m, n), ml_dtypes.bfloat16)
    run(func, x, w, y)
    wanted = x.astype("f4") @ w.astype("f4").T
    return np.abs(y.astype("f4") - wanted.astype(ml_dtypes.bfloat16)).max()


@pytest.mark.parametrize("size", [(64, 64, 192), (70, 64, 80)])
def test_roles_multiply_with_every_check(size):
    func = scheduled(*size)
    verify(func)
    assert parse(show(func)) == func
    assert error_of(func, *size) == 0


@pytest.mark.parametrize("target", [HOPPER, replace(HOPPER, threads=2, index=0)])
def test_batches_multiply_with_every_check(target):
    op, shapes = find("math.matmul"), ((3, 70, 72), (3, 72, 64))
    func = default(op, op.workload(*shapes, dtypes="f16"), target, SMALL)[0].function
    verify(func)
    assert parse(show(func)) == func
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, shape).astype("f2") for shape in shapes)
    y = np.zeros((3, 70, 64), "f2")
    run(func, a, b, y)
    assert (y == a.astype("f4") @ b.astype("f4")).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wait(full[", "wait(empty[", "deadlock|phase"),
        ("// 2 - 1)", "// 2)", "deadlock|phase"),
        ("// 2)\n", "// 2 + 1)\n", "deadlock|phase"),
    ],
)
def test_planted_faults_are_found(old, new, message):
    text = show(scheduled(64, 64, 192))
    assert old in text
    with pytest.raises(InterpreterError, match=message):
        error_of(parse(text.replace(old, new)), 64, 64, 192)


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((4096, 4096), (2, 256, 1)),
        ((1024, 1024), (2, 256, 4)),  # parts for multiprocessors without any
        ((1024, 4096), (2, 256, 1)),  # tiles for all of them
        ((64, 4096), (1, 256, 8)),  # one row of tiles
    ],
)
def test_the_fastest_tile_is_chosen_for_known_sizes(sizes, tile):
    op, (n, k) = find("nn.dense_grad"), sizes
    workload = op.workload((8192, n), (8192, k), (n, k), dtypes="bf16")
    knobs = default(op, workload, HOPPER, {})[1].values
    names = ("warpgroups", "group_columns", "step_parts")
    assert tuple(knobs[f"{name}_dw_sum"] for name in names) == tile


# columns, the first number of rows that is not few, the tiles of many and of few
@pytest.mark.parametrize(
    ("columns", "at", "tiles"),
    [
        (4096, 512, ((2, 256), (1, 64))),
        (1024, 2048, ((2, 256), (1, 64))),
        (16384, 128, ((2, 256), (1, 128))),
    ],
)
def test_few_rows_of_unknown_number_have_smaller_tiles(columns, at, tiles):
    op = find("nn.dense")
    workload = op.workload((8192, 4096), (columns, 4096), dtypes="f16")
    made, knobs = default(op, workload, HOPPER, {})
    assert knobs.values["few_rows"] == at
    names = ("warpgroups", "group_columns"), ("step_parts",)
    few = next(k for k in knobs.values if k.startswith("warpgroups_"))
    suffix = few.removeprefix("warpgroups")
    for tile, end in zip(tiles, ("", suffix), strict=True):
        assert tuple(knobs.values[f"{name}{end}"] for name in names[0]) == tile
        assert knobs.values[f"step_parts{end}"] == 1  # rounded alike
    assert show(made.function).count(f"n0 >= {at}") == 1


@pytest.mark.parametrize("rows", [70, 130])
def test_few_rows_multiply_with_every_check(rows):
    func = scheduled(rows, 64, 80, SMALL | {"few_rows": 128, "warpgroups": 2})
    assert parse(show(func)) == func
    assert error_of(func, rows, 64, 80) == 0


ALONE = replace(HOPPER, threads=1, index=0)  # one block for all tiles


def test_phases_run_on_across_the_tiles_of_a_block():
    func = scheduled(70, 64, 80, SMALL | {"ring": 3}, ALONE)
    assert parse(show(func)) == func
    assert error_of(func, 70, 64, 80) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(tile_1 * 2 + k_3) // 3)", "k_3 // 3)"),  # of the consumers
        ("(tile_0 * 2 + k_0) // 3 - 1)", "k_0 // 3 - 1)"),  # of the producer
        ("(tile_1 * 2 + k_3 - 1) % 3", "(k_3 + 2) % 3"),  # freed a step later
    ],
)
def test_a_wrong_phase_across_tiles_is_found(old, new):
    text = show(scheduled(130, 64, 80, SMALL | {"ring": 3}, ALONE))
    assert old in text
    with pytest.raises(InterpreterError, match="phase"):
        error_of(parse(text.replace(old, new)), 130, 64, 80)


@pytest.mark.parametrize("of_producer", ["", ", registers=168"])
def test_registers_that_are_not_given_up_are_missing(of_producer):
    text = show(scheduled(128, 64, 64, SMALL | {"warpgroups": 2}))
    faulty = parse(text.replace(", registers=40", of_producer))
    with pytest.raises(InterpreterError, match="want 80896 of 65536 registers"):
        error_of(faulty, 128, 64, 64)


LAST = "evaluate(wait_products(0))"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (slice(1, None), r"products_shared is read while products that add to it are"),
        (slice(0, 0), "products_shared are in flight where their role ends; put"),
    ],
)
def test_products_are_waited_for_before_their_sums_are_read(lines, message):
    knobs = SMALL | {"ring": 3, "in_flight": 1, "bulk_store": False}
    text = show(scheduled(64, 64, 192, knobs)).splitlines()
    verify(parse("\n".join(text)))
    (at,) = (n for n, line in enumerate(text) if line.strip() == LAST)
    with pytest.raises(IRError, match=message):
        verify(parse("\n".join([*text[:at], *text[at:][lines]])))


def test_products_that_start_in_a_while_are_in_flight_after_it():
    knobs = SMALL | {"ring": 3, "in_flight": 1, "bulk_store": False}
    text = show(scheduled(64, 64, 192, knobs)).splitlines()
    (end,) = (n for n, line in enumerate(text) if line.strip() == LAST)
    loop = max(n for n in range(end) if " in range(3):" in text[n])
    indent = " " * (len(text[loop]) - len(text[loop].lstrip()))
    inside = [f"{indent}while 1 < 0:", *(f"    {line}" for line in text[loop:end])]
    verify(parse("\n".join([*text[:loop], *inside, *text[end:]])))
    with pytest.raises(IRError, match="products that add to it are"):
        verify(parse("\n".join([*text[:loop], *inside, *text[end + 1 :]])))


def test_a_bulk_store_needs_a_fence_of_what_threads_wrote():
    """Where they meet at a barrier object, they are ordered, but not their proxies."""
    lines = show(scheduled(64, 64, 64)).splitlines()
    _, last = (n for n, line in enumerate(lines) if "barrier(" in line)
    start = next(n for n, line in enumerate(lines) if "= barrier_object(" in line)
    space = lines[start][: -len(lines[start].lstrip())]
    inside = lines[last][: -len(lines[last].lstrip())]
    met = [f"{inside}arrive(met[0])", f"{inside}wait(met[0], 0)"]
    lines[last : last + 1] = met
    lines.insert(start, f"{space}met = barrier_object(128, 1)")
    func = parse("\n".join(lines))
    verify(func)
    with pytest.raises(InterpreterError, match=r"y_shared.* no barrier of its warpg"):
        error_of(func, 64, 64, 64)
    lines.insert(lines.index(met[-1]), f'{inside}barrier("warpgroup")')
    assert error_of(parse("\n".join(lines)), 64, 64, 64) == 0


def test_a_barrier_of_a_block_of_one_warpgroup_is_no_fence():
    text = """
def f(x: f32[128], y: Out[f32[128]]):
    for b in bound(1, "block.x"):
        t = alloc(f32[128], scope="shared")
        met = barrier_object(128, 1)
        for i in bound(128, "thread.x"):
            arrive(met[0])
            wait(met[0], 0)
            t[i] = x[i]
            barrier("warpgroup")
            with block("group", vg=spatial(1, i // 128), scope="warpgroup"):
                for j in range(128):
                    with block("y", vj=spatial(128, vg * 128 + j)):
                        y[vj] = t[vj]
"""
    x, y = np.arange(128, dtype="f4"), np.zeros(128, "f4")
    run(parse(text), x, y)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(InterpreterError, match=r"t.* no barrier of its warpg"):
        run(
            parse(
                text.replace(
                    '"warpgroup")\n            with', '"block")\n            with'
                )
            ),
            x,
            y,
        )


def test_no_wait_is_a_race():
    lines = show(scheduled(64, 64, 192)).splitlines()
    for name in ("full", "empty"):
        kept = [line for line in lines if f"wait({name}" not in line]
        with pytest.raises(InterpreterError, match=rf"race|{name}"):
            error_of(parse("\n".join(kept)), 64, 64, 192)


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"ring": 6}, r"ring=6: 6 stages .* exceed the 232448 of shared memory; 3 "),
        ({"instruction": "wgmma", "ring": 4}, "ring=4: .*; 3 stages fit"),
        ({"instruction": "mma", "in_flight": 1}, "in_flight.* chooses products of"),
    ],
)
def test_what_is_fixed_and_does_not_fit_is_refused(knobs, told):
    with pytest.raises(ArgumentError, match=told):
        scheduled(512, 512, 512, knobs)


@pytest.mark.parametrize(
    ("name", "kind", "target", "knobs", "told"),
    [
        ("nn.dense", "f32", HOPPER, {"in_flight": 1}, "in_flight.*: f32 is rounded to"),
        (
            "nn.dense",
            "f16",
            targets.to_compile("cuda:sm_80"),
            {"instruction": "wgmma"},
            "the target has no products of warpgroups",
        ),
        (
            "nn.dense_grad",
            "f16",
            HOPPER,
            {"in_flight_dw_sum": 1},
            "products of dw_sum are of unknown length",
        ),
    ],
)
def test_why_a_knob_is_none(name, kind, target, knobs, told):
    op = find(name)
    shapes = ((128, 128),) * (2 if name == "nn.dense" else 3)
    with pytest.raises(ArgumentError, match=told):
        default(op, op.workload(*shapes, dtypes=kind), target, knobs)


def test_a_fixed_instruction_is_not_another_one(monkeypatch):
    def refuse(*_):
        raise ScheduleError("such epilogues are none")

    monkeypatch.setattr(module, "epilogues", refuse)
    scheduled(64, 64, 64, {})
    with pytest.raises(ArgumentError, match="instruction=wgmma: such epilogues are"):
        scheduled(64, 64, 64, {"instruction": "wgmma"})


def test_a_tile_is_larger_than_its_columns_where_the_instruction_is_fixed():
    assert error_of(scheduled(70, 48, 64, {"instruction": "wgmma"}), 70, 48, 64) == 0
