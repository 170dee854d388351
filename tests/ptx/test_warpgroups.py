"""Products of warpgroups, fed by bulk copies, as the schedules make them for Hopper."""

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build, ir, targets
from tensorlang.errors import ArgumentError, DeviceError
from tensorlang.ops import find, math, nn, operator
from tensorlang.ops.kernels.building import default
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime.cuda import toolchain
from tensorlang.schedules.simt.generic import generic
from tensorlang.scheduling import Knobs, Schedule

RAGGED = [((200, 144), (96, 144)), ((64, 64), (64, 64)), ((129, 272), (272, 272))]
RAGGED += [((70, 72), (64, 72)), ((130, 136), (72, 136))]  # k = 8 mod 16
SIZES = ((300, 320), (64, 320))  # three tiles of five steps in a ring of four
# what is written, what is written instead, what is told
MISTAKES = {
    "a phase of the consumers": (
        r"object_wait\(full (.*), (.*)\);",
        r"object_wait(full \1, !(\2));",
        "that do not come",
    ),
    "a phase of the producer": (
        r"object_wait\(empty (.*), (.*)\);",
        r"object_wait(empty \1, !(\2));",
        "that do not come",
    ),
    "no wait for copies": (r"object_wait\(full .*;", "", "asynchronous copy"),
    "no wait for products": (r"object_wait\(empty .*;", "", "more arrive"),
    "no stage is freed": (r"object_arrive\(empty.*;", "", "that do not come"),
    "too few bytes": (r"(object_expect\(.*, )\d+", r"\g<1>8192", "that do not come"),
    "objects without a fence": (r"asm.*fence\.mbarrier_init.*", "", "mbarrier_init"),
    "no barrier after objects": (r"__syncthreads\(\);", "", "since the last barrier"),
    "no registers are given up": (
        r"asm.*setmaxnreg\.dec.*",
        "",
        "that do not come",
    ),
    "no registers are taken": (r"asm.*setmaxnreg\.inc.*", "", "no other one took"),
    "no fence of products": (r'"wgmma\.fence.*', "", "wgmma.fence"),
    "a phase of the consumers across tiles": (
        r"(object_wait\(full .*), \(at(?:_\d+)? / 4\)",
        r"\1, (k / 4)",
        "that do not come",
    ),
    "a phase of the producer across tiles": (
        r"(object_wait\(empty .*), \(at / 4",
        r"\1, (k / 4",
        "that do not come",
    ),
    "no fence of what a bulk store reads": (
        r"asm.*fence\.proxy\.async.*",
        "",
        "may not see what a thread wrote",
    ),
    "no wait of bulk stores": (
        r"asm.*bulk\.wait_group\.read.*",
        "",
        "before its bulk stores have read",
    ),
    "no barrier before a bulk store": (r"asm.*bar\.sync.*", "", "since the last"),
    "no wait before the next results": (
        r"asm.*wait_group\.read 0.*\n(.*fence.proxy)",
        r"\1",
        "while a bulk store read it",
    ),
    "no wait of products": (
        r'"wgmma\.wait_group.*',
        "",
        "where a wgmma may still read",
    ),
}


NEAR = {"bf16": 2**-8, "f16": 2**-11}


def called(name, kind, shapes, processors=132, knobs=None, **given):
    """What an operator gives for random arrays, these in f64, and its source."""
    op = find(name)
    workload = op.workload(*shapes, dtypes=kind, **given)
    arrays, scalars = arguments(op, workload, seed=5)
    target = replace(targets.get("cuda"), threads=processors)
    kernel = build(default(op, workload, target, knobs or {})[0], target)
    kernel.launch(*arrays, *scalars)
    count = len(shapes)
    taken = [array.astype(np.float64) for array in arrays[:count]]
    return arrays[count:], taken, kernel.source


def error(given, wanted):
    """The largest one, relative to the largest result."""
    return np.abs(given - wanted).max() / np.abs(wanted).max()


