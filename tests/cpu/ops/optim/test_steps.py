"""Optimizers in place: numbers that others published, lists of tensors, bad calls."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import find, optim
from tensorlang.ops.optim import schedules

GRADIENT = np.array([-5.0, 0.1, 0.2], np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def thousand(step, **how):
    """A thousand steps from 0 with one gradient, lr 1e-3."""
    param = zeros(3)
    for n in range(1, 1001):
        step(param, GRADIENT, n, lr=1e-3, **how)
    return param


def test_numbers_of_other_libraries():
    def sgd(param, grad, _, lr):
        optim.sgd(param, grad, lr=lr)

    np.testing.assert_allclose(
        thousand(sgd), [5.0000668, -0.10000112, -0.20000224], rtol=1e-6
    )
    m, v = zeros(3), zeros(3)

    def adam(param, grad, n, **how):
        optim.adam(param, grad, m, v, step=n, **how)

    np.testing.assert_allclose(
        thousand(adam, eps=1e-7), [0.99999064, -0.99999064, -0.99999064], rtol=2e-5
    )
    m[:], v[:] = 0, 0
    np.testing.assert_allclose(
        thousand(adam, eps=1e-7, epsilon_hat=True),
        [0.99999064, -0.9999898, -0.9999905],
        rtol=2e-5,
    )
    u = zeros(3)
    m[:] = 0

    def adamax(param, grad, n, **how):
        optim.adamax(param, grad, m, u, step=n, **how)

    np.testing.assert_allclose(
        thousand(adamax, eps=1e-7), [0.9999907, -0.99999064, -0.99999064], rtol=2e-5
    )
    total = zeros(3) + np.float32(0.1)

    def adagrad(param, grad, _, **how):
        optim.adagrad(param, grad, total, **how)

    np.testing.assert_allclose(
        thousand(adagrad, eps=1e-7),
        [0.06179592, -0.057095252, -0.059872225],
        rtol=2e-5,
    )
    square = zeros(3)

    def rmsprop(param, grad, _, **how):
        optim.rmsprop(param, grad, square, alpha=0.9, **how)

    np.testing.assert_allclose(
        thousand(rmsprop, eps=1e-7), [1.0091327, -1.0091326, -1.0091326], rtol=2e-5
    )


def test_the_epsilon_of_either_convention():
    for hat, denominator in ((False, 0.1 + 0.5), (True, 0.1 + 0.5 * 0.001**0.5)):
        param, m, v = np.ones(1), zeros(1, dtype=float), zeros(1, dtype=float)
        grad = np.array([0.1])
        optim.adam(param, grad, m, v, step=1, lr=0.1, eps=0.5, epsilon_hat=hat)
        if hat:  # lr * root / share1 * m / (root(v) + eps)
            expected = 1 - 0.1 * 0.001**0.5 * 0.1 / (0.1 * 0.001**0.5 + 0.5)
        else:
            expected = 1 - 0.1 * 0.1 / denominator
        assert param[0] == pytest.approx(expected, rel=1e-12)


def sets(shapes, dtype=np.float32):
    rng = np.random.default_rng(1)
    return [
        [np.asarray(np.abs(rng.standard_normal(shape)), dtype) for shape in shapes]
        for _ in range(4)
    ]


def test_a_list_is_as_its_tensors_one_by_one():
    shapes = [(3, 4), (), (0,), (5000,), (17,), (2, 3, 4)]
    listed, single = sets(shapes), sets(shapes)
    optim.adam(*listed, step=3, lr=0.1)
    for of in zip(*single, strict=True):
        optim.adam(*of, step=3, lr=0.1)
    for ours, theirs in zip(listed, single, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_list_may_hold_several_types():
    small, large = sets([(5,)]), sets([(7,)], np.float64)
    mixed = [a + b for a, b in zip(small, large, strict=True)]
    alone = sets([(7,)], np.float64)
    optim.adam(*mixed, step=1)
    optim.adam(*alone, step=1)
    np.testing.assert_array_equal(large[0][0], alone[0][0])


def test_nothing_and_one_kernel_for_all_sizes_and_numbers():
    assert optim.adam([], [], [], [], step=1) is None
    optim.adam(*sets([(3,)]), step=1)
    known = len(optim.adam.kernels)
    for n in range(1, 9):
        of = sets([(n, 100 * n)])
        optim.adam(*of, step=n, lr=0.1 / n, weight_decay=0.01 * n, eps=10.0**-n)
    assert len(optim.adam.kernels) == known


def test_gradients_need_not_lie_in_a_row():
    param, m, v = np.ones((4, 6), np.float32), zeros(4, 6), zeros(4, 6)
    expected = [a.copy() for a in (param, m, v)]
    grad = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32).T
    optim.adam(param, grad, m, v, step=1)
    optim.adam(expected[0], grad.copy("C"), *expected[1:], step=1)
    np.testing.assert_array_equal(param, expected[0])


def read_only(n):
    array = zeros(n)
    array.flags.writeable = False
    return array


BASE = zeros(30)
BAD = {
    "param is read-only": (read_only(5), zeros(5), zeros(5), zeros(5)),
    "v is read-only": (zeros(5), zeros(5), zeros(5), read_only(5)),
    "m is updated in place and must be contiguous": (
        zeros(5),
        zeros(5),
        zeros(10)[::2],
        zeros(5),
    ),
    r"grad has shape \(6,\), and param has \(5,\)": (
        zeros(5),
        zeros(6),
        zeros(5),
        zeros(5),
    ),
    r"v has shape \(3, 2\), and param has \(2, 3\)": (
        zeros(2, 3),
        zeros(2, 3),
        zeros(2, 3),
        zeros(3, 2),
    ),
    "m is f64; beside param of f32 it is f32": (
        zeros(5),
        zeros(5),
        zeros(5, dtype=float),
        zeros(5),
    ),
    "adam takes f32, bf16, f16, f64, not i32": (zeros(5, dtype=np.int32),) * 4,
    "of another byte order": (zeros(5, dtype=">f4"),) * 4,
    "param and v share memory": (BASE[:5], zeros(5), zeros(5), BASE[4:9]),
    "param and grad share memory": (BASE[:5], BASE[:5], zeros(5), zeros(5)),
}


@pytest.mark.parametrize("complaint", list(BAD))
def test_sets_that_are_refused(complaint):
    with pytest.raises((ArgumentError, ShapeError, DTypeError), match=complaint):
        optim.adam(*BAD[complaint], step=1)


@pytest.mark.parametrize("complaint", list(BAD))
def test_a_later_set_that_is_refused_leaves_the_first_as_it_was(complaint):
    first = [np.ones(4, np.float32) for _ in range(4)]
    lists = [[a, b] for a, b in zip(first, BAD[complaint], strict=True)]
    named = complaint.split(" ")[0]
    with pytest.raises((ArgumentError, ShapeError, DTypeError)) as caught:
        optim.adam(*lists, step=1)
    assert all((array == 1).all() for array in first)
    if named in ("param", "grad", "m", "v"):
        assert f"{named}[1]" in str(caught.value)


TWICE = {
    r"param\[0\] and param\[2\] share": lambda p, m: ([p[0], p[1], p[0]], m),
    r"m\[0\] and m\[1\] share": lambda p, m: (p, [m[0], m[0], m[2]]),
    r"param\[1\] and m\[2\] share": lambda p, m: (p, [*m[:2], p[1][2:7]]),
}


@pytest.mark.parametrize("complaint", list(TWICE))
@pytest.mark.parametrize("of_torch", [False, True])
def test_memory_is_updated_once_in_a_call(complaint, of_torch):
    p, g, m, v = ([np.ones(n, np.float32) for n in (5, 9, 5)] for _ in range(4))
    lists = [*TWICE[complaint](p, m), g, v]
    if of_torch:
        torch = pytest.importorskip("torch")
        lists = [[torch.from_numpy(a) for a in of] for of in lists]
    param, moment, grad, square = lists
    with pytest.raises(ArgumentError, match=complaint):
        optim.adam(param, grad, moment, square, step=1)
    assert all((a == 1).all() for a in p + m)


def test_parts_of_one_buffer_are_apart():
    flat, same = np.ones(12, np.float32), np.ones(12, np.float32)
    grad = np.ones(6, np.float32)
    optim.sgd([flat[:6], flat[6:]], [grad, grad], lr=0.5)
    optim.sgd(same, np.ones(12, np.float32), lr=0.5)
    np.testing.assert_array_equal(flat, same)


def test_what_is_no_array_is_refused():
    with pytest.raises(ArgumentError, match=r"adam: m is a .*list"):
        optim.adam(zeros(2), zeros(2), [zeros(2)], zeros(2), step=1)
    with pytest.raises(ArgumentError, match=r"lists of one length.* 2 param, 1 grad"):
        optim.adam([zeros(2)] * 2, [zeros(2)], [zeros(2)] * 2, [zeros(2)] * 2, step=1)
    with pytest.raises(ArgumentError, match="1 param, grad alone"):
        optim.adam([zeros(2)], zeros(1, 2), [zeros(2)], [zeros(2)], step=1)


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"step": 0}, "step is the number of this step, counted from 1, not 0"),
        ({"step": 1.0}, "counted from 1, not 1.0"),
        ({"step": True}, "counted from 1, not True"),
        ({"step": 10**400}, r"step is larger than 2\^53"),
        ({"step": 1, "lr": 10**400}, "lr is larger than all floats"),
        ({"step": 1, "lr": -0.1}, "lr is a number from 0 on, not -0.1"),
        ({"step": 1, "lr": float("nan")}, "lr is a number from 0 on, not nan"),
        ({"step": 1, "lr": "0.1"}, "lr is a number, not '0.1'"),
        ({"step": 1, "beta1": 1.0}, "beta1 is from 0 to 1, and not 1 itself; 1.0"),
        ({"step": 1, "beta2": -0.5}, "beta2 is from 0 to 1"),
        ({"step": 1, "eps": None}, "eps is a number, not None"),
        ({"step": 1, "weight_decay": float("inf")}, "weight_decay is a number from 0"),
    ],
)
def test_numbers_that_are_refused(how, complaint):
    with pytest.raises(ArgumentError, match=complaint):
        optim.adam(*(zeros(3) for _ in range(4)), **how)


def test_momentum_needs_what_it_needs():
    param, grad = zeros(3), zeros(3)
    with pytest.raises(ArgumentError, match=r"momentum 0.9 needs velocity"):
        optim.sgd(param, grad, momentum=0.9)
    with pytest.raises(ArgumentError, match=r"nesterov needs a momentum, here 0.0"):
        optim.sgd(param, grad, zeros(3), nesterov=True)
    with pytest.raises(ArgumentError, match=r"no dampening, here 0.5"):
        optim.sgd(
            param, grad, zeros(3), momentum=0.9, nesterov=True, dampening=0.5, step=1
        )
    with pytest.raises(ArgumentError, match="dampening starts after the first step"):
        optim.sgd(param, grad, zeros(3), momentum=0.9, dampening=0.5)


def test_numbers_may_be_of_numpy():
    a, b = sets([(5,)]), sets([(5,)])
    optim.adam(*a, step=np.int64(2), lr=np.float64(0.5), beta1=np.float32(0.5))
    optim.adam(*b, step=2, lr=0.5, beta1=0.5)
    np.testing.assert_array_equal(a[0][0], b[0][0])


def test_other_libraries():
    torch = pytest.importorskip("torch")
    ours = sets([(3, 4), (5,)])
    theirs = [[torch.tensor(a) for a in of] for of in ours]
    optim.adam(*ours, step=2)
    optim.adam(*theirs, step=2)
    for a, b in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_array_equal(a, b.numpy())
    with pytest.raises(ArgumentError, match=r"param\[0\]|param requires a gradient"):
        optim.sgd([torch.zeros(3, requires_grad=True)], [torch.zeros(3)])


def test_arrays_of_jax_are_refused():
    jax = pytest.importorskip("jax")
    with pytest.raises(ArgumentError, match="param is a JAX array, which cannot"):
        optim.sgd(jax.numpy.zeros(3), zeros(3))


def test_clipping_of_huge_gradients_and_bad_calls():
    grads = [np.full(3, 1e30, np.float32), np.full(1, 1e30, np.float32)]
    assert optim.clip_by_global_norm(grads, 2.0) == pytest.approx(2e30)
    np.testing.assert_allclose(np.concatenate(grads), 1.0, rtol=1e-6)
    untouched = np.ones(4, np.float32)
    assert optim.clip_by_global_norm(untouched, float("inf")) == 2.0
    assert optim.clip_by_global_norm([], 1.0) == 0.0
    assert optim.clip_by_global_norm((g for g in [untouched]), 3.0) == 2.0
    with pytest.raises(ArgumentError, match=r"grads\[1\] is read-only"):
        optim.clip_by_global_norm([untouched, read_only(3)], 0.1)
    with pytest.raises(ArgumentError, match="max_norm is a number from 0 on, not -1"):
        optim.clip_by_global_norm([untouched], -1)
    with pytest.raises(ArgumentError, match="max_norm is larger than all floats"):
        optim.clip_by_global_norm([untouched], 10**400)
    with pytest.raises(ArgumentError, match=r"grads\[0\] and grads\[1\] share memory"):
        optim.clip_by_global_norm([untouched[:3], untouched[2:]], 0.1)
    assert (untouched == 1).all()


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 100_003])
def test_sum_of_squares(n):
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    expected = (x.astype(float) ** 2).sum()
    assert float(optim.sum_of_squares(x)) == pytest.approx(expected, rel=1e-14)


def test_schedules_are_plain_functions():
    rate = schedules.warmup(schedules.cosine(1.0, 10, 0.5), 4)
    assert [rate(n) for n in (0, 2, 4, 9, 14, 99)] == pytest.approx(
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.5]
    )
    assert pickle.loads(pickle.dumps(rate))(2) == 0.5
    halves = schedules.step_decay(0.1, 2, 0.5)
    assert [halves(n) for n in range(5)] == [0.1, 0.1, 0.05, 0.05, 0.025]
    root = schedules.inverse_sqrt(2.0, 4)
    assert [root(n) for n in (0, 4, 16)] == [2.0, 2.0, 1.0]
    assert schedules.linear(1.0, 4)(1) == 0.75
    with pytest.raises(ArgumentError, match="steps is a number of steps, 1 or more"):
        schedules.cosine(1.0, 0)


def test_what_tools_ask():
    adam = find("adam")
    assert adam is optim.adam
    assert adam.shape((3, 4), (3, 4), (3, 4), (3, 4)) == (3, 4)
    assert adam.bytes((10,), (10,), (10,), (10,)) == 10 * 4 * 7
    assert adam.workload(*[(2, 3)] * 5).named == {}
    assert adam.workload(*[(2, 3)] * 4).named == {"absent": "max_v"}
    assert "optim_adam" in str(adam.kernel(*(a[0] for a in sets([(3,)])), step=1))
    with pytest.raises(ShapeError, match="m has shape"):
        adam.shape((3,), (3,), (4,), (3,))
