"""Our operators as PyTorch's: values, gradients, the compiler's view."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra interop is not installed")

from tensorlang.errors import (  # noqa: E402
    ArgumentError,
    DTypeError,
    KeyReuseError,
    OperatorError,
)
from tensorlang.interop import torch as ours  # noqa: E402
from tensorlang.ops import nn, random  # noqa: E402

F = torch.nn.functional


def given(*shapes):
    torch.manual_seed(1)
    return [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]


CASES = {
    "dense": (ours.dense, F.linear, [(3, 4), (5, 4), (5,)]),
    "dense without bias": (ours.dense, F.linear, [(2, 3, 4), (5, 4)]),
    "conv2d": (
        lambda x, w, b: ours.conv2d(x, w, b, 2, 1),
        lambda x, w, b: F.conv2d(x, w, b, 2, 1),
        [(2, 3, 6, 5), (4, 3, 3, 3), (4,)],
    ),
    "layer_norm": (
        ours.layer_norm,
        lambda x, w, b: F.layer_norm(x, (6,), w, b),
        [(4, 6), (6,), (6,)],
    ),
    "relu": (ours.relu, F.relu, [(5, 3)]),
    "gelu": (ours.gelu, F.gelu, [(5, 3)]),
    "silu": (ours.silu, F.silu, [(5, 3)]),
    "softmax": (ours.softmax, lambda x: F.softmax(x, -1), [(5, 3)]),
    "log_softmax": (ours.log_softmax, lambda x: F.log_softmax(x, -1), [(5, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name) -> None:
    op, theirs, shapes = CASES[name]
    arrays = given(*shapes)
    torch.testing.assert_close(op(*arrays), theirs(*arrays))
    assert torch.autograd.gradcheck(op, arrays, eps=1e-6, atol=1e-5)


MIXED = {
    "product": (ours.multiply, torch.mul, torch.float16, torch.int32),
    "quotient": (ours.divide, torch.div, torch.float32, torch.float64),
    "sum": (ours.add, torch.add, torch.bfloat16, torch.float16),
    "difference": (ours.subtract, torch.sub, torch.uint8, torch.float32),
    "half": (
        lambda x, y: ours.multiply(ours.multiply(x, 0.5), y),
        lambda x, y: x * 0.5 * y,
        *(torch.int64, torch.float32),
    ),
}


TYPED = {
    "sum": (ours.sum, torch.sum),
    "prod": (ours.prod, torch.prod),
    "mean": (ours.mean, torch.mean),
    "cumsum": (ours.cumsum, torch.cumsum),
    "softmax": (ours.softmax, torch.softmax),
    "log_softmax": (ours.log_softmax, torch.log_softmax),
    "cast": (
        lambda x, _, dtype: ours.cast(x, dtype),
        lambda x, _, dtype: x.to(dtype),
    ),
}


@pytest.mark.parametrize("name", TYPED)
def test_element_types_are_pytorchs_numpys_and_names(name) -> None:
    op, theirs = TYPED[name]
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    wanted = theirs(x, 1, dtype=torch.float64)
    for kind in (torch.float64, "torch.float64", np.float64, np.dtype("f8"), "f64"):
        torch.testing.assert_close(op(x, 1, dtype=kind), wanted)
    compiled = torch.compile(op, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, 1, dtype=torch.float64), wanted)
    with pytest.raises(DTypeError, match=r"^torch.complex64 is not an element type"):
        op(x, 1, dtype=torch.complex64)


@pytest.mark.parametrize("name", MIXED)
def test_mixed_types_and_their_gradients(name) -> None:
    op, theirs, *kinds = MIXED[name]
    torch.manual_seed(1)
    drawn = torch.randint(0, 5, (3, 4)), torch.randint(1, 5, (4,))
    found = []
    for each in (op, theirs):
        arrays = [a.to(kind) for a, kind in zip(drawn, kinds, strict=True)]
        floats = [a.requires_grad_() for a in arrays if a.is_floating_point()]
        y = each(*arrays)
        found.append([y, *torch.autograd.grad(y.sum(), floats)])
    for mine, peer in zip(*found, strict=True):
        torch.testing.assert_close(mine, peer)  # types, too


def test_dropout_by_key() -> None:
    x = torch.randn(50, 4, requires_grad=True)
    key = random.key(3)
    y = ours.dropout(x, 0.3, key=key)
    wanted = nn.dropout(x.detach().numpy(), 0.3, key=random.key(3))
    np.testing.assert_array_equal(y.detach().numpy(), wanted)
    y.sum().backward()
    mask = nn.dropout(np.ones((50, 4), np.float32), 0.3, key=random.key(3))
    np.testing.assert_array_equal(x.grad.numpy(), mask)
    with pytest.raises(KeyReuseError):
        ours.dropout(x, 0.3, key=key)


def test_the_compiler_knows_shapes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, w = torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3)
        assert ours.conv2d(x, w, None, 2, 1).shape == (2, 4, 4, 4)
        assert ours.dense(torch.empty(7, 4), torch.empty(5, 4)).shape == (7, 5)


def test_they_are_custom_ops() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.ops.tensorlang.gelu(x), F.gelu(x))


def test_bfloat16_keeps_its_bits() -> None:
    x, w = (
        torch.randn(s, dtype=torch.bfloat16, requires_grad=True)
        for s in ((4, 8), (3, 8))
    )
    y = ours.dense(x, w)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, F.linear(x, w), rtol=2e-2, atol=2e-2)
    y.sum().backward()
    assert x.grad.dtype == w.grad.dtype == torch.bfloat16
    torch.testing.assert_close(x.grad, w.sum(0).expand(4, 8), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("words", [[1.5, 2.0], [2**40, 1], [-1, 2], [True, False]])
def test_words_of_a_key_are_whole_numbers_of_32_bits(words) -> None:
    with pytest.raises(DTypeError, match="words of a key are 32-bit integers"):
        ours.dropout(torch.ones(4), 0.5, key=torch.tensor(words))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (ours.leaky_relu, "negative_slope"),
        (lambda x, b: ours.softplus(x, beta=b), "beta"),
        (lambda x, b: ours.dropout(x, b, key=random.key(0)), "rate"),
    ],
)
def test_a_number_that_requires_a_gradient_is_refused(call, name) -> None:
    (x,), by = given((3, 2)), torch.tensor(0.5, requires_grad=True)
    call(x, by.detach())
    with pytest.raises(ArgumentError, match=f"{name} is a number without a gradient"):
        call(x, by)
    with pytest.raises(ArgumentError, match=f"{name} is a number without a gradient"):
        torch.func.grad(lambda by: call(x, by).sum())(by.detach())


def test_what_is_no_operator_is_not_registered() -> None:
    with pytest.raises(OperatorError, match="is no operator; decorate its definition"):
        ours.register(F.gelu)
