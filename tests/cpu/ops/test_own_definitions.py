"""Definitions as users write them: loaded indices, rows of different lengths."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    IRError,
    KeyReuseError,
    OperatorError,
    ShapeError,
)
from tensorlang.ir.dtypes import as_dtype
from tensorlang.ops import elementwise, find, math, nn, operator, random
from tensorlang.ops.spec.signature import Anything, Float, Floats, Key, Like, Scalar

RNG = np.random.default_rng(0)


@operator("own.bags")
def bags(table, ids):
    k = ir.reduce_axis(ids.shape[1])
    shape = ids.shape[0], table.shape[1]
    return ir.compute(shape, lambda b, j: ir.sum(table[ids[b, k], j], k))


@operator("own.gather")
def gather(table, ids):
    return ir.compute(ids.shape, lambda i, j: table[ids[i, j]])


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (5, 1), (2, 70), (0, 4)])
def test_an_index_that_is_an_element_of_a_matrix(shape):
    table = RNG.integers(-9, 9, (7, 6)).astype(np.float32)
    ids = RNG.integers(0, 7, shape)
    np.testing.assert_array_equal(bags(table, ids), table[ids].sum(1))
    np.testing.assert_array_equal(gather(table[:, 0].copy(), ids), table[ids, 0])


@operator("own.ragged")
def ragged(bounds, values):
    rows, columns, _ = bounds.shape

    def total(i, j):
        first, end = (bounds[i, j, n].cast("i64") for n in range(2))
        k = ir.reduce_axis(end - first)
        return ir.sum(values[i, first + k], k)

    return ir.compute((rows, columns), total)


@pytest.mark.parametrize("dtype", ["i4", "i8"])
def test_the_extent_of_a_reduction_may_depend_on_data(dtype):
    for rows, columns in ((2, 3), (1, 3), (4, 1), (3, 40)):
        values = RNG.integers(-9, 9, (rows, 50)).astype(np.float32)
        bounds = np.sort(RNG.integers(0, 51, (rows, columns, 2)).astype(dtype))
        found = ragged(bounds, values)
        for i, j in np.ndindex(rows, columns):
            assert found[i, j] == values[i, slice(*bounds[i, j])].sum()
    assert len(ragged._traces) <= 8


def test_an_extent_that_reads_outside_is_refused_by_name():
    @operator("own.too_far")
    def too_far(starts, values):
        def total(i):
            k = ir.reduce_axis(starts[i + 1] - starts[i])
            return ir.sum(values[starts[i] + k], k)

        return ir.compute(starts.shape, total)

    said = "own.too_far: starts has shape (3,), and is read outside of dimension 0"
    with pytest.raises(ShapeError, match=f"^{re.escape(said)}"):
        too_far(np.array([0, 2, 5]), np.ones(5, np.float32))


def test_what_no_reduction_folds_over_is_refused():
    @operator("own.clipped")
    def clipped(x):
        return ir.compute(x.shape, lambda i: ir.max(x[i], 0.0))

    said = r"own.clipped: a reduction takes axes made by reduce_axis, .*ir\.maximum"
    with pytest.raises(IRError, match=said):
        clipped(np.ones(3, np.float32))


@operator("own.between")
def between(x, y):
    def element(i):
        return ir.maximum(x[i], y[i]), ir.minimum(x[i], y[i]), ir.maximum(x[i], 2)

    return ir.compute(x.shape, element, ("most", "least", "two"))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1"])
def test_the_larger_and_the_smaller_of_two(dtype):
    x, y = RNG.integers(0, 5, (2, 40)).astype(dtype)
    if dtype[0] == "f":
        x[::7], y[::5] = np.nan, np.nan
    most, least, two = between(x, y)
    np.testing.assert_array_equal(most, np.maximum(x, y))
    np.testing.assert_array_equal(least, np.minimum(x, y))
    np.testing.assert_array_equal(two, np.maximum(x, x.dtype.type(2)))


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@elementwise("own.nothing")
def nothing(x: Float) -> Float:
    x * 2.0


@elementwise("own.pair")
def pair(x: Float):
    return x * 2.0, x + 1.0


@operator("own.stray")
def stray(x):
    other = ir.placeholder((3, 4), "f32", "other")
    return ir.compute(x.shape, lambda i, j: x[i, j] + other[i, j])


@operator("own.plain_extent")
def plain_extent(x):
    return ir.compute(x.shape[0], lambda i: x[i, 0])


@operator("own.shifted")
def shifted(x, *, by: int):
    return ir.compute(x.shape, lambda i, j: x[i, j] + by)


@pytest.mark.parametrize(
    ("op", "error", "says"),
    [
        (nothing, OperatorError, "own.nothing: its definition returned nothing"),
        (pair, OperatorError, "returned 2 where its annotation says 1 element"),
        (stray, IRError, "reads other: f32.*; take it as a parameter"),
        (plain_extent, IRError, "a shape is a tuple of extents"),
    ],
)
def test_a_definition_that_is_not_one(op, error, says):
    with pytest.raises(error, match=says):
        op(X)


@pytest.mark.parametrize("by", [2**64, 300, -129])
def test_a_number_that_its_type_does_not_hold(by):
    with pytest.raises(DTypeError, match=r"is not a value of i8: -128 \.\. 127"):
        shifted(X.astype(np.int8), by=by)


@pytest.mark.parametrize("name", ["y", "y0", "n0", "i", "i0", "vi0", "k", "x_given"])
def test_parameters_have_any_name(name):
    """Also one that a loop, a result or a size has by itself."""
    number, other, whole = (
        f"own.{kind}_{name}" for kind in ("number", "other", "whole")
    )
    made = {"elementwise": elementwise, "operator": operator, "ir": ir}
    made |= {"Float": Float, "Scalar": Scalar}
    exec(
        f"""
