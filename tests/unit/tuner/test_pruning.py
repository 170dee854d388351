"""What no block can hold is refused with a reason, before any compiler runs."""

import pytest

from tensorlang import targets
from tensorlang.ir.text.parser import parse
from tensorlang.ops import find
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.kernels.building import default
from tensorlang.scheduling import Knobs
from tensorlang.tuner.search import pruning
from tensorlang.tuner.search.pruning import refusal
from tensorlang.tuner.workers.scheduler import LocalScheduler

CUDA = targets.get("cuda:sm_80")


def nest(threads=64, shared=64, registers=1):
    return parse(f"""
def f(x: f32[4096], y: Out[f32[4096]]):
    for b in bound(2, "block.x"):
        s = alloc(f32[{shared}], scope="shared")
        for t in bound({threads}, "thread.x"):
            s[{threads} - 1 - t] = x[t]
        for t in bound({threads}, "thread.x"):
            r = alloc(f32[{registers}], scope="register")
            for i in range({registers}):
                r[i] = s[(t + i) % {min(threads, shared)}]
            for i in range({registers}):
                y[b * 2048 + t] = r[i]
""")


def test_what_fits_is_not_refused():
    assert not refusal(nest(threads=1024, shared=1024, registers=32), CUDA)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"threads": 2048, "shared": 2048}, "has 2048 threads, and cuda:sm_80 takes"),
        ({"shared": 41729}, "shares 166916 bytes, and cuda:sm_80 has 166912"),
        (
            {"registers": 256},
            "holds 256 registers of accumulators alone; the limit is 255",
        ),
        (
            {"threads": 1024, "shared": 1024, "registers": 80},
            "holds 80 registers of accumulators alone; the limit is 64",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_numbers(changes, said):
    assert said in refusal(nest(**changes), CUDA)


def test_registers_of_branches_that_follow_each_other_are_shared():
    both = parse("""
def f(y: Out[f32[64]]):
    for t in bound(64, "thread.x"):
        for i in range(2):
            a = alloc(f32[200], scope="register")
            a[i] = 1.0
            y[t] = a[i]
        for j in range(2):
            b = alloc(f32[200], scope="register")
            b[j] = 1.0
            y[t] = b[j]
""")
    assert not refusal(both, CUDA)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["nn.dense", "math.matmul", "nn.conv2d"])
def test_tiles_that_are_the_default_are_not_refused(name, dtype):
    op = find(name)
    workload = op.workload(*op.default.shapes, dtypes=dtype)
    assert not refusal(default(op, workload, CUDA, {})[0].function, CUDA)


def test_what_is_written_out_too_often_is_refused():
    func = parse("""
def f(x: f32[8192], y: Out[f32[8192]]):
    for t in bound(32, "thread.x"):
        for i in unrolled(8192):
            if t == 0:
                y[i] = x[i] * x[8191 - i] + 1.0
""")
    assert "vector operations, more than 60000" in refusal(func, CUDA)


def test_the_default_is_tried_whatever_its_size(monkeypatch):
    monkeypatch.setattr(pruning, "MOST_OPERATIONS", 1)
    op, target = find("nn.dense"), targets.host()
    workload = op.workload((64, 64), (64, 64))
    scheduler = LocalScheduler(op, workload, target)
    known = default(op, workload, target, {})[1]
    tried = [scheduler.schedule(DIRECT, Knobs.replay(dict(known.values)))]
    others = ({**known.values, "rows": rows} for rows in (1, 2))
    tried += [scheduler.schedule(DIRECT, Knobs.replay(dict(each))) for each in others]
    assert tried[0].outcome is None
    assert all("more than 1" in each.outcome.reason for each in tried[1:])
