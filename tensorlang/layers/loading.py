"""Batches of examples: of arrays, or of a data set that threads read ahead.

loader = Loader(images, labels, batch=64, key=random.key(0))
loader = Loader(torchvision.datasets.MNIST(...), batch=64, threads=2)
model.fit(loader, epochs=3)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.execution.running import Input
from tensorlang.ops import random

Array: TypeAlias = np.ndarray
Batch: TypeAlias = tuple[Array, ...]

_AHEAD: Final = 2  # batches that each thread reads ahead


class Dataset(Protocol):
    """Examples by number, as PyTorch's map-style data sets."""

    def __len__(self) -> int:
        """The number of examples."""

    def __getitem__(self, at: int, /) -> Any:
        """An example: a tuple of arrays and numbers, or one of them."""


class Loader:
    """Iterates over batches of examples, in a new order in each pass.

    Attributes:
        batch: The number of examples in a batch; the last one of a pass may have fewer.
        threads: The number of threads that read ahead; 0 to read where it is iterated.
    """

    def __init__(
        self,
        *data: Input | Dataset,
        batch: int = 32,
        key: random.Key | None = None,
        threads: int = 0,
    ) -> None:
        """Combine examples and an order.

        Args:
            data: Arrays of one length; or a data set, whose examples are stacked, with
                Python floats as f32.
            batch: The number of examples in a batch.
            key: Shuffles each pass; None for the order of the data. Consumed.
            threads: The number of threads that read ahead.

        Raises:
            ArgumentError: no examples, arrays of different lengths, or no integers.
        """
        for name, value, least in (("batch", batch, 1), ("threads", threads, 0)):
            if not isinstance(value, (int, np.integer)) or value < least:
                raise ArgumentError(
                    f"{name} of a Loader is an integer of at least {least}, not "
                    f"{value!r}"
                )
        self.batch, self.threads, self._key = int(batch), int(threads), key
        self._read, self._count = _reader(data)

    def __len__(self) -> int:
        """The number of batches of a pass."""
        return (self._count + self.batch - 1) // self.batch

    def __iter__(self) -> Iterator[Batch]:
        """A pass over all examples."""
        order: Array = np.arange(self._count)
        if self._key is not None:
            self._key, own = random.split(self._key)
            order = random.permutation(own, self._count)
        parts = [
            order[first : first + self.batch]
            for first in range(0, self._count, self.batch)
        ]
        return self._ahead(parts) if self.threads else map(self._read, parts)

    def _ahead(self, parts: Sequence[Array]) -> Iterator[Batch]:
        """The batches in order, read by threads before they are asked for."""
        pool = ThreadPoolExecutor(self.threads, "tensorlang-loader")
        waiting: deque[Future[Batch]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(self._read, part))
                if len(waiting) > _AHEAD * self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _reader(data: Sequence[Any]) -> tuple[Callable[[Array], Batch], int]:
    """What reads the examples of these numbers, and how many there are."""
    if len(data) == 1 and not hasattr(data[0], "__array__"):
        if not hasattr(data[0], "__getitem__") or not hasattr(data[0], "__len__"):
            raise ArgumentError(
                f"a Loader takes arrays, or a data set with a length whose examples "
                f"have numbers, not {data[0]!r:.80}"
            )
        dataset: Dataset = data[0]
        counts = {len(dataset)}

        def read(at: Array) -> Batch:
            return _stacked([dataset[n] for n in at.tolist()])
    else:
        arrays = [np.asarray(each) for each in data]
        counts = {len(array) for array in arrays}

        def read(at: Array) -> Batch:
            return tuple(array[at] for array in arrays)

    if len(counts) != 1 or not min(counts):
        raise ArgumentError(
            f"there are as many inputs as targets, at least one, not {sorted(counts)}"
        )
    return read, counts.pop()


def _stacked(examples: Sequence[Any]) -> Batch:
    """Examples as arrays with one more dimension."""
    rows = [each if isinstance(each, (tuple, list)) else (each,) for each in examples]
    try:
        return tuple(
            np.stack([_array(value) for value in column])
            for column in zip(*rows, strict=True)
        )
    except ValueError as problem:
        raise ArgumentError(f"examples cannot be stacked: {problem}") from problem


def _array(value: Any) -> Array:
    return np.asarray(value, np.float32 if isinstance(value, float) else None)
