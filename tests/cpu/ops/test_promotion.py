"""Operators read arrays of different types in their common one."""

import itertools

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import DTypeError
from tensorlang.ops import math, nn
from tensorlang.ops.spec.promotion import promoted
from tensorlang.ops.spec.signature import ANY, FLOATS, INTEGERS

PAIRS = [*itertools.combinations_with_replacement(ANY, 2)]
SIGNED = {name for name in INTEGERS if name.startswith("i")}


def drawn(shape, dtype):
    numbers = np.random.default_rng(0).integers(0, 5, shape)
    return numbers.astype(ir.as_dtype(dtype).numpy)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_common_type_is_that_of_numpy_and_pytorch(pair):
    torch = pytest.importorskip("torch", reason="the extra interop is not installed")
    found = promoted(pair, ANY)
    assert promoted(pair[::-1], ANY) == found
    if "u64" in pair and {*pair} & SIGNED:
        assert not found
        return
    kinds = [ir.as_dtype(name).numpy for name in pair]
    try:
        theirs = torch.promote_types(*(getattr(torch, kind.name) for kind in kinds))
    except RuntimeError:  # of unsigned integers, PyTorch promotes only u8
        theirs = None
    if theirs is not None:
        assert str(theirs) == f"torch.{ir.as_dtype(found).numpy.name}"
    if not {*pair} & {*FLOATS}:
        assert np.result_type(*kinds) == ir.as_dtype(found).numpy


@pytest.mark.parametrize("pair", [p for p in PAIRS if promoted(p, ANY)])
def test_sums_of_mixed_arrays(pair):
    a, b = drawn((3, 1, 17), pair[0]), drawn((5, 17), pair[1])
    kind = ir.as_dtype(promoted(pair, ANY)).numpy
    found = math.add(a, b)
    assert found.dtype == kind
    wanted = np.add(a.astype(kind), b.astype(kind))
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(math.add(a[..., ::2], b[:, ::2]), wanted[..., ::2])


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (7, 3)])
def test_functions_of_floats_read_integers_as_f32(shape, dtype):
    x = drawn(shape, dtype)
    for op in (math.exp, math.logsumexp, nn.sigmoid):
        found = op(x)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, op(x.astype(np.float32)))
    np.testing.assert_array_equal(
        math.divide(x, x), math.divide(x.astype("f"), x.astype("f"))
    )


@pytest.mark.parametrize("dtype", ANY)
@pytest.mark.parametrize("number", [True, 3, 2.5])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 3)])
def test_numbers_beside_arrays_are_those_of_pytorch(dtype, number, shape):
    torch = pytest.importorskip("torch", reason="the extra interop is not installed")
    x = drawn(shape, dtype)
    for made in (math.multiply(x, number), math.multiply(number, x)):
        kind = getattr(torch, x.dtype.name)
        theirs = torch.result_type(torch.ones(3, dtype=kind), number)
        assert f"torch.{made.dtype.name}" == str(theirs)
        wanted = np.multiply(x.astype(made.dtype), made.dtype.type(number))
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("op", [math.floor, math.ceil, math.round, nn.relu])
def test_whole_numbers_stay_whole(op):
    x = np.array([2**62 + 1, -3, 0])
    made = op(x)
    assert made.dtype == np.int64
    np.testing.assert_array_equal(made, x.clip(0) if op is nn.relu else x)
    np.testing.assert_array_equal(op(x.astype(np.uint8)), x.astype(np.uint8))


def test_arrays_without_dimensions_are_arrays():
    x = drawn((3, 4), "f32")
    assert math.add(x, np.array(2.0)).dtype == np.float64
    assert math.add(x, np.array(2)).dtype == np.float32


def test_arrays_are_joined_in_their_common_type():
    parts = drawn((2, 3), "i32"), drawn((4, 3), "f16"), drawn((0, 3), "bool")
    made = nn.concatenate(parts)
    assert made.dtype == np.float16
    np.testing.assert_array_equal(made, np.concatenate([p.astype("e") for p in parts]))
    assert nn.stack([parts[0], parts[1][:2]], 1).dtype == np.float16


def test_numbers_take_the_common_type():
    x = np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(math.divide(x, 2), x / np.float32(2))
    np.testing.assert_array_equal(math.divide(x, 0.5), x / np.float32(0.5))
    low = math.clip(x, np.float32(0.5), 2.5)
    np.testing.assert_array_equal(low, np.float32([0.5, 1, 2, 2.5]))
    picked = math.where(x > 1, x.astype(np.float16), 0.5)
    assert picked.dtype == np.float16


def test_gradients_have_the_common_type():
    x, y = drawn((3, 4), "f16"), drawn((4,), "i32")
    dx, dy = math.multiply_grad(np.ones((3, 4), "f"), x, y)
    assert dx.dtype == dy.dtype == np.float32
    np.testing.assert_array_equal(dx, np.broadcast_to(y, (3, 4)))
    np.testing.assert_array_equal(dy, x.sum(0))


def test_products_of_matrices_are_of_one_type():
    with pytest.raises(DTypeError, match="have one element type, not f32, f64"):
        math.matmul(drawn((3, 3), "f32"), drawn((3, 3), "f64"))
