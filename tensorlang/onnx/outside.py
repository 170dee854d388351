"""Weights beside an ONNX file: where they are too many for one message of 2 GB.

A file of data is called by what is in it, and written before the file that names it; so
whoever reads sees either the model of before or the new one, whole.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from tensorlang.errors import ArgumentError, WeightError
from tensorlang.graph.network import Network
from tensorlang.onnx.calls import dtype_of
from tensorlang.onnx.checks import Note
from tensorlang.onnx.files import (
    blocks_of,
    library,
    written_together,
    written_whole,
)
from tensorlang.onnx.writing import model_of

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, ValueInfoProto

T = TypeVar("T")
LIMIT: Final = 2_000_000_000  # bytes of weights; a protobuf message has less than 2^31
_SMALL: Final = 1024  # bytes: what is no larger stays in the file
_PAGE: Final = 4096


def save(
    network: Network,
    path: str | os.PathLike[str],
    *,
    note: Note | None = None,
    limit: int = LIMIT,
    also: Callable[[bytes], tuple[Path, bytes]] | None = None,
) -> bytes:
    """Write a network as ONNX, with its weights; whole, or not at all.

    Args:
        network: The network.
        path: Where.
        note: What a reader of ours is told beside, as JSON has it.
        limit: From how many bytes on weights stand in a file beside, called
            `name.<digest>.data`.
        also: From what stands in the ONNX file to a file that is replaced with it.

    Returns:
        What stands in the ONNX file.

    Raises:
        GraphError: the network cannot be written as ONNX.
    """
    place, beside = Path(path), ""
    if sum(array.nbytes for array in network.weights.values()) < limit:
        model = model_of(network, note=note)
        library().checker.check_model(model)
    else:
        large = {k: v for k, v in network.weights.items() if v.nbytes > _SMALL}
        beside = _written(place, large)
        model = model_of(network, note=note, outside=_places(beside, large))
    data: bytes = model.SerializeToString()
    more = [] if also is None else [also(data)]
    written_together((place, [data]), *((path, [held]) for path, held in more))
    for old in place.parent.glob(f"{_escaped(place.stem)}.*.data"):
        if old.name != beside and _ours(place.stem, old.name):
            old.unlink(missing_ok=True)
    return data


def _written(place: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write the arrays to a file beside: its name."""
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(_bytes(array))
    name = f"{place.stem}.{digest.hexdigest()[:16]}.data"
    parts = (
        part
        for array in arrays.values()
        for part in (_bytes(array), _gap(array.nbytes))
    )
    written_whole(place.with_name(name), *parts)
    return name


def _bytes(array: np.ndarray) -> memoryview:
    """Its bytes as ONNX orders them: the lowest first."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def _gap(size: int) -> bytes:
    return bytes(-size % _PAGE)


def _places(
    file: str, arrays: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, int, int]]:
    """File, offset and length of each array."""
    found, offset = {}, 0
    for name, array in arrays.items():
        found[name] = file, offset, array.nbytes
        offset += array.nbytes + len(_gap(array.nbytes))
    return found


def _escaped(stem: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", stem)


def _ours(stem: str, name: str) -> bool:
    return bool(re.fullmatch(rf"{re.escape(stem)}\.[0-9a-f]{{16}}\.data", name))


# ----------------------------------------------------------------------- reading


def read(path: str | os.PathLike[str]) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The model in a file, and what of it stands outside of the file, in its folder.

    Returns:
        The model, whose weights outside have no data in it; and these as arrays.

    Raises:
        ArgumentError: there is no such file, it is no ONNX, or onnx is missing.
        WeightError: data is missing, or outside of the file's folder.
    """
    onnx = library()
    try:
        place = Path(path)
        if not place.is_file():
            raise ArgumentError(f"{place}: there is no such file")
    except (TypeError, OSError) as problem:
        raise ArgumentError(f"{path!r:.80} is no path of a file: {problem}") from None
    model = _checked(place, lambda: onnx.load_from_string(place.read_bytes()))
    arrays = fetched(model, place.parent)
    _checked(place, lambda: onnx.checker.check_model(model))
    return model, arrays


def _checked(place: Path, step: Callable[[], T]) -> T:
    try:
        return step()
    except Exception as problem:
        said = " ".join(str(problem).split())[:200]
        raise ArgumentError(f"{place} is no ONNX model: {said}") from problem


def fetched(model: ModelProto, folder: Path) -> dict[str, np.ndarray]:
    """The model's tensors that stand outside of it, by name; they leave the model.

    Raises:
        WeightError: a file is elsewhere, no plain file, too short, or of other sizes.
    """
    onnx, found = library(), {}
    outside = onnx.TensorProto.EXTERNAL
    for block in blocks_of(model.graph):
        for tensor in [t for t in block.initializer if t.data_location == outside]:
            array = _fetched(tensor, folder)
            if block is model.graph:
                found[tensor.name] = array
                block.initializer.remove(tensor)
                block.input.append(_typed(tensor))
            else:
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        for node in block.node:
            for attribute in node.attribute:
                own = [attribute.t] if attribute.HasField("t") else []
                for tensor in (*own, *attribute.tensors):
                    if tensor.data_location == outside:
                        array = _fetched(tensor, folder)
                        tensor.CopyFrom(onnx.numpy_helper.from_array(array))
    return found


def _typed(tensor: TensorProto) -> ValueInfoProto:
    """A tensor as an input of its name, so that the rest can be checked."""
    make = library().helper.make_tensor_value_info
    return make(tensor.name, tensor.data_type, list(tensor.dims))


def _fetched(tensor: TensorProto, folder: Path) -> np.ndarray:
    """A tensor's data from a file of the folder."""
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
    dtype = dtype_of(tensor.data_type, f"weight {tensor.name!r}")
    count = math.prod(tensor.dims)
    if length != count * dtype.itemsize or min(tensor.dims, default=0) < 0:
        raise WeightError(
            f"weight {tensor.name!r} is {dtype}{list(tensor.dims)}, which are "
            f"{count * dtype.itemsize} bytes, and {place.name} has {length} of it"
        )
    made = np.empty(count, dtype)
    with place.open("rb") as file:
        file.seek(offset)
        file.readinto(made.view(np.uint8).data)
    if dtype.byteorder == ">" or (dtype.isnative and not np.little_endian):
        made.byteswap(inplace=True)
    return made.reshape(list(tensor.dims))


def _whole(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise WeightError(f"weight {name!r} has a place of {text!r:.40} bytes")
    return int(text)


def inside(folder: Path, location: str, name: str) -> Path:
    """A plain file that stands in a folder, reached through no link.

    Raises:
        WeightError: it is elsewhere, a link, or not there.
    """
    root = folder.resolve()
    try:
        place = root / location
        said = location and not Path(location).is_absolute()
        within = said and place.resolve().is_relative_to(root)
        # a link on the way, or `..`, makes another path of it
        if within and place.resolve() == place and place.is_file():
            return place
    except (OSError, ValueError, RuntimeError):  # no path at all, or a circle of links
        pass
    raise WeightError(
        f"weight {name!r} is said to be in {location!r:.80}, which is no plain file in "
        "the folder of the model"
    )


__all__ = ["LIMIT", "fetched", "inside", "read", "save"]
