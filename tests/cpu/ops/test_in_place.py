"""Operators of one's own that update arrays in place: of whole tensors, of elements."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import ArgumentError, DTypeError, OperatorError, ShapeError
from tensorlang.ops import operator, update
from tensorlang.ops.spec.signature import Float, Floats, InOut, Scalar


@operator("test_in_place.follow")
def follow(mean: InOut[Floats], x: Floats, *, rate: Scalar = 0.5):
    """Let a mean of columns follow those of a matrix; the columns' sums."""
    n = x.shape[0]
    k = ir.reduce_axis(n, "k")
    sums = ir.compute(mean.shape, lambda j: ir.sum(x[k.var, j], k), "sums")
    new = ir.compute(
        mean.shape,
        lambda j: mean[j] + rate * (sums[j] / n.expression().cast(ir.f32) - mean[j]),
        "new",
    )
    return new, ir.compute(mean.shape, lambda j: sums[j], "total")


@operator("test_in_place.double")
def double(x: InOut[Floats]):
    return ir.compute(x.shape, lambda *i: 2.0 * x[i], "y")


def _halves(step: int, rate: float = 1.0, *, twice: bool = False):
    if step < 1:
        raise ArgumentError(f"test_in_place.step: step is from 1 on, not {step}")
    return rate / 2**step, twice


@update("test_in_place.step", host=_halves)
def step(
    x: InOut[Float], g: Float, m: InOut[Float] | None = None, *, by: Scalar, twice: bool
):
    """A step."""
    new = x - by * g * (2.0 if twice else 1.0)
    return new if m is None else (new, m + g)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (5, 1), (70, 33)])
def test_an_array_beside_others_of_another_shape(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    mean = np.zeros(shape[1], np.float32)
    made = follow(mean, x, rate=0.25)
    np.testing.assert_allclose(made, x.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean, 0.25 * x.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 4), (2, 1, 5)])
def test_any_shape(shape):
    x = ones(*shape)
    assert double(x) is None
    assert (x == 2).all()


def test_what_is_no_place_to_write_is_refused():
    x = ones(6, 4)
    with pytest.raises(
        ArgumentError, match="x is updated in place and must be contiguous"
    ):
        double(x[:, ::2])
    with pytest.raises(
        ArgumentError, match="x is updated in place and must be contiguous"
    ):
        double(x.T)
    frozen = ones(3)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="x is read-only"):
        double(frozen)
    assert (x == 1).all()


def test_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    x = torch.ones(3, 4)
    before = x._version
    double(x)
    assert (x == 2).all()
    assert x._version > before
    with pytest.raises(ArgumentError, match="must be contiguous"):
        double(x.T)
    jax = pytest.importorskip("jax")
    with pytest.raises(ArgumentError, match="x is a JAX array, which cannot"):
        double(jax.numpy.ones(3))


def test_numbers_are_computed_before_a_launch():
    x, m = ones(3, 4), ones(3, 4)
    step(x, ones(3, 4), m, step=1)
    assert (x == 0.5).all()
    assert (m == 2).all()
    step([x], [ones(3, 4)], step=2, rate=0.5, twice=True)
    assert (x == 0.25).all()
    with pytest.raises(ArgumentError, match="step is from 1 on, not 0"):
        step(x, x, step=0)
    with pytest.raises(ArgumentError, match=r"test_in_place.step needs step="):
        step(x, x)
    with pytest.raises(ArgumentError, match=r"no attribute by; it has step, rate, twi"):
        step(x, x, step=1, by=2.0)
    with pytest.raises(ArgumentError, match=r"takes 3 arrays \(x, g, m\), got 1"):
        step(x, step=1)
    shown = str(inspect.signature(step)).replace("'", "")
    assert shown == (
        "(x: Any, g: Any, m: Any | None = None, *, step: int, rate: float = 1.0, "
        "twice: bool = False, target: Any = None)"
    )


def test_sets_that_do_not_fit():
    with pytest.raises(ShapeError, match=r"g has shape \(4,\), and x has \(3,\)"):
        step(ones(3), ones(4), step=1)
    with pytest.raises(DTypeError, match="g is f64; beside x of f32 it is f32"):
        step(ones(3), ones(3, dtype=float), step=1)
    x = ones(3)
    with pytest.raises(ArgumentError, match=r"x\[0\] and x\[1\] share memory"):
        step([x, x], [ones(3), ones(3)], step=1)
    assert (x == 1).all()


def test_a_definition_returns_what_it_updates():
    @update("test_in_place.short")
    def short(x: InOut[Float], y: InOut[Float]):
        return x + y

    with pytest.raises(OperatorError, match=r"returned 1 element\(s\), and updates x,"):
        short(ones(3), ones(3))