def worst(kind, shapes, processors=132, knobs=None):
    """The error of dense, and its source; for few rows as for many by default."""
    knobs = {"few_rows": 0} | (knobs or {})
    (y,), (x, w), source = called("nn.dense", kind, shapes, processors, knobs)
    return error(y, x @ w.T), source


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("shapes", RAGGED)
def test_ragged_sizes(kind, shapes):
    found, source = worst(kind, shapes)
    assert "wgmma" in source
    assert found < NEAR[kind]


# rows, out, in: dx = dy w and dw = dy^T x
@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    ("kind", "sizes", "layout", "processors"),
    [
        ("bf16", (129, 136, 72), "oi", 132),
        ("f16", (70, 72, 272), "oi", 132),
        ("bf16", (300, 64, 128), "oi", 1),
        ("bf16", (130, 192, 320), "io", 2),
    ],
)
def test_gradients_read_transposed_operands(kind, sizes, layout, processors):
    m, n, k = sizes
    shapes = (m, n), (m, k), (n, k) if layout == "oi" else (k, n)
    made, (dy, x, w), source = called(
        "nn.dense_grad", kind, shapes, processors, layout=layout
    )
    assert "wgmma" in source
    assert "mma.sync" not in source
    dw = dy.T @ x
    wanted = (dy @ w, dw) if layout == "oi" else (dy @ w.T, dw.T)
    assert all(error(*pair) < NEAR[kind] for pair in zip(made, wanted, strict=False))


# a, b: one matrix, several, one for all, in any order in memory
@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    ("name", "shapes", "processors", "given", "wanted"),
    [
        ("math.matmul", ((130, 72), (72, 136)), 132, {}, "...ik,...kj->...ij"),
        ("math.matmul", ((3, 70, 72), (3, 72, 64)), 2, {}, "bik,bkj->bij"),
        (
            "math.matmul",
            ((2, 136, 72), (2, 128, 72)),
            3,
            {"transpose_b": True},
            "bik,bjk->bij",
        ),
        ("math.matmul", ((70, 72), (3, 72, 64)), 132, {}, "...ik,...kj->...ij"),
        (
            "math.einsum",
            ((65, 3, 64), (3, 64, 72)),
            2,
            {"subscripts": "ibk,bkj->ibj"},
            "ibk,bkj->ibj",
        ),
    ],
)
def test_batches_of_products(name, shapes, processors, given, wanted):
    (y,), taken, source = called(name, "bf16", shapes, processors, **given)
    assert "wgmma" in source
    assert error(y, np.einsum(wanted, *taken)) < NEAR["bf16"]


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("512ull << 16", "256ull << 16"),  # from 64 columns to the next ones
        ("1, 1, 0, 1;", "1, 1, 0, 0;"),  # w goes along k
        ("1, 1, 1, 1;", "1, 1, 0, 1;"),  # dy goes along k
        ("left + 128)", "left + 2)"),  # from 16 steps to the next ones
    ],
)
def test_a_wrong_descriptor_is_seen(written, instead, monkeypatch):
    right = toolchain.ptx_of

    def wrong(source, arch):
        assert written in source
        return right(source.replace(written, instead), arch)

    monkeypatch.setattr(toolchain, "ptx_of", wrong)
    shapes = (64, 64), (64, 128), (64, 128)
    names = ("warpgroups", "group_columns", "step_parts")
    knobs = dict(zip((f"{name}_dw_sum" for name in names), (1, 128, 1), strict=True))
    (dx, dw, _), (dy, x, w), _ = called("nn.dense_grad", "bf16", shapes, 1, knobs)
    assert max(error(dx, dy @ w), error(dw, dy.T @ x)) > 0.1


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("rows", [300, 65])
def test_parts_of_the_steps(rows):
    shapes = (rows, 64), (rows, 128), (64, 128)
    knobs = {"step_parts_dw_sum": 4, "group_columns_dw_sum": 64}
    (_, dw, _), (dy, x, _), source = called(
        "nn.dense_grad", "bf16", shapes, 2, knobs, layout="oi"
    )
    assert "dw_sum_rf" in source
    assert "mma.sync" not in source
    assert np.abs(dw - dy.T @ x).max() <= NEAR["bf16"] * np.abs(dy.T @ x).max()


