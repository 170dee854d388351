"""ONNX files: read without leaving their folder, written whole or not at all."""

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


def written_whole(path: str | os.PathLike[str], *parts: Part) -> None:
    """Write a file: what stood there before stays until all of the new is on the disk.

    Args:
        path: Where.
        parts: Bytes, or contiguous memory, one behind the other.

    Raises:
        OSError: the folder cannot be written to.
    """
    written_together((path, parts))


def written_together(*files: tuple[str | os.PathLike[str], Iterable[Part]]) -> None:
    """Write files that belong together: all are on the disk before one is replaced.

    Args:
        files: Paths and their parts, as for `written_whole`.

    Raises:
        OSError: a folder cannot be written to.
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
    """A file beside a place, with all that is to stand there."""
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
    """A graph of ONNX, and the branches and bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            own = [attribute.g] if attribute.HasField("g") else []
            for inner in (*attribute.graphs, *own):
                yield from blocks_of(inner)


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """The nodes of a graph of ONNX, and of the branches and bodies in it."""
    for block in blocks_of(graph):
        yield from block.node
