"""What `@operator` is told of sizes, indices and samples, and refuses to be told."""

import numpy as np
import pytest

from tensorlang.errors import OperatorError, ShapeError
from tensorlang.ir import compute
from tensorlang.ops import operator
from tensorlang.ops.spec.examples import arguments
from tensorlang.ops.spec.formulas import formula


@operator(
    "test_declarations.window",
    sizes="h >= 5 and w % 4 == 0 and ids.0 < h * size",
    indices={"ids": "h"},
)
def window(x, ids, *, size=3):  # noqa: ARG001 - its sizes are declared with it
    h, w = x.shape
    first = h - h
    return compute(
        (ids.shape[0], w), lambda i, j: x[ids[i].cast("i64"), j + first], name="y"
    )


def workload(h, w, n):
    return window.workload((h, w), (n,), dtypes=("f32", "i32"))


def test_sizes_are_checked_before_anything_is_built():
    window.function(workload(5, 8, 14))
    for shape in ((4, 8, 3), (5, 7, 3), (5, 8, 15)):
        with pytest.raises(ShapeError, match=r"needs h >= 5 and .*; h is \d, ids"):
            window.function(workload(*shape))


def test_small_shapes_are_moved_to_sizes_that_are_allowed():
    fitted = window.declared.fitted(workload(3, 13, 20))
    assert fitted.shapes == ((7, 12), (20,))
    window.function(fitted)


def test_indices_stay_below_what_is_declared():
    (x, ids, y), _ = arguments(window, workload(6, 8, 17))
    assert set(ids.tolist()) <= set(range(6))
    assert np.isfinite(x).all()
    assert not y.any()


def test_samples_change_what_is_given_or_replace_it():
    def ordered(x, *, falling=False):
        x.sort()
        return x[::-1].copy() if falling else None

    @operator("test_declarations.ordered", samples=ordered)
    def op(x, *, falling=False):  # noqa: ARG001 - samples has it
        return compute(x.shape, lambda i: x[i] * 2.0, name="y")

    for falling, order in ((False, 1), (True, -1)):
        (x, _), _ = arguments(op, op.workload((50,), dtypes="f32", falling=falling))
        assert (np.diff(x) * order >= 0).all()


def test_samples_of_another_shape_are_refused():
    @operator("test_declarations.shorter", samples=lambda x: x[1:])
    def op(x):
        return compute(x.shape, lambda i: x[i] * 2.0, name="y")

    with pytest.raises(OperatorError, match=r"samples= gives float32\[49\]; for .*50"):
        arguments(op, op.workload((50,), dtypes="f32"))


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"sizes": "rows >= 5"}, "rows is no size; these are: n"),
        ({"sizes": "n >= 5.0"}, "5.0 is no whole number"),
        ({"sizes": "print(n)"}, "Call is not of its grammar"),
        ({"sizes": "n ** 9 > 1"}, "Pow is not of its grammar"),
        ({"sizes": "n >="}, "is no formula"),
        ({"sizes": "n" * 1001}, "more than 1000 characters"),
        ({"indices": {"labels": "n"}}, "indices= names labels; its arrays are x"),
        ({"indices": {"x": "x.y"}}, "is no formula"),
    ],
)
def test_what_is_no_declaration_is_refused(declared, said):
    with pytest.raises(OperatorError, match=said):

        @operator("test_declarations.refused", **declared)
        def refused(x):
            n = x.shape[0]
            return compute((n,), lambda i: x[i], name="y")


def test_formulas_have_pythons_meaning():
    values = {"n": 7, "x.1": 12}
    for text in ("n * 2 - x.1", "x.shape[1] // n % 3", "-n + 2", "not n < x.1"):
        plain = text.replace("x.shape[1]", "12").replace("x.1", "12")
        found = formula("sizes", text, ("n",), ("x",)).value(values)
        assert found == eval(plain, {"n": 7})  # of literals above
    assert not formula("sizes", "n % (n - 7) == 0", ("n",), ()).value(values)