@pytest.mark.usefixtures("ptx_driver")
def test_a_gradient_of_no_rows_is_zero():
    op = find("nn.dense_grad")
    workload = op.workload((64, 64), (64, 64), (64, 64), dtypes="f16")
    kernel = op.build(workload, "cuda")
    assert "wgmma" in kernel.source
    dy, w = np.zeros((0, 64), "f2"), np.ones((64, 64), "f2")
    dw, db = np.ones((64, 64), "f2"), np.ones(64, "f2")
    kernel.launch(dy, dy, w, dy.copy(), dw, db)
    assert not dw.any()
    assert not db.any()


@pytest.mark.parametrize(("rows", "blocks"), [(63, 2), (127, 4), (128, 1), (0, 0)])
def test_few_rows_are_a_case(rows, blocks, ptx_driver):
    op, shapes = find("nn.dense"), ((256, 64), (128, 64))
    workload = op.workload(*shapes, dtypes="bf16")
    target = targets.get("cuda")
    knobs = {"few_rows": 128, "group_columns": 128}
    kernel = build(default(op, workload, target, knobs)[0], target)
    (x, w, y), _ = arguments(op, op.workload((rows or 1, 64), (128, 64), dtypes="bf16"))
    x, y = x[:rows], y[:rows]
    kernel.launch(x, w, y)
    assert [size[0] for _, size, *_ in ptx_driver.launched] == [blocks] * (rows > 0)
    if rows:
        assert error(y.astype("f4"), x.astype("f8") @ w.astype("f8").T) < NEAR["bf16"]


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("processors", [1, 2])
def test_blocks_that_stay(processors):
    found, source = worst("bf16", ((290, 320), (128, 320)), processors)
    assert f"// launch: grid (min((n0 + 127) // 128, {processors}), 1, 1)" in source
    assert found < NEAR["bf16"]


@pytest.mark.usefixtures("ptx_driver")
def test_no_rows():
    x, w = np.zeros((0, 64), "f2"), np.zeros((64, 64), "f2")
    assert nn.dense(x, w, target="cuda").shape == (0, 64)


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("kind", ["f2", ml_dtypes.bfloat16])
def test_no_steps(kind):
    x, w = np.zeros((100, 0), kind), np.zeros((64, 0), kind)
    bias = np.ones(64, kind)
    assert not nn.dense(x, w, target="cuda").any()
    assert (nn.dense(x, w, bias, target="cuda") == 1).all()
    assert not math.matmul(x, w.T.copy(), target="cuda").any()


# an axis of length n of an array whose dimension is m, which calls make equal to n
@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("iak,akj->ij", ((65, 2, 64), (2, 64, 72))),
        ("iak,jak->ij", ((65, 2, 64), (72, 2, 64))),
        ("iakc,akcj->ij", ((65, 2, 64, 8), (2, 64, 8, 72))),
    ],
)
def test_copies_under_a_condition_are_left_to_threads(subscripts, shapes):
    rng = np.random.default_rng(4)
    taken = [rng.standard_normal(shape).astype("f2") for shape in shapes]
    y = math.einsum(subscripts, *taken, target="cuda")
    wanted = np.einsum(subscripts, *(array.astype("f8") for array in taken))
    assert error(y.astype("f8"), wanted) < NEAR["f16"]


def plane(a, w):
    """Rows in reverse order of products, and one matrix of several for all."""
    count, rows, steps = a.shape
    k = ir.frontend.reduce_axis(steps, "k")

    def products(b, i, j):
        left = a[count - 1 - b, i, k]
        return ir.sum(left.cast("f32") * w[1, k, j].cast("f32"), k)

    return ir.compute((count, rows, w.shape[2]), products, "y")


