"""Parts of arrays and stacks of them, against NumPy, to the bit; and in programs."""

import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.graph import TensorSpec, gradients
from tensorlang.ops import math, nn

RNG = np.random.default_rng(0)


def draw(shape, dtype=np.float32):
    return np.asarray(RNG.integers(0, 100, shape)).astype(dtype)


def same(a, b):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.tobytes() == np.ascontiguousarray(b).tobytes()


SPLITS = [
    ((6,), 3, 0),
    ((6, 40), (1, 0, 5), 0),
    ((6, 40), 4, 1),
    ((2, 3, 40, 2), (7, 33), -2),
    ((0, 4), 2, 1),
    ((5, 7), 1, 0),
]


@pytest.mark.parametrize(("shape", "parts", "axis"), SPLITS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_parts(shape, parts, axis, dtype):
    x = draw(shape, dtype)
    cuts = parts if isinstance(parts, int) else np.cumsum(parts)[:-1]
    made = nn.split(x, parts, axis)
    assert isinstance(made, tuple)
    for ours, theirs in zip(made, np.split(x, cuts, axis), strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_stacks(axis):
    arrays = [draw((5, 24)) for _ in range(3)]
    same(nn.stack(arrays, axis), np.stack(arrays, axis))
    same(nn.stack([arrays[0][0]], 0), arrays[0][:1])
    scalars = [np.float32(2).reshape(()), np.float32(3).reshape(())]
    same(nn.stack(scalars), np.stack(scalars))


def test_of_torch_and_into_given_memory():
    torch = pytest.importorskip("torch")
    x = torch.arange(24.0).reshape(4, 6)
    for ours, theirs in zip(nn.split(x, 2, 1), x.split(3, 1), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(nn.stack([x, x], 1), torch.stack([x, x], 1))
    out = np.empty((4, 2), np.float32), np.empty((4, 4), np.float32)
    assert nn.split(x.numpy(), (2, 4), 1, out=out) is out
    same(out[1], x.numpy()[:, 2:])


def test_in_programs_with_open_sizes():
    spec = TensorSpec(("batch", 6), "float64")

    def body(x):
        left, middle, _ = nn.split(x, 3, 1)
        y = nn.stack([left * middle, left], 1)
        return y, *gradients(math.sum(y * y), [x])

    made = graph.trace(body, [spec])
    assert str(graph.parse(str(made))) == str(made)
    assert str(made.outputs[0].spec) == "f64[batch, 2, 2]"
    x = RNG.normal(size=(5, 6))
    y, dx = made(x)
    left, middle = x[:, :2], x[:, 2:4]
    np.testing.assert_array_equal(y, np.stack([left * middle, left], 1))
    back = [2 * left * middle**2 + 2 * left, 2 * left**2 * middle, 0 * left]
    np.testing.assert_allclose(dx, np.concatenate(back, 1), rtol=1e-12)


X = draw((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda: nn.split(X, 2, 1), ShapeError, "3 places are not 2 equal parts"),
        (lambda: nn.split(X, 0), ArgumentError, "one part at least, not 0"),
        (lambda: nn.split(X, (1, 3), 1), ShapeError, r"\(1, 3\) do not make 3"),
        (lambda: nn.split(X, (-1, 4), 1), ArgumentError, "sizes from 0 on"),
        (
            lambda: nn.split(X, "ab"),
            ArgumentError,
            "parts is a number, or whole numbers",
        ),
        (lambda: nn.split(X, 1, 2), ArgumentError, "axis 2 does not exist"),
        (lambda: nn.stack([]), ArgumentError, "a list of arrays, at least one"),
        (lambda: nn.stack([X, X.T]), ShapeError, r"\(2, 3\) and \(3, 2\) differ"),
        (lambda: nn.stack([X, X], 3), ArgumentError, "axis 3 does not exist"),
        (
            lambda: nn.stack([X.astype(np.uint64), X.astype(np.int64)]),
            DTypeError,
            "one element type, not u64, i64",
        ),
    ],
)
def test_calls_that_are_refused(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call()
