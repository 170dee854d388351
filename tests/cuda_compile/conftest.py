"""CUDA compiled without a GPU; where a compiler is missing, the tests say which."""

import pytest

from tensorlang.runtime.cuda import toolchain

PROBLEM = toolchain.missing()


@pytest.fixture(scope="session", autouse=True)  # before fixtures that build
def compilers():
    if PROBLEM:
        pytest.skip(PROBLEM)
