"""Calls that the emitted wrapper leaves to Python: views, overlaps, mistakes."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.text.parser import parse

F32 = np.float32


def ramp(n=16):
    return np.arange(n, dtype=F32)


# ------------------------------------------------------------- what works


@pytest.mark.parametrize(
    "view",
    [lambda a: a[::2], lambda a: a[::-1], lambda a: a.reshape(4, 8).T[:, 1]],
    ids=["strided", "reversed", "column"],
)
def test_views_are_copied_in_and_back(scale, view):
    x, y = view(ramp(32)), view(np.zeros(32, F32))
    assert scale(x, 2.0, out=y) is y
    np.testing.assert_array_equal(y, 2 * x)


def test_unaligned_arrays_are_copied_in_and_back(scale):
    raw = np.zeros(65, np.uint8)
    y = raw[1:].view(F32)
    assert not y.flags.aligned
    scale(ramp(), 2.0, out=y)
    np.testing.assert_array_equal(y, 2 * ramp())


def test_elements_between_a_strided_output_stay(scale):
    whole = np.full(32, 7, F32)
    scale(ramp(), 2.0, out=whole[::2])
    np.testing.assert_array_equal(whole[1::2], 7)


def test_an_overlapping_input_is_read_before_it_is_written(scale):
    memory = ramp(20)
    expected = 2 * memory[:16]
    scale(memory[:16], 2.0, out=memory[4:])
    np.testing.assert_array_equal(memory[4:], expected)


@pytest.mark.parametrize("aliases", [(), ((1, 0),)], ids=["copied", "in place"])
def test_out_may_be_the_input_itself(assemble, aliases, request):
    kernel = assemble(
        assemble.scale,
        [assemble.buffer("x"), assemble.buffer("y", role="out")],
        [("n", "i64"), ("rate", "f32")],
        aliases=aliases,
    )
    x = ramp(20)
    kernel(x[:16], 2.0, out=x[4:])  # a part of it is always copied
    np.testing.assert_array_equal(x[4:], 2 * ramp(16))
    if aliases:
        request.getfixturevalue("only_fast")
    x = ramp()
    assert kernel(x, 2.0, out=x) is x
    np.testing.assert_array_equal(x, 2 * ramp())


def test_zero_elements(scale):
    assert scale(np.empty(0, F32), 2.0).shape == (0,)


def test_fresh_outputs_of_every_form(assemble):
    kernel = assemble(
        "define i32 @NAME(ptr %a, i64 %t, i64 %m, ptr %b) {\n ret i32 0\n}\n",
        [
            assemble.buffer("a", role="out", shape=("n", 3)),
            assemble.buffer("x"),
            assemble.buffer("b", "i8", "out", (("floordiv", "m", 2),)),
        ],
        [("n", "i64"), ("m", "i64")],
    )
    x = ramp(5)
    a, b = kernel(x, 9)
    assert (a.shape, a.dtype, b.shape, b.dtype) == ((5, 3), F32, (4,), np.int8)
    a, b = kernel(x, m=7)
    assert b.shape == (3,)
    outs = (np.empty((5, 3), F32), np.empty(4, np.int8))
    assert kernel(x, 9, out=outs) is outs
    assert kernel(outs[0], x, outs[1], 9) == outs
    with pytest.raises(ArgumentError, match=r"hand has 2 outputs, got 1 in out="):
        kernel(x, 9, out=outs[0])


def test_a_size_that_no_input_gives_is_named(assemble):
    kernel = assemble(
        "define i32 @NAME(ptr %a, i64 %t, i64 %m, ptr %b) {\n ret i32 0\n}\n",
        [assemble.buffer("y", role="out")],
        [("n", "i64")],
    )
    assert kernel(n=4).shape == (4,)
    with pytest.raises(
        ArgumentError, match="no input's shape determines n; pass n= or out="
    ):
        kernel()


# ------------------------------------------------------------- what is refused


def refused(kind, sentence, kernel, *args, **kwargs):
    with pytest.raises(kind) as caught:
        kernel(*args, **kwargs)
    assert sentence in str(caught.value)


def test_wrong_number_of_arguments(scale):
    refused(
        ArgumentError,
        "hand takes 3 arguments (x, y, rate), got 1",
        scale.launch,
        ramp(),
    )
    refused(ArgumentError, "hand takes 3 arguments", scale, ramp(), ramp(), 1.0, 2.0)
    refused(ArgumentError, "hand takes 3 arguments", scale, ramp())


@pytest.mark.parametrize("dtype", ["float64", "int32", ">f4", "float16"])
def test_wrong_dtype(scale, dtype):
    sentence = f"hand: x has dtype {np.dtype(dtype)}; it must be float32"
    refused(DTypeError, sentence, scale, ramp().astype(dtype), ramp(), 2.0)


def test_wrong_rank(scale):
    sentence = "hand: x has shape (4, 4); it must have 1 dimensions: x: f32[n]"
    refused(ShapeError, sentence, scale, ramp().reshape(4, 4), ramp(), 2.0)
    refused(ShapeError, sentence, scale, ramp().reshape(4, 4), 2.0)


def test_dimensions_that_disagree(scale):
    sentence = "hand: y has shape (15,); dimension 0 must be 16 (n, as in x)"
    refused(ShapeError, sentence, scale, ramp(16), ramp(15), 2.0)


def test_fixed_and_composite_dimensions(assemble):
    kernel = assemble(
        "define i32 @NAME(ptr %a, i64 %t, i64 %m, ptr %b) {\n ret i32 0\n}\n",
        [
            assemble.buffer("x", shape=("n", 3)),
            assemble.buffer("y", shape=(("mul", "n", 2),)),
        ],
        [("n", "i64")],
    )
    kernel(np.zeros((4, 3), F32), np.zeros(8, F32))
    sentence = "hand: x has shape (4, 2); dimension 1 must be 3"
    refused(ShapeError, sentence, kernel, np.zeros((4, 2), F32), np.zeros(8, F32))
    sentence = "hand: y has shape (9,); dimension 0 must be 8 ((n * 2))"
    refused(ShapeError, sentence, kernel, np.zeros((4, 3), F32), np.zeros(9, F32))


def test_what_is_no_array(scale):
    sentence = "hand: x is a list, not an array; pass a NumPy array"
    refused(ArgumentError, sentence, scale, [1.0, 2.0], ramp(), 2.0)
    refused(ArgumentError, "x is a NoneType, not an array", scale, None, ramp(), 2.0)


def test_read_only_outputs(scale):
    y = ramp()
    y.flags.writeable = False
    sentence = "hand: y is read-only, and the kernel writes it; pass a writable array"
    refused(ArgumentError, sentence, scale, ramp(), y, 2.0)
    assert scale(y, 2.0)[3] == 6  # reading it is fine


def test_broadcast_outputs(scale):
    y = np.lib.stride_tricks.as_strided(np.zeros(1, F32), (16,), (0,))
    sentence = "hand: y is a broadcast view whose elements share memory"
    refused(ArgumentError, sentence, scale, ramp(), y, 2.0)


def test_two_written_arrays_that_overlap(assemble):
    kernel = assemble(
        "define i32 @NAME(ptr %a, i64 %t, i64 %m, ptr %b) {\n ret i32 0\n}\n",
        [assemble.buffer("p", role="inout"), assemble.buffer("q", role="out")],
        [("n", "i64")],
    )
    memory = ramp(32)
    sentence = "hand: p and q overlap, and both are written"
    refused(ArgumentError, sentence, kernel, memory[:16], memory[8:24])
    refused(ArgumentError, sentence, kernel, memory[::2], memory[::2])
    kernel(memory[::2], memory[1::2])  # interleaved, but apart


def test_sizes_that_are_factors_are_not_negative():
    func = parse("""
def f(x: i64[n * m], z: Out[i64[8]], *, n: i64, m: i64):
    for i in range(8):
        z[i] = n // 7
""")
    kernel = build(func)
    x, z = np.zeros(6, np.int64), np.zeros(8, np.int64)
    kernel(x, 2, 3, out=z)
    for n, m in ((-2, -3), (-5, 0)):
        with pytest.raises(ShapeError, match=f"f: n is {n}; it is a size"):
            kernel(np.zeros(n * m, np.int64), n, m, out=z)
        with pytest.raises(ShapeError, match=f"f: n is {n}; it is a size"):
            kernel(np.zeros(n * m, np.int64), z, n, m)


def test_masked_arrays_and_scalars(scale):
    masked = np.ma.masked_array(ramp(), ramp() > 3)
    refused(ArgumentError, "x is a masked array", scale, masked, ramp(), 2.0)
    refused(ArgumentError, "y is a NumPy scalar", scale, ramp(1), np.float32(1), 2.0)
