"""All of these run on every device beside the CPU that is here: OpenCL's and CUDA's.

With `--ptx` they run on a GPU that is none, and executes NVRTC's PTX.
"""

from __future__ import annotations

import pytest

from tensorlang import targets
from tensorlang.targets import Target

KINDS = ("opencl", "cuda")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once a device; `tests/targets/test_present.py` says what is missing."""
    if "device" in metafunc.fixturenames:
        known = targets.availability()
        here = [kind for kind in KINDS if not known[kind]]
        if metafunc.config.getoption("--ptx"):
            here = ["ptx"]
        metafunc.parametrize("device", here, indirect=True)


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Target:
    """The device that a test runs on."""
    if request.param == "ptx":
        request.getfixturevalue("ptx_driver")
        return targets.get("cuda")
    return targets.get(request.param)
