"""External data: weights that exceed protobuf's limit of 2 GB per message.

A data file is named by its content and written before the model file that refers to it,
so readers see either the old or the new model, complete.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, GraphError, WeightError
from tensorlang.graph.networks.network import Network
from tensorlang.onnx.calls import array_of, dtype_of
from tensorlang.onnx.checks import Note
from tensorlang.onnx.files import blocks_of, library, written_together, written_whole
from tensorlang.onnx.writing import check_network, model_of

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, ValueInfoProto

T = TypeVar("T")
LIMIT: Final = 2_000_000_000  # bytes of weights; a protobuf message is limited to 2^31
_SMALL: Final = 1024  # elements: smaller tensors stay in the file
_PAGE: Final = 4096
_LISTS: Final = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data")


def save(
    network: Network,
    path: str | os.PathLike[str],
    *,
    note: Note | None = None,
    limit: int = LIMIT,
    also: Callable[[bytes], tuple[Path, bytes]] | None = None,
) -> bytes:
    """Write a network and its weights as ONNX, atomically.

    Args:
        network: The network.
        path: The file.
        note: JSON-compatible metadata for our reader.
        limit: Weights of more bytes in total go to an external file, called
            `name.<digest>.data`.
        also: Maps the content of the ONNX file to another file that is replaced with
            it.

    Returns:
        The content of the ONNX file.

    Raises:
        GraphError: it is no network, or cannot be written as ONNX.
        ArgumentError: the path is none.
    """
    check_network(network)
    try:
        place, beside = Path(path), ""
    except TypeError as problem:
        raise ArgumentError(f"{path!r:.80} is not a file path: {problem}") from None
    if sum(array.nbytes for array in network.weights.values()) < limit:
        model = model_of(network, note=note)
        library().checker.check_model(model)
    else:
        large = {k: v for k, v in network.weights.items() if v.size > _SMALL}
        beside = _written(place, large)
        model = model_of(network, note=note, outside=_places(beside, large))
    data: bytes = model.SerializeToString()
    more = [] if also is None else [also(data)]
    written_together((place, [data]), *((path, [held]) for path, held in more))
    for old in place.parent.glob(f"{_escaped(place.stem)}.*.data"):
        if old.name != beside and _is_data_file(place.stem, old.name):
            old.unlink(missing_ok=True)
    return data


def _written(place: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Write the arrays to an external file; return its name."""
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
    """Its bytes in ONNX's order, little-endian."""
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


def _is_data_file(stem: str, name: str) -> bool:
    return bool(re.fullmatch(rf"{re.escape(stem)}\.[0-9a-f]{{16}}\.data", name))


# ----------------------------------------------------------------------- reading


def read(
    path: str | os.PathLike[str], *, data: bool = True
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The model in a file and its external data, which must be in its folder.

    Args:
        path: The file.
        data: Whether to read external data; if not, zeros take its place and no other
            file is opened.

    Returns:
        The model without large and external weights, and these as arrays.

    Raises:
        ArgumentError: there is no such file, it is not ONNX, or onnx is missing.
        WeightError: external data is missing, or not in the file's folder.
    """
    onnx = library()
    try:
        place = Path(path)
        if not place.is_file():
            raise ArgumentError(f"{place}: there is no such file")
    except (TypeError, OSError) as problem:
        raise ArgumentError(f"{path!r:.80} is not a file path: {problem}") from None
    model = _checked(place, lambda: onnx.load_from_string(place.read_bytes()))
    _checked(place, lambda: _check_names(model))
    arrays = fetched(model, place.parent if data else None)
    arrays |= _taken_out(model)
    _checked(place, lambda: onnx.checker.check_model(model))
    return model, arrays


def _check_names(model: ModelProto) -> None:
    """Check what onnx cannot once weights are taken out: each has a name of its own."""
    for name, count in Counter(each.name for each in model.graph.initializer).items():
        if count > 1:
            raise ValueError(f"{name} initializer name is not unique")


def _taken_out(model: ModelProto) -> dict[str, np.ndarray]:
    """Remove the model's large weights and return them: a check copies what it sees.

    Those that are no arrays, or two, are left to the check.
    """
    graph, kept = model.graph, []
    listed = {each.name for each in graph.input}
    found: dict[str, np.ndarray] = {}
    for tensor in graph.initializer:
        array = None
        several = tensor.HasField("raw_data") and any(
            len(getattr(tensor, name)) for name in _LISTS
        )
        if math.prod(tensor.dims) > _SMALL and not several:
            with suppress(DTypeError, GraphError):
                array = array_of(tensor, tensor.name)
        if array is None:
            kept.append(tensor)
            continue
        found[tensor.name] = array
        if tensor.name not in listed:
            graph.input.append(_typed(tensor))
    if found:
        del graph.initializer[:]
        graph.initializer.extend(kept)
    return found


def _checked(place: Path, step: Callable[[], T]) -> T:
    try:
        return step()
    except Exception as problem:
        said = " ".join(str(problem).split())[:200]
        raise ArgumentError(f"{place} is not an ONNX model: {said}") from problem


def fetched(model: ModelProto, folder: Path | None) -> dict[str, np.ndarray]:
    """Remove the model's external tensors and return them by name.

    Without a folder they are zeros without memory.

    Raises:
        WeightError: a file is elsewhere, not a regular file, too short, or of the wrong
            size.
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


def _fetched(tensor: TensorProto, folder: Path | None) -> np.ndarray:
    """Read a tensor's data from a file of the folder."""
    dtype = dtype_of(tensor.data_type, f"weight {tensor.name!r}")
    if folder is None:
        return np.broadcast_to(np.zeros((), dtype), [max(n, 0) for n in tensor.dims])
    said = {entry.key: entry.value for entry in tensor.external_data}
    place = file_inside(folder, said.get("location", ""), tensor.name)
    offset = _whole(tensor.name, said.get("offset", "0"))
    left = place.stat().st_size - offset
    length = _whole(tensor.name, said.get("length", str(max(left, 0))))
    if length > left:
        raise WeightError(
            f"weight {tensor.name!r} takes {length} bytes from {offset} of "
            f"{place.name}, which ends before"
        )
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
        raise WeightError(
            f"weight {name!r} has an offset or length of {text!r:.40} bytes"
        )
    return int(text)


def file_inside(folder: Path, location: str, name: str) -> Path:
    """A file in a folder itself; WeightError if elsewhere, a link, or missing."""
    root = folder.resolve()
    try:
        place = root / location
        said = location and not Path(location).is_absolute()
        within = said and place.resolve().is_relative_to(root)
        # links and `..` resolve to another path
        if within and place.resolve() == place and place.is_file():
            return place
    except (OSError, ValueError, RuntimeError):  # invalid path, or a cycle of links
        pass
    raise WeightError(
        f"weight {name!r} is located in {location!r:.80}, which is not a regular file "
        "in the model's folder"
    )


__all__ = ["LIMIT", "fetched", "file_inside", "read", "save"]