@pytest.mark.usefixtures("ptx_driver")
def test_a_plane_of_an_array_of_unknown_length():
    op = operator("tests.plane")(plane)
    workload = op.workload((2, 64, 64), (2, 64, 64), dtypes="f16")
    target = targets.get("cuda")
    kernel = build(default(op, workload, target, {})[0], target)
    (a, w, y), _ = arguments(op, workload)
    kernel.launch(a, w, y)
    assert error(y, a[::-1].astype("f8") @ w[1].astype("f8")) < NEAR["f16"]


# products, rows, columns, steps: the arguments are tensor maps only
@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("sizes", [(2, 128, 128, 128), (2, 65, 72, 64)])
def test_products_of_known_sizes(sizes):
    count, m, n, steps = sizes
    a = ir.frontend.placeholder((count, m, steps), "f16", "a")
    w = ir.frontend.placeholder((count, steps, n), "f16", "w")
    k = ir.frontend.reduce_axis(steps, "k")

    def products(b, i, j):
        return ir.sum(a[b, i, k].cast("f32") * w[b, k, j].cast("f32"), k)

    sums = ir.compute((count, m, n), products, "sums")
    y = ir.compute((count, m, n), lambda b, i, j: sums[b, i, j].cast("f16"), "y")
    s = Schedule(ir.function("products", [a, w], [y]), targets.get("cuda"))
    generic(s, Knobs())
    kernel = build(s, "cuda")
    assert "wgmma" in kernel.source
    rng = np.random.default_rng(3)
    shapes = (count, m, steps), (count, steps, n)
    left, right = (rng.standard_normal(shape).astype("f2") for shape in shapes)
    made = np.zeros((count, m, n), "f2")
    kernel.launch(left, right, made)
    assert error(made.astype("f8"), left.astype("f8") @ right.astype("f8")) < 2**-11


@pytest.mark.usefixtures("ptx_driver")
def test_one_step_has_no_product_in_flight():
    shapes = (300, 64), (64, 64)
    found, _ = worst("f16", shapes, knobs={"persistent": False})
    assert found < NEAR["f16"]
    with pytest.raises(ArgumentError, match=r"in_flight, .* one step"):
        worst("f16", shapes, knobs=IN_FLIGHT)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, ptx_driver, monkeypatch):
    see(ptx_driver, monkeypatch, MISTAKES[name])


IN_FLIGHT = {"in_flight": 1}
MISTAKES_IN_FLIGHT = {
    "a stage is freed too early": (
        r"(?s)& \(k > 0\)(.*?) \+ 2\) % 3(.*?)if \(thread % 32 == 0\) \{.*?\}",
        r"\1) % 3\2",
    ),
    "no wait before a stage is freed": (r"asm.*wgmma\.wait_group.* 1.*", ""),
    "a wait for the one before": (r"(wgmma\.wait_group.*) 1;", r"\1 2;"),
    "no wait at the end": (r"wgmma_end_n\d+\(prod.*", ""),
}


@pytest.mark.usefixtures("ptx_driver")
def test_products_in_flight():
    found, source = worst("bf16", ((290, 320), (128, 320)), 1, IN_FLIGHT)
    assert "wgmma.wait_group.sync.aligned 1;" in source
    assert found < NEAR["bf16"]


@pytest.mark.parametrize("name", MISTAKES_IN_FLIGHT)
def test_a_mistake_with_products_in_flight_is_seen(name, ptx_driver, monkeypatch):
    mistake = *MISTAKES_IN_FLIGHT[name], "where a wgmma may still read"
    see(ptx_driver, monkeypatch, mistake, IN_FLIGHT | {"ring": 3})


def see(ptx_driver, monkeypatch, mistake, knobs=None):
    """Check that the driver refuses a kernel with a planted mistake."""
    written, instead, told = mistake
    right, made = toolchain.ptx_of, []

    def wrong(source, arch):
        text, count = re.subn(written, instead, source)
        made.append(count)
        return right(text, arch)

    monkeypatch.setattr(toolchain, "ptx_of", wrong)
    with pytest.raises(DeviceError):
        worst("bf16", SIZES, processors=1, knobs=knobs)
    assert made[0] > 0
    assert told in str(ptx_driver.errors.pop())
