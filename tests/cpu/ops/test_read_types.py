"""`dtype=`: arrays are read in a type, which results have, as in PyTorch."""

import numpy as np
import pytest

from tensorlang import graph, ir
from tensorlang.errors import DTypeError
from tensorlang.ops import math, nn

torch = pytest.importorskip("torch", reason="the extra interop is not installed")

OPS = {
    "sum": (math.sum, torch.sum),
    "prod": (math.prod, torch.prod),
    "cumsum": (math.cumsum, torch.cumsum),
    "mean": (math.mean, torch.mean),
    "softmax": (nn.softmax, torch.softmax),
    "log_softmax": (nn.log_softmax, torch.log_softmax),
}
WHOLE = ("sum", "prod", "cumsum")  # which integers have, too
FLOATS = ("float32", "float64", "bfloat16", "float16")
TYPES = (*FLOATS, "int8", "int32", "uint8", "bool")


def drawn(kind, shape=(5, 7)):
    numbers = np.random.default_rng(0).uniform(-3, 3, shape)
    if kind == "uint8":  # C leaves open what negative floats become
        numbers = abs(numbers)
    return torch.from_numpy(numbers).to(getattr(torch, kind))


@pytest.mark.parametrize("own", TYPES)
@pytest.mark.parametrize("name", OPS)
def test_of_pytorch(name, own) -> None:
    op, theirs = OPS[name]
    for kind in TYPES if name in WHOLE else FLOATS:
        x, dtype = drawn(own), getattr(torch, kind)
        if kind == "uint8" and own in FLOATS:  # as in `drawn`: 0 here, 253 in PyTorch
            x = x.abs()
        if (name, kind) == ("cumsum", "bool"):  # which PyTorch does not have
            wanted = x.to(dtype).cummax(1).values
        else:
            wanted = theirs(x, 1, dtype=dtype)
        torch.testing.assert_close(op(x, 1, dtype=dtype), wanted)


@pytest.mark.parametrize("name", OPS)
def test_gradients_have_the_type_of_the_array(name) -> None:
    if name == "prod":
        pytest.skip("math.prod has no gradient")
    ours = pytest.importorskip("tensorlang.interop.torch")
    x = drawn("float32").requires_grad_()
    dy = drawn("float64", OPS[name][1](x, 1).shape)
    found = []
    for op, kind in ((getattr(ours, name), "float64"), (OPS[name][1], torch.float64)):
        y = op(x, 1, dtype=kind)
        assert y.dtype == torch.float64
        found += torch.autograd.grad(y, x, dy)
    torch.testing.assert_close(*found)


def test_programs_convert_in_nodes() -> None:
    x = graph.input(graph.TensorSpec((5, 7), "f16"))
    y = math.sum(x, 1, dtype="int32") + math.cumsum(x, dtype=np.int32)[:, 0]
    assert y.dtype == "i32"
    dx = graph.gradients(math.mean(nn.softmax(x * x, dtype="f32")), [x])[0]
    assert dx.dtype == "f16"
    data = drawn("float16").numpy()
    found, _ = graph.Graph([x], (y, dx))(data)
    whole = data.astype(np.int32)
    np.testing.assert_array_equal(found, whole.sum(1) + whole[:, 0])


def test_types_that_do_not_fit() -> None:
    x = np.ones(3, np.float32)
    for op in (math.mean, nn.softmax):
        for given in (x, graph.input(graph.TensorSpec((3,), "f32"))):
            with pytest.raises(DTypeError, match="takes f32, bf16, f16, f64, not i32"):
                op(given, dtype="i32")
    with pytest.raises(DTypeError):
        math.sum(x, dtype="f4")
    assert math.sum(x, dtype=ir.DType("u8")) == 3