@elementwise("{number}")
def number(x: Float, {name}: Scalar = 3.0): return x * {name}
@elementwise("{other}")
def other(x: Float, {name}: Float): return x * {name}
@operator("{whole}")
def whole({name}): return ir.compute({name}.shape, lambda a, b: {name}[a, b] * 2.0)
""",
        made,
    )
    np.testing.assert_array_equal(made["number"](X), X * 3)
    np.testing.assert_array_equal(made["other"](X, X), X * X)
    np.testing.assert_array_equal(made["other"](X, 2.5), X * 2.5)
    np.testing.assert_array_equal(made["whole"](X), X * 2)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (
            lambda x, i: ir.reduce_axis(x[i, 1]),
            r"a whole number from 0 on, not x.* f32",
        ),
        (lambda x, i: ir.reduce_axis(-4), "a whole number from 0 on, not -4"),  # noqa: ARG005
        (
            lambda x, i: (ir.reduce_axis(2), ir.reduce_axis(2)),  # noqa: ARG005
            "different names, not k, k",
        ),
    ],
)
def test_axes_that_are_none(axes, says, request):
    number = request.node.callspec.indices["axes"]

    def body(x):
        def element(i):
            k = axes(x, i)
            first = k[0] if isinstance(k, tuple) else k
            return ir.sum(x[i, first], k)

        return ir.compute((x.shape[0],), element)

    with pytest.raises(IRError, match=says):
        operator(f"own.axes{number}")(body)(X)


# ------------------------------------------------- shapes alone, views, several results


@operator("test.own.rows_like", whole=True)
def rows_like(dy: Floats, x: Like) -> ir.Tensor:
    """The first rows of `x` are those of `dy`, the last one is 0."""
    ir.require(dy.shape == (x[0] - 1, x[1]), "dy has a row less than x")

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        inside = i < dy.shape[0]
        there = ir.nodes.Load(dy.buffer, (i, j), inside)
        return ir.select(inside, there, ir.as_expr(0.0, dy.dtype))

    return ir.compute(x, element, "dx")


def test_of_an_array_only_the_shape_may_count():
    """It is no parameter of the kernel, and its sizes are said by those of others."""
    dy = np.ones((3, 5), np.float32)
    for x in (np.empty((4, 5)), np.empty((8, 10), np.int8)[::2, ::2]):
        found = rows_like(dy, x)
        np.testing.assert_array_equal(found, np.pad(dy, ((0, 1), (0, 0))))
    assert len(rows_like.kernel(dy, x, target="llvm").signature.buffers) == 2
    assert rows_like.shape((6, 2), (7, 2)) == (7, 2)
    with pytest.raises(ShapeError, match="a row less"):
        rows_like(dy, dy)


@operator("test.own.as_row", view=lambda x: (1, int(np.prod(x))))
def as_row(x: Anything) -> ir.Tensor:
    """All elements in a row."""
    held = ir.reshaped(x, (ir.elements(x.shape),))
    made = ir.compute(held.shape, lambda i: held[i], "y")
    return ir.reshaped(made, (1, *held.shape))


def test_a_result_may_be_a_view():
    x = np.arange(12.0).reshape(3, 4)
    assert np.shares_memory(as_row(x), x)
    np.testing.assert_array_equal(as_row(x.T), x.T.reshape(1, 12))
    out = np.empty((1, 12))
    np.testing.assert_array_equal(as_row(x, out=out), x.reshape(1, 12))
    assert not np.shares_memory(out, x)


@operator("test.own.halves")
def halves(x: Floats, *, parts: int = 2) -> tuple[ir.Tensor, ...]:
    """Products with 0, 1, ..."""
    return tuple(
        ir.compute(x.shape, lambda i, n=n: x[i] * float(n), f"y{n}")
        for n in range(parts)
    )


def test_a_tuple_of_one_result_is_a_tuple():
    x = np.ones(3, np.float32)
    assert isinstance(halves(x, parts=1), tuple)
    assert len(halves(x)) == 2
    assert halves.shape((3,), parts=1) == ((3,),)
    out = (np.empty(3, np.float32),)
    assert halves(x, parts=1, out=out) is out


@operator("test.own.behind")
def behind(x: Floats, *, fixed: bool) -> ir.Tensor:
    """All rows but the first two."""
    rows, width = x.shape[0], int(x.shape[1]) if fixed else x.shape[1]
    held = ir.reshaped(x, (rows, width))
    return ir.compute((rows - 2, width), lambda i, j: held[i + 2, j], "y")


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_from_one_on(fixed):
    """They are one long row where it is known where that begins."""
    for rows in (4, 9):
        x = np.arange(rows * 8.0).reshape(rows, 8)
        np.testing.assert_array_equal(behind(x, fixed=fixed), x[2:])
    func = behind.function(behind.workload((9, 8), fixed=fixed))
    assert [p.buffer.ndim for p in func.params] == [2 - fixed] * 2


def test_truths_beside_numbers():
    from tensorlang.ops import math

    a = np.array([True, False])
    np.testing.assert_array_equal(math.equal(a, True), a)
    np.testing.assert_array_equal(math.logical_or(a, False), a)


@pytest.mark.parametrize("name", ["op", "call", "mixed", "array", "fit_x"])
def test_an_operator_and_its_arrays_may_have_any_name(name):
    @operator(f"tests.names.{name}")
    def f(op, call, array, *, mixed=2.0):
        return ir.compute(op.shape, lambda i: op[i] * call[i] + array[i] * mixed, "y")

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(f(x, x, x), x * x + 2 * x)
    np.testing.assert_array_equal(f(x, call=x, array=x, mixed=3.0), x * x + 3 * x)


@operator("own.masked")
def masked(x: Floats, key: Key):
    return ir.compute(x.shape, lambda i: x[i] * key.words[0].cast(x.dtype))


def test_a_key_is_used_where_the_caller_stands():
    key, x = random.key(1 << 32), np.ones(3, np.float32)
    assert masked(x, key).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(KeyReuseError) as caught:
        masked(x, key)
    assert str(caught.value).count(f"{__file__}:") == 2


@operator("own.gated")
def gated(x, y):
    def element(i):
        tanh = nn.gelu(x[i], approximate="tanh")
        return nn.silu(x[i]) * math.maximum(y[i], 0.5) + tanh

    return ir.compute(x.shape, element)


@elementwise("own.swiglu")
def swiglu(x: Float, gate: Float) -> Float:
    return nn.silu(gate) * x


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_formulas_of_the_library_are_those_of_elements(dtype):
    x, y = RNG.normal(size=(2, 40)).astype(dtype)
    tanh = nn.gelu(x, approximate="tanh")
    right = nn.silu(x) * np.maximum(y, 0.5) + tanh
    np.testing.assert_allclose(gated(x, y), right, rtol=1e-6)
    np.testing.assert_array_equal(swiglu(x, y), nn.silu(y) * x)
    dx, dgate = find("own.swiglu_grad")(np.ones_like(x), x, y)
    np.testing.assert_allclose(dx, nn.silu(y), rtol=1e-6)
    np.testing.assert_allclose(dgate, nn.silu_grad(x, y), rtol=1e-5, atol=1e-6)


def test_narrow_elements_are_computed_in_f32():
    x, y = RNG.normal(size=(2, 40)).astype(np.float16)
    wide = nn.silu(y.astype(np.float32)) * x.astype(np.float32)
    np.testing.assert_array_equal(swiglu(x, y), wide.astype(np.float16))


@operator("own.of_arrays")
def of_arrays(x):
    return nn.relu(x)


@operator("own.of_itself")
def of_itself(x):
    return ir.compute(x.shape, lambda i: of_itself(x[i]))


@operator("own.no_such_gelu")
def no_such_gelu(x):
    return ir.compute(x.shape, lambda i: nn.gelu(x[i], approximate="no"))


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (of_arrays, r"nn\.relu takes arrays, and a definition has placeholders"),
        (of_itself, r"own\.of_itself takes arrays, and a definition has placeholders"),
        (no_such_gelu, r"approximate is 'none' or 'tanh', not 'no'"),
    ],
)
def test_operators_that_a_definition_cannot_call(op, says):
    with pytest.raises((OperatorError, ArgumentError), match=says):
        op(np.ones(3, np.float32))


@operator("own.moving")
def moving(x: Floats, *, window: int = 3):
    rows, n = x.shape
    k = ir.reduce_axis(window)
    return ir.compute((rows, n - (window - 1)), lambda i, j: ir.sum(x[i, j + k], k))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((9,), r"own.moving: .* another number of dimensions .*; x has 1"),
        ((3, 1), r"own.moving: a result of shape \(3, -1\) is impossible"),
    ],
)
def test_arrays_that_a_definition_does_not_expect(shape, said):
    with pytest.raises(ShapeError, match=said):
        moving(np.ones(shape, np.float32))


@pytest.mark.parametrize("value", ["0.5", b"1", None, [1.0]])
def test_text_is_no_number(value):
    with pytest.raises(ArgumentError, match="is a number, not"):
        nn.leaky_relu(np.ones(3, np.float32), value)


def test_a_number_whose_gradient_is_asked_for_is_refused():
    torch = pytest.importorskip("torch")
    slope = torch.tensor(0.5, requires_grad=True)
    with pytest.raises(ArgumentError, match="without a gradient"):
        nn.leaky_relu(torch.ones(3), slope)


def test_a_family_without_schedules_is_refused():
    @operator("own.misspelt", family="thrfry")
    def misspelt(x: Floats):
        return ir.compute(x.shape, lambda i: x[i] * 2.0)

    with pytest.raises(OperatorError, match="no schedule is registered for 'thrfry'"):
        misspelt(np.ones(3, np.float32))


@operator("own.deep")
def deep(x: Float):
    """A polynomial of many terms."""

    def horner(i):
        value = x[i]
        for term in range(400):
            value = value * x[i] + 1.0 / (term + 1)
        return value

    return ir.compute(x.shape, horner)


@pytest.mark.parametrize("length", [0, 1, 37])
def test_a_deep_formula_runs(length):
    x = np.linspace(-0.9, 0.9, length, dtype=np.float32)
    y = x.astype(np.float64)
    for term in range(400):
        y = y * x + 1.0 / (term + 1)
    np.testing.assert_allclose(deep(x), y, rtol=1e-4)


@operator("own.gate")
def gate(x: Floats, y: Floats):
    k = ir.reduce_axis(x.shape[0])
    total = ir.compute((), lambda: ir.sum(x[k] * x[k], k), "total")
    return ir.compute(x.shape, lambda i: x[i] / (total[()] + 9) * nn.silu(y[i]))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_formulas_of_narrow_elements_are_narrow(dtype):
    kind = as_dtype(dtype).numpy
    x, y = RNG.normal(size=(2, 40)).astype(kind)
    made = gate(x, y)
    assert made.dtype == kind
    wide = gate(x.astype("f4"), y.astype("f4"))
    np.testing.assert_allclose(made.astype("f4"), wide, rtol=0.03, atol=1e-3)
