"""All of these run on a GPU of NVIDIA; where there is none, they say why.

With `--ptx` they run on a GPU that is none, and executes NVRTC's PTX.
"""

from __future__ import annotations

import pytest

from tensorlang import devices, targets
from tensorlang.targets import Target

PROBLEM = devices.cuda_problem()


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Target:
    if request.config.getoption("--ptx"):
        if request.node.get_closest_marker("gpu_only"):
            pytest.skip("a GPU's own: its memory, its clock, or other processes on it")
        request.getfixturevalue("ptx_driver")
    elif PROBLEM:
        pytest.skip(PROBLEM if PROBLEM.startswith("no GPU") else f"no GPU: {PROBLEM}")
    return targets.get("cuda")
