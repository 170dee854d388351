"""Matrix product instructions: the bits that they mean, and the code for them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.codegen.vectors.tile_indices import rows_of
from tensorlang.errors import CodegenError, DTypeError
from tensorlang.instructions import MATRIX_PRODUCTS, MatrixProduct, matrix_product
from tensorlang.ir import Buffer, Function, parse, run
from tensorlang.ir.cpu_natives import CPU_NATIVES
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.nodes import Const, Expr, Ramp, Splat, Var
from tensorlang.runtime import build
from tensorlang.runtime.cpu import llvm
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.intrinsics.matrices import HEIGHTS, LAYOUTS, matrix_name
from tensorlang.scheduling.intrinsics.tensor import tensor_intrinsic

X86, CPU = "x86_64-unknown-linux-gnu", "graniterapids"
FEATURES = tuple({name for row in MATRIX_PRODUCTS.values() for name in row.features})
TARGET = targets.Target(
    cpu=CPU, features=FEATURES, vector_bits=512, vector_registers=32
)
ROWS = pytest.mark.parametrize("row", MATRIX_PRODUCTS.values(), ids=lambda r: r.name)


def drawn(rng: np.random.Generator, buffer: Buffer, power: float) -> np.ndarray:
    """Bytes of any value, or normal numbers times a power of 2."""
    shape = tuple(int(extent.value) for extent in buffer.shape)
    if buffer.dtype.is_float:
        return (rng.standard_normal(shape) * 2.0**power).astype(buffer.dtype.numpy)
    return rng.integers(-(1 << 31), 1 << 31, shape).astype(buffer.dtype.numpy)


def listed(function: Function) -> str:
    text = render(lower(function, TARGET), TARGET)
    return llvm.compile_for(text, X86, CPU, listed=True).decode()


@ROWS
@pytest.mark.parametrize(("height", "layout"), [*zip((16, 2, 1), LAYOUTS, strict=True)])
def test_meaning_to_the_bit(row: MatrixProduct, height: int, layout: str) -> None:
    """Also of subnormal numbers, which are 0 before and after each step."""
    rng = np.random.default_rng(height)
    step = tensor_intrinsic(matrix_name(row, height, layout)).implementation
    kernel = build(step, TARGET, store=False, by_meaning=True)
    for power in (0, -3, -120, -130, -140):
        arrays = [
            drawn(rng, buffer, power / (1 if buffer.name == "c" else 2))
            for buffer in step.buffers
        ]
        expected = [array.copy() for array in arrays]
        run(step, *expected)
        kernel.launch(*arrays)
        np.testing.assert_array_equal(
            arrays[0].view(np.uint32), expected[0].view(np.uint32)
        )


def test_floats_are_added_in_order() -> None:
    """Even products and odd ones apart, then both, then the sums."""
    sums, a, b = (np.zeros(n, np.float32) for n in (256, 512, 512))
    a[:4], b[:64:32], b[1:64:32] = (1e30, 1.0, -1e30, 1.0), 1.0, 1.0
    sums[0] = 2.0
    native = CPU_NATIVES["tdpbf16ps"].numpy
    assert native is not None
    assert native(sums, a, b)[0] == 4.0
    a[:4] = 1e30, -1e30, 1.0, 1.0
    assert native(sums, a, b)[0] == 2.0


@ROWS
@pytest.mark.parametrize("height", HEIGHTS)
def test_a_step_is_three_loads_and_a_product(row: MatrixProduct, height: int) -> None:
    step = tensor_intrinsic(matrix_name(row, height, "strips")).implementation
    text = listed(step)
    body = text[text.index(".stage0:") :].partition(".Lfunc_end")[0]
    used = re.findall(r"^\t(\w+)", body, re.MULTILINE)
    assert used.count(row.name) == used.count("ldtilecfg") == 1
    assert used.count("tileloadd") == 3
    assert used.count("tilestored") == 1
    assert used.count("tilerelease") == used.count("retq")


BLOCK = parse("""
def f(x: bf16[96, 256], w: bf16[8, 128, 32], y: Out[f32[96, 128]]):
    for i in range(96):
        for j in range(128):
            for k in range(256):
                with block("y", vi=spatial(96, i), vj=spatial(128, j),
                           vk=reduction(256, k)):
                    with init():
                        y[vi, vj] = 0.0
                    reduce(sum, y[vi, vj], cast(f32, x[vi, vk])
                        * cast(f32, w[vj // 16, vk // 2, vj % 16 * 2 + vk % 2]))
""")


def in_tiles() -> Function:
    """Blocks of 32 by 32 sums in four tiles."""
    s = Schedule(BLOCK, TARGET)
    i_0, i_1, i_2 = s.split("i", [None, 2, 16])
    j_0, j_1, j_2 = s.split("j", [None, 2, 16])
    k_0, k_1, k_2 = s.split("k", [None, 16, 2])
    s.reorder(j_0, i_0, k_0, i_1, j_1, i_2, j_2, k_1, k_2)
    write, sums = s.cache_write("y", "y", "register", at=i_0)
    s.transform_layout(sums, "lambda i, j: (i // 16, j // 16, i % 16, j % 16)")
    start = s.decompose_reduction("y", k_0)
    row, column = s.loops(write)[-2:]
    s.split(row, [None, 16])
    s.split(column, [None, 16])
    row_0, row_1, column_0, column_1 = s.loops(write)[-4:]
    s.reorder(row_0, column_0, row_1, column_1)
    for block, name in (
        (start, "zero_16x16xf32"),
        ("y", "tdpbf16ps_16_strips"),
        (write, "copy_16x16xf32"),
    ):
        outer = 6 if block == "y" else 4
        for loop in s.loops(block)[-outer : 2 - outer]:
            s.unroll(loop)
        s.tensorize(block, name)
    return s.function


def test_the_inner_loop_loads_each_tile_once() -> None:
    """Four products and four loads of tiles; sums stay in registers."""
    text = listed(in_tiles())
    loops = re.split(r"^\.LBB\w+:.*$", text, flags=re.MULTILINE)
    body = max(loops, key=lambda part: part.count("tdpbf16ps"))
    used = re.findall(r"^\t([a-z]\w+)", body.partition("\tjb\t")[0], re.MULTILINE)
    assert used.count("tdpbf16ps") == used.count("tileloadd") == 4
    assert len(used) <= 16, body
    assert text.count("\tldtilecfg\t") == 1
    assert text.count("\ttilezero\t") == text.count("\ttilestored\t") == 4


def test_a_block_of_tiles_is_right() -> None:
    function, rng = in_tiles(), np.random.default_rng(0)
    x, w = (rng.integers(-9, 10, shape) for shape in ((96, 256), (256, 128)))
    packed = w.reshape(128, 2, 8, 16).transpose(2, 0, 3, 1).reshape(8, 128, 32)
    given = [array.astype(DType("bf16").numpy) for array in (x, packed)]
    y = np.zeros((96, 128), np.float32)
    run(function, *given, y)
    np.testing.assert_array_equal(y, x @ w)
    kernel = build(function, TARGET, store=False, by_meaning=True)
    np.testing.assert_array_equal(kernel(*given), x @ w)


def test_processors_without_it_are_told() -> None:
    step = tensor_intrinsic("tdpbf16ps_16_rows").implementation
    target = targets.Target(features=("avx512f",))
    with pytest.raises(CodegenError, match="processors with amx_tile and amx_bf16"):
        render(lower(step, target), target)
    assert matrix_product(target.features, ("bf16", "bf16")) is None


def test_types_of_tiles() -> None:
    result = CPU_NATIVES["tdpbssd"].result
    sums, a, b = DType("i32", 32), DType("i8", 128), DType("i8", 1024)
    assert result((sums, a, b)) == sums
    for wrong in ((sums, a, a), (DType("i32", 17), a, b), (sums, DType("u8", 128), b)):
        with pytest.raises(DTypeError, match="tdpbssd takes up to 16 rows"):
            result(wrong)


n, i = Var("n", i64), Var("i", i64)


def vector(row: Expr, column: Expr, columns: int, lanes: int = 64) -> Expr:
    """Indices of a matrix with rows of `n`, of a tile at `(row, column)`."""
    every, wide = (
        Ramp(Const(0, i64), Const(1, i64), lanes),
        Splat(Const(columns, i64), lanes),
    )
    down = (Splat(row, lanes) + every // wide) * Splat(n, lanes)
    return down + (Splat(column, lanes) + every % wide)


def test_tiles_are_recognised() -> None:
    found = rows_of(vector(i, Const(3, i64), 16), 16)
    assert found is not None
    assert found[1] == n
    one = rows_of(vector(i, Const(3, i64), 16, 16), 16)
    assert one is not None
    assert one[1] == Const(16, i64)
    assert rows_of(vector(i, i, 8), 16) is None
    every = Ramp(i, Const(1, i64), 64)
    assert rows_of(every, 16) == (i, Const(16, i64))
    assert rows_of(every * every, 16) is None
    assert rows_of(every // Splat(Const(2, i64), 64), 16) is None


def test_factors_that_are_no_tile_are_refused() -> None:
    step = tensor_intrinsic("tdpbf16ps_16_strips").implementation
    lowered = str(lower(step, TARGET))
    text = re.sub(r" x\[.*?\], w", " x[ramp(0, 2, 512)], w", lowered)
    assert text != lowered
    with pytest.raises(CodegenError, match="rows of 32 elements at one pitch"):
        render(parse(text), TARGET)
