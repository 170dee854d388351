"""Learning rate schedules: functions from the number of completed steps to a rate.

    rate = schedules.warmup(schedules.cosine(1e-3, steps=10_000), steps=500)
    optim.adam(param, grad, m, v, step=n + 1, lr=rate(n))

As in PyTorch, `rate(0)` is the rate of the first step. Schedules are stateless and can
be pickled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from tensorlang.errors import ArgumentError

Schedule: TypeAlias = Callable[[int], float]


def constant(lr: float) -> Schedule:
    """A constant rate."""
    return partial(_constant, lr)


def step_decay(lr: float, every: int, factor: float = 0.1) -> Schedule:
    """`lr`, multiplied by `factor` every `every` steps."""
    return partial(_step_decay, lr, _steps("every", every), factor)


def piecewise(lr: float, at: Sequence[int], factor: float = 0.1) -> Schedule:
    """`lr`, multiplied by `factor` at each of the steps in `at`."""
    return partial(_piecewise, lr, tuple(at), factor)


def exponential(lr: float, factor: float, every: int = 1) -> Schedule:
    """`lr * factor ** (step / every)`: the continuous form of `step_decay`."""
    return partial(_exponential, lr, factor, _steps("every", every))


def polynomial(
    lr: float, steps: int, final: float = 0.0, power: float = 1.0
) -> Schedule:
    """Polynomial decay from `lr` to `final` within `steps` steps, then `final`.

    The rate is `final + (lr - final) * (1 - step / steps) ** power`.
    """
    return partial(_polynomial, lr, _steps("steps", steps), final, power)


def linear(lr: float, steps: int, final: float = 0.0) -> Schedule:
    """Linear decay from `lr` to `final` within `steps` steps, then `final`."""
    return polynomial(lr, steps, final)


def cosine(lr: float, steps: int, final: float = 0.0) -> Schedule:
    """Cosine annealing from `lr` to `final` within `steps` steps, then `final`.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.
    """
    return partial(_cosine, lr, _steps("steps", steps), final)


def cosine_restarts(
    lr: float, steps: int, final: float = 0.0, growth: int = 1
) -> Schedule:
    """Cosine annealing with warm restarts: each cycle `growth` times as long."""
    length, growth = _steps("steps", steps), _steps("growth", growth)
    return partial(_cosine_restarts, lr, length, final, growth)


def inverse_sqrt(lr: float, steps: int) -> Schedule:
    """`lr` for `steps` steps, then `lr * sqrt(steps / step)`.

    Vaswani et al., "Attention is all you need", 2017, after its warm-up.
    """
    return partial(_inverse_sqrt, lr, _steps("steps", steps))


def warmup(after: Schedule, steps: int, start: float = 0.0) -> Schedule:
    """Linear warm-up from `start` to `after(0)` within `steps` steps, then `after`."""
    return partial(_warmup, after, _steps("steps", steps), start)


def _steps(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} is a number of steps, 1 or more, not {value!r}")
    return value


def _constant(lr: float, _: int) -> float:
    return lr


def _step_decay(lr: float, every: int, factor: float, step: int) -> float:
    return float(lr * factor ** (step // every))


def _piecewise(lr: float, at: Sequence[int], factor: float, step: int) -> float:
    return float(lr * factor ** sum(step >= place for place in at))


def _exponential(lr: float, factor: float, every: int, step: int) -> float:
    return float(lr * factor ** (step / every))


def _polynomial(lr: float, steps: int, final: float, power: float, step: int) -> float:
    left = 1.0 - min(step, steps) / steps
    return float(final + (lr - final) * left**power)


def _cosine(lr: float, steps: int, final: float, step: int) -> float:
    along = min(step, steps) / steps
    return final + (lr - final) * (1.0 + math.cos(math.pi * along)) / 2.0


def _cosine_restarts(
    lr: float, steps: int, final: float, growth: int, step: int
) -> float:
    while step >= steps and growth > 1:
        step, steps = step - steps, steps * growth
    return _cosine(lr, steps, final, step % steps)


def _inverse_sqrt(lr: float, steps: int, step: int) -> float:
    return lr * math.sqrt(steps / max(step, steps))


def _warmup(after: Schedule, steps: int, start: float, step: int) -> float:
    if step >= steps:
        return after(step - steps)
    return start + (after(0) - start) * (step / steps)
