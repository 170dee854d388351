"""Products of long steps in parts: right, in one order, and as many as keep busy."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.dtypes import i64
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import For, Var, as_expr, seq
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.schedules.simt.matrices import Sides
from tensorlang.schedules.simt.split_steps import parts_of
from tensorlang.targets import get

GPU = get("cuda:sm_80")
TILE = {"block_rows": 32, "block_columns": 32, "depth": 16, "stages": 2}
WARPS = {"warp_rows": 1, "warp_columns": 1}


@pytest.mark.parametrize("n", [1, 3])
def test_parts_of_images_add_up(n):
    op = find("nn.conv2d_grad_weight")
    shapes = (2, 16, 5, 6), (2, 16, 5, 6)
    workload = op.workload(*shapes, dtypes="bf16", window=(3, 3), padding=1)
    made = default(op, workload, GPU, {**TILE, **WARPS, "step_parts": 4})[0]
    func = lower(made.function, GPU)
    generator = np.random.default_rng(0)
    kind = func.buffers[0].dtype.numpy
    dy, x = (generator.normal(size=(n, 16, 5, 6)).astype(kind) for _ in shapes)
    dw = np.full((16, 16, 3, 3), np.nan, kind)
    run(func, dy.reshape(-1), x.reshape(-1), dw.reshape(-1), n0=n)
    framed = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros(dw.shape)
    for u, v in np.ndindex(3, 3):
        seen = framed[:, :, u : u + 5, v : v + 6]
        want[:, :, u, v] = np.einsum("boij,bcij->oc", dy.astype("f8"), seen)
    np.testing.assert_allclose(dw.astype("f8"), want, rtol=2**-7, atol=2**-5)


def sides(rows, columns, steps, varying=False):
    """Loops of these lengths; where the steps vary, of a batch of images as well."""

    def loop(name, extent):
        return For(Var(name, i64), as_expr(extent), "serial", seq())

    folded = [loop("k", steps)]
    if varying:
        folded.append(loop("b", Var("n", i64)))
    groups = {"batch": (), "row": (loop("i", rows),), "column": (loop("j", columns),)}
    return Sides(groups, tuple(folded), ())


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (sides(64, 576, 3136, varying=True), 32),  # 9 tiles
        (sides(512, 4608, 49, varying=True), 2),  # 144 of them
        (sides(256, 2304, 12544), 8),
        (sides(64, 64, 300), 1),  # too few steps
    ],
)
def test_as_many_parts_as_keep_a_device_busy(given, parts):
    sizes = [128 if given.extent(side) % 128 == 0 else 64 for side in ("row", "column")]
    assert parts_of(given, tuple(sizes)) == parts
