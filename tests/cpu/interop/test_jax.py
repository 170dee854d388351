"""Our operators as JAX's: values and gradients, also under jit."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="the extra interop is not installed")

from tensorlang.errors import ArgumentError, KeyReuseError  # noqa: E402
from tensorlang.interop import jax as ours  # noqa: E402
from tensorlang.ops import math, nn, random  # noqa: E402

RNG = np.random.default_rng(2)


def given(*shapes):
    return [RNG.normal(size=shape).astype(np.float32) for shape in shapes]


def conv(x, w, b):
    y = jax.lax.conv_general_dilated(x, w, (2, 2), [(1, 1), (1, 1)])
    return y + b[:, None, None]


def norm(x, w, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred / jax.numpy.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


CASES = {
    "dense": (ours.dense, lambda x, w, b: x @ w.T + b, [(3, 4), (5, 4), (5,)]),
    "dense without bias": (ours.dense, lambda x, w: x @ w.T, [(3, 4), (5, 4)]),
    "conv2d": (
        lambda *arrays: ours.conv2d(*arrays, stride=2, padding=1),
        conv,
        [(2, 3, 6, 5), (4, 3, 3, 3), (4,)],
    ),
    "layer_norm": (ours.layer_norm, norm, [(4, 6), (6,), (6,)]),
    "relu": (ours.relu, jax.nn.relu, [(5, 3)]),
    "gelu": (ours.gelu, lambda x: jax.nn.gelu(x, approximate=False), [(5, 3)]),
    "silu": (ours.silu, jax.nn.silu, [(5, 3)]),
    "softmax": (ours.softmax, jax.nn.softmax, [(5, 3)]),
    "log_softmax": (ours.log_softmax, jax.nn.log_softmax, [(5, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name) -> None:
    op, theirs, shapes = CASES[name]
    arrays = given(*shapes)
    wanted = theirs(*arrays)
    weights = given(wanted.shape)[0]
    np.testing.assert_allclose(op(*arrays), wanted, rtol=1e-4, atol=1e-5)
    at = tuple(range(len(arrays)))
    ways = [jax.grad(lambda *a, f=f: (f(*a) * weights).sum(), at) for f in (op, theirs)]
    own, other = jax.jit(ways[0])(*arrays), ways[1](*arrays)
    for mine, peer in zip(own, other, strict=True):
        np.testing.assert_allclose(mine, peer, rtol=1e-3, atol=1e-4)


def test_gradients_of_mixed_types() -> None:
    x, y = np.arange(12, dtype=np.float16).reshape(3, 4), given((4,))[0]
    whole = np.arange(4)
    for f, arrays in (
        (ours.multiply, (x, y)),
        (lambda a: ours.multiply(a, whole), (x,)),
    ):
        at = tuple(range(len(arrays)))
        found = jax.grad(lambda *a, f=f: f(*a).sum(), at)(*arrays)
        assert [each.dtype for each in found] == [each.dtype for each in arrays]
    np.testing.assert_array_equal(found[0], np.broadcast_to(whole, (3, 4)))


def test_dropout_by_key() -> None:
    (x,) = given((50, 4))
    key = random.key(3)
    y, back = jax.vjp(lambda x: ours.dropout(x, 0.3, key=key), x)
    np.testing.assert_array_equal(y, nn.dropout(x, 0.3, key=random.key(3)))
    ones = np.ones_like(x)
    np.testing.assert_array_equal(
        back(ones)[0], nn.dropout(ones, 0.3, key=random.key(3))
    )
    with pytest.raises(KeyReuseError):
        ours.dropout(x, 0.3, key=key)


def test_an_option_that_is_none() -> None:
    with pytest.raises(ArgumentError, match=r"gelu takes x and approximate.*axis"):
        ours.gelu(np.ones(3, np.float32), axis=0)


def test_under_vmap() -> None:
    x, w = given((4, 2, 6), (3, 6))
    np.testing.assert_allclose(
        jax.vmap(lambda row: ours.dense(row, w))(x), x @ w.T, rtol=1e-5, atol=1e-6
    )
    slopes = jax.vmap(jax.grad(lambda row: ours.gelu(row).sum()))(x)
    wanted = jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum())(x)
    np.testing.assert_allclose(slopes, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


LABELS = np.array([0, -100, 2])
BOTH_ORDERS = {
    "silu": (ours.silu, [(3, 4)]),
    "1 / x": (lambda x: ours.divide(1.0, x), [(3, 4)]),
    "dense": (ours.dense, [(3, 4), (5, 4), (5,)]),
    "conv2d": (lambda x, w: ours.conv2d(x, w, padding=1), [(1, 2, 3, 3), (2, 2, 3, 3)]),
    "layer_norm": (ours.layer_norm, [(3, 4), (4,), (4,)]),
    "softmax": (ours.softmax, [(3, 4)]),
    "cross_entropy": (lambda x: ours.cross_entropy(x, LABELS), [(3, 4)]),
    "concatenate": (lambda a, b: ours.concatenate([a, ours.exp(b)]), [(2, 3), (1, 3)]),
    "sort by argsort": (
        lambda x: jax.numpy.take(ours.square(x), ours.argsort(x[0])),
        [(1, 4)],
    ),
}


@pytest.mark.parametrize("name", BOTH_ORDERS)
@pytest.mark.usefixtures("doubles")
def test_both_orders_and_both_modes(name) -> None:
    from jax.test_util import check_grads

    f, shapes = BOTH_ORDERS[name]
    arrays = [np.abs(RNG.normal(size=shape)) + 0.5 for shape in shapes]
    check_grads(f, tuple(arrays), order=2, atol=1e-4, rtol=1e-4)


TRANSFORMS = {
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x * x,)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "hessian": lambda f: jax.hessian(lambda x: f(x).sum()),
    "hessian under jit": lambda f: jax.jit(jax.hessian(lambda x: f(x * x).sum())),
    "reverse of reverse": lambda f: jax.jacrev(jax.jacrev(lambda x: f(x) * f(x * x))),
    "forward of forward": lambda f: jax.jacfwd(jax.jacfwd(lambda x: f(x) * f(x * x))),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f)),
    "checkpoint": lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum()),
    "grad of scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0].sum()
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.usefixtures("doubles")
def test_transforms(name) -> None:
    x = RNG.normal(size=3)
    mine, theirs = (TRANSFORMS[name](f)(x) for f in (ours.silu, jax.nn.silu))
    for one, other in zip(*map(jax.tree.leaves, (mine, theirs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_key_is_not_baked_into_what_is_traced() -> None:
    (x,) = given((64,))
    with pytest.raises(ArgumentError, match=r"key_data\(key\)"):
        jax.jit(lambda x: ours.dropout(x, 0.3, key=random.key(3)))(x)
    f = jax.jit(lambda x, words: ours.dropout(x, 0.3, key=words))
    for seed in range(2):
        words = jax.numpy.asarray(random.key_data(random.key(seed)))
        wanted = nn.dropout(x, 0.3, key=random.key(seed))
        np.testing.assert_array_equal(f(x, words), wanted)


def test_what_is_traced_is_refused_as_the_operator_refuses() -> None:
    from tensorlang.errors import DTypeError, GraphError, ShapeError

    with pytest.raises(DTypeError, match=r"math\.add: b is 300; i8 holds"):
        jax.jit(lambda x: ours.add(x, 300))(jax.numpy.ones(3, "int8"))
    with pytest.raises(DTypeError, match=r"holds no numbers; pass its"):
        ours.exp(jax.random.key(0))

    with pytest.raises(ShapeError, match=r"nn\.dense"):
        jax.jit(ours.dense)(*given((3, 4), (5, 5)))
    with pytest.raises(
        GraphError, match=r"test_jax.py:\d+\) is a gradient without a gradient"
    ):
        jax.jvp(ours.max, given((3,)), given((3,)))
    with pytest.raises(ArgumentError, match=r"traced by JAX.*tensorlang\.interop\.jax"):
        jax.jit(nn.gelu)(*given((3,)))


def test_an_operator_of_ones_own() -> None:
    from tensorlang.ir import compute
    from tensorlang.ops import operator

    @operator("test_interop_jax.twice")
    def twice(x, *, by=2.0):
        return compute(x.shape, lambda i: by * x[i])

    @operator("test_interop_jax.twice_grad")
    def twice_grad(dy, x, *, by=2.0):
        return compute(x.shape, lambda i: by * dy[i])

    f, (x,) = ours.register(twice), given((5,))
    np.testing.assert_array_equal(jax.jit(f)(x), 2 * x)
    slope = jax.grad(lambda x: f(x, by=3.0).sum())(x)
    np.testing.assert_array_equal(slope, np.full(5, 3.0))


def test_a_deleted_array_is_refused() -> None:
    x = jax.numpy.ones((3, 3))
    x.delete()
    for op in (nn.relu, math.sum):
        with pytest.raises(ArgumentError, match="has been deleted"):
            op(x)
