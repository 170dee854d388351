"""All of these run on a GPU of NVIDIA; where there is none, they say why."""

from __future__ import annotations

import pytest

from tensorlang import devices, targets
from tensorlang.targets import Target

PROBLEM = devices.cuda_problem()


@pytest.fixture(autouse=True)
def device() -> Target:
    if PROBLEM:
        pytest.skip(PROBLEM if PROBLEM.startswith("no GPU") else f"no GPU: {PROBLEM}")
    return targets.get("cuda")
