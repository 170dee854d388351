"""Every optimizer against PyTorch's own, over ten steps, on tensors of ragged sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.ops import optim

torch = pytest.importorskip("torch")

SHAPES = [(), (1,), (0, 3), (7, 5), (3, 4, 5), (2049,), (5000,)]
STEPS = 10
# what ten steps of f32 in another order of operations may differ by, in units of lr
TOLERANCE = {np.dtype(np.float32): 2e-4, np.dtype(np.float64): 1e-12}


class Case:
    """Parameters with state for our operators, and the same ones for PyTorch."""

    def __init__(self, make, dtype=np.float32, shapes=SHAPES):
        self.rng = np.random.default_rng(0)
        self.params = [self.draw(shape, dtype) for shape in shapes]
        self.theirs = [torch.tensor(p, requires_grad=True) for p in self.params]
        self.optimizer = make(self.theirs)
        self.state = {}

    def draw(self, shape, dtype):
        return np.asarray(self.rng.standard_normal(shape) + 0.5, dtype)

    def zeros(self, name):
        made = [np.zeros_like(p) for p in self.params]
        return self.state.setdefault(name, made)

    def run(self, step, lr):
        """`step` gets lists of parameters and gradients and the number of the step."""
        for n in range(1, STEPS + 1):
            grads = [self.draw(p.shape, p.dtype) for p in self.params]
            for theirs, grad in zip(self.theirs, grads, strict=True):
                theirs.grad = torch.tensor(grad)
            self.optimizer.step()
            step(self.params, grads, n)
        for ours, theirs in zip(self.params, self.theirs, strict=True):
            atol = lr * TOLERANCE[ours.dtype]
            np.testing.assert_allclose(ours, theirs.detach(), rtol=2e-6, atol=atol)


FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@FLOATS
@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": False}])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(dtype, how, decay):
    case = Case(
        lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=decay, **how), dtype
    )
    m, v = case.zeros("m"), case.zeros("v")

    def step(params, grads, n):
        optim.adam(params, grads, m, v, step=n, lr=1e-2, weight_decay=decay)

    case.run(step, 1e-2)


@FLOATS
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_amsgrad(dtype, name):
    make = getattr(torch.optim, name)
    ours = getattr(optim, name.lower())
    case = Case(
        lambda p: make(p, lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3, amsgrad=True),
        dtype,
    )
    m, v, top = case.zeros("m"), case.zeros("v"), case.zeros("max_v")

    def step(params, grads, n):
        how = {"lr": 1e-2, "beta1": 0.8, "beta2": 0.9, "weight_decay": 0.3}
        ours(params, grads, m, v, top, step=n, **how)

    case.run(step, 1e-2)


@FLOATS
def test_adamw(dtype):
    case = Case(lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3, fused=True), dtype)
    m, v = case.zeros("m"), case.zeros("v")

    def step(params, grads, n):
        optim.adamw(params, grads, m, v, step=n, lr=1e-2, eps=1e-3)

    case.run(step, 1e-2)


@FLOATS
def test_adamax(dtype):
    case = Case(lambda p: torch.optim.Adamax(p, lr=1e-2, weight_decay=0.1), dtype)
    m, u = case.zeros("m"), case.zeros("u")

    def step(params, grads, n):
        optim.adamax(params, grads, m, u, step=n, lr=1e-2, weight_decay=0.1)

    case.run(step, 1e-2)


@FLOATS
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ],
)
def test_sgd(dtype, how):
    case = Case(lambda p: torch.optim.SGD(p, lr=1e-2, **how), dtype)
    velocity = case.zeros("velocity")

    def step(params, grads, n):
        optim.sgd(params, grads, velocity, lr=1e-2, step=n, **how)

    case.run(step, 1e-2)


@FLOATS
@pytest.mark.parametrize(
    "how",
    [
        {"alpha": 0.9},
        {"centered": True},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "centered": True, "eps": 1e-3},
    ],
)
def test_rmsprop(dtype, how):
    case = Case(lambda p: torch.optim.RMSprop(p, lr=1e-2, **how), dtype)
    square, velocity = case.zeros("square"), case.zeros("velocity")
    rest = {key: value for key, value in how.items() if key != "centered"}
    mean = case.zeros("mean") if "centered" in how else None

    def step(params, grads, _):
        optim.rmsprop(params, grads, square, velocity, mean, lr=1e-2, **rest)

    case.run(step, 1e-2)


@FLOATS
def test_adagrad(dtype):
    how = {"lr": 1e-2, "lr_decay": 0.1, "weight_decay": 0.1}
    case = Case(
        lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.2, **how), dtype
    )
    total = case.zeros("total")
    for of in total:
        of.fill(0.2)

    def step(params, grads, n):
        optim.adagrad(params, grads, total, step=n, **how)

    case.run(step, 1e-2)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_narrow_parameters_with_wide_state(dtype):
    rng = np.random.default_rng(0)
    narrow = rng.standard_normal(5000).astype(dtype)
    wide = narrow.astype(np.float32)
    m, v = np.zeros_like(wide), np.zeros_like(wide)
    wide_m, wide_v = m.copy(), v.copy()
    for n in range(1, STEPS + 1):
        grad = rng.standard_normal(5000).astype(dtype)
        wide[:] = narrow
        optim.adam(narrow, grad, m, v, step=n)
        optim.adam(wide, grad.astype(np.float32), wide_m, wide_v, step=n)
        assert (narrow == wide.astype(dtype)).all()
        np.testing.assert_array_equal(m, wide_m)
        np.testing.assert_array_equal(v, wide_v)


def test_narrow_parameters_with_narrow_state():
    given = [torch.randn(300, generator=torch.manual_seed(0)).bfloat16()]
    theirs = [p.clone().requires_grad_() for p in given]
    optimizer = torch.optim.SGD(theirs, lr=0.1, momentum=0.9)
    velocity = [torch.zeros(300, dtype=torch.bfloat16)]
    for n in range(1, 4):
        grads = [torch.full((300,), 0.25 * n, dtype=torch.bfloat16)]
        theirs[0].grad = grads[0].clone()
        optimizer.step()
        optim.sgd(given, grads, velocity, lr=0.1, momentum=0.9)
    np.testing.assert_allclose(
        given[0].float(), theirs[0].detach().float(), rtol=2**-7, atol=2**-7
    )


def test_nan_and_infinity():
    grads = np.array([np.nan, np.inf, -np.inf, 1e30, 1e-30, 0.0], np.float32)
    for name, state in (("Adam", 2), ("Adamax", 2), ("Adagrad", 1), ("RMSprop", 1)):
        ours = np.ones(6, np.float32)
        theirs = torch.ones(6, requires_grad=True)
        optimizer = getattr(torch.optim, name)([theirs], lr=0.1)
        held = [np.zeros(6, np.float32) for _ in range(state)]
        step = getattr(optim, name.lower())
        for n in (1, 2):
            theirs.grad = torch.tensor(grads)
            optimizer.step()
            more = {} if name == "RMSprop" else {"step": n}
            step(ours, grads, *held, lr=0.1, **more)
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("norm_type", ["finite", "small", "inf", "nan"])
def test_clipping(norm_type):
    rng = np.random.default_rng(0)
    grads = [np.asarray(rng.standard_normal(s), np.float32) for s in SHAPES]
    if norm_type in ("inf", "nan"):
        grads[3][1, 1] = float(norm_type)
    theirs = [torch.tensor(g) for g in grads]
    for tensor in theirs:
        tensor.grad = tensor.clone()
    limit = 1e3 if norm_type == "small" else 2.0
    expected = torch.nn.utils.clip_grad_norm_(theirs, limit)
    norm = optim.clip_by_global_norm(grads, limit)
    np.testing.assert_allclose(norm, float(expected), rtol=1e-6)
    for ours, tensor in zip(grads, theirs, strict=True):
        np.testing.assert_allclose(ours, tensor.grad, rtol=1e-6)


def test_schedules():
    from tensorlang.ops.optim import schedules

    lr = torch.optim.lr_scheduler
    pairs = [
        (schedules.step_decay(0.1, 3, 0.5), lambda o: lr.StepLR(o, 3, 0.5)),
        (schedules.piecewise(0.1, [2, 7]), lambda o: lr.MultiStepLR(o, [2, 7])),
        (schedules.exponential(0.1, 0.9), lambda o: lr.ExponentialLR(o, 0.9)),
        (
            schedules.polynomial(0.1, 8, power=2.0),
            lambda o: lr.PolynomialLR(o, 8, 2.0),
        ),
        (
            schedules.cosine_restarts(0.1, 4, 0.01, growth=2),
            lambda o: lr.CosineAnnealingWarmRestarts(o, 4, 2, 0.01),
        ),
        (
            schedules.warmup(schedules.constant(0.1), 5, 0.05),
            lambda o: lr.LinearLR(o, 0.5, 1.0, 5),
        ),
    ]
    for ours, make in pairs:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        scheduler = make(optimizer)
        for n in range(12):
            assert ours(n) == pytest.approx(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    cosine = schedules.cosine(0.1, 10, 0.02)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = lr.CosineAnnealingLR(optimizer, 10, 0.02)
    for n in range(11):
        assert cosine(n) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert cosine(15) == 0.02
