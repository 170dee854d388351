"""Derivatives in PyTorch, of both orders and in both modes, against differences."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="the extra interop is not installed")

from tensorlang.errors import GraphError  # noqa: E402
from tensorlang.interop import torch as ours  # noqa: E402
from tensorlang.ops import operator  # noqa: E402
from tensorlang.ops.registry import find  # noqa: E402

CHOICE = torch.tensor([True, False, True, False]).expand(3, 4)
KEY = torch.tensor([1, 2])
IDS = torch.tensor([1, 1, 3])
LABELS = torch.tensor([0, -100, 2])
M, V = (3, 4), (4,)
SMOOTH = {
    "1 / x": (lambda x: ours.divide(1.0, x), M),
    "2 ** x": (lambda x: ours.power(2.0, x), M),
    "x ** 3": (lambda x: ours.power(x, 3.0), M),
    "1 - x": (lambda x: ours.subtract(1.0, x), M),
    "broadcast product": (ours.multiply, (3, 1, 4), (2, 1)),
    "broadcast quotient": (ours.divide, (3, 1, 4), (2, 1)),
    "power": (ours.power, M, M),
    "where a number": (lambda x: ours.where(CHOICE, 0.5, ours.square(x)), M),
    "maximum": (ours.maximum, (3, 1, 4), (2, 1)),
    "minimum with a number": (lambda x: ours.minimum(x, 0.5), M),
    "clip": (lambda x, low: ours.clip(x, low, 0.7), M, V),
    "matmul": (lambda a, b: ours.matmul(a, b, True, True), (4, 3), (2, 4)),
    "einsum": (
        lambda a, b: ours.einsum("iij,bj->bi", a, b),
        *((3, 3, 4), (2, 4)),
    ),
    "sum": (lambda x: ours.sum(ours.exp(x), (0, 2)), (2, 3, 4)),
    "mean": (lambda x: ours.mean(ours.exp(x), -1, True), (2, 3, 4)),
    "var": (lambda x: ours.var(x, (0, 1), 1.0), (2, 3, 4)),
    "logsumexp": (lambda x: ours.logsumexp(x, (0, 2)), (2, 3, 4)),
    "cumsum": (lambda x: ours.square(ours.cumsum(x, 0)), M),
    "softmax": (ours.softmax, M),
    "log_softmax": (lambda x: ours.log_softmax(x, 0), M),
    "gelu": (ours.gelu, M),
    "gelu by tanh": (lambda x: ours.gelu(x, "tanh"), M),
    "softplus": (lambda x: ours.softplus(x, 2.0, 1.0), M),
    "leaky_relu": (lambda x: ours.leaky_relu(ours.subtract(x, 0.5), 0.1), M),
    "sign": (lambda x: ours.multiply(ours.sign(x), x), M),
    "erf": (ours.erf, M),
    "tanh": (ours.tanh, M),
    "rsqrt": (ours.rsqrt, M),
    "dense": (ours.dense, (2, 3, 4), (5, 4), (5,)),
    "fused dense": (
        lambda x, w, b, r: ours.dense(
            x, w, b, activation="silu", dropout=0.5, key=KEY, residual=r
        ),
        *(M, (5, 4), (5,), (3, 5)),
    ),
    "dense with relu": (
        lambda x, w: ours.dense(x, w, activation="relu", layout="io"),
        *(M, (4, 5)),
    ),
    "conv2d": (lambda *a: ours.conv2d(*a, 2, 1, 1, 2), (1, 4, 5, 5), (4, 2, 3, 3), V),
    "dilated conv2d": (
        lambda x, w: ours.conv2d(x, w, None, [1, 2], [0, 1], [2, 1]),
        *((1, 2, 6, 6), (2, 2, 3, 3)),
    ),
    "layer_norm": (ours.layer_norm, M, V, V),
    "layer_norm, no weight": (lambda x, b: ours.layer_norm(x, None, b), M, V),
    "rms_norm": (ours.rms_norm, M),
    "batch_norm": (lambda *a: ours.batch_norm(*a, axis=0), (4, 3), V, V, V, V),
    "batch_norm, no weight": (
        lambda x, m, v, b: ours.batch_norm(x, m, v, None, b),
        *(M, V, V, V),
    ),
    "batch_norm_train": (lambda *a: tuple(ours.batch_norm_train(*a)), M, V, V, V, V),
    "batch_norm_train, no weight": (
        lambda x, m, v, b: ours.batch_norm_train(x, m, v, None, b)[0],
        *(M, V, V, V),
    ),
    "cross_entropy": (
        lambda x: ours.cross_entropy(x, LABELS, label_smoothing=0.1),
        M,
    ),
    "cross_entropy of each": (
        lambda x: ours.cross_entropy(x, LABELS[:, None], "none"),
        (3, 4, 1),
    ),
    "mse": (ours.mse, M, M),
    "embedding": (lambda table: ours.square(ours.embedding(IDS, table)), (4, 2)),
    "concatenate": (lambda a, b: ours.concatenate([a, b, a], 1), M, (3, 2)),
    "stack": (lambda a, b: ours.stack([a, b], 1), M, M),
    "split": (lambda x: tuple(ours.nn_split(x, [1, 2, 1], 1))[1:], M),
    "slice": (lambda x: ours.slice(x, (None, 3), (None, 0), (None, -2)), M),
    "pad": (lambda x: ours.pad(ours.exp(x), ((1, 0), (0, 2)), 3.0), M),
    "transpose": (lambda x: ours.exp(ours.transpose(x, [2, 0, 1])), (2, 3, 4)),
    "reshape": (lambda x: ours.exp(ours.reshape(x, (-1, 2))), M),
    "avg_pool2d": (lambda x: ours.avg_pool2d(x, 2, 1, 1, False, False), (1, 2, 4, 4)),
    "not in a row": (lambda x: ours.gelu(x.transpose(0, 1)), M),
}
ONCE = {
    "max": (lambda x: ours.max(x, (0, 2), True), (2, 3, 4)),
    "sort": (lambda x: ours.sort(x, 0, True), M),
    "max_pool2d": (lambda x: ours.max_pool2d(x, 2, 1, 1, 2), (1, 2, 5, 5)),
    "conv2d_transpose": (
        lambda *a: ours.conv2d_transpose(*a, 2, 1, 1),
        *((1, 2, 3, 3), (2, 3, 3, 3), (3,)),
    ),
}


def given(*shapes):
    torch.manual_seed(0)
    made = (torch.rand(*shape, dtype=torch.float64) for shape in shapes)
    return [(0.9 * each + 0.1).requires_grad_() for each in made]


BOTH = {"check_undefined_grad": False, "check_forward_ad": True}
SECOND = {"check_undefined_grad": False, "check_fwd_over_rev": True}


@pytest.mark.parametrize("name", SMOOTH)
def test_both_orders_and_both_modes(name) -> None:
    f, *shapes = SMOOTH[name]
    arrays = given(*shapes)
    assert torch.autograd.gradcheck(f, arrays, fast_mode=True, **BOTH)
    assert torch.autograd.gradgradcheck(f, arrays, fast_mode=True, **SECOND)


@pytest.mark.parametrize("name", ONCE)
def test_what_has_no_second_derivative_says_so(name) -> None:
    f, *shapes = ONCE[name]
    arrays = given(*shapes)
    assert torch.autograd.gradcheck(f, arrays, fast_mode=True)
    with pytest.raises(
        GraphError,
        match=r"test_torch_derivatives.py:\d+\) is a gradient without a gradient",
    ):
        torch.autograd.gradgradcheck(f, arrays, fast_mode=True)
    with pytest.raises(GraphError, match="is a gradient without a gradient"):
        torch.func.jvp(f, tuple(arrays), tuple(arrays))


def test_what_has_no_gradient_says_so() -> None:
    (x,) = given(M)
    y = ours.prod(x)
    with pytest.raises(GraphError, match=r"math\.prod .* has no gradient"):
        y.backward()


# ----------------------------------------------------------------- as people write it


def penalty(gelu, dense):
    """The gradient penalty of a small network, for its weights."""
    x, w, v = given((5, 4), (6, 4), (1, 6))
    y = dense(gelu(dense(x, w)), v)
    (dx,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (dx.norm(dim=1) - 1).square().mean().backward()
    return w.grad, v.grad


def test_a_gradient_penalty_has_its_second_term() -> None:
    theirs = penalty(torch.nn.functional.gelu, torch.nn.functional.linear)
    for mine, their in zip(penalty(ours.gelu, ours.dense), theirs, strict=True):
        torch.testing.assert_close(mine, their)


TRANSFORMS = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "vmap": torch.func.vmap,
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x).sum())),
    "vmap of columns": lambda f: torch.vmap(f, in_dims=1, out_dims=1),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (x.cos(),)),
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    **{
        f"{outer} of {inner}": lambda f, o=outer, i=inner: getattr(torch.func, o)(
            getattr(torch.func, i)(lambda x: f(x * x).square().sum() * f(x).sum())
        )
        for outer in ("jacrev", "jacfwd")
        for inner in ("jacrev", "jacfwd")
    },
    "a third derivative": lambda f: (
        lambda x: torch.func.jacrev(
            torch.func.jacfwd(torch.func.grad(lambda x: f(x).square().sum()))
        )(x[0])
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.manual_seed(3))
    mine, theirs = (TRANSFORMS[name](f)(x) for f in (ours.silu, torch.nn.SiLU()))
    torch.testing.assert_close(mine, theirs)


def test_a_result_that_is_no_float_has_no_tangent() -> None:
    def f(x):
        first = ours.where(ours.greater(x, 0.5), ours.exp(x), x)
        return first * ours.argsort(x).to(x.dtype)

    (x,) = given(M)
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True)
    torch.testing.assert_close(torch.func.jacfwd(f)(x), torch.func.jacrev(f)(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_training_step(dynamic) -> None:
    def loss(x, w, b, t):
        y = ours.dense(ours.gelu(ours.dense(x, w, b)), w)
        return ours.mse(ours.add(ours.softmax(y), 1.0), t)

    step = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (3, 5):
        found = []
        for f in (step, loss):
            arrays = given((rows, 4), (4, 4), (4,), (rows, 4))
            f(*arrays).backward()
            found.append([array.grad for array in arrays])
        torch.testing.assert_close(*found)


def test_a_batch_that_changes_compiles_once() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")
    weight = torch.randn(2, 3, 3, 3)

    def f(x):
        y = ours.conv2d(x, weight, padding=1)
        return ours.gelu(ours.reshape(y, (x.shape[0], -1)))

    compiled = torch.compile(f, backend=counter, fullgraph=True)
    for n in (2, 3, 4, 7):
        x = torch.randn(n, 3, 4, 4, requires_grad=True)
        torch.testing.assert_close(compiled(x), f(x))
        compiled(x).sum().backward()
    assert counter.frame_count == 2  # of one size, and of any


def test_a_key_in_a_compiled_function_is_used_at_each_call() -> None:
    from tensorlang.errors import KeyReuseError
    from tensorlang.ops import random

    f = torch.compile(lambda x, key: ours.dropout(x, 0.5, key=key), backend="eager")
    x, keys = torch.ones(64), random.split(random.key(0), 2)
    first, second = (f(x, keys[at]) for at in range(2))
    assert not torch.equal(first, second)
    with pytest.raises(KeyReuseError):
        f(x, keys[0])
    whole = torch.compile(
        lambda x, key: ours.dropout(x, 0.5, key=key), backend="eager", fullgraph=True
    )
    words = (torch.tensor([3, n]) for n in range(2))
    assert not torch.equal(*(whole(x, each) for each in words))


# ------------------------------------------------------------- operators of one's own


def test_an_operator_of_ones_own_in_one_line() -> None:
    from tensorlang import graph
    from tensorlang.ir import compute

    @operator("test_interop.cube")
    def cube(x, *, scale=1.0, names=()):
        del names
        return compute(x.shape, lambda i: scale * x[i] * x[i] * x[i])

    @graph.gradient_of(cube)
    def of_cube(dy, x, *, scale=1.0, names=()):
        del names
        return dy * x * x * (3.0 * scale)

    cubed = ours.register(cube)
    assert ours.register(cube) is not None
    op = torch.ops.tensorlang.test_interop_cube
    schema = 'Tensor x, float scale=1., str names="[]") -> Tensor'
    assert str(op.default._schema).endswith(schema)
    (x,) = given((5,))
    torch.testing.assert_close(cubed(x, scale=2.0), 2 * x**3)
    f = lambda x: cubed(x, scale=2.0)  # noqa: E731
    assert torch.autograd.gradcheck(f, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, x)
    torch.testing.assert_close(torch.vmap(f)(x[:, None]), 2 * x[:, None] ** 3)
    assert set(torch.library.opcheck(op, (x,)).values()) == {"SUCCESS"}


@pytest.mark.parametrize(("shape", "axis"), [((0,), 0), ((0, 3), 0), ((3, 0), 1)])
def test_second_order_of_an_empty_mean(shape, axis) -> None:
    def twice(mean):
        x = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        y = mean(x, axis)
        dy = torch.ones_like(y, requires_grad=True)
        (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
        return torch.autograd.grad(dx, dy, torch.ones_like(dx))[0]

    torch.testing.assert_close(twice(ours.mean), twice(torch.mean))


def test_what_updates_in_place_is_none_of_pytorchs() -> None:
    from tensorlang.errors import OperatorError

    with pytest.raises(OperatorError, match=r"sgd is not a function of tensors"):
        ours.register(find("optim.sgd"))
    with pytest.raises(AttributeError, match="no operator is called 'sgd'"):
        _ = ours.sgd


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own internals
        yield
