"""Which devices the tests beside this one ran on, and why not on the others."""

import pytest

from tensorlang import targets


@pytest.mark.parametrize("kind", ["opencl", "cuda"])
def test_a_device_is_here(kind):
    problem = targets.availability()[kind]
    if problem:
        pytest.skip(problem)
    assert targets.get(kind).index >= 0
