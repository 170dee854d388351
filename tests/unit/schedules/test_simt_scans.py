"""Running sums on threads: chunks at once, the same sums as one after the other."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.building import default, preferred
from tensorlang.ops.math import chunked_scans
from tensorlang.targets import get

GPU = get("cuda:sm_80")
RNG = np.random.default_rng(2)


@pytest.mark.parametrize("shape", [(3, 150), (1, 32), (2, 1)])
@pytest.mark.parametrize("name", ["math.cumsum", "math.cumsum_grad"])
def test_chunks_of_rows(name, shape, monkeypatch):
    monkeypatch.setattr(chunked_scans, "CHUNK", 4)
    monkeypatch.setattr(chunked_scans, "CHUNKS", 8)
    op = find(name)
    func = lower(default(op, op.default, GPU, {})[0].function, GPU)
    x = RNG.normal(size=shape).astype("f4")
    y = np.full(shape, np.nan, "f4")
    run(func, x.reshape(-1), y.reshape(-1), m=shape[0], n=shape[1])
    back = slice(None, None, -1 if name.endswith("grad") else 1)
    wanted = np.cumsum(x[:, back].astype("f8"), 1)[:, back]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_only_long_rows_on_devices_are_cut():
    op = find("math.cumsum")
    assert preferred(op, op.default, GPU) == "chunks"
    assert preferred(op, op.workload((8, 10)), GPU) == "direct"
    assert preferred(op, op.default, get("llvm")) == "direct"
