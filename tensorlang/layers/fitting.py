"""Epochs over data: shuffled batches, metrics, callbacks, progress, early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError, LossError
from tensorlang.graph.execution.running import Input, Result
from tensorlang.graph.specs import TensorSpec
from tensorlang.ops import random

if TYPE_CHECKING:
    from rich import progress as rich_progress

    from tensorlang.graph.networks.network import Network
    from tensorlang.layers.trainer import Outputs, Trainer
else:  # only if shown
    rich_progress = lazy.module("rich.progress")

Array: TypeAlias = np.ndarray
# maps outputs and targets to a number
Metric: TypeAlias = Callable[[Result, Array], float]


def accuracy(outputs: Array, truths: Array) -> float:
    """The fraction of rows whose largest value is at the target class."""
    return float(np.mean(np.argmax(outputs, axis=1) == truths))


METRICS: Final[dict[str, Metric]] = {
    "accuracy": accuracy,
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
        known = {"loss": epoch.loss, **epoch.metrics}
        if self.watch not in known:
            raise ArgumentError(
                f"EarlyStop: there is no {self.watch!r} to watch; there is "
                f"{', '.join(known)}"
            )
        value = known[self.watch] * (-1 if "accuracy" in self.watch else 1)
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


def fit(
    trainer: Trainer,
    *arrays: Input,
    epochs: int = 1,
    batch: int = 32,
    validation: Sequence[Input] | None = None,
    metrics: Sequence[str | Metric] = (),
    callbacks: Sequence[Callback] = (),
    shuffle: bool = True,
    seed: int = 0,
    progress: bool = True,
) -> list[Epoch]:
    """Train for a number of epochs.

    Args:
        trainer: The trainer.
        arrays: Inputs and targets of all examples.
        epochs: Passes over the data.
        batch: Examples per step; the last step of an epoch may have fewer.
        validation: Inputs and targets that are evaluated after each epoch.
        metrics: Names, or functions of outputs and targets.
        callbacks: Called with the `Epoch` after each one.
        shuffle: Whether to shuffle each epoch.
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
    data = _arrays(trainer, arrays)
    count = _count(data)
    measures = dict(map(_named, metrics))
    keys = random.split(random.key(seed), max(epochs, 1))
    history: list[Epoch] = []
    with _bar(progress) as bar:
        for number in range(1, epochs + 1):
            order = _order(keys[number - 1], count, shuffle=shuffle)
            shown = bar.add_task(f"epoch {number}/{epochs}", total=-(-count // batch))
            done = partial(bar.advance, shown)
            try:
                loss, found = _epoch(trainer, data, order, batch, measures, done)
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


def _arrays(trainer: Trainer, given: Sequence[Input]) -> list[Array]:
    """Inputs and targets as arrays; lists of numbers take the dtypes of the inputs."""
    specs: list[TensorSpec | None] = [*trainer.network.specs]
    specs += [None] * (len(given) - len(specs))
    return [
        np.asarray(each, spec.numpy if spec and not hasattr(each, "dtype") else None)
        for each, spec in zip(given, specs, strict=False)
    ]


def _count(data: Sequence[Array]) -> int:
    counts = {len(array) for array in data}
    if len(counts) != 1 or not min(counts):
        raise ArgumentError(
            f"fit takes as many inputs as targets, at least one, not {sorted(counts)}"
        )
    return counts.pop()


def _named(metric: str | Metric) -> tuple[str, Metric]:
    if not isinstance(metric, str):
        return metric.__name__, metric
    if metric not in METRICS:
        raise ArgumentError(
            f"there is no metric {metric!r}; there is {', '.join(METRICS)}"
        )
    return metric, METRICS[metric]


def _order(key: random.Key, count: int, *, shuffle: bool) -> Array:
    drawn: Array = random.permutation(key, count)
    return drawn if shuffle else np.arange(count)


def _epoch(  # noqa: PLR0917 - like fit
    trainer: Trainer,
    data: Sequence[Array],
    order: Array,
    batch: int,
    measures: Mapping[str, Metric],
    done: Callable[[], object],
) -> tuple[float, dict[str, float]]:
    """One pass: the loss and metrics averaged over examples."""
    total, sums = 0.0, dict.fromkeys(measures, 0.0)
    for at in _batches(order, batch):
        part = [array[at] for array in data]
        loss, outputs = _trained(trainer, part, look=bool(measures))
        if not np.isfinite(loss):
            raise LossError(
                f"step {trainer.step}: the loss is {loss}; check the data for such "
                "numbers, lower the learning rate, or clip gradients: Adam(clip=1.0)"
            )
        total += loss * len(at)
        for name, measure in measures.items():
            sums[name] += measure(outputs, part[-1]) * len(at)
        done()
    count = len(order)
    return total / count, {name: value / count for name, value in sums.items()}


def _trained(
    trainer: Trainer, part: Sequence[Array], *, look: bool
) -> tuple[float, Outputs | None]:
    """Loss and outputs of a step; no outputs unless they are needed."""
    return (
        trainer.train_minibatch(*part)
        if look
        else (trainer.train_one_batch(*part), None)
    )


def _batches(order: Array, batch: int) -> Iterator[Array]:
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def evaluated(
    trainer: Trainer,
    data: Sequence[Input],
    batch: int,
    measures: Mapping[str, Metric],
) -> dict[str, float]:
    """Loss and metrics on validation data, with the prefix `validation_`."""
    whole, taken = _arrays(trainer, data), len(trainer.network.specs)
    if len(whole) <= taken:
        raise ArgumentError(
            f"validation takes {taken} inputs, then targets; got {len(whole)}"
        )
    inputs, truths = whole[:taken], whole[taken:]
    count = _count(whole)
    sums = {"loss": 0.0, **dict.fromkeys(measures, 0.0)}
    for at in _batches(np.arange(count), batch):
        outputs = trainer.network.transform(*(array[at] for array in inputs))
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        known = [array[at] for array in truths]
        sums["loss"] += float(trainer.loss(*several, *known)) * len(at)
        for name, measure in measures.items():
            sums[name] += measure(outputs, known[-1]) * len(at)
    return {f"validation_{name}": value / count for name, value in sums.items()}


def epoch_line(epoch: Epoch, epochs: int) -> str:
    """One line about an epoch."""
    numbers = {"loss": epoch.loss, **epoch.metrics}
    listed = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
    return f"epoch {epoch.number}/{epochs}  {listed}"


def _bar(progress: bool) -> rich_progress.Progress:
    return rich_progress.Progress(disable=not progress, transient=False)
