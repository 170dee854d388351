"""Operators of one's own in PyTorch: their gradients, of both orders."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the extra interop is not installed")

from tensorlang.interop import torch as ours  # noqa: E402

IDS = torch.tensor([[0, 2, 2], [8, 1, 0]])
ROWS, COLUMNS = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 3, 1, 2, 3])
# what is differentiated, and what comes before and after it
CASES = {
    "attention": (((2, 3, 4), (2, 5, 4), (2, 5, 6)), (), ()),
    "blur": (((7, 8),), (), ()),
    "embedding_bag": (((9, 4),), (), (IDS,)),
    "rms_swiglu": (((3, 8), (8,), (3, 8)), (), ()),
    "spmv": (((5,), (4,)), (ROWS, COLUMNS), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_an_example_has_gradients_in_pytorch(load, name):
    shapes, before, after = CASES[name]
    op = ours.register(getattr(load(name), name))
    torch.manual_seed(0)
    given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def f(*arrays):
        return op(*before, *arrays, *after)

    assert torch.autograd.gradcheck(f, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(f, given, fast_mode=True)
