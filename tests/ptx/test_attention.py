"""Attention by products of warpgroups, run as PTX: against the same through LLVM."""

import numpy as np
import pytest

from tensorlang import build, targets
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.ops.spec.examples import arguments

GROUPS = {"algorithm": "group_tiles"}
NEAR = {"bf16": 2.0**-7, "f16": 2.0**-9}  # of the greatest result


def shapes(m, n, size, width=0, *, heads=2, groups=1):
    keys = 1, groups, n
    return (1, heads, m, size), (*keys, size), (*keys, width or size)


CASES = {
    "plain": ("bf16", shapes(70, 150, 64), {}),
    "f16": ("f16", shapes(9, 150, 128), {}),
    "many tiles": ("bf16", shapes(20, 500, 128, heads=1), {}),
    "causal": ("bf16", shapes(150, 90, 64, heads=4, groups=2), {"causal": True}),
    "window": ("bf16", shapes(130, 130, 128), {"causal": True, "window": 40}),
    "wide keys": ("bf16", shapes(20, 70, 192, 128), {}),
    "wide values": ("bf16", shapes(20, 70, 64, 128), {}),
}


def compared(name, dtype, given, near, knobs=GROUPS, **options):
    """The source of a kernel whose results are those through LLVM, but for rounding."""
    op = find(name)
    workload = op.workload(*given, dtypes=dtype, **options)
    made = []
    for target, pinned in (("llvm", {}), ("cuda", knobs)):
        there = targets.get(target)
        arrays, scalars = arguments(op, workload, seed=3)
        kernel = build(default(op, workload, there, pinned)[0], there)
        kernel.launch(*arrays, *scalars)
        specs = kernel.signature.buffers
        made.append([a for x, a in zip(specs, arrays, strict=True) if x.role != "in"])
    for here, other in zip(*made, strict=True):
        a, b = here.astype(np.float64), other.astype(np.float64)
        assert a.any()
        np.testing.assert_allclose(b, a, rtol=0, atol=near * np.abs(a).max())
    assert "wgmma" in kernel.source
    assert "mma.sync" not in kernel.source
    return kernel.source


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("case", CASES)
def test_attention(case):
    dtype, given, options = CASES[case]
    compared("nn.attention", dtype, given, NEAR[dtype], **options)


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("knobs", [{"roles": False}, {"stages": 3, "in_flight": 0}])
def test_copies_by_all_threads_and_products_one_by_one(knobs):
    dtype, given, options = CASES["plain"]
    source = compared(
        "nn.attention", dtype, given, NEAR[dtype], GROUPS | knobs, **options
    )
    assert ("cp.async.cg" in source) == ("roles" in knobs)


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("case", ["plain", "f16", "causal", "window", "wide values"])
def test_its_gradient(case):
    dtype, (q, k, v), options = CASES[case]
    given = (*q[:3], v[3]), q, k, v
    near = 2 * NEAR[dtype]  # slopes are rounded, too
    compared("nn.attention_grad", dtype, given, near, **options)
