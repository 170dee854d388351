"""Model files: ONNX with program and weights, safetensors with training state.

model.save("lenet.onnx", extras={"epoch": 3})    # and lenet.safetensors
model = Model.load("lenet.onnx")                 # resumes bit for bit
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import onnx
from tensorlang.errors import ArgumentError, GraphError, TensorlangError, WeightError
from tensorlang.graph.passes.approximation import checked
from tensorlang.graph.specs import TensorSpec
from tensorlang.layers import optimizers
from tensorlang.layers.trainer import LOSSES, Loss
from tensorlang.onnx.by_value import ByValue, at_calls
from tensorlang.onnx.checks import Note

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tensorlang.graph.execution.binding import Target
    from tensorlang.layers.model import Model
    from tensorlang.layers.optimizers import Optimizer

INSTALL: Final = "pip install 'tensorlang[onnx]'"
Arrays: TypeAlias = dict[str, np.ndarray]
Extras: TypeAlias = "Mapping[str, ArrayLike]"
EXTRA: Final = "extra."
STATE: Final = "state."


def _safetensors() -> Any:
    try:
        import safetensors.numpy  # noqa: PLC0415 - needs the onnx extra
    except ImportError:
        raise ArgumentError(
            f"the training state needs the package safetensors: {INSTALL}"
        ) from None
    return safetensors


def state_path(path: str | os.PathLike[str]) -> Path:
    """The path of the training state that belongs to a model file."""
    return Path(path).with_suffix(".safetensors")


def save(
    model: Model, path: str | os.PathLike[str], extras: Extras | None = None
) -> None:
    """Write a model and its training state; both files are replaced together.

    Args:
        model: A compiled model.
        path: The ONNX file; the state goes to the `.safetensors` file next to it.
        extras: Arrays and numbers to store with the state.

    Raises:
        GraphError: the model cannot be written as ONNX.
        ArgumentError: a package is missing, or an extra is not an array.
    """
    if Path(path).suffix != ".onnx":
        raise ArgumentError(f"a model is saved as a file.onnx, not {os.fspath(path)!r}")
    library = _safetensors()
    network, trainer = model.network, model.trainer_or_none
    held = {STATE + name: array for name, array in network.get_states().items()}
    narrow = network.autocast and network.autocast.name
    said: dict[str, object] = {
        "trained": trainer is not None,
        "autocast": narrow,
        "tolerance": network.tolerance,
    }
    if trainer is not None:
        whole = trainer.get_states().items()
        held |= {k: v for k, v in whole if not k.startswith("weight.")}
        said |= {
            "loss": _loss(trainer.loss),
            "optimizer": _optimizer_settings(trainer.optimizer),
            "accumulate": trainer.accumulate,
        }
    held |= {f"{EXTRA}{name}": _array(name, v) for name, v in (extras or {}).items()}

    def states(data: bytes) -> tuple[Path, bytes]:
        digest = {"onnx": hashlib.sha256(data).hexdigest()}
        return state_path(path), library.numpy.save(held, digest)

    onnx.save(network, path, note=said, also=states)


def _array(name: str, value: ArrayLike) -> np.ndarray:
    made: np.ndarray = np.array(value, order="C")
    if made.dtype.kind not in "biuf":
        raise ArgumentError(f"extra {name!r} is an array of numbers, not {value!r:.60}")
    return made


def _loss(loss: Loss) -> str | None:
    return next((name for name, known in LOSSES.items() if known is loss), None)


def _optimizer_settings(optimizer: Optimizer) -> dict[str, object] | None:
    """An optimizer as JSON; None if its rate is a function."""
    given = {f.name: getattr(optimizer, f.name) for f in fields(optimizer)}
    if callable(optimizer.lr):
        return None
    return {"name": type(optimizer).__name__, **given}


def load(
    made: type[Model],
    path: str | os.PathLike[str],
    *,
    train: bool | None = None,
    loss: str | Loss | None = None,
    optimizer: Optimizer | None = None,
    target: Target = None,
    largest: int | None = None,
    tolerance: float | None = None,
) -> Model:
    """Load a model from any ONNX file, with its training state if present.

    Raises:
        ArgumentError: there is no such file, or its training settings are unreadable.
        GraphError: names the unsupported operators.
        ShapeError, DTypeError: names the node that does not fit.
        WeightError: names what is missing, unused or has the wrong shape or dtype.
    """
    checked(tolerance)
    program = onnx.load(path, largest=largest)
    if not program.specs:
        raise GraphError(f"{program.name} has no inputs: its results are constant")
    trained = _resumes(program.note, loss, optimizer) if train is None else train
    states, extras = _states(path) if program.note else ({}, {})
    model = made(program)
    if tolerance is None:
        tolerance = checked(program.note.get("tolerance"))
    given: dict[str, Any] = {
        "autocast": program.note.get("autocast"),
        "tolerance": tolerance,
    }
    if trained:
        given["accumulate"] = program.note.get("accumulate", 1)
        given["loss"] = loss or _from_note(program.note, "loss", path)
        given["optimizer"] = optimizer or _optimizer(program.note, path)
    try:
        model.compile(*program.specs, train=trained, target=target, **given)
    except TensorlangError:
        if trained or not at_calls(program):
            raise
        model.compile_at_calls(ByValue(program, program, tolerance))
    model.extras = extras
    _restore(model, states)
    return model


def _resumes(note: Note, loss: str | Loss | None, optimizer: Optimizer | None) -> bool:
    """Whether training can go on: loss and optimizer are given, or in the file."""
    known = (loss or note.get("loss"), optimizer or note.get("optimizer"))
    return bool(note.get("trained", False)) and None not in known


def _restore(model: Model, states: Mapping[str, np.ndarray]) -> None:
    trainer = model.trainer_or_none
    if trainer is not None and "step" in states:
        weights = {f"weight.{k}": v for k, v in model.network.weights.items()}
        trainer.set_states(dict(states) | weights)
    elif states:
        own = {k: v for k, v in states.items() if k.startswith(STATE)}
        model.network.set_states({k.removeprefix(STATE): v for k, v in own.items()})


def _states(path: str | os.PathLike[str]) -> tuple[Arrays, Arrays]:
    """States and extras, if the file next to it exists."""
    place = state_path(path)
    if not place.is_file():
        return {}, {}
    data, library = place.read_bytes(), _safetensors()
    try:
        held = _read(library, data)
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except Exception as problem:
        raise WeightError(
            f"{place} is not a training state file: {problem}"
        ) from problem
    if head.get("onnx") != hashlib.sha256(Path(path).read_bytes()).hexdigest():
        raise WeightError(
            f"{place} belongs to another save than {os.fspath(path)}; remove "
            "it to start with new optimizer state"
        )
    extras = {k.removeprefix(EXTRA): v for k, v in held.items() if k.startswith(EXTRA)}
    return {k: v for k, v in held.items() if not k.startswith(EXTRA)}, extras


def _read(library: Any, data: bytes) -> Arrays:
    """Read safetensors, including bfloat16, which the package's NumPy reader lacks."""
    return {
        name: np.frombuffer(said["data"], _kind(said["dtype"])).reshape(said["shape"])
        for name, said in library.deserialize(data)
    }


def _kind(name: str) -> np.dtype:
    """The dtype of a safetensors name such as F32 or BF16."""
    words = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "BOOL": "bool"}
    kind = name.rstrip("0123456789")
    return TensorSpec((), words[kind] + name[len(kind) :]).numpy


def _from_note(note: Note, what: str, path: str | os.PathLike[str]) -> object:
    found = note.get(what)
    if found is None and note:
        raise ArgumentError(
            f"{os.fspath(path)} was trained with a {what} that is a function; give it "
            f"again: Model.load(path, {what}=...)"
        )
    return found or "cross_entropy"


def _optimizer(note: Note, path: str | os.PathLike[str]) -> Optimizer | None:
    if not note:
        return None
    asked, base = _from_note(note, "optimizer", path), optimizers.Optimizer
    said = dict(asked) if isinstance(asked, dict) else {}
    kind = getattr(optimizers, str(said.pop("name", "")), base)
    if kind is base or not (isinstance(kind, type) and issubclass(kind, base)):
        raise ArgumentError(f"{os.fspath(path)} names an unknown optimizer")
    try:
        return kind(**said)
    except TypeError as problem:
        raise ArgumentError(f"{os.fspath(path)}: {problem}") from None
