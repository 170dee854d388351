"""What sorts and scatters become for CUDA: launches, registers, shared memory."""

import pytest

from tensorlang.ops import find

ARCHS = ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100"]
STATIC_SHARED = 48 << 10  # what a block has without asking


def built(name, arch, dtype=None):
    op = find(name)
    if dtype is None:
        return op.build(op.default, arch)
    count = len(op.default.dtypes)
    workload = op.workload(
        *op.default.shapes, dtypes=(dtype,) * count, **dict(op.default.named)
    )
    return op.build(workload, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_sort_is_made_of_blocks(arch):
    kernel = built("math.argsort", arch)
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["registers"] <= 128  # two blocks of 256 on a processor
    assert kernel.resources["launches"] == 8
    assert kernel.resources["shared_bytes"] <= STATIC_SHARED
    assert "for (i64 count" not in kernel.source  # no thread goes through a row


def test_keys_of_64_bits_fit_too():
    kernel = built("math.argsort", ARCHS[1], "i64")
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["shared_bytes"] <= STATIC_SHARED


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_are_added_up_by_their_own_threads(arch):
    kernel = built("nn.embedding_grad", arch)
    assert kernel.resources["spill_bytes"] == 0
    assert kernel.resources["launches"] == 10
    added = kernel.source.rpartition("// launch")[2]
    assert "*(f32x4 *)dy_wide = *(const f32x4 *)" in added
    assert "*(f32x4 *)(total" in added
