"""`math.cast`: the gradient is in the type of the array, and only of floats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops import math

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("made", FLOATS)
@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 7)])
def test_gradients_have_the_type_of_the_array(given, made, shape):
    x, dy = np.ones(shape, given), np.full(shape, 1.5, made)
    dx = math.cast_grad(dy, x, np.dtype(made).name)
    assert dx.dtype == x.dtype
    np.testing.assert_array_equal(dx, dy.astype(given))


def test_whole_numbers_have_no_gradient():
    dy, x = np.ones(3, np.float32), np.ones(3, np.int32)
    with pytest.raises(DTypeError, match="none of the arrays has float elements"):
        math.cast_grad(dy, x, "float32")


def test_the_element_type_is_needed():
    with pytest.raises(ArgumentError, match=r"math\.cast needs dtype"):
        math.cast(np.ones(3, np.float32))
