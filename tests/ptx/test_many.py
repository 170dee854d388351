"""One launch for many sets of arrays, run as PTX: each set as it would be alone."""

import importlib
import sys

import numpy as np
import pytest

from tensorlang.ops import optim

RNG = np.random.default_rng(6)
SHAPES = [(3, 5), (700,), (1, 0), (2, 2, 2), (33,)]


@pytest.fixture
def tensor(ptx_driver, programs, monkeypatch):
    """A tensor of a PyTorch on the machine, with what kernels ask of it."""
    fake = importlib.import_module(f"{programs.__name__}.fake_cuda")

    class Tensor(fake.Tensor):
        def __init__(self, array):
            super().__init__(ptx_driver, array)
            self.dtype = "torch.float32"

        def data_ptr(self):
            return self.address

        def numel(self):
            return int(np.prod(self.shape))

        def get_device(self):
            return 0

        def is_contiguous(self):
            return True

        def stride(self):
            return tuple(s // 4 for s in np.empty(self.shape, np.float32).strides)

    module = fake.torch_of(Tensor, float32="torch.float32")
    monkeypatch.setitem(sys.modules, "torch", module)
    return Tensor


def test_adam_over_many_tensors(tensor, ptx_driver):
    start = [
        [np.abs(RNG.normal(size=s)).astype(np.float32) for s in SHAPES]
        for _ in range(4)
    ]
    held = [[tensor(array) for array in arrays] for arrays in start]
    for step in (2, 3):
        optim.adam(*held, step=step, lr=0.1)
        optim.adam(*start, step=step, lr=0.1)
        for arrays, tensors in zip(start, held, strict=True):
            for array, there in zip(arrays, tensors, strict=True):
                np.testing.assert_array_equal(there.get(), array)
    assert [launch[0] for launch in ptx_driver.launched] == ["optim_adam_many"] * 2
