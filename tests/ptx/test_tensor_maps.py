"""Matrices whose width is known at the call, read by bulk copies."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import ShapeError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show

EXAMPLE = Path(__file__).parents[2] / "examples" / "hopper_ring.py"
RNG = np.random.default_rng(7)
M, N, K = 128, 64, 64


@pytest.fixture
def kernel(ptx_driver):  # noqa: ARG001 - the device
    """The example's product of the first K columns of two matrices."""
    spec = importlib.util.spec_from_file_location("hopper_ring", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = show(module.hopper_ring(M, N, K, width=N, stages=1))
    for old, new in (
        (f"a: bf16[{M}, {K}]", f"a: bf16[{M}, wide]"),
        (f"Out[f32[{M}, {N}]])", f"Out[f32[{M}, {N}]], *, wide: i64)"),
    ):
        assert old in text
        text = text.replace(old, new)
    return build(parse(text), "cuda")


def operands(wide):
    a, b = (RNG.integers(-4, 5, shape) for shape in ((M, wide), (N, K)))
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    return a, b, np.zeros((M, N), np.float32)


def test_rows_of_any_width_that_fits_are_read(kernel):
    a, b, c = operands(K + 8)
    kernel.launch(a, b, c)
    np.testing.assert_array_equal(c, a[:, :K].astype("f4") @ b.astype("f4").T)


def test_rows_of_no_multiple_of_16_bytes_are_told(kernel):
    a, b, c = operands(K + 4)
    with pytest.raises(ShapeError, match=r"rows of a, of 68 bf16, have 136 bytes; bul"):
        kernel.launch(a, b, c)
