"""Gradients derived from definitions, against PyTorch and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import graph, ir
from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    OperatorError,
    ShapeError,
)
from tensorlang.graph import TensorSpec, gradients
from tensorlang.ir.nodes import Block, Reduce
from tensorlang.ir.visit import nodes_of
from tensorlang.ops import find, fold, math, nn, operator
from tensorlang.ops.spec.signature import Anything, Floats

RNG = np.random.default_rng(0)


@operator("derived.product")
def product(x: Floats, w: Floats):
    k = ir.reduce_axis(x.shape[1])
    shape = x.shape[0], w.shape[0]
    return ir.compute(shape, lambda i, j: ir.sum(x[i, k] * w[j, k], k))


@operator("derived.filtered")
def filtered(x: Floats, w: Floats, *, step: int = 1, apart: int = 1):
    taps = w.shape[0]
    k = ir.reduce_axis(int(taps))
    count = (x.shape[1] - (taps - 1) * apart - 1) // step + 1
    return ir.compute(
        (x.shape[0], count),
        lambda b, i: ir.sum(x[b, i * step + k * apart] * w[k], k),
    )


@operator("derived.squashed")
def squashed(x: Floats, bias: Floats):
    return ir.compute(x.shape, lambda i, j: ir.tanh(x[i, j] * x[i, j] + bias[j]))


@operator("derived.softened")
def softened(x: Floats):
    k = ir.reduce_axis(x.shape[1])
    e = ir.compute(x.shape, lambda i, j: ir.exp(x[i, j]), "e")
    total = ir.compute((x.shape[0],), lambda i: ir.sum(e[i, k], k), "total")
    return ir.compute(x.shape, lambda i, j: e[i, j] / total[i], "y")


@operator("derived.around")
def around(x: Floats, *, by: int = 2):
    n = x.shape[0]

    def element(i):
        inside = (i >= by) & (i < n + by)
        at = ir.select(inside, i - by, 0)
        return ir.select(inside, x[at] * x[at], 3.0)

    return ir.compute((n + 2 * by,), element)


@operator("derived.diagonal")
def diagonal(x: Floats):
    return ir.compute((x.shape[0],), lambda i: x[i, i] * x[i, x.shape[0] - 1 - i])


@operator("derived.picked")
def picked(table: Floats, ids):
    return ir.compute(
        (ids.shape[0], table.shape[1]), lambda i, j: ir.exp(table[ids[i], j])
    )


@operator("derived.halves")
def halves(x: Floats) -> tuple[ir.Tensor, ir.Tensor]:
    n = int(x.shape[1]) // 2
    low = ir.compute((x.shape[0], n), lambda i, j: x[i, j] * x[i, j + n], "low")
    high = ir.compute((x.shape[0], n), lambda i, j: ir.sin(x[i, j + n]), "high")
    return low, high


@operator("derived.strided")
def strided(x: Anything, *, step: int = 3):
    return ir.compute((x.shape[0] // step,), lambda i: x[i * step + (step - 1)])


@operator("derived.repeated")
def repeated(x: Floats, *, by: int = 3):
    """Each element several times, and all of them in turn."""
    n = int(x.shape[0])
    return ir.compute((n * by - 1,), lambda i: x[i // by] * x[i % n])


def _gathered(name, column):
    """Rows of data, with columns that follow from the position, `by` or the extent."""

    @operator(f"derived.{name}")
    def op(table: Floats, ids, *, by: int):
        def element(i):
            return ir.sin(table[ids[i], column(i, by)])

        return ir.compute((ids.shape[0],), element)

    return op


COLUMNS = {
    "quotients": lambda i, by: i // by,
    "remainders": lambda i, by: i % by,
    "moved": lambda i, by: i + by,
}
GATHERED = {name: _gathered(name, column) for name, column in COLUMNS.items()}


@operator("derived.crossed")
def crossed(x: Floats):
    """Indices of which none follows from one dimension alone."""
    n = x.shape[0]
    y = ir.compute((n, n), lambda i, j: x[(i + 2 * j) % n] * x[i])
    k = ir.reduce_axis(n)
    return ir.compute((n,), lambda i: ir.sum(y[i, k], k), "z")


@fold("derived.cubes", Floats)
def cubes(rows):
    """Long rows are reduced in chunks; their gradient has none."""
    return rows.fold_long("sum", lambda at: rows[at] * rows[at] * rows[at], "y")


IDS = np.array([3, 0, 3, 2, 3])
CASES = [
    (product, [(5, 7), (4, 7)], {}),
    (product, [(1, 7), (4, 7)], {}),
    (product, [(70, 90), (33, 90)], {}),
    (filtered, [(2, 9), (3,)], {}),
    (filtered, [(2, 30), (5,)], {"step": 2}),
    (filtered, [(2, 30), (2,)], {"step": 3}),
    (filtered, [(3, 31), (4,)], {"apart": 3}),
    (filtered, [(3, 40), (5,)], {"step": 3, "apart": 2}),
    (filtered, [(3, 40), (1,)], {"step": 3}),
    (squashed, [(6, 5), (5,)], {}),
    (squashed, [(1, 5), (5,)], {}),
    (squashed, [(300, 5), (5,)], {}),
    (softened, [(4, 9)], {}),
    (softened, [(4, 200)], {}),
    (around, [(8,)], {}),
    (around, [(8,)], {"by": 0}),
    (diagonal, [(6, 6)], {}),
    (picked, [(5, 3)], {"ids": IDS}),
    *((op, [(5, 9)], {"ids": IDS, "by": 3}) for op in GATHERED.values()),
    (halves, [(3, 8)], {}),
    (strided, [(17,)], {}),
    (repeated, [(4,)], {}),
    (repeated, [(1,)], {"by": 2}),
    (crossed, [(7,)], {}),
    (math.sum, [(3, 4, 5)], {"axis": (0, 2)}),
    (math.mean, [(3, 4, 5)], {"axis": 1, "keepdims": True}),
    (math.mean, [(2, 40000)], {"axis": 1}),
    (nn.avg_pool2d, [(2, 2, 7, 8)], {"kernel": 3, "stride": 2, "padding": 1}),
    (nn.avg_pool2d, [(1, 2, 7, 6)], {"kernel": (3, 2), "stride": 1, "padding": 1}),
    (
        nn.avg_pool2d,
        [(1, 7, 8, 2)],
        {
            "kernel": 3,
            "stride": 2,
            "padding": 1,
            "ceil_mode": True,
            "count_include_pad": False,
            "layout": "NHWC",
        },
    ),
    (nn.avg_pool3d, [(1, 2, 4, 4, 6)], {"kernel": 2}),
    (nn.global_avg_pool, [(2, 3, 4, 5)], {}),
    (cubes, [(3, 5)], {"axis": 0}),
    (cubes, [(2, 40000)], {"axis": 1}),
]
NAMES = [f"{op.id}-{shapes}-{given.keys()}" for op, shapes, given in CASES]


def differentiated(op, shapes, given, order):
    """The weighted sum of what an operator gives, and its gradients.

    Of higher orders, of the sum of sines of the gradients of the order below.
    """
    given = dict(given)
    ids = given.pop("ids", None)

    def body(*xs):
        made = op(*xs, *([] if ids is None else [ids]), **given)
        total = 0.0
        for n, y in enumerate(made if isinstance(made, tuple) else (made,)):
            weight = np.cos(np.arange(np.prod(y.shape)) + n).reshape(y.shape)
            total = total + math.sum(y * weight)
        for _ in range(order):
            found = gradients(total, xs)
            total = sum(math.sum(math.sin(dx)) for dx in found)
        return total, *gradients(total, xs)

    return graph.trace(body, [TensorSpec(shape, "float64") for shape in shapes])


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("op", "shapes", "given"), CASES, ids=NAMES)
def test_by_finite_differences(op, shapes, given, order):
    program = differentiated(op, shapes, given, order)
    arrays = [RNG.normal(size=shape) for shape in shapes]
    _, *found = program(*arrays)
    ways = [RNG.normal(size=shape) for shape in shapes]
    slope = sum(np.sum(f * way) for f, way in zip(found, ways, strict=True))
    step, ends = 1e-5, []
    for by in (step, -step):
        moved = [x + by * way for x, way in zip(arrays, ways, strict=True)]
        ends.append(float(program(*moved)[0]))
    difference = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_a_gather_visits_each_index_once():
    """Its time is linear in the indices and in the table; a row may be read twice."""
    back = find("derived.picked_grad")
    func = back.function(
        back.workload((5, 3), (4, 3), (5,), dtypes=("f64", "f64", "i64"))
    )
    assert not [*nodes_of(func, Reduce)]
    table, dy = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
    wanted = np.zeros_like(table)
    np.add.at(wanted, IDS, dy * np.exp(table[IDS]))
    np.testing.assert_allclose(back(dy, table, IDS), wanted, rtol=1e-12)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    ("shape", "count", "by"),
    [
        ((5, 12), 8, 4),
        ((5, 11), 7, 4),
        ((5, 9), 1, 3),
        ((5, 9), 0, 3),
        ((500, 140), 70, 70),
        ((500, 140), 137, 3),
        ((3, 5000), 4998, 2),
        ((3, 5000), 2500, 2500),
        ((1, 9000), 8001, 3),
    ],
)
def test_gathers_at_columns_that_follow_from_the_position(name, shape, count, by):
    """Positions past the last are not read, whatever share of the columns is used."""
    table, dy = RNG.normal(size=shape), RNG.normal(size=count)
    ids = RNG.integers(0, shape[0], size=count)
    at = ids, COLUMNS[name](np.arange(count), by)
    wanted = np.zeros_like(table)
    np.add.at(wanted, at, dy * np.cos(table[at]))
    found = find(f"derived.{name}_grad")(dy, table, ids, by=by)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("shape", "count"), [((500, 70), 300), ((3, 5000), 40), ((70, 131), 0)]
)
def test_gathers_of_rows_in_strips_of_columns(shape, count):
    """With columns that are no multiple of a strip, and rows that repeat."""
    table, dy = RNG.normal(size=shape), RNG.normal(size=(count, shape[1]))
    ids = RNG.integers(0, shape[0], size=count)
    wanted = np.zeros_like(table)
    np.add.at(wanted, ids, dy * np.exp(table[ids]))
    terms = np.zeros_like(table)  # sums of which cancel
    np.add.at(terms, ids, np.abs(dy) * np.exp(table[ids]))
    found = find("derived.picked_grad")(dy, table, ids)
    assert (np.abs(found - wanted) <= 1e-15 * terms).all()


def test_elements_that_are_repeated_are_summed_at_their_place():
    """Neither compared with every index, nor added one by one."""
    back = find("derived.repeated_grad")
    func = back.function(back.workload((11,), (4,), dtypes="f64"))
    kinds = [axis.kind for block in nodes_of(func, Block) for axis in block.axes]
    extents = [a.extent for b in nodes_of(func, Block) for a in b.axes]
    assert "ordered" not in kinds
    assert max(int(extent.value) for extent in extents) == 4


def in_torch(op, arrays, **given):
    """A gradient of a gradient in PyTorch, by what PyTorch itself computes."""
    torch = pytest.importorskip("torch")
    from tensorlang.interop.torch import register

    ours = register(op)

    def values(function):
        xs = [torch.tensor(x, requires_grad=True) for x in arrays]
        y = function(*xs)
        first = torch.autograd.grad(torch.sin(y).sum(), xs, create_graph=True)
        second = torch.autograd.grad(sum(torch.cos(dx).sum() for dx in first), xs)
        return [each.detach().numpy() for each in (y, *first, *second)]

    theirs = {
        "derived.product": lambda x, w: x @ w.T,
        "derived.filtered": lambda x, w: torch.nn.functional.conv1d(
            x[:, None], w[None, None], stride=given["step"], dilation=given["apart"]
        )[:, 0],
        "derived.softened": lambda x: torch.softmax(x, 1),
        "derived.squashed": lambda x, bias: torch.tanh(x * x + bias),
        "nn.layer_norm": lambda x, w, b: torch.layer_norm(x, w.shape, w, b),
        "nn.rms_norm": lambda x, w: torch.rms_norm(x, w.shape, w, 1e-6),
        "nn.mse": torch.nn.functional.mse_loss,
    }[op.id]
    return values(lambda *xs: ours(*xs, **given)), values(theirs)


@pytest.mark.parametrize(
    ("op", "shapes", "given"),
    [
        (product, [(17, 40), (9, 40)], {}),
        (filtered, [(4, 50), (5,)], {"step": 2, "apart": 3}),
        (softened, [(6, 33)], {}),
        (squashed, [(40, 6), (6,)], {}),
        (nn.layer_norm, [(40, 6), (6,), (6,)], {}),
        (nn.rms_norm, [(5, 70), (70,)], {}),
        (nn.mse, [(40, 6), (40, 6)], {}),
    ],
)
def test_second_order_in_pytorch(op, shapes, given):
    arrays = [RNG.normal(size=shape) for shape in shapes]
    ours, theirs = in_torch(op, arrays, **given)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_narrow_sums_are_rounded_once():
    x, w = (RNG.normal(size=shape).astype("f2") for shape in ((3000, 4), (5, 4)))
    dy = RNG.normal(size=(3000, 5)).astype("f2")
    dx, dw = find("derived.product_grad")(dy, x, w)
    wide = [a.astype("f8") for a in (dy, x, w)]
    assert (dx.dtype, dw.dtype) == (np.float16, np.float16)
    for a, b, found in ((wide[0], wide[2], dx), (wide[0].T, wide[1], dw)):
        most = 2**-10 * (np.abs(a) @ np.abs(b))  # products are of f16, as in y
        np.testing.assert_array_less(np.abs(found - a @ b), most)


def test_a_gradient_is_called_like_any_operator():
    back = find("derived.filtered_grad")
    x, w = RNG.normal(size=(2, 9)), RNG.normal(size=3)
    dx, dw = back(np.ones((2, 4)), x, w, step=2)
    assert (dx.shape, dw.shape) == (x.shape, w.shape)
    assert back.shape((2, 4), (2, 9), (3,), step=2) == ((2, 9), (3,))
    with pytest.raises(ShapeError, match=r"\(2, 5\); .* of shape \(2, 4\) is needed"):
        back(np.ones((2, 5)), x, w, step=2)


def test_gradients_of_some_results_may_be_left_out():
    back = find("nn.layer_norm_grad_grad")
    dy, x, w = RNG.normal(size=(5, 7)), RNG.normal(size=(5, 7)), RNG.normal(size=7)
    ddx, ddw = RNG.normal(size=(5, 7)), RNG.normal(size=7)
    both = back(ddx, ddw, None, dy, x, w)
    first, second = back(ddx, None, None, dy, x, w), back(None, ddw, None, dy, x, w)
    for whole, a, b in zip(both, first, second, strict=True):
        np.testing.assert_allclose(whole, a + b, rtol=1e-12, atol=1e-12)
    assert [a.shape for a in back(ddx, None, None, dy, x, None)] == [(5, 7), (5, 7)]
    with pytest.raises(ArgumentError, match="a result that there is only with weight"):
        back(ddx, ddw, None, dy, x, None)


def test_what_has_no_derivative_is_said():
    @operator("derived.largest")
    def largest(x: Floats):
        k = ir.reduce_axis(x.shape[1])
        return ir.compute((x.shape[0],), lambda i: ir.max(x[i, k], k))

    def body(x):
        return gradients(math.sum(largest(x)), [x])[0]

    said = r"derived\.largest .* has no gradient.* a reduction by max has no derivative"
    with pytest.raises(GraphError, match=said):
        graph.trace(body, [TensorSpec((3, 4), "float32")])
    with pytest.raises(OperatorError, match="a reduction by max"):
        find("derived.largest_grad")(np.ones(3), np.ones((3, 4)))


@pytest.mark.parametrize("id", ["nn.softmax_grad", "math.var_grad", "math.matmul_grad"])
def test_default_workloads_of_higher_orders(id):
    """One gradient for each result, where results are several."""
    for _ in range(2):
        op = find(id)
        id = f"{id}_grad"
        gradient, results = find(id).default, op.shape()
        several = results if isinstance(results[0], tuple) else (results,)
        assert gradient.shapes == (*several, *op.default.shapes)


@pytest.mark.parametrize("op", [math.sum, softened])
def test_a_gradient_of_another_type_than_the_result_is_refused(op):
    x = np.ones((3, 4))
    dy = np.ones(op.shape((3, 4)), np.float32)
    with pytest.raises(DTypeError, match=f"{op.id}_grad: .*f32.*f64"):
        find(f"{op.id}_grad")(dy, x)


def test_the_gradient_of_another_shape_than_its_result_is_named():
    """Among the gradients of several results."""
    back = find("nn.layer_norm_grad_grad")
    x, dx = np.ones((5, 7)), np.ones((5, 6))
    with pytest.raises(ShapeError, match=r"ddx has shape \(5, 6\); .* \(5, 7\)"):
        back(dx, None, None, x, x, None)


def test_gradients_without_annotations_have_the_type_of_their_result():
    @operator("derived.doubled")
    def doubled(x):
        return ir.compute(x.shape, lambda i: x[i] * 2.0)

    back = find("derived.doubled_grad")
    assert back(np.ones(3, "f2"), np.ones(3, "f2")).dtype == np.float16
    with pytest.raises(DTypeError, match="dy is f32; an array of f64 is needed"):
        back(np.ones(3, "f4"), np.ones(3))


def test_a_deep_polynomial_takes_no_longer_than_its_terms() -> None:
    @operator("derived.horner")
    def horner(x: Floats) -> ir.Tensor:
        def element(i: ir.Expr) -> ir.Expr:
            made = ir.as_expr(1.0, x.dtype)
            for n in range(30):
                made = made * x[i] + float(n)
            return made

        return ir.compute(x.shape, element)

    x = np.linspace(-0.9, 0.9, 7)
    wanted = np.polyval(np.polyder(np.array([1.0, *range(30)])), x)
    np.testing.assert_allclose(horner.grad(np.ones_like(x), x), wanted, rtol=1e-12)
