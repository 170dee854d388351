"""All of these run on an OpenCL device; where there is none, they say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang import devices, targets
from tensorlang.targets import Target

PROBLEM = devices.problem()


@pytest.fixture(autouse=True)
def device() -> Target:
    if PROBLEM:
        pytest.skip(f"no OpenCL: {PROBLEM}")
    return targets.get("opencl")


@pytest.fixture
def gpu_like(device: Target) -> Target:
    """The same device, with schedules for threads: as if it were a GPU."""
    return replace(device, arch="gpu64", vector_bits=128)
