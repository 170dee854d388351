"""Optimizers as values: hyper-parameters here, state in arrays next to the weights.

    Adam(lr=schedules.cosine(1e-3, 10_000), weight_decay=1e-4, clip=1.0)

A step is one launch over all weights, by the operators of `tensorlang.ops.optim`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias

import numpy as np

from tensorlang.graph.execution.binding import Where
from tensorlang.ops import optim

Array: TypeAlias = np.ndarray
Step: TypeAlias = Callable[..., object]  # an operator of `tensorlang.ops.optim`
# a rate, or a function of the number of completed steps
Rate: TypeAlias = float | Callable[[int], float]
Slots: TypeAlias = dict[str, list[Array]]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The update rule of the weights.

    Attributes:
        lr: The learning rate, or a schedule of it (`tensorlang.ops.optim.schedules`).
        weight_decay: The decay of the weights per step, or the L2 term of the gradient;
            see the operator.
        clip: Maximum global norm of the gradients; None for no clipping.
    """

    lr: Rate = 1e-3
    weight_decay: float = 0.0
    clip: float | None = None

    op: ClassVar[Step]
    counted: ClassVar[bool] = True  # whether the operator takes the step number

    def slots(self) -> tuple[str, ...]:
        """The names of the state arrays of each weight."""
        return ()

    def begin(self, weights: Sequence[Array]) -> Slots:
        """Initial state: zeros for each weight."""
        return {name: [np.zeros_like(w) for w in weights] for name in self.slots()}

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        return float(self.lr(step - 1)) if callable(self.lr) else self.lr

    def update(
        self,
        weights: Sequence[Array],
        gradients: Sequence[Array],
        slots: Mapping[str, list[Array]],
        step: int,
        *,
        target: Where = None,
    ) -> None:
        """Update the weights in place; clipping modifies the gradients too.

        Args:
            weights: Contiguous float arrays.
            gradients: One for each weight.
            slots: The state created by `begin`.
            step: Counted from 1.
            target: Where to compute.
        """
        params, grads = list(weights), list(gradients)
        if self.clip is not None:
            optim.clip_by_global_norm(grads, self.clip, target=target)
        given = self.given() | ({"step": step} if self.counted else {})
        type(self).op(
            params, grads, **slots, **given, lr=self.rate(step), target=target
        )

    def given(self) -> dict[str, object]:
        """The operator's constant arguments."""
        others = ("lr", "clip", *_FLAGS)
        return {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in others
        }


_FLAGS = ("amsgrad", "centered", "initial")  # these determine the state arrays


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Gradient descent, optionally with momentum; see `optim.sgd`."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    op: ClassVar[Step] = optim.sgd

    def slots(self) -> tuple[str, ...]:
        """The velocity, if there is momentum."""
        return ("velocity",) if self.momentum else ()


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam; see `optim.adam`.

    Attributes:
        epsilon_hat: Whether `eps` is added as in TensorFlow instead of PyTorch.
        amsgrad: Whether to divide by the largest second moment so far.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    epsilon_hat: bool = False
    amsgrad: bool = False
    op: ClassVar[Step] = optim.adam

    def slots(self) -> tuple[str, ...]:
        """The moments."""
        return ("m", "v", "max_v") if self.amsgrad else ("m", "v")


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay; see `optim.adamw`."""

    weight_decay: float = 1e-2
    op: ClassVar[Step] = optim.adamw


@dataclass(frozen=True, kw_only=True)
class AdaMax(Optimizer):
    """Adam with the infinity norm; see `optim.adamax`."""

    lr: Rate = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    op: ClassVar[Step] = optim.adamax

    def slots(self) -> tuple[str, ...]:
        """The first moment and the infinity norm."""
        return ("m", "u")


@dataclass(frozen=True, kw_only=True)
class AdaGrad(Optimizer):
    """Divides by the root of the sum of squared gradients; see `optim.adagrad`.

    Attributes:
        initial: Initial sum of squares: 0 in PyTorch, 0.1 in TensorFlow.
    """

    lr: Rate = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10
    initial: float = 0.0
    op: ClassVar[Step] = optim.adagrad

    def slots(self) -> tuple[str, ...]:
        """The sum of squares."""
        return ("total",)

    def begin(self, weights: Sequence[Array]) -> Slots:
        """The initial sum of each weight."""
        return {"total": [np.full_like(w, self.initial) for w in weights]}


@dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """Divides by the root of the mean squared gradient; see `optim.rmsprop`."""

    lr: Rate = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    op: ClassVar[Step] = optim.rmsprop
    counted: ClassVar[bool] = False

    def slots(self) -> tuple[str, ...]:
        """The mean of squares, and the state of momentum and centring."""
        more = (("velocity",) if self.momentum else ()) + (
            ("mean",) if self.centered else ()
        )
        return ("square", *more)
