"""A mistake in what the templates write is seen: PTX that was changed fails."""

import re

import numpy as np
import pytest

from tensorlang.errors import DeviceError
from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime.cuda import toolchain

DENSE = ("nn.dense", "bf16", ((37, 64), (48, 64)), {})
TURNED = ("nn.dense", "bf16", ((45, 96), (96, 56)), {"layout": "io"})
SUM = ("math.sum", "f32", ((3, 1000),), {})
# operator, what is written, what is written instead, "" for other numbers or a fault
MISTAKES = {
    "registers of mma": (DENSE, r"(mma.*\}, \{) (%r\d+), (%r\d+)", r"\1 \3, \2", ""),
    "registers of sums": (DENSE, r"(mma\S+) \{ (%f\d+), (%f\d+)", r"\1 { \3, \2", ""),
    "half a type": (DENSE, r"bf16\.bf16\.f32 \{", "f16.f16.f32 {", ""),
    "no transpose": (TURNED, r"\.trans", "", ""),
    "no wait": (TURNED, r"cp\.async\.wait_group \d+;", "", "asynchronous copy"),
    "a wait too late": (
        TURNED,
        r"cp\.async\.wait_group \d;",
        "cp.async.wait_group 7;",
        "asynchronous copy",
    ),
    "no barrier": (TURNED, r"bar\.sync \t0;", "", "since the last barrier"),
    "another shuffle": (SUM, r"shfl\.sync\.bfly", "shfl.sync.idx", ""),
    "fewer lanes": (SUM, r"-1;(\s+shfl)", r"255;\1", "its own member mask"),
}


def results(case, target):
    name, dtype, shapes, given = case
    op = find(name)
    workload = op.workload(*shapes, dtypes=dtype, **given)
    arrays, scalars = arguments(op, workload, seed=3)
    kernel = op.build(workload, target)
    kernel.launch(*arrays, *scalars)
    return arrays[-1].astype(np.float64)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_seen(name, ptx_driver, monkeypatch):
    case, written, instead, told = MISTAKES[name]
    right, made = toolchain.ptx_of, []

    def wrong(source, arch):
        text, count = re.subn(written, instead, right(source, arch))
        made.append(count)
        return text

    monkeypatch.setattr(toolchain, "ptx_of", wrong)
    if told:
        with pytest.raises(DeviceError):
            results(case, "cuda")
        assert told in str(ptx_driver.errors.pop())
    else:
        here, there = results(case, "llvm"), results(case, "cuda")
        assert np.abs(here - there).max() > 0.01 * np.abs(here).max()
    assert made[0] > 0
