"""tensorize for a warp: lanes that multiply a tile together."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.interpreter import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.scheduling.intrinsics.warps import WARP_NAMES, warp_intrinsic
from tensorlang.scheduling.steps.tensorize import tensorize


def operands(func):
    generator = np.random.default_rng(0)
    made = []
    for buffer in func.buffers:
        shape = [int(extent.value) for extent in buffer.shape]
        values = generator.normal(size=shape).astype("f4")
        made.append(values.astype(buffer.dtype.numpy))
    return made


def product(func):
    verify(func)
    c, *rest = operands(func)
    run(func, c, *rest)
    return c


@pytest.mark.parametrize("name", WARP_NAMES)
def test_implementation_means_what_it_says(name):
    entry = warp_intrinsic(name)
    want = product(entry.meaning)
    np.testing.assert_allclose(
        product(entry.implementation), want, rtol=1e-5, atol=1e-5
    )
    assert abs(want - operands(entry.meaning)[0]).max() > 1


@pytest.mark.parametrize("name", WARP_NAMES)
def test_the_meaning_can_be_replaced(name):
    entry = warp_intrinsic(name)
    loops_of_lanes = entry.meaning.body.body
    made = tensorize(entry.meaning, loops_of_lanes.var.name, name)
    assert ("shuffle_xor" if "quad" in name else "mma_m16n8k") in str(made)
    np.testing.assert_allclose(
        product(made), product(entry.meaning), rtol=1e-5, atol=1e-5
    )


def two_warps(columns="t // 32 * 16 + q * 8 + t % 4 * 2 + e", threads=64):
    return parse(
        f"""
def product(c: InOut[f32[32, 32]], a: bf16[32, 16], b: bf16[32, 16]):
    for i in range(2):
        for t in bound({threads}, "thread.x"):
            for p in range(2):
                for q in range(2):
                    for e in range(2):
                        for k in range(16):
                            with block(
                                "c",
                                vi=spatial(32, i * 16 + p * 8 + t % 32 // 4),
                                vj=spatial(32, {columns}),
                                vk=reduction(16, k),
                            ):
                                with init():
                                    pass
                                reduce(sum, c[vi, vj],
                                       cast(f32, a[vi, vk]) * cast(f32, b[vj, vk]))
"""
    )


def test_each_warp_has_its_own_columns():
    func = two_warps()
    made = tensorize(func, "c", "mma_m16n16k16_bf16")
    np.testing.assert_allclose(product(made), product(func), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("columns", "threads", "complaint"),
    [
        ("t // 32 * 16 + q * 8 + e * 4 + t % 4", 64, "each lane reduces its own"),
        ("t // 32 * 16 + q * 8 + t % 4 * 2 + e", 48, "no whole warps"),
    ],
)
def test_other_lanes_are_refused(columns, threads, complaint):
    with pytest.raises(ScheduleError, match=complaint):
        tensorize(two_warps(columns, threads), "c", "mma_m16n16k16_bf16")


def test_outside_of_threads_it_is_refused():
    text = str(two_warps()).replace('bound(64, "thread.x")', "range(64)")
    with pytest.raises(ScheduleError, match=r"is in no loop over thread\.x"):
        tensorize(parse(text), "c", "mma_m16n16k16_bf16")
