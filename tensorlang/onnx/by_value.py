"""Networks that depend on the sizes of inputs, or on their values.

A file may take as an input what a program must know, such as the shape of a Reshape, or
compute with sizes what no symbolic size expresses. Such a network is traced at the
call, and kept for these values and all shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, TensorlangError
from tensorlang.graph.execution.running import KEPT, Input
from tensorlang.graph.networks.network import Edition, Network, mode
from tensorlang.graph.program import Body, trace
from tensorlang.graph.specs import TensorSpec, names_in
from tensorlang.onnx.programs import Program

if TYPE_CHECKING:
    Arrays = dict[str, np.ndarray]
    Shapes = tuple[tuple[int, ...], ...]
    Key = tuple[Shapes, tuple[tuple[str, bytes], ...]]  # and the values known

# of all dimensions, to see whether known ones help: small, for limits of memory, and
# large, for windows and reflections
_SIZES: Final = (64, 512)


def at_calls(program: Program) -> bool:
    """Whether a program that was refused may fit inputs of known sizes and values.

    It needs the values of inputs, or another node is refused if the sizes are known.
    """
    if program.asked:
        return True
    names = names_in([spec.shape for spec in program.specs])
    place = program.refused
    return bool(names) and any(_fits(program, names, size, place) for size in _SIZES)


def _fits(program: Program, names: set[str], size: int, place: tuple[str, ...]) -> bool:
    """Whether a node fits if all sizes are known."""
    sizes = dict.fromkeys(names, size)
    try:
        with mode(train=False):
            trace(program, [spec.at(sizes) for spec in program.specs])
    except TensorlangError:
        return bool(program.asked) or program.refused != place
    return True


class ByValue:
    """The networks of a program for the values of some inputs.

    Args:
        program: The program, whose `asked` names the inputs.
        apply: What the networks trace: it calls the program.
        tolerance: As for `Network`.
    """

    def __init__(
        self, program: Program, apply: Body, tolerance: float | None = None
    ) -> None:
        self._program, self._apply, self._tolerance = program, apply, tolerance
        self._names = set(program.asked)
        self._made: dict[Key, Network] = {}
        self._weights: Arrays = {}  # shared by the networks
        self._edition = Edition()
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[Input]) -> Network:
        """The network for these inputs.

        Raises:
            ArgumentError, DTypeError: an input does not fit.
            TensorlangError: the program does not fit the values.
        """
        arrays = self._arrays(inputs)
        with self._lock:
            while True:
                fixed = {name: arrays[name] for name in sorted(self._names)}
                key = (
                    tuple(array.shape for array in arrays.values()),
                    tuple((name, array.tobytes()) for name, array in fixed.items()),
                )
                if key in self._made:
                    return self._made[key]
                try:
                    made = self._traced(fixed, arrays)
                except TensorlangError:
                    if self._program.asked <= self._names:
                        raise
                    self._names |= self._program.asked
                    continue
                if len(self._made) >= KEPT:
                    self._made.clear()
                self._made[key] = made
                return made

    def _arrays(self, inputs: Sequence[Input]) -> Arrays:
        """The inputs by name."""
        program = self._program
        if len(inputs) != len(program.specs):
            raise ArgumentError(
                f"{program.name} takes {len(program.specs)} inputs, got {len(inputs)}"
            )
        arrays = {}
        for value, spec, given in zip(
            program.inputs, program.specs, inputs, strict=True
        ):
            array = arrays[value.name] = np.asarray(given)
            if array.dtype != spec.numpy or array.ndim != len(spec.shape):
                raise DTypeError(
                    f"{program.name}: input {value.name!r} is {spec}, not "
                    f"{array.dtype}{list(array.shape)}"
                )
        return arrays

    def _traced(self, fixed: Arrays, arrays: Arrays) -> Network:
        program = self._program
        program.fixed = {name: array.copy() for name, array in fixed.items()}
        try:
            specs = map(_spec, arrays.values())
            made = Network(self._apply, *specs, tolerance=self._tolerance)
        finally:
            program.fixed = {}
        for path, array in made.weights.items():
            made.weights[path] = self._weights.setdefault(path, array)
        made.edition = self._edition
        made.freeze()
        return made


def _spec(array: np.ndarray) -> TensorSpec:
    return TensorSpec(array.shape, array.dtype.name)
