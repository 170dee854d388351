"""tensorize: instructions whose meaning is a loop nest."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.intrinsics.tensor import NAMES, tensor_intrinsic
from tensorlang.scheduling.steps.layout import transform_layout
from tensorlang.scheduling.steps.reduction import decompose_reduction
from tensorlang.scheduling.steps.tensorize import tensorize

MATMUL = parse("""
def matmul(a: f32[6, 5], b: f32[5, 48], c: Out[f32[6, 48]]):
    for i in range(6):
        for k in range(5):
            for j_0 in range(3):
                for j_1 in range(16):
                    with block("c", vi=spatial(6, i), vj=spatial(48, j_0 * 16 + j_1),
                               vk=reduction(5, k)):
                        reduce(sum, c[vi, vj], a[vi, vk] * b[vk, vj])
""")

BF16 = parse("""
def matmul(a: bf16[3, 10], b: bf16[10, 32], c: Out[f32[3, 32]]):
    t = alloc(bf16[10, 32])
    for k in range(10):
        for j in range(32):
            with block("t", vk=spatial(10, k), vj=spatial(32, j)):
                t[vk, vj] = b[vk, vj]
    for i in range(3):
        for j_0 in range(2):
            for k_0 in range(5):
                for j_1 in range(16):
                    for k_1 in range(2):
                        with block("c", vi=spatial(3, i),
                                   vj=spatial(32, j_0 * 16 + j_1),
                                   vk=reduction(10, k_0 * 2 + k_1)):
                            reduce(sum, c[vi, vj],
                                   cast(f32, a[vi, vk]) * cast(f32, t[vk, vj]))
""")

PACK = parse("""
def pack(w: f32[48, 32], t: Out[f32[3, 32, 16]]):
    for n_0 in range(3):
        for k_0 in range(2):
            for n_1 in range(16):
                for k_1 in range(16):
                    with block("t", vo=spatial(3, n_0), vn=spatial(16, n_1),
                               vk=spatial(32, k_0 * 16 + k_1)):
                        t[vo, vk, vn] = w[vo * 16 + vn, vk]
""")


@pytest.mark.parametrize("name", NAMES)
def test_implementation_means_what_it_says(name, same_meaning):
    entry = tensor_intrinsic(name)
    same_meaning(entry.meaning, entry.implementation)


def test_tensorize_a_matmul_with_fma(golden, same_meaning):
    func, _ = decompose_reduction(MATMUL, "c", "k")
    after = tensorize(func, "c", "fma_16xf32")
    golden(show(after))
    same_meaning(MATMUL, after)


def test_tensorize_with_bf16_pairs(golden, same_meaning):
    func = transform_layout(BF16, "t", "lambda k, j: (k // 2, j, k % 2)")
    func, _ = decompose_reduction(func, "c", "k_0")
    after = tensorize(func, "c", "dpbf16ps_bf16_columns")
    golden(show(after))
    same_meaning(BF16, after)


def test_tensorize_packing_with_a_transpose(same_meaning):
    after = tensorize(PACK, "n_1", "transpose_16x16xf32")
    assert "columns: f32x256 = transpose_16(r0, r1, " in show(after)
    same_meaning(PACK, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: tensorize(MATMUL, "c", "fma_7xf32"), "no intrinsic 'fma_7xf32'"),
        (lambda: tensorize(MATMUL, "c", "fma_16xf32"), "decompose its reduction first"),
        (lambda: tensorize(MATMUL, "c", "fma_8xf32"), "is for loops of"),
        (lambda: tensorize(MATMUL, "k", "fma_16xf32"), "is for loops of"),
        (lambda: tensorize(PACK, "n_1", "dpbf16ps_bf16_columns"), "is for loops of"),
        (
            lambda: tensorize(
                parse(show(PACK).replace("vo * 16 + vn, vk", "vo * 16 + vn, 31 - vk")),
                "t",
                "transpose_16x16xf32",
            ),
            "does not run through the tile",
        ),
    ],
)
def test_refusals_of_tensorizing(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()


STRIPS = """
def f(x: u8[3, 16], w: i8[2, 4, 64], y: InOut[i32[3, 32]]):
    for i in range(3):
        for j0 in range(2):
            for k0 in range(4):
                for l in range(16):
                    for p in range(4):
                        with block(
                            "y",
                            vi=spatial(3, i),
                            vj=spatial(32, j0 * 16 + l),
                            vk=reduction(16, k0 * 4 + p),
                        ):
                            with init():
                                pass
                            reduce(sum, y[vi, vj],
                                cast(i32, x[vi, vk]) * cast(i32,
                                    w[vj // 16, vk // 4, vj % 16 * 4 + vk % {by}]))
"""


def test_quotients_of_whole_tiles(same_meaning):
    func = parse(STRIPS.format(by=4))
    after = tensorize(func, "l", "dpbusd_u8_strips")
    assert "dpbusd" in show(after)
    same_meaning(func, after)
    with pytest.raises(ScheduleError, match="does not run through the tile"):
        tensorize(parse(STRIPS.format(by=3)), "l", "dpbusd_u8_strips")
