# ruff: noqa: ARG001
"""Calls that come again with PyTorch's tensors: quick, and as right as the first."""

import sys

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops import math, nn, random
from tensorlang.runtime import calling

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 6)).astype(np.float32)
STREAM = 31


@pytest.fixture(params=["by the exchange API", "by methods"])
def torch(driver, fake, monkeypatch, request):
    """A PyTorch with tensors on a GPU, and with what kernels ask of them."""

    class Tensor(fake.Tensor):
        index = 0

        def __init__(self, array, offset=0):
            super().__init__(driver, array, offset=offset)
            self.dtype = f"torch.{array.dtype.name}"

        def data_ptr(self):
            return self.address

        def get_device(self):
            return self.index

        def is_contiguous(self):
            return True

        def stride(self):
            return tuple(s // 4 for s in np.empty(self.shape, np.float32).strides)

    types = {name: f"torch.{name}" for name in ("float32", "int32")}
    exchange = request.param == "by the exchange API"
    module = fake.torch_of(Tensor, STREAM, exchange=exchange, **types)
    module.empty = lambda shape, dtype, **_: Tensor(
        np.full(shape, 7, dtype.partition(".")[2])
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def once(monkeypatch):
    """From a call to what it gives when it comes again: by the quick way alone."""

    def again(call):
        first = call()
        with monkeypatch.context() as patch:
            patch.setattr(calling, "prepare", None)
            return first, call()

    return again


def test_elementwise_matrices_and_rows(torch, driver, once):
    x, w = torch.Tensor(X), torch.Tensor(X[:3] * 2)
    for op, given, expected in (
        (nn.relu, (x,), np.maximum(X, 0)),
        (math.add, (x, x), X + X),
        (nn.softmax, (x,), nn.softmax(X)),
        (nn.dense, (x, w), nn.dense(X, X[:3] * 2)),
    ):
        first, second = once(lambda op=op, given=given: op(*given))
        assert type(second) is torch.Tensor
        assert second is not first
        np.testing.assert_allclose(second.get(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(second.get(), first.get())
        out = torch.Tensor(np.zeros_like(expected))
        _, same = once(lambda op=op, given=given, out=out: op(*given, out=out))
        assert same is out
        np.testing.assert_array_equal(out.get(), first.get())
        assert op.kernels  # the call looks at addresses alone
    assert {launch[-1] for launch in driver.launched} == {STREAM}


def test_in_place(torch, once):
    x = torch.Tensor(X)
    once(lambda: nn.relu(x, out=x))
    np.testing.assert_array_equal(x.get(), np.maximum(X, 0))


def test_other_shapes_and_types_are_other_calls(torch):
    nn.relu(torch.Tensor(X))
    longer = RNG.normal(size=(9, 5)).astype(np.float32)
    np.testing.assert_array_equal(
        nn.relu(torch.Tensor(longer)).get(), np.maximum(longer, 0)
    )
    with pytest.raises(DTypeError, match="int32"):
        nn.relu(torch.Tensor(X), out=torch.Tensor(X.astype(np.int32)))


def test_what_differs_is_looked_at(torch, driver, once):
    x = torch.Tensor(X)
    once(lambda: nn.softmax(x))
    shifted = torch.Tensor(X, offset=4)
    np.testing.assert_allclose(nn.softmax(shifted).get(), nn.softmax(X), rtol=1e-6)
    both = torch.Tensor(np.concatenate([X, X]))
    rows = [torch.Tensor(X), torch.Tensor(X)]
    for n, part in enumerate(rows):  # the second begins in the first
        part.address = both.address + 48 * n
    nn.softmax(rows[0], out=rows[1])
    np.testing.assert_allclose(rows[1].get_at(), nn.softmax(X), rtol=1e-6)
    x.requires_grad = True
    with pytest.raises(ArgumentError, match=r"detach\(\)"):
        nn.softmax(x)


def test_dropout_draws_what_the_careful_way_draws(torch, once):
    x = torch.Tensor(X)
    keys = iter(random.key(n) for n in (3, 4, 5, 6))
    _, second = once(lambda: nn.dropout(x, 0.25, key=next(keys)))
    expected = nn.dropout(X, 0.25, key=random.key(4))
    np.testing.assert_array_equal(second.get(), expected)
    out = torch.Tensor(X)
    used = next(keys)
    nn.dropout(x, 0.5, key=used, out=out)
    np.testing.assert_array_equal(out.get(), nn.dropout(X, 0.5, key=random.key(5)))
    with pytest.raises(RuntimeError, match=r"drawn from at .*test_known.py:\d+ and"):
        nn.dropout(x, 0.5, key=used)


def test_draws_are_those_of_the_careful_way(torch, once):
    out = torch.Tensor(np.zeros((5, 8), np.float32))
    keys = iter(random.key(n) for n in (3, 4, 5, 6))
    once(lambda: random.uniform(next(keys), (5, 8), out=out))
    expected = random.uniform(random.key(4), (5, 8))
    np.testing.assert_array_equal(out.get(), expected)
    used = next(keys)
    assert random.uniform(used, (5, 8), minval=-2.0, maxval=3.0, out=out) is out
    expected = random.uniform(random.key(5), (5, 8), minval=-2.0, maxval=3.0)
    np.testing.assert_array_equal(out.get(), expected)
    with pytest.raises(RuntimeError, match=r"drawn from at .*test_known.py:\d+ and"):
        random.uniform(used, (5, 8), out=out)
    for wrong, problem in (
        ({"shape": (8, 5)}, "shape"),
        ({"dtype": ["float32"]}, "element type"),
        ({"stream": "none"}, "stream"),
    ):
        given = {"shape": (5, 8), **wrong}
        with pytest.raises((TypeError, ValueError), match=problem):
            random.uniform(random.key(9), out=out, **given)
    random.uniform(random.key(6), (5, 8), offset=4, out=out)
    expected = random.uniform(random.key(6), (5, 8), offset=4)
    np.testing.assert_array_equal(out.get(), expected)
    random.uniform(random.split(random.key(1), 5), (8,), out=out)
    expected = random.uniform(random.split(random.key(1), 5), (8,))
    np.testing.assert_array_equal(out.get(), expected)


def test_temporaries_and_graphs(torch, once, driver):
    given = RNG.integers(-9, 9, (3, 200)).astype(np.float32)
    x = torch.Tensor(given)
    first, second = once(lambda: math.max(x))
    assert first.get() == second.get() == given.max()
    assert math.max.kernel(x).has_temporaries
    out = torch.Tensor(np.zeros((), np.float32))
    for n in range(3):
        out.fill(n - 50.0)
        math.sum(x, out=out)
        assert out.get() == given.sum()
    kernel = math.sum.kernel(x, out=out)
    assert (driver.counted("cuGraphLaunch") > 0) == kernel._graphs.pay


def test_a_launch_that_is_repeated(torch, driver):
    x, out = torch.Tensor(X), torch.Tensor(np.zeros_like(X))
    nn.relu(x, out=out)
    kernel, arguments, _ = nn.relu.prepare(x, out=out)
    out.fill(5.0)
    kernel(*arguments)
    np.testing.assert_array_equal(out.get(), np.maximum(X, 0))
    assert nn.relu.kernel(x, out=out).target.kind == "cuda"
