"""Training: a network, a loss and an optimizer, with one bound program per batch size.

trainer = Trainer(network, loss="cross_entropy", optimizer=Adam())
loss, outputs = trainer.train_minibatch(images, labels)
history = trainer.fit(images, labels, epochs=5, batch=64, validation=(x, t))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.execution.binding import Target, Where
from tensorlang.graph.execution.running import KEPT, Input, sizes_of
from tensorlang.graph.networks.network import Network
from tensorlang.graph.networks.training import TrainingContext, TrainingProgram
from tensorlang.graph.networks.weights import fill
from tensorlang.graph.program import input
from tensorlang.graph.specs import Dim, Extent, TensorSpec, shape_of
from tensorlang.graph.values import OpResult, Tensor
from tensorlang.layers.fitting import Epoch, fit
from tensorlang.layers.layer import checked_integer
from tensorlang.layers.optimizers import Adam, Optimizer
from tensorlang.ops import math, nn

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Array: TypeAlias = np.ndarray
Outputs: TypeAlias = Array | tuple[Array, ...]
# maps the network's outputs and the targets to a tensor of one element
Loss: TypeAlias = Callable[..., OpResult]


def rest(target: Target) -> Where:
    """The target of whatever belongs to no layer."""
    return target.get("") if isinstance(target, Mapping) else target


def mse_skipping_nan(y: Tensor, t: Tensor) -> OpResult:
    """The mean squared error over the targets that are not NaN."""
    known = math.equal(t, t)
    errors = math.where(known, y - math.where(known, t, y), y - y)
    ones = math.where(known, y - y + 1.0, y - y)
    return math.sum(math.square(errors)) / math.maximum(math.sum(ones), 1.0)


LOSSES: Final[dict[str, Loss]] = {
    "cross_entropy": nn.cross_entropy,
    "mse": nn.mse,
    "cross_entropy_last": partial(nn.cross_entropy, axis=-1),
    "mse_skipping_nan": mse_skipping_nan,
}


class Trainer:
    """Updates a network's weights to minimise a loss.

    Attributes:
        network: The network.
        optimizer: The update rule.
        slots: Optimizer state by name and weight path.
        step: The number of completed steps.
        accumulate: The number of batches of a step.
    """

    def __init__(
        self,
        network: Network,
        *,
        loss: str | Loss = "cross_entropy",
        optimizer: Optimizer | None = None,
        accumulate: int = 1,
        target: Target = None,
    ) -> None:
        """Combine network, loss and optimizer.

        Args:
            network: The network; its weights are updated in place.
            loss: A name, or a function on symbolic tensors that maps the outputs and
                targets to one number.
            optimizer: Default: Adam.
            accumulate: The number of batches of which a step takes the mean gradient.
            target: Where to compute; `{"loss": ...}` sets the target of the loss alone.

        Raises:
            ArgumentError: unknown loss, not an optimizer, no number of batches, or the
                weights are frozen.
        """
        if not callable(loss) and not (isinstance(loss, str) and loss in LOSSES):
            raise ArgumentError(
                f"there is no loss {loss!r:.60}; there is {', '.join(LOSSES)}, or a "
                "function"
            )
        if not isinstance(optimizer, (Optimizer, type(None))):
            raise ArgumentError(
                f"an optimizer is one of tensorlang.layers, such as Adam(lr=1e-3), not "
                f"{optimizer!r:.60}"
            )
        self.accumulate = checked_integer("accumulate of a trainer", accumulate)
        self.network = network
        self.loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.optimizer = optimizer or Adam()
        self.target = target
        self.step = 0
        self._batches = 0  # of a step that is not complete
        self._totals: list[Array] = []  # their shares of its gradients
        self._programs: dict[tuple[TensorSpec, ...], TrainingProgram] = {}
        # keyed by shapes and dtypes, and whether outputs are kept
        self._contexts: dict[tuple[Hashable, bool], TrainingContext] = {}
        self._alone = threading.Lock()  # a step updates weights in place
        leaves = network.leaves.items()
        self._paths = [path for path, leaf in leaves if leaf.trainable]
        held = [network.weights[path] for path in self._paths]
        if not all(array.flags.writeable for array in held):
            raise ArgumentError(
                "the network's weights are frozen for inference; compile the model "
                "with train=True to train it"
            )
        made = self.optimizer.begin(held)
        self.slots = {
            name: dict(zip(self._paths, arrays, strict=True))
            for name, arrays in made.items()
        }

    def train_minibatch(self, *arrays: Input) -> tuple[float, Outputs]:
        """Run one step on inputs and targets, or the part of one batch of several.

        Returns:
            The loss, and the network's outputs in memory that the next step overwrites.

        Raises:
            ArgumentError, ShapeError, DTypeError: an array does not fit.
        """
        with self._alone:
            context = self.context(*arrays)
            loss = self._step(context, arrays)
        outputs = context.outputs
        return loss, outputs[0] if len(outputs) == 1 else outputs

    def train_one_batch(self, *arrays: Input) -> float:
        """Run one step without keeping the network's outputs, which saves memory.

        Returns:
            The loss.

        Raises:
            ArgumentError, ShapeError, DTypeError: an array does not fit.
        """
        with self._alone:
            return self._step(self.context(*arrays, outputs=False), arrays)

    def _step(self, context: TrainingContext, arrays: Sequence[Input]) -> float:
        """Compute loss and gradients, and update the weights."""
        loss = context.run(*arrays)
        gradients = self._accumulated(list(context.gradients.values()))
        if gradients is None:
            return loss
        paths = list(context.weights)
        slots = {
            name: [held[path] for path in paths] for name, held in self.slots.items()
        }
        self.step += 1
        self.optimizer.update(
            list(context.weights.values()),
            gradients,
            slots,
            self.step,
            target=rest(self.target),
        )
        return loss

    def _accumulated(self, gradients: list[Array]) -> list[Array] | None:
        """The mean gradients of the batches of a step; None before its last batch."""
        if self.accumulate == 1:
            return gradients
        if not self._batches:
            self._totals = [np.zeros_like(array) for array in gradients]
        for total, array in zip(self._totals, gradients, strict=True):
            np.add(total, array * array.dtype.type(1 / self.accumulate), out=total)
        self._batches = (self._batches + 1) % self.accumulate
        return None if self._batches else self._totals

    def context(self, *arrays: Input, outputs: bool = True) -> TrainingContext:
        """The context for such inputs and targets, created once per batch size.

        Args:
            arrays: Inputs, then targets.
            outputs: Whether it keeps the network's outputs.

        Raises:
            ArgumentError, ShapeError, DTypeError: an array does not fit.
        """
        key = tuple((np.shape(a), getattr(a, "dtype", None)) for a in arrays)
        found = self._contexts.get((key, True))
        if found is None and not outputs:
            found = self._contexts.get((key, False))
        if found is None:
            if len(self._contexts) >= KEPT:
                self._contexts.clear()
            found = self._context([np.asarray(a) for a in arrays], outputs=outputs)
            self._contexts[key, outputs] = found
        return found

    def _context(self, arrays: Sequence[Array], *, outputs: bool) -> TrainingContext:
        given = self.network.specs
        if len(arrays) <= len(given):
            raise ArgumentError(
                f"training takes {len(given)} inputs, then targets; got {len(arrays)}"
            )
        inputs = [input(spec, f"x{n}") for n, spec in enumerate(given)]
        sizes = sizes_of("training", inputs, arrays[: len(given)])
        if 0 in sizes.values():
            raise ArgumentError(
                "training needs at least one example, not an empty batch"
            )
        program = self._program(arrays[len(given) :], sizes)
        return TrainingContext(program, sizes, target=self.target, outputs=outputs)

    def _program(
        self, arrays: Sequence[Array], sizes: Mapping[str, int]
    ) -> TrainingProgram:
        """The program for such targets, with only their batch named, if that works.

        If not, other extents that equal an input's at the same position take its name,
        such as the length of a sequence.
        """
        truths = tuple(_spec_of(array, sizes) for array in arrays)
        named = tuple(self._named(array, sizes) for array in arrays)
        if named not in self._programs and truths not in self._programs:
            try:
                made = TrainingProgram(self.network, self.loss, truths)
            except ShapeError:
                if named == truths:
                    raise
                truths = named
                made = TrainingProgram(self.network, self.loss, named)
            self._programs[truths] = made
        return self._programs.get(truths) or self._programs[named]

    def _named(self, array: Array, sizes: Mapping[str, int]) -> TensorSpec:
        """A spec with the names that inputs have at the same positions."""
        shape: list[Extent] = list(array.shape)
        for spec in self.network.specs:
            for at, extent in enumerate(spec.shape[: len(shape)]):
                if isinstance(extent, Dim) and sizes.get(str(extent)) == shape[at]:
                    shape[at] = extent
        return TensorSpec(tuple(shape), array.dtype.name)

    # ----------------------------------------------------------------- states

    def get_states(self) -> dict[str, Array]:
        """The full training state: weights, states, slots and step.

        The batches of a step that is not complete (`accumulate`) are not part of it.

        Restored in another trainer of the same network and optimizer, training resumes
        bit for bit.
        """
        return {name: array.copy() for name, array in self._held().items()} | {
            "step": np.array(self.step)
        }

    def set_states(self, given: Mapping[str, ArrayLike]) -> None:
        """Restore the result of `get_states`, all or nothing.

        Raises:
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        step = np.array(self.step)
        fill(self._held() | {"step": step}, given, "state")
        self.step, self._batches = int(step), 0

    def _held(self) -> dict[str, Array]:
        net = self.network
        made = {f"weight.{path}": array for path, array in net.weights.items()}
        made |= {f"state.{path}": array for path, array in net.states.items()}
        for name, arrays in self.slots.items():
            made |= {f"optimizer.{name}.{path}": a for path, a in arrays.items()}
        return made

    def fit(self, *arrays: Input, **options: Any) -> list[Epoch]:
        """Train for a number of epochs; see `tensorlang.layers.fitting.fit`."""
        return fit(self, *arrays, **options)


def _spec_of(array: Array, sizes: Mapping[str, int]) -> TensorSpec:
    """The spec of a target, with the batch of the inputs."""
    batch = sizes.get("batch")
    leads = array.ndim and array.shape[0] == batch
    shape = shape_of(("batch", *array.shape[1:]) if leads else array.shape)
    return TensorSpec(shape, array.dtype.name)
