"""Running sums by the threads of blocks, on PoCL, against the definition on the CPU."""

import numpy as np
import pytest

from tensorlang.ops import math

RNG = np.random.default_rng(4)
SHAPES = [(3, 300), (1, 70000), (2, 65540), (2, 131073)]


@pytest.mark.parametrize("shape", SHAPES)
def test_floats_are_summed_in_f64_and_so_come_out_alike(gpu_like, shape):
    x = RNG.normal(size=shape).astype("f4")
    for op in (lambda **to: math.cumsum(x, **to), lambda **to: cumsum_grad(x, **to)):
        there, here = op(target=gpu_like), op(target="llvm")
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
def test_integers_are_exact(gpu_like, dtype):
    x = RNG.integers(0, 2 if dtype == "bool" else 100, (2, 70001)).astype(dtype)
    there, here = (math.cumsum(x, target=target) for target in (gpu_like, "llvm"))
    assert there.dtype == here.dtype
    np.testing.assert_array_equal(there, here)


def test_narrow_floats_are_rounded_once(gpu_like):
    x = RNG.normal(size=(1, 5000)).astype("f2")
    there, here = (math.cumsum(x, target=target) for target in (gpu_like, "llvm"))
    np.testing.assert_allclose(there, here, rtol=2**-10)  # one unit in the last place


def cumsum_grad(x, **to):
    return math.cumsum_grad(x, x, **to)
