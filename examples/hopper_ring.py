"""A warp-specialised matrix product for Hopper, with a ring of copied tiles.

    python examples/hopper_ring.py

Each block computes 128 rows of `c = a b^T`. One thread of the last warpgroup issues
bulk copies (TMA) of tiles of `a` and `b` to the stages of a ring in shared memory; the
other two warpgroups multiply them (wgmma), 64 rows each, into registers distributed
over their threads by a layout. `full` and `empty` are barrier objects per stage: phase
k is the k-th time that the stage was filled, or freed.

It uses the ordinary IR: copies and products are plain loops, which the interpreter runs
with all checks and the compiler maps to single instructions.

The structure follows Pranjal Shankhdhar, "Outperforming cuBLAS on H100", 2024.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

from tensorlang import ir
from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir import Function
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.runtime.cuda import toolchain
from tensorlang.targets import to_compile

# 128-byte swizzle: 16-byte pieces are permuted so that eight rows have no bank
# conflicts
SWIZZLE = "lambda s, i, j: (s, i, (j // 8 ^ i % 8) * 8 + j % 8)"
# wgmma's accumulator layout: (thread, register)
SUMS = """lambda i, j: (
                i // 64 * 128 + i // 16 % 4 * 32 + i % 8 * 4 + j % 8 // 2,
                j // 8 * 4 + i // 8 % 2 * 2 + j % 2)"""
RING = """
def hopper_ring(a: bf16[{M}, {K}], b: bf16[{N}, {K}], c: Out[f32[{M}, {N}]]):
    for by in bound({M} // 128, "block.y"):
        for bx in bound({N} // {W}, "block.x"):
            a_s = alloc(bf16[{S}, 128, 64], scope="shared", layout={SWIZZLE})
            b_s = alloc(bf16[{S}, {W}, 64], scope="shared", layout={SWIZZLE})
            sums = alloc(f32[128, {W}], scope="register", layout={SUMS})
            full = barrier_object(1, {S})
            empty = barrier_object(8, {S})
            for t in bound(384, "thread.x"):
                with role(t >= 256, registers=40):
                    if t == 256:
                        for k in range({K} // 64):
                            wait(empty[k % {S}], k // {S} - 1)
                            with arrive(full[k % {S}]):
                                for ai in range(128):
                                    for aj in range(64):
                                        a_s[k % {S}, ai, aj] = a[by * 128 + ai, k * 64 + aj]
                                for bi in range({W}):
                                    for bj in range(64):
                                        b_s[k % {S}, bi, bj] = b[bx * {W} + bi, k * 64 + bj]
                with role(t < 256, registers=232):
                    i0: i64 = t // 32 * 16 + t % 32 // 4
                    j0: i64 = t % 4 * 2
                    for z in unrolled({W} // 2):
                        sums[i0 + z // 2 % 2 * 8, j0 + z // 4 * 8 + z % 2] = 0.0
                    for kc in range({K} // 64):
                        wait(full[kc % {S}], kc // {S})
                        with block("products", vw=spatial(2, t // 128),
                                   vk=reduction({K} // 64, kc), scope="warpgroup"):
                            with init():
                                pass
                            for i in range(64):
                                for j in range({W}):
                                    for q in range(64):
                                        with block("product", vi=spatial(128, vw * 64 + i),
                                                   vj=spatial({W}, j),
                                                   vq=reduction({K}, vk * 64 + q)):
                                            with init():
                                                pass
                                            reduce(sum, sums[vi, vj],
                                                   cast(f32, a_s[vq // 64 % {S}, vi, vq % 64])
                                                   * cast(f32, b_s[vq // 64 % {S}, vj, vq % 64]))
                        if t % 32 == 0:
                            arrive(empty[kc % {S}])
                    for r in unrolled({W} // 2):
                        ri: i64 = i0 + r // 2 % 2 * 8
                        rj: i64 = j0 + r // 4 * 8 + r % 2
                        c[by * 128 + ri, bx * {W} + rj] = sums[ri, rj]
"""  # noqa: E501 - deeply nested program


def hopper_ring(
    m: int = 4096, n: int = 4096, k: int = 4096, *, width: int = 128, stages: int = 4
) -> Function:
    """A product: c [m, n] f32 = a [m, k] bf16 times b [n, k] bf16 transposed.

    Args:
        m: Rows, a multiple of 128.
        n: Columns, a multiple of `width`.
        k: The reduction, a multiple of 64.
        width: Columns per block: 8 to 256, a multiple of 8.
        stages: Stages of the ring.
    """
    values = {"M": m, "N": n, "K": k, "W": width, "S": stages}
    text = RING.replace("{SWIZZLE}", SWIZZLE).replace("{SUMS}", SUMS)
    for word, value in values.items():
        text = text.replace(f"{{{word}}}", str(value))
    return parse(text)


def main() -> None:
    """Run a small product in the interpreter, and compile a large one if possible."""
    small = hopper_ring(128, 64, 128, width=64, stages=2)
    verify(small)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, 128)) for rows in (128, 64))
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    c = np.zeros((128, 64), np.float32)
    ir.run(small, a, b, c)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    print(f"largest error {abs(c - wanted).max():.1e}", end="")
    if toolchain.missing():
        print(f"; not compiled: {toolchain.missing()}")
        return
    target = to_compile("cuda:sm_90a")
    ptx = toolchain.ptx_of(render(lower(hopper_ring(), target), target), target.arch)
    sass = toolchain.sass_of(toolchain.cubin_of(ptx, target.arch)[0])
    found = sorted(set(re.findall(r"HGMMA\.\w+|UTMALDG\.2D|USETMAXREG", sass)))
    print(f"; compiled with {', '.join(found)}")


if __name__ == "__main__":
    main()
