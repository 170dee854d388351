"""Transposes in registers: as one call, as shuffles, and their meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.codegen.names import Names
from tensorlang.codegen.vectors.transposes import expand_transposes
from tensorlang.errors import CodegenError, DTypeError
from tensorlang.ir import nodes as ir
from tensorlang.ir import parse
from tensorlang.ir.dtypes import f32
from tensorlang.ir.interpreter import run
from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.visit import nodes_of
from tensorlang.runtime.building import build
from tensorlang.targets import host

KINDS = [(4, 1, "f64"), (8, 1, "f32"), (16, 1, "u8"), (4, 4, "i8"), (8, 2, "bf16")]


def squares(count, group, dtype):
    """A program that transposes two squares, whose variables have the same names."""
    wide = count * group
    rows = [
        f"r{n}: {dtype}x{wide} = x[i, {n}, ramp(0, 1, {wide})]" for n in range(count)
    ]
    given = ", ".join(f"r{n}" for n in range(count))
    stores = [
        f"y[i, {n}, ramp(0, 1, {wide})] = columns[{n * wide}:{(n + 1) * wide}]"
        for n in range(count)
    ]
    made = f"columns: {dtype}x{wide * count} = transpose_{count}({given})"
    body = "\n        ".join([*rows, made, *stores])
    shape = f"{dtype}[2, {count}, {wide}]"
    return parse(f"""
def f(x: {shape}, y: Out[{shape}]):
    for i in range(2):
        {body}
""")


@pytest.mark.parametrize(("count", "group", "dtype"), KINDS)
def test_transposes_mean_what_numpy_says(count, group, dtype):
    function = squares(count, group, dtype)
    x = np.arange(2 * count * count * group).reshape(2, count, count * group)
    x = x.astype(ir.Var("v", function.buffers[0].dtype).dtype.numpy)
    want = x.reshape(2, count, count, group).swapaxes(1, 2).reshape(x.shape)
    for made in (function, expand_transposes(function, Names(function))):
        got = np.zeros_like(x)
        run(made, x, got)
        np.testing.assert_array_equal(got, want)
    assert not any(
        call.name.startswith("transpose") for call in nodes_of(made, ir.Call)
    )
    rounds = count.bit_length() - 1
    assert (
        sum(len(s.vectors) == 2 for s in nodes_of(made, ir.Shuffle)) == rounds * count
    )


def test_llvm_calls_one_helper_for_all_squares_of_a_kind():
    function = squares(4, 2, "i32")
    both = replace(function, body=ir.seq(function.body, function.body))
    text = render(lower(both, host()), host())
    assert text.count("define internal [4 x <8 x i32>] @transpose_4x4x2xi32(") == 1
    assert text.count("= call [4 x <8 x i32>] @transpose_4x4x2xi32(") == 2
    assert text.count("shufflevector") == 8
    assert text.count("extractvalue") == 8


def test_columns_are_used_one_at_a_time():
    function = squares(4, 1, "f32")
    text = str(function).replace("columns[4:8]", "columns[2:6]")
    with pytest.raises(CodegenError, match="one column at a time"):
        render(lower(parse(text), host()), host())


def test_a_later_variable_of_the_name_is_another_one():
    function = parse("""
def f(x: f32[4, 4], y: Out[f32[4]], z: Out[f32[4]]):
    for i in range(1):
        c: f32x16 = transpose_4(x[0, ramp(0, 1, 4)], x[1, ramp(0, 1, 4)], x[2, ramp(0, 1, 4)], x[3, ramp(0, 1, 4)])
        y[ramp(0, 1, 4)] = c[4:8]
    for j in range(1):
        c: f32x16 = splat(x[j, 2], 16)
        z[ramp(0, 1, 4)] = c[4:8]
""")  # noqa: E501
    x = np.arange(16, dtype="f4").reshape(4, 4)
    y, z = np.zeros(4, "f4"), np.zeros(4, "f4")
    build(function, host())(x, y, z)
    assert y.tolist() == [1, 5, 9, 13]
    assert z.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("lanes", [(4, 4, 4, 8), (2, 2, 2, 2), (1, 1, 1, 1)])
def test_rows_that_make_no_square_are_refused(lanes):
    rows = [ir.Var(f"r{n}", f32.vector(count)) for n, count in enumerate(lanes)]
    with pytest.raises(DTypeError, match="4 rows of one type, of 4 groups"):
        intrinsic("transpose_4", *rows)
