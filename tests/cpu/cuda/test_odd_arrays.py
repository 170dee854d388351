"""Arrays that say of themselves what cannot be, on a fake GPU: told, not launched."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ops import nn

X = np.random.default_rng(4).normal(size=(4, 24)).astype(np.float32)


@pytest.fixture
def told(driver, fake):
    """An array whose `__cuda_array_interface__` says this and that."""

    def make(offset=0, **changes):
        tensor = fake.Tensor(driver, X, offset=offset)
        tensor.told |= changes
        return tensor

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {"typestr": ""},
        {"typestr": "nonsense"},
        {"shape": 96},
        {"data": None},
        {"data": (4096,)},
    ],
    ids=str,
)
def test_what_cannot_be_read_is_told(told, changes):
    with pytest.raises(ArgumentError, match="cannot be read"):
        nn.relu(told(**changes))


@pytest.mark.parametrize("key", ["typestr", "shape", "data"])
def test_what_is_missing_is_told(told, key):
    tensor = told()
    del tensor.told[key]
    with pytest.raises(ArgumentError, match=f"cannot be read .*'{key}'"):
        nn.relu(tensor)


@pytest.mark.parametrize("strides", [(), (96,), (96, 4, 4)])
def test_strides_are_as_many_as_sizes(told, strides):
    with pytest.raises(ArgumentError, match=r"has shape \(4, 24\) and strides"):
        nn.relu(told(strides=strides))


def test_elements_without_memory_are_not_launched(told, driver, fake):
    before = len(driver.launched)
    with pytest.raises(ArgumentError, match="no memory: its address is 0"):
        nn.relu(told(data=(0, False)))
    assert len(driver.launched) == before
    empty = fake.Tensor(driver, np.zeros((0, 24), np.float32))
    empty.told["data"] = (0, False)
    assert nn.relu(empty).shape == (0, 24)


def test_what_begins_between_two_elements_is_told(told):
    with pytest.raises(ArgumentError, match="is no multiple of 4 bytes"):
        nn.relu(told(offset=2))
    with pytest.raises(ArgumentError, match="is no multiple of 4 bytes"):
        nn.relu(told(), out=told(offset=1))


def test_an_output_whose_elements_lie_apart_is_told(told, driver, fake):
    out = fake.Tensor(driver, np.zeros((4, 48), np.float32))
    out.told |= {"shape": (4, 24), "strides": (192, 8)}
    with pytest.raises(ArgumentError, match=r"out of shape .* is not contiguous"):
        nn.relu(told(), out=out)


def test_slices_of_nothing(told):
    assert nn.slice(told(), (1,), (1,)).shape == (0, 24)
