"""File access: reads stay within the model's folder, writes are atomic."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.errors import ArgumentError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

Part: TypeAlias = bytes | memoryview

INSTALL: Final = "pip install 'tensorlang[onnx]'"


def library() -> Any:
    """The package `onnx`; ArgumentError if it is not installed."""
    try:
        import onnx  # noqa: PLC0415 - needs the onnx extra
        import onnx.numpy_helper  # noqa: PLC0415 - the same
    except ImportError:
        raise ArgumentError(f"ONNX files need the package onnx: {INSTALL}") from None
    return onnx


def written_whole(path: str | os.PathLike[str], *parts: Part) -> None:
    """Write a file atomically: the old content stays until the new one is on disk.

    Args:
        path: The file.
        parts: Bytes or contiguous memory, to be concatenated.

    Raises:
        OSError: the folder is not writable.
    """
    written_together((path, parts))


def written_together(*files: tuple[str | os.PathLike[str], Iterable[Part]]) -> None:
    """Write several files; all are on disk before the first is replaced.

    Args:
        files: Paths and their parts, as for `written_whole`.

    Raises:
        OSError: a folder is not writable.
    """
    ready: list[tuple[Path, Path]] = []
    try:
        for path, parts in files:
            ready.append((_ready(Path(path), parts), Path(path)))
        for name, place in ready:
            name.replace(place)
    except BaseException:
        for name, _ in ready:
            name.unlink(missing_ok=True)
        raise


def _ready(place: Path, parts: Iterable[Part]) -> Path:
    """A temporary file next to the destination, with the full content."""
    if not place.parent.is_dir():
        raise FileNotFoundError(f"{place}: there is no folder {place.parent}")
    handle, name = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def blocks_of(graph: GraphProto) -> Iterator[GraphProto]:
    """An ONNX graph and its nested graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            own = [attribute.g] if attribute.HasField("g") else []
            for inner in (*attribute.graphs, *own):
                yield from blocks_of(inner)


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of an ONNX graph and its nested graphs."""
    for block in blocks_of(graph):
        yield from block.node
