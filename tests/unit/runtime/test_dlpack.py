"""Capsules read and made: of host memory here, as of a device's where there is one."""

import gc

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.arrays.device_arrays import DeviceArray, row_major

DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]


def seen(array):
    """A NumPy array as if its memory were a device's."""
    return DeviceArray(
        place=None,
        memory=array.ctypes.data,
        shape=array.shape,
        dtype=array.dtype,
        strides=row_major(array.shape, array.dtype),
        owner=array,
    )


class Speaks:
    """Something that speaks DLPack for an array in host memory."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return (dlpack.CPU, 0)

    def __dlpack__(self, **_):
        return dlpack.capsule(seen(self.array), (dlpack.CPU, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_numpy_says_is_read(dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    found = dlpack.read(array.__dlpack__(), "x")
    assert found.device == (dlpack.CPU, 0)
    assert (found.address, found.shape) == (array.ctypes.data, (2, 3, 4))
    assert found.dtype == array.dtype
    assert found.strides in (None, array.strides)
    turned = dlpack.read(array.transpose(2, 0, 1).__dlpack__(), "x")
    assert turned.strides == array.transpose(2, 0, 1).strides


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_takes_what_is_made(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    taken = np.from_dlpack(Speaks(array))
    assert taken.dtype == array.dtype
    assert taken.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(taken, array)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 5)])
def test_all_shapes(shape):
    array = np.ones(shape, np.float32)
    np.testing.assert_array_equal(np.from_dlpack(Speaks(array)), array)


def test_memory_lives_as_long_as_its_consumer():
    gc.collect()
    before = len(dlpack._HELD)
    taken = np.from_dlpack(Speaks(np.arange(5.0)))
    assert len(dlpack._HELD) == before + 1
    gc.collect()
    np.testing.assert_array_equal(taken, np.arange(5.0))
    del taken
    gc.collect()
    assert len(dlpack._HELD) == before
    unused = Speaks(np.arange(5.0)).__dlpack__()
    assert len(dlpack._HELD) == before + 1
    del unused
    assert len(dlpack._HELD) == before


def test_bf16_goes_through():
    array = np.arange(8).astype(ml_dtypes.bfloat16)
    found = dlpack.read(Speaks(array).__dlpack__(), "x")
    assert found.dtype == array.dtype


def test_what_cannot_be_read_is_told():
    capsule = Speaks(np.arange(3.0)).__dlpack__()
    np.from_dlpack(type("Once", (Speaks,), {"__dlpack__": lambda *_, **__: capsule})(0))
    with pytest.raises(ArgumentError, match="was used before"):
        dlpack.read(capsule, "x")
    with pytest.raises(DTypeError, match="type 5, 128 bits"):
        dlpack.read(np.zeros(2, np.complex128).__dlpack__(), "x")
