"""ONNX files: read without leaving their folder, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tensorlang.errors import ArgumentError, WeightError

INSTALL: Final = "pip install 'tensorlang[onnx]'"


def library() -> Any:
    """The package `onnx`.

    Raises:
        ArgumentError: it is not installed.
    """
    try:
        import onnx  # noqa: PLC0415 - of the onnx extra
        import onnx.numpy_helper  # noqa: PLC0415 - the same
    except ImportError:
        raise ArgumentError(f"ONNX files need the package onnx: {INSTALL}") from None
    return onnx


def written_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file: what stood there before stays until all of the new is on the disk.

    Raises:
        OSError: the folder cannot be written to.
    """
    place = Path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place}: there is no folder {place.parent}")
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read(path: str | os.PathLike[str]) -> Any:
    """The model in a file, with its weights; those outside of it from its folder only.

    Raises:
        ArgumentError: there is no such file, it is no ONNX, or onnx is missing.
        WeightError: data is missing, or outside of the file's folder.
    """
    onnx, place = library(), Path(path)
    if not place.is_file():
        raise ArgumentError(f"{place}: there is no such file")
    model = _checked(place, lambda: onnx.load_from_string(place.read_bytes()))
    for tensor in tensors_of(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _fetch(tensor, place.parent)
    _checked(place, lambda: onnx.checker.check_model(model))
    return model


def _checked(place: Path, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception as problem:
        said = " ".join(str(problem).split())[:200]
        raise ArgumentError(f"{place} is no ONNX model: {said}") from problem


def tensors_of(graph: Any) -> list[Any]:
    """All tensors of a graph, and of the graphs in it."""
    found = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            found += [attribute.t] if attribute.HasField("t") else []
            found += attribute.tensors
            for inner in (*attribute.graphs, *_one(attribute)):
                found += tensors_of(inner)
    return found


def _one(attribute: Any) -> list[Any]:
    return [attribute.g] if attribute.HasField("g") else []


def _fetch(tensor: Any, folder: Path) -> None:
    """Take a tensor's data from a file of the folder.

    Raises:
        WeightError: the file is elsewhere, no plain file, or too short.
    """
    said = {entry.key: entry.value for entry in tensor.external_data}
    place = inside(folder, said.get("location", ""), tensor.name)
    offset = _whole(tensor.name, said.get("offset", "0"))
    left = place.stat().st_size - offset
    length = _whole(tensor.name, said.get("length", str(max(left, 0))))
    if length > left:
        raise WeightError(
            f"weight {tensor.name!r} takes {length} bytes from {offset} of "
            f"{place.name}, which ends before"
        )
    with place.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    del tensor.external_data[:]
    tensor.data_location = 0


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise WeightError(f"weight {name!r} has a place of {text!r} bytes")
    return int(text)


def inside(folder: Path, location: str, name: str) -> Path:
    """A plain file that stands in a folder, reached through no link.

    Raises:
        WeightError: it is elsewhere, a link, or not there.
    """
    root = folder.resolve()
    place = root / location
    within = location and place.resolve().is_relative_to(root)
    # a link on the way, or `..`, makes another path of it
    if not within or place.resolve() != place or not place.is_file():
        raise WeightError(
            f"weight {name!r} is said to be in {location!r}, which is no plain file in "
            "the folder of the model"
        )
    return place
