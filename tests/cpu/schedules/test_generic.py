"""Operators of a user's own, without a schedule: right, and fast from the first day."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import (
    argmax,
    as_expr,
    compute,
    intrinsic,
    max,
    reduce_axis,
    reduction,
    sum,
)
from tensorlang.ir.contents import loops
from tensorlang.ops import operator
from tensorlang.ops.kernels import building
from tensorlang.scheduling import Knobs


@operator("generic_test.affine")
def affine(x, scale, shift):
    """(x + shift) * scale, by columns and by rows."""
    return compute(x.shape, lambda i, j: (x[i, j] + shift[j]) * scale[i], "y")


@operator("generic_test.gelu")
def gelu(x):
    """An elementwise function with a transcendental part."""

    def value(i, j):
        return x[i, j] * (intrinsic("erf", x[i, j] * 0.70710678) + 1.0) * 0.5

    return compute(x.shape, value, "y")


@operator("generic_test.small")
def small(x):
    """Of one size, which its kernel knows."""
    rows, columns = map(int, x.shape)
    return compute((rows, columns), lambda i, j: x[i, j] * x[i, j], "y")


@operator("generic_test.transpose")
def transpose(x):
    """Rows become columns."""
    return compute((x.shape[1], x.shape[0]), lambda i, j: x[j, i], "y")


@operator("generic_test.row_sum", tolerance=1e-5)
def row_sum(x):
    """The sum of each row."""
    k = reduce_axis(x.shape[1], "k")
    return compute((x.shape[0],), lambda i: sum(x[i, k], k), "y")


@operator("generic_test.column_max")
def column_max(x):
    """The largest value of each column."""
    k = reduce_axis(x.shape[0], "k")
    return compute((x.shape[1],), lambda j: max(x[k, j], k), "y")


@operator("generic_test.mean", tolerance=1e-5)
def mean(x):
    """The mean of all elements, as one."""
    a, b = reduce_axis(x.shape[0], "a"), reduce_axis(x.shape[1], "b")
    count = (x.shape[0] * x.shape[1]).cast(x.dtype)
    total = compute((1,), lambda _: sum(x[a, b], (a, b)), "total")
    return compute((1,), lambda i: total[i] / count, "y")


@operator("generic_test.matmul", tolerance=1e-5)
def matmul(a, b):
    """a [m, k] times b [k, n]."""
    k = reduce_axis(a.shape[1], "k")
    shape = (a.shape[0], b.shape[1])
    return compute(shape, lambda i, j: sum(a[i, k] * b[k, j], k), "y")


@operator("generic_test.linear", tolerance=1e-5)
def linear(x, w, b):
    """x [m, k] times w [n, k] transposed, and a bias."""
    k = reduce_axis(x.shape[1], "k")
    shape = (x.shape[0], w.shape[0])
    t = compute(shape, lambda i, j: sum(x[i, k] * w[j, k], k), "t")
    return compute(shape, lambda i, j: intrinsic("tanh", t[i, j] + b[j]), "y")


@operator("generic_test.batched", tolerance=1e-5)
def batched(a, b):
    """Products of pairs of matrices."""
    k = reduce_axis(a.shape[2], "k")
    shape = (a.shape[0], a.shape[1], b.shape[2])
    return compute(shape, lambda n, i, j: sum(a[n, i, k] * b[n, k, j], k), "y")


@operator("generic_test.softmax", tolerance=1e-5)
def softmax(x):
    """In four stages, as it is written in a textbook."""
    rows, columns = x.shape
    k, r = reduce_axis(columns, "k"), reduce_axis(columns, "r")
    top = compute((rows,), lambda i: max(x[i, k], k), "top")
    e = compute(x.shape, lambda i, j: intrinsic("exp", x[i, j] - top[i]), "e")
    total = compute((rows,), lambda i: sum(e[i, r], r), "total")
    return compute(x.shape, lambda i, j: e[i, j] / total[i], "y")


@operator("generic_test.online", tolerance=1e-5)
def online(x):
    """Softmax with a state of two."""
    k = reduce_axis(x.shape[1], "k")
    top, total = compute(
        (x.shape[0],),
        lambda r: reduction("logsumexp", (x[r, k], as_expr(1.0, x.dtype)), k),
        ("top", "total"),
    )
    return compute(
        x.shape, lambda i, j: intrinsic("exp", x[i, j] - top[i]) / total[i], "y"
    )


@operator("generic_test.argmax")
def row_argmax(x):
    """The largest value of each row, and where it is."""
    k = reduce_axis(x.shape[1], "k")
    return compute((x.shape[0],), lambda i: argmax(x[i, k], k.var, k), ("top", "at"))


def soft(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def erf(x):
    from math import erf as scalar

    return np.vectorize(scalar)(x)


ONE = [(1, 1), (3, 7), (5, 70), (33, 130), (2, 5000)]
PAIRS = [
    ((1, 1), (1, 1)),
    ((5, 3), (3, 7)),
    ((13, 16), (16, 50)),
    ((30, 33), (33, 75)),
    ((1, 40), (40, 9)),
    ((17, 9), (9, 1)),
    ((64, 64), (64, 64)),
]
CASES = {
    "gelu": (gelu, lambda x: x * (erf(x * 0.70710678) + 1) / 2, [[s] for s in ONE]),
    "transpose": (transpose, lambda x: x.T, [[s] for s in ONE]),
    "row_sum": (row_sum, lambda x: x.sum(1), [[s] for s in ONE]),
    "column_max": (column_max, lambda x: x.max(0), [[s] for s in ONE]),
    "mean": (mean, lambda x: x.mean(keepdims=True)[0], [[s] for s in ONE]),
    "softmax": (softmax, soft, [[s] for s in ONE]),
    "online": (online, soft, [[s] for s in ONE]),
    "argmax": (row_argmax, lambda x: (x.max(1), x.argmax(1)), [[s] for s in ONE]),
    "matmul": (matmul, lambda a, b: a @ b, PAIRS),
    "batched": (
        batched,
        lambda a, b: a @ b,
        [((2, 5, 9), (2, 9, 33)), ((3, 1, 1), (3, 1, 1)), ((0, 2, 3), (0, 3, 4))],
    ),
    "linear": (
        linear,
        lambda x, w, b: np.tanh(x @ w.T + b),
        [[a, b[::-1], b[1:]] for a, b in PAIRS],
    ),
    "affine": (
        affine,
        lambda x, scale, shift: (x + shift) * scale[:, None],
        [[s, s[:1], s[1:]] for s in [*ONE, (300, 200), (0, 5)]],
    ),
}


def drawn(shapes, dtype):
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(shape) * 2).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_without_a_schedule_is_right(name, dtype):
    op, reference, all_shapes = CASES[name]
    if name == "gelu" and dtype == "f8":
        pytest.skip("its constants are float32")
    for shapes in all_shapes:
        arrays = drawn(shapes, dtype)
        expected = reference(*(array.astype(np.float64) for array in arrays))
        found = op(*arrays)
        pairs = zip(found, expected, strict=True)
        for one, two in pairs if isinstance(found, tuple) else [(found, expected)]:
            np.testing.assert_allclose(one, two, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (gelu, [(1000, 1000)]),
        (row_sum, [(1000, 1001)]),
        (mean, [(1000, 1000)]),
        (column_max, [(1000, 1000)]),
        (softmax, [(300, 1000)]),
        (matmul, [(200, 100), (100, 300)]),
    ],
)
def test_a_large_operator_uses_threads_and_vectors(op, shapes):
    workload = op.workload(*shapes)
    kernel = op.build(workload)
    kinds = {loop.kind for loop in loops(kernel.ir)}
    assert {"parallel", "vectorized"} <= kinds
    one = op.build(workload, targets.host().with_threads(1))
    arrays = [  # dimensions that are run through together are one to a kernel
        array.reshape(-1) if param.buffer.ndim == 1 else array
        for array, param in zip(drawn(shapes, "f4"), kernel.ir.params, strict=False)
    ]
    np.testing.assert_array_equal(kernel(*arrays), one(*arrays))


def test_operators_of_a_small_size_stay_on_one_thread():
    kernel = small.build(small.workload((8, 8)))
    assert {loop.kind for loop in loops(kernel.ir)} == {"serial", "vectorized"}


def test_the_generic_schedule_has_knobs_to_tune():
    target = targets.host()
    domains = {}
    for op, shapes in [(gelu, [(1000, 1000)]), (matmul, [(64, 64), (64, 64)])]:
        (entry,) = building.schedules(op, "direct", target)
        assert entry.family == "generic"
        knobs = Knobs()
        building.schedule(op, op.workload(*shapes), target, "direct", knobs)
        domains |= knobs.domains
    stream, tile = {"lanes", "chunk", "nontemporal"}, {"rows", "vectors"}
    blocks = {"blocks", "block_strips", "block_tiles", "block_depth", "strips_first"}
    assert domains.keys() == stream | tile | blocks | {"packing", "rows_packed"}


def test_a_wide_matmul_runs_in_a_register_tile():
    if targets.host().vector_registers < 32:
        pytest.skip("the tile needs the 32 vector registers of AVX-512")
    kernel = matmul.build(matmul.workload((96, 256), (256, 128)))
    assert kernel.asm.count("vfmadd") >= 24
