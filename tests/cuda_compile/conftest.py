"""CUDA compiled without a GPU; where a compiler is missing, the tests say which."""

import pytest

from tensorlang.runtime import toolchain

PROBLEM = toolchain.missing()


@pytest.fixture(autouse=True)
def compilers():
    if PROBLEM:
        pytest.skip(PROBLEM)
