"""The emitted call wrapper: what it takes by itself, and what it hands over."""

import numpy as np
import pytest

from tensorlang.errors import DeviceMemoryError, DTypeError, KernelError
from tensorlang.ir.dtypes import DType

# out[0] = the bits of the slot after the buffer
STORE_SCALAR = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %out = load ptr, ptr %args
  %value.at = getelementptr i64, ptr %args, i64 1
  %value = load i64, ptr %value.at
  store i64 %value, ptr %out
  ret i32 0
}
"""
# out[0] = the address of the workspace; fault where it is not aligned to 64 bytes
STORE_WORKSPACE = """
define i32 @NAME(ptr %args, i64 %tid, i64 %team, ptr %barrier) {
  %out = load ptr, ptr %args
  %room.at = getelementptr ptr, ptr %args, i64 1
  %room = load ptr, ptr %room.at
  %address = ptrtoint ptr %room to i64
  store i64 %address, ptr %out
  %end = getelementptr i8, ptr %room, i64 4999
  store i8 1, ptr %end
  %low = and i64 %address, 63
  %code = trunc i64 %low to i32
  ret i32 %code
}
"""


def bits_kernel(assemble, dtype):
    out = assemble.buffer("out", "u64", "out", (1,))
    return assemble(STORE_SCALAR, [out], [("s", dtype)])


@pytest.mark.parametrize(
    "dtype", ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
)
@pytest.mark.usefixtures("only_fast")
def test_integers_travel_as_their_bits(assemble, dtype):
    kernel = bits_kernel(assemble, dtype)
    low, high = DType(dtype).limits
    out = np.zeros(1, np.uint64)
    for value in (low, -1 if low else 0, 0, 1, high):
        kernel(out, value)
        assert int(out[0]) == value & ((1 << DType(dtype).bits) - 1)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i64", "u64"])
def test_integers_out_of_range_are_refused(assemble, dtype):
    kernel = bits_kernel(assemble, dtype)
    low, high = DType(dtype).limits
    out = np.zeros(1, np.uint64)
    for value in (low - 1, high + 1, 1 << 70):
        with pytest.raises(DTypeError, match=f"s is {value}; {dtype} holds {low} to"):
            kernel(out, value)


@pytest.mark.usefixtures("only_fast")
def test_floats_travel_as_their_bits(assemble):
    out = np.zeros(1, np.uint64)
    bits_kernel(assemble, "f32")(out, 0.1)
    assert int(out[0]) == int(np.float32(0.1).view(np.uint32))
    bits_kernel(assemble, "f64")(out, -0.1)
    assert int(out[0]) == int(np.float64(-0.1).view(np.uint64))


@pytest.mark.usefixtures("only_fast")
def test_bools_travel_as_one_or_zero(assemble):
    kernel, out = bits_kernel(assemble, "bool"), np.zeros(1, np.uint64)
    for value in (True, False):
        kernel(out, value)
        assert int(out[0]) == value


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("f16", 1.0, 0x3C00),
        ("bf16", 1.0, 0x3F80),
        ("f32", np.float32(2.0), 0x40000000),
        ("f32", 2, 0x40000000),
        ("f64", np.float64(1.0), 0x3FF0000000000000),
        ("i32", np.int64(-1), 0xFFFFFFFF),
        ("bool", np.bool_(1), 1),
    ],
)
def test_other_numbers_take_the_slow_way(assemble, dtype, value, bits):
    out = np.zeros(1, np.uint64)
    bits_kernel(assemble, dtype)(out, value)
    assert int(out[0]) == bits


@pytest.mark.parametrize(
    ("dtype", "value", "sentence"),
    [
        ("f32", "fast", "s must be a number, not 'fast'"),
        ("i32", 1.5, "s must be a whole number, not 1.5"),
        ("i32", None, "s must be a whole number, not None"),
    ],
)
def test_what_is_no_number_is_refused(assemble, dtype, value, sentence):
    with pytest.raises(DTypeError, match=sentence):
        bits_kernel(assemble, dtype)(np.zeros(1, np.uint64), value)


@pytest.mark.usefixtures("only_fast")
def test_plain_calls_go_the_fast_way(scale):
    x, y = np.arange(16, dtype=np.float32), np.empty(16, np.float32)
    assert scale.launch(x, y, 2.0) is None
    np.testing.assert_array_equal(y, 2 * x)
    assert scale(x, y, 3.0) is y
    assert scale(x, 4.0, out=y) is y
    np.testing.assert_array_equal(scale(x, 0.5), 0.5 * x)
    large = np.ones(100_000, np.float32)
    np.testing.assert_array_equal(scale(large, 2.0), 2 * large)


def test_a_fault_raises_with_its_code(scale):
    x = np.ones(16, np.float32)
    for size in (16, 100_000):
        x = np.ones(size, np.float32)
        with pytest.raises(KernelError, match="hand reported fault 3") as caught:
            scale(x, -1.0)
        assert caught.value.code == 3
    with pytest.raises(KernelError, match="fault 3"):
        scale(x[::2], -1.0)


def test_calls_do_not_leak_references(scale):
    import sys

    x, y = np.ones(16, np.float32), np.empty(16, np.float32)
    rate = 2.5
    before = [sys.getrefcount(v) for v in (x, y, rate)]
    for _ in range(1000):
        scale.launch(x, y, rate)
    assert [sys.getrefcount(v) for v in (x, y, rate)] == before


@pytest.mark.usefixtures("only_fast")
def test_composite_dimensions_are_checked(assemble):
    dims = (("add", ("mul", "n", 2), 1), ("max", "n", 3))
    kernel = assemble(
        STORE_SCALAR,
        [
            assemble.buffer("out", "u64", "out", ("n",)),
            assemble.buffer("x", "f32", "in", dims),
        ],
        [("n", "i64")],
    )
    out = np.zeros(2, np.uint64)
    kernel(out, np.zeros((5, 3), np.float32))
    for shape in ((4, 3), (5, 2), (5, 4)):
        with pytest.raises(AssertionError, match="slow way"):
            kernel(out, np.zeros(shape, np.float32))


@pytest.mark.usefixtures("only_fast")
def test_bfloat16_is_known_by_its_number(assemble):
    import ml_dtypes

    kernel = assemble(
        "define i32 @NAME(ptr %a, i64 %t, i64 %m, ptr %b) {\n ret i32 0\n}\n",
        [assemble.buffer("x", "bf16")],
        [("n", "i64")],
    )
    kernel(np.zeros(3, ml_dtypes.bfloat16))
    with pytest.raises(AssertionError, match="slow way"):
        kernel(np.zeros(3, np.float16))


@pytest.mark.usefixtures("only_fast")
def test_workspace_is_aligned_and_reused(assemble):
    out = np.zeros(1, np.uint64)
    kernel = assemble(
        STORE_WORKSPACE, [assemble.buffer("out", "u64", "out", (1,))], workspace=5000
    )
    kernel(out)
    first = int(out[0])
    kernel(out)
    assert int(out[0]) == first != 0


def test_no_memory_for_the_workspace(assemble):
    kernel = assemble(
        STORE_WORKSPACE,
        [assemble.buffer("out", "u64", "out", (1,))],
        workspace=1 << 60,
    )
    with pytest.raises(DeviceMemoryError, match="out of memory for its temporaries"):
        kernel(np.zeros(1, np.uint64))
