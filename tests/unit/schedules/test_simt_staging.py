"""Along which axis neighbours lie of what a copy gathers: so threads share it out."""

import pytest

from tensorlang.ir.contents import blocks
from tensorlang.ir.text.parser import parse
from tensorlang.schedules.simt.staging import (
    contiguous_along_rows,
    contiguous_along_steps,
)

PIXEL = "min(i, n * 144 - 1)"
# images of 14 x 14, windows of 3 x 3: rows are pixels, steps channels and places there
GATHERED = (
    "x[{0} // 144, k // 9, {0} // 12 % 12 + k // 3 % 3, {0} % 12 + k % 3]"
).format


def copied(source, shape, rows="n * 144"):
    func = parse(f"""
def f(x: f32[{shape}], t: Out[f32[{rows}, 144]], *, n: i64):
    for a in range({rows}):
        for b in range(144):
            with block("copy", i=spatial({rows}, a), k=spatial(144, b)):
                t[i, k] = {source}
""")
    (block,) = blocks(func)
    return block


@pytest.mark.parametrize("pixel", ["i", PIXEL])
def test_pixels_are_neighbours_even_of_a_batch_that_varies(pixel):
    block = copied(GATHERED(pixel), "n, 16, 14, 14")
    assert not contiguous_along_steps(block)


@pytest.mark.parametrize("row", ["i", "min(i, n - 1)"])
def test_matrices(row):
    assert contiguous_along_steps(copied(f"x[{row}, k]", "n, 144", "n"))
    block = copied(f"x[k, {row}]", "144, n", "n")
    assert not contiguous_along_steps(block)
    assert contiguous_along_rows(block) == (row == "i")


def test_ragged_steps():
    assert contiguous_along_steps(copied("x[i, min(k, 99)]", "n, 100", "n"))
    assert not contiguous_along_steps(copied("x[min(k, 99), i]", "100, n", "n"))


def test_pixels_that_a_stride_parts():
    pixel = "min(i, n * 36 - 1)"
    source = f"x[{pixel} // 36, k // 9, k // 3 % 3, {pixel} % 6 * 2 + k % 3]"
    assert contiguous_along_steps(copied(source, "n, 16, 14, 14", "n * 36"))
