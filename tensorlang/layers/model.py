"""Models: a layer, compiled for inputs, then used and trained.

model = Model(Sequential(Dense(128, activation="relu"), Dropout(0.5), Dense(10)))
model.compile(TensorSpec(("batch", 784)), loss="cross_entropy", optimizer=Adam())
loss = model.train_one_batch(images, labels)
y = model(images)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import numpy as np

from tensorlang import graph, lazy
from tensorlang.errors import ArgumentError, GraphError
from tensorlang.graph.networks.network import Network
from tensorlang.graph.specs import Extent, TensorSpec, shape_of
from tensorlang.layers import saving
from tensorlang.layers.optimizers import Optimizer
from tensorlang.layers.summary import summary
from tensorlang.layers.trainer import Loss, Trainer
from tensorlang.ops import random

with lazy.modules(__name__):  # it loads the compiler
    from tensorlang import export as exports

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tensorlang.export import Exported, Machine
    from tensorlang.graph.execution.binding import Target
    from tensorlang.graph.execution.running import Input, Result
    from tensorlang.graph.program import Body
    from tensorlang.graph.values import OpResult
    from tensorlang.layers.fitting import Epoch

Array: TypeAlias = np.ndarray
# an input: its spec or shape, or a symbolic tensor
Takes: TypeAlias = TensorSpec | graph.Tensor | Sequence[Extent | str]


class Model:
    """A layer with weights.

    Attributes:
        layer: What it computes; subclasses may define `apply` instead.
        extras: The extras in the file that it was loaded from.
    """

    def __init__(self, layer: Body) -> None:
        if not callable(layer):
            raise ArgumentError(f"a model is made of a layer, not of {layer!r:.80}")
        self.layer = layer
        self.extras: dict[str, Array] = {}
        self._network: Network | None = None
        self._trainer: Trainer | None = None
        self._late: Callable[[Sequence[Input]], Network] | None = None

    def compile(
        self,
        *specs: Takes,
        train: bool = True,
        loss: str | Loss = "cross_entropy",
        optimizer: Optimizer | None = None,
        accumulate: int = 1,
        autocast: Literal["bfloat16", "float16"] | None = None,
        tolerance: float | None = None,
        key: random.Key | None = None,
        weights: Mapping[str, ArrayLike] | None = None,
        target: Target = None,
    ) -> Model:
        """Fix the input shapes and initialise the weights; nothing runs.

        Args:
            specs: Input specs with a named batch, or symbolic inputs.
            train: Whether it will be trained; if not, its weights are frozen
                (`Network.freeze`).
            loss: The training loss: a name, or a function on symbolic tensors.
            optimizer: Default: Adam.
            accumulate: The number of batches of which a step takes the mean gradient.
            autocast: The type of matrix products, convolutions and attention of f32;
                weights and everything else stay f32.
            tolerance: Error allowed of each f32 product in inference, relative to the
                result or to the mean result; None for that of direct sums. From 2**-12
                on, 3x3 convolutions may be Winograd's.
            key: Initialises weights and dropout; default: the key of seed 0. Consumed.
            weights: The initial weights by path, if known.
            target: Where to train.

        Returns:
            The model.

        Raises:
            ArgumentError: there is no spec.
            ShapeError: a layer does not fit; names it and both shapes.
            WeightError: the given weights do not match the model.
        """
        if not specs:
            raise ArgumentError(
                "compile takes the spec of each input, such as "
                'model.compile(TensorSpec(("batch", 784)))'
            )
        given = [_spec_of(spec) for spec in specs]
        self._network = Network(
            self._apply,
            *given,
            key=key,
            weights=weights,
            autocast=autocast,
            tolerance=tolerance,
        )
        self._trainer, self._late = None, None
        if train:
            self._trainer = Trainer(
                self._network,
                loss=loss,
                optimizer=optimizer,
                accumulate=accumulate,
                target=target,
            )
        else:
            self._network.freeze()
        return self

    def compile_at_calls(self, late: Callable[[Sequence[Input]], Network]) -> None:
        """Compile at each call, for inference, what depends on the inputs' values.

        Args:
            late: Gives the network for inputs.
        """
        self._network, self._late = None, late

    def _apply(self, *inputs: graph.Value) -> OpResult:
        return self.layer(*inputs)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a model is bound to memory and cannot be pickled or copied: use "
            'model.save("name.onnx") and Model.load("name.onnx"), or set_params'
        )

    @property
    def network(self) -> Network:
        """Its structure and weights.

        Raises:
            GraphError: it is not compiled.
        """
        if self._network is None:
            raise GraphError(
                "the model has no shapes yet: call model.compile(TensorSpec(...)) first"
            )
        return self._network

    @property
    def trainer(self) -> Trainer:
        """Its trainer.

        Raises:
            GraphError: it is not compiled for training.
        """
        if self._trainer is None:
            raise GraphError(
                "the model was not compiled for training: call "
                "model.compile(..., train=True) or Model.load(..., train=True)"
            )
        return self._trainer

    @property
    def trainer_or_none(self) -> Trainer | None:
        """Its trainer; None if it was compiled for inference."""
        return self._trainer

    def __call__(self, *inputs: Input) -> Result:
        """Run it on arrays of any batch size, or apply it to symbolic tensors."""
        if any(isinstance(value, graph.Value) for value in inputs):
            return self.layer(*inputs)
        if self._late is not None:
            self._network = self._late(inputs)
        return self.network.transform(*inputs)

    def train_one_batch(self, *arrays: Input) -> float:
        """Run one step on inputs and targets; return the loss before the update."""
        return self.trainer.train_one_batch(*arrays)

    def fit(self, *arrays: Input, **options: object) -> list[Epoch]:
        """Train for a number of epochs; see `tensorlang.layers.fitting.fit`."""
        return self.trainer.fit(*arrays, **options)

    # ---------------------------------------------------------------- weights

    def get_params(self) -> dict[str, Array]:
        """Copies of the weights by path, such as `0.weight`."""
        return self.network.get_weights()

    def set_params(self, given: Mapping[str, ArrayLike]) -> None:
        """Copy all weights in, or none.

        Raises:
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        self.network.set_weights(given)

    def get_states(self) -> dict[str, Array]:
        """The full training state: weights, moments, key, step."""
        return self.trainer.get_states()

    def set_states(self, given: Mapping[str, ArrayLike]) -> None:
        """Restore the result of `get_states`; training resumes bit for bit.

        Raises:
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        self.trainer.set_states(given)

    # ------------------------------------------------------------------ files

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        batch: int | Sequence[int] = (),
        name: str = "model",
        on: Sequence[Machine] = (),
    ) -> Exported:
        """Write its inference as a C library that needs no Python, weights included.

        Args:
            folder: Where to write header, objects, libraries, CMake file and example.
            batch: The largest batch, for all from 1 on; or several, for what their
                kernels serve.
            name: Begins the names of files and functions.
            on: The machines, as `tensorlang.export.machines` gives them; by default
                this one.

        Returns:
            What was written.

        Raises:
            ArgumentError: a batch is missing, or the name is no identifier of C.
            GraphError: it is not compiled, has loops or conditions, or looks at data.
            CodegenError: a machine cannot express a kernel, or the C compiler fails.
        """
        where = Path(folder)
        return exports.export_network(
            self.network, where, batch=batch, name=name, on=on
        )

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        extras: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Save program and weights as one ONNX file, with training state next to it.

        Args:
            path: `name.onnx`; moments, key, step and extras go to `name.safetensors`.
            extras: Arrays and numbers to store with them; `load` returns them.

        Raises:
            GraphError: an operator cannot be written as ONNX; names it.
            ArgumentError: the packages onnx or safetensors are missing.
        """
        saving.save(self, path, extras)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        train: bool | None = None,
        loss: str | Loss | None = None,
        optimizer: Optimizer | None = None,
        target: Target = None,
        largest: int | None = None,
        tolerance: float | None = None,
    ) -> Model:
        """Load a model written by `save`, or any ONNX file with supported operators.

        Args:
            path: The ONNX file; training state is read from `name.safetensors` if
                present.
            train: Whether it will be trained; default: as when saved, unless its loss
                or optimizer is a function, which is not in the file.
            loss: The training loss; default: the saved one.
            optimizer: Default: the saved one.
            target: Where to train.
            largest: Maximum bytes of a tensor whose shape comes from the file; default:
                2 GiB.
            tolerance: Error allowed of each f32 product in inference; see `compile`.

        Raises:
            ArgumentError: there is no such file, or the packages are missing.
            ShapeError, DTypeError: names the node that does not fit.
            GraphError: names the unsupported operators.
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        return saving.load(
            cls,
            path,
            train=train,
            loss=loss,
            optimizer=optimizer,
            target=target,
            largest=largest,
            tolerance=tolerance,
        )

    def summary(self, *specs: Takes) -> str:
        """A table of layers with output shapes and parameter counts.

        Args:
            specs: Input specs; not needed once compiled.
        """
        given = [_spec_of(s) for s in specs] or list(self.network.specs)
        return summary(self.layer, given)


def _spec_of(spec: Takes) -> TensorSpec:
    if isinstance(spec, graph.Tensor):
        return spec.spec
    if isinstance(spec, TensorSpec):
        return spec
    if not isinstance(spec, (list, tuple)):
        raise ArgumentError(
            f'an input is a TensorSpec, or a shape such as ("batch", 784), not {spec!r}'
        )
    return TensorSpec(shape_of(spec))
