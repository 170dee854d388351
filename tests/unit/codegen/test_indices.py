"""Indices in 32 bits: where bounds prove that they fit, and nowhere else."""

import numpy as np
import pytest

from tensorlang import build, targets
from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.indices import MOST_BYTES, size_bounds
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import TargetError
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Binary, Cast, For, Let, Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.ir.visit import walk

GPU = targets.get("cuda:sm_90a")


def divisions(func):
    """The types that a lowered function divides in."""
    return {
        node.dtype
        for node in walk(func)
        if isinstance(node, Binary) and node.op in ("floordiv", "floormod")
    }


ROWS = """
def rows(x: f32[n, {k}], y: Out[f32[n, {k}]], *, n: i64):
    for b in bound((n * {k} + 255) // 256, "block.x"):
        for t in bound(256, "thread.x"):
            if b * 256 + t < n * {k}:
                with block("y", vi=spatial(n, (b * 256 + t) // {k}),
                           vj=spatial({k}, (b * 256 + t) % {k})):
                    y[vi, vj] = x[vi, vj] * 2.0
"""


@pytest.mark.parametrize("k", [77, 77 << 20])
def test_a_size_is_as_large_as_memory_allows(k):
    lowered = lower(parse(ROWS.format(k=k)), GPU)
    verify(lowered)
    kinds = {
        loop.var.name: loop.var.dtype for loop in walk(lowered) if type(loop) is For
    }
    assert kinds["thread"] == i32
    (size,) = size_bounds(lowered).values()
    assert size == (0, MOST_BYTES // (4 * k))


def test_short_rows_do_what_they_did():
    lowered = lower(parse(ROWS.format(k=77)), GPU)
    x = np.arange(5 * 77, dtype="f4")
    y = np.zeros_like(x)
    run(lowered, x, y, n=5)
    np.testing.assert_array_equal(y, x * 2)


IMAGES = """
def images(x: f32[n, 64, 56, 56], y: Out[f32[n, 64]], *, n: i64):
    for b in bound(n * 64, "block.x"):
        for t in bound(32, "thread.x"):
            if t == 0:
                y[b // 64, b % 64] = x[b // 64, b % 64, 3, t // 7]
"""


def test_blocks_of_large_rows_divide_in_32_bits():
    lowered = lower(parse(IMAGES), GPU)
    verify(lowered)
    assert divisions(lowered) <= {i32}
    x = np.arange(3 * 64 * 56 * 56, dtype="f4")
    y = np.zeros(3 * 64, "f4")
    run(lowered, x, y, n=3)
    np.testing.assert_array_equal(y, x.reshape(-1, 56, 56)[:, 3, 0])
    source = render(lowered, GPU)
    assert "const i32 thread = threadIdx.x;" in source
    assert "(i32)((u32)" not in source  # shown not to wrap, and written plainly


WRAPS = """
def wraps(y: Out[i32[1024]]):
    for b in bound(4, "block.x"):
        for t in bound(256, "thread.x"):
            y[b * 256 + t] = cast(i32, b * 256 + t) * i32(1000003)
"""


def test_numbers_that_wrap_still_may():
    lowered = lower(parse(WRAPS), GPU)
    y = np.zeros(1024, "i4")
    run(lowered, y)
    with np.errstate(over="ignore"):
        expected = np.arange(1024, dtype="i4") * np.int32(1000003)
    np.testing.assert_array_equal(y, expected)
    large = lower(parse(WRAPS.replace("1000003", "2000000011")), GPU)
    assert "(u32)" in render(large, GPU)


BATCHES = """
def batches(
    x: f32[n, m, k], ids: i64[m], y: Out[f32[n, m, k]], *, n: i64, m: i64, k: i64
):
    for b in bound(n * m, "block.x"):
        for t in bound(256, "thread.x"):
            for j in range((k + 255) // 256):
                if j * 256 + t < k:
                    y[b // m, b % m, j * 256 + t] = x[{row}, b % m, j * 256 + t]
"""


@pytest.mark.parametrize(("row", "plain"), [("b // m", True), ("ids[b % m]", False)])
def test_an_index_is_over_the_integers_unless_data_decides(row, plain):
    source = render(lower(parse(BATCHES.format(row=row)), GPU), GPU)
    assert ("(u64)" not in source) == plain


SCALED = """
def scaled(y: Out[i64[256]], q: Out[i64[256]], *, k: i64):
    for b in bound(1, "block.x"):
        for t in bound(256, "thread.x"):
            y[t] = 0
            q[t] = t * k // k
            if t * k == t:
                y[t * k] = 7
"""

GUARDED = """
def guarded(y: Out[i64[256]], q: Out[i64[256]], *, k: i64):
    for b in bound(1, "block.x"):
        for t in bound(1, "thread.x"):
            for j in range(256):
                y[j] = 0
                q[j] = 0
            if k > 0:
                for i in range(64):
                    at: i64 = i * k
                    if at >= 0:
                        if at < 256:
                            y[at] = 1
                        if at >= 256:
                            q[i] = 1
"""


@pytest.mark.parametrize("text", [SCALED, GUARDED], ids=["stored", "guarded"])
@pytest.mark.parametrize("k", [3, 2**62 + 1, 3 * 2**61])
def test_what_is_compared_or_of_a_scalar_may_wrap(text, k):
    function = parse(text)
    assert "(u64)k" in render(lower(function, GPU), GPU)
    want = [np.zeros(256, "i8") for _ in range(2)]
    with np.errstate(over="ignore"):
        run(function, *want, k=k)
    try:
        kernel = build(function, "opencl", store=False)
    except TargetError as error:
        pytest.skip(str(error))
    got = [np.zeros(256, "i8") for _ in range(2)]
    kernel.launch(*got, k)
    np.testing.assert_array_equal(got, want)


COMPARED = """
def compared(x: f32[n], z: f32[m], y: Out[f32[n]], *, n: i64, m: i64):
    for b in bound(16, "block.x"):
        for t in bound(256, "thread.x"):
            {condition}
                y[t * n * m] = 1.0
"""


@pytest.mark.parametrize(
    ("condition", "plain"), [("if t < n:", True), ("if t * n * m < n:", False)]
)
def test_an_index_that_is_compared_may_wrap(condition, plain):
    text = COMPARED.format(condition=condition)
    source = render(lower(parse(text), GPU), GPU)
    assert ("(u64)" not in source) == plain


LONG = """
def long(x: f32[6000000000], y: Out[f32[1]]):
    for b in bound(1, "block.x"):
        for k in range(6000000000):
            with block("s", vk=reduction(6000000000, k)):
                reduce(sum, y[0], x[vk])
"""


def test_what_does_not_fit_stays():
    lowered = lower(parse(LONG), GPU)
    (loop,) = [n for n in walk(lowered) if isinstance(n, For) and n.kind == "serial"]
    assert loop.var == Var(loop.var.name, i64)
    assert not any(isinstance(n, Let) and n.var.dtype == i32 for n in walk(lowered))


PIXELS = """
def pixels(x: f32[n, 3136], y: Out[f32[n, 3136]], *, n: i64):
    for b in bound((n * 3136 + 127) // 128, "block.x"):
        for t in bound(128, "thread.x"):
            if b * 128 + t < n * 3136:
                y[(b * 128 + t) // 3136, (b * 128 + t) % 3136] = x[
                    (b * 128 + t) // 3136, (b * 128 + t) // 56 % 56 * 2]
"""


def test_places_of_what_is_large_are_small():
    lowered = lower(parse(PIXELS), GPU)
    verify(lowered)
    small = [x.a for x in walk(lowered) if isinstance(x, Cast) and x.dtype == i32]
    assert "floormod" in {x.op for x in small if isinstance(x, Binary)}
    x = np.arange(3 * 3136, dtype="f4")
    y = np.zeros_like(x)
    run(lowered, x, y, n=3)
    want = x.reshape(3, 3136)[:, np.arange(3136) // 56 * 2]
    np.testing.assert_array_equal(y.reshape(3, 3136), want)


FEW = """
def few(x: f32[n], y: Out[f32[8]], *, n: i64):
    for b in bound(1, "block.x"):
        for t in bound(8, "thread.x"):
            y[t] = x[min(t, n - 1)]
"""


@pytest.mark.parametrize("n", [3, 8, 12])
def test_what_is_less_than_a_thread_fits(n):
    lowered = lower(parse(FEW), GPU)
    verify(lowered)
    least = [x for x in walk(lowered) if isinstance(x, Binary) and x.op == "min"]
    assert {x.dtype for x in least} == {i32, i64}  # i64: a size that is cut off
    x, y = np.arange(n, dtype="f4"), np.zeros(8, "f4")
    run(lowered, x, y, n=n)
    np.testing.assert_array_equal(y, np.minimum(np.arange(8), n - 1))
