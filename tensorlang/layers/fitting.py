"""Epochs over data: metrics, callbacks, progress, early stopping, checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError, LossError, ShapeError
from tensorlang.graph.execution.running import Input, Result
from tensorlang.graph.specs import TensorSpec
from tensorlang.layers.loading import Loader
from tensorlang.ops import random

with lazy.modules(__name__):  # only if shown
    from rich import progress as rich_progress

if TYPE_CHECKING:
    from tensorlang.graph.networks.network import Network
    from tensorlang.layers.model import Model
    from tensorlang.layers.trainer import Outputs, Trainer

Array: TypeAlias = np.ndarray
Batches: TypeAlias = Iterable[Sequence[Input]]
# maps outputs and targets to a number
Metric: TypeAlias = Callable[[Result, Array], float]


def accuracy(outputs: Array, truths: Array, axis: int = 1) -> float:
    """The fraction of rows whose largest value is at the target class.

    Targets are class indices, or the share of each class, whose largest is meant.

    Raises:
        ShapeError: targets are neither.
    """
    found = np.argmax(outputs, axis)
    wanted = np.argmax(truths, axis) if truths.shape == outputs.shape else truths
    if wanted.shape != found.shape:
        raise ShapeError(
            f"accuracy of outputs of shape {outputs.shape} needs targets of shape "
            f"{found.shape} or {outputs.shape}, not {truths.shape}"
        )
    return float(np.mean(found == wanted))


METRICS: Final[dict[str, Metric]] = {
    "accuracy": accuracy,
    "accuracy_last": partial(accuracy, axis=-1),
    "mse": lambda y, t: float(np.mean((y - t) ** 2)),
}


@dataclass(slots=True)
class Epoch:
    """The results of an epoch.

    Attributes:
        number: Counted from 1.
        loss: The mean over all examples.
        metrics: Training metrics; those of validation have the prefix `validation_`.
        trainer: The trainer, for access to the network.
        stop: Set by a callback to end training.
    """

    number: int
    loss: float
    metrics: dict[str, float]
    trainer: Trainer
    stop: bool = False


Callback: TypeAlias = Callable[[Epoch], None]


@dataclass(slots=True)
class EarlyStop:
    """A callback that stops training when a metric has not improved for some epochs.

    Attributes:
        watch: `loss`, or a metric; lower is better, except for `accuracy`.
        patience: The number of epochs without improvement.
        restore: Whether to restore weights and states of the best epoch on stopping.
    """

    watch: str = "validation_loss"
    patience: int = 3
    restore: bool = True
    best: float = np.inf
    since: int = 0
    kept: tuple[dict[str, Array], dict[str, Array]] = field(default=({}, {}))

    def __call__(self, epoch: Epoch) -> None:
        """Check an epoch.

        Raises:
            ArgumentError: there is no such metric.
        """
        value = _watched("EarlyStop", epoch, self.watch)
        if value < self.best:
            self.best, self.since = value, 0
            network = epoch.trainer.network
            self.kept = network.get_weights(), network.get_states()
            return
        self.since += 1
        if self.since >= self.patience:
            epoch.stop = True
            if self.restore:
                self._restore(epoch.trainer.network)

    def _restore(self, network: Network) -> None:
        """Restore the weights and the matching running moments."""
        weights, states = self.kept
        network.set_weights(weights)
        network.set_states(states)


@dataclass(slots=True)
class Checkpoint:
    """A callback that saves the model after each epoch, or after the best so far.

    Attributes:
        model: The model that is trained.
        path: The ONNX file, with the training state next to it; both are replaced
            together, so that an interrupted run has those of an earlier epoch.
        watch: Save only where this has improved: `loss`, or a metric.
    """

    model: Model
    path: str | os.PathLike[str]
    watch: str | None = None
    best: float = np.inf

    def __call__(self, epoch: Epoch) -> None:
        """Save the model, with the number of the epoch as an extra.

        Raises:
            ArgumentError: there is no such metric, or another model is trained.
        """
        if self.model.trainer is not epoch.trainer:
            raise ArgumentError("Checkpoint: another model is trained than it saves")
        if self.watch is not None:
            value = _watched("Checkpoint", epoch, self.watch)
            if not value < self.best:
                return
            self.best = value
        self.model.save(self.path, extras={"epoch": epoch.number})


def _watched(callback: str, epoch: Epoch, watch: str) -> float:
    """A loss or metric of an epoch, negated where higher is better."""
    known = {"loss": epoch.loss, **epoch.metrics}
    if watch not in known:
        raise ArgumentError(
            f"{callback}: there is no {watch!r} to watch; there is {', '.join(known)}"
        )
    return known[watch] * (-1 if "accuracy" in watch else 1)


def fit(
    trainer: Trainer,
    *arrays: Input | Batches,
    epochs: int = 1,
    batch: int = 32,
    validation: Sequence[Input] | Batches | None = None,
    metrics: Sequence[str | Metric] = (),
    callbacks: Sequence[Callback] = (),
    shuffle: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> list[Epoch]:
    """Train for a number of epochs.

    Args:
        arrays: Inputs and targets of all examples; or a `Loader`, or another iterable
            of batches, such as PyTorch's `DataLoader`.
        epochs: Passes over the data.
        batch: Examples per step, of arrays; the last step of an epoch may have fewer.
        validation: Inputs and targets, or batches, evaluated after each epoch.
        metrics: Names (`accuracy`, `accuracy_last` with classes last, `mse`), or
            functions of outputs and targets.
        callbacks: Called with the `Epoch` after each one.
        shuffle: Whether to shuffle arrays in each epoch.
        seed: The seed of the shuffling.
        progress: Whether to show a progress bar.

    Returns:
        All epochs.

    Raises:
        ArgumentError: no examples, arrays of different lengths, or an unknown metric.
        LossError: the loss is not finite; names the step.
    """
    whole = all(isinstance(given, (int, np.integer)) for given in (batch, epochs))
    if not whole or batch < 1 or epochs < 0:
        raise ArgumentError(
            "fit takes integers, a batch of at least 1 and at least 0 epochs, not "
            f"batch={batch}, epochs={epochs}"
        )
    key = random.key(seed) if shuffle else None
    batches = _batches(trainer, arrays, batch, key)
    steps = len(batches) if isinstance(batches, Sized) else None
    measures = dict(map(_named, metrics))
    history: list[Epoch] = []
    with _bar(progress) as bar:
        for number in range(1, epochs + 1):
            shown = bar.add_task(f"epoch {number}/{epochs}", total=steps)
            done = partial(bar.advance, shown)
            try:
                loss, found = _epoch(trainer, batches, measures, done)
            except LossError as problem:
                raise LossError(f"fit: epoch {number} of {epochs}, {problem}") from None
            if validation is not None:
                found |= evaluated(trainer, validation, batch, measures)
            epoch = Epoch(number, loss, found, trainer)
            bar.update(shown, description=epoch_line(epoch, epochs))
            history.append(epoch)
            for callback in callbacks:
                callback(epoch)
            if epoch.stop:
                break
    return history


def _batches(
    trainer: Trainer, given: Sequence[Any] | Batches, batch: int, key: random.Key | None
) -> Batches:
    """The batches of arrays; given batches as they are."""
    several = given if isinstance(given, (list, tuple)) else (given,)
    if len(several) == 1 and _iterates(several[0]):
        batches: Batches = several[0]
        return batches
    return Loader(*_arrays(trainer, several), batch=batch, key=key)


def _iterates(given: Any) -> bool:
    """Whether it is an iterable of batches, and no array or list of numbers."""
    listed = isinstance(given, (list, tuple)) or hasattr(given, "__array__")
    return isinstance(given, Iterable) and not listed


def _arrays(trainer: Trainer, given: Sequence[Input]) -> list[Array]:
    """Inputs and targets as arrays; lists of numbers take the dtypes of the inputs."""
    specs: list[TensorSpec | None] = [*trainer.network.specs]
    specs += [None] * (len(given) - len(specs))
    return [
        np.asarray(each, spec.numpy if spec and not hasattr(each, "dtype") else None)
        for each, spec in zip(given, specs, strict=False)
    ]


def _named(metric: str | Metric) -> tuple[str, Metric]:
    if not isinstance(metric, str):
        return metric.__name__, metric
    if metric not in METRICS:
        raise ArgumentError(
            f"there is no metric {metric!r}; there is {', '.join(METRICS)}"
        )
    return metric, METRICS[metric]


def _epoch(
    trainer: Trainer,
    batches: Batches,
    measures: Mapping[str, Metric],
    done: Callable[[], object],
) -> tuple[float, dict[str, float]]:
    """One pass: the loss and metrics averaged over examples.

    Raises:
        ArgumentError: there are no batches.
        LossError: the loss is not finite.
    """
    means = _Means()
    for given in batches:
        part = [np.asarray(each) for each in given]
        loss, outputs = _trained(trainer, part, look=bool(measures))
        if not np.isfinite(loss):
            raise LossError(
                f"step {trainer.step}: the loss is {loss}; check the data for such "
                "numbers, lower the learning rate, or clip gradients: Adam(clip=1.0)"
            )
        found = {name: measure(outputs, part[-1]) for name, measure in measures.items()}
        means.add(len(part[-1]), {"loss": loss, **found})
        done()
    found = means.found()
    return found.pop("loss"), found


class _Means:
    """Means over examples of what is known of batches."""

    def __init__(self) -> None:
        self.count, self.sums = 0, dict[str, float]()

    def add(self, count: int, values: Mapping[str, float]) -> None:
        """Add the means over a batch of `count` examples."""
        self.count += count
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value * count

    def found(self) -> dict[str, float]:
        """The means; ArgumentError if there were no examples."""
        if not self.count:
            raise ArgumentError("fit: there are no batches; iterators serve one pass")
        return {name: value / self.count for name, value in self.sums.items()}


def _trained(
    trainer: Trainer, part: Sequence[Array], *, look: bool
) -> tuple[float, Outputs | None]:
    """Loss and outputs of a step; no outputs unless they are needed."""
    if look:
        return trainer.train_minibatch(*part)
    return trainer.train_one_batch(*part), None


def evaluated(
    trainer: Trainer,
    data: Sequence[Input] | Batches,
    batch: int,
    measures: Mapping[str, Metric],
) -> dict[str, float]:
    """Loss and metrics on validation data, with the prefix `validation_`."""
    taken, means = len(trainer.network.specs), _Means()
    for given in _batches(trainer, data, batch, None):
        part = [np.asarray(each) for each in given]
        if len(part) <= taken:
            raise ArgumentError(
                f"validation takes {taken} inputs, then targets; got {len(part)}"
            )
        outputs = trainer.network.transform(*part[:taken])
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = float(trainer.loss(*several, *part[taken:]))
        found = {name: measure(outputs, part[-1]) for name, measure in measures.items()}
        means.add(len(part[-1]), {"loss": loss, **found})
    return {f"validation_{name}": value for name, value in means.found().items()}


def epoch_line(epoch: Epoch, epochs: int) -> str:
    """One line about an epoch."""
    numbers = {"loss": epoch.loss, **epoch.metrics}
    listed = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return f"epoch {epoch.number}/{epochs}  {listed}"


def _bar(progress: bool) -> rich_progress.Progress:
    return rich_progress.Progress(disable=not progress, transient=False)
