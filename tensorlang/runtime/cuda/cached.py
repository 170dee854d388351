"""Cached GPU launches: repeated calls with arrays of the same shapes and dtypes.

The slow path inspects every array, which costs some fifty microseconds; launching a
kernel takes three. What was derived from shapes and dtypes is cached here, so that a
repeated call only checks what may differ: addresses, overlaps, and the stream.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.runtime import calling, tensor_facts
from tensorlang.runtime.arrays.device_arrays import DeviceArray
from tensorlang.runtime.arrays.foreign_arrays import as_placed
from tensorlang.runtime.arrays.host_arrays import Foreign
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import tensor_call
from tensorlang.runtime.cuda.module import workspace
from tensorlang.runtime.cuda.results import stream_of
from tensorlang.runtime.cuda.tensor_call import TensorCall
from tensorlang.runtime.signature import Scalars

if TYPE_CHECKING:
    from tensorlang.runtime.cuda.kernel import CudaKernel

_MOST_KEPT: Final = 64
Shape = tuple[int, ...]


class CachedLaunch:
    """A kernel's launch for arrays of certain shapes.

    Call it, or `quick`, with PyTorch tensors of the kernel's dtypes and element counts
    (of any shape), then free scalars. Read-only arguments may be NumPy arrays.

    Attributes:
        quick: The fastest entry point: compiled, if that serves.
    """

    def __init__(self, kernel: CudaKernel, shapes: Sequence[Shape]) -> None:
        signature = kernel.signature
        self.kernel: Final = kernel
        self._shapes: Final = tuple(shapes)
        self._count: Final = len(shapes)
        buffers = signature.buffers
        self._bytes: Final = [
            math.prod(shape) * spec.numpy.itemsize
            for spec, shape in zip(buffers, shapes, strict=True)
        ]
        self._alignments: Final = kernel.alignments
        self._pairs: Final = [
            (i, j, self._may_be_one(i, j)) for i, j in tensor_call.overlaps(signature)
        ]
        bound: Scalars = {scalar.name: 0 for scalar in signature.free}
        calling.bind(signature, list(shapes), bound)
        call = calling.Call([], bound)
        self._block: Final = calling.block_of(signature, call, [0] * self._count)
        names = [scalar.name for scalar in signature.scalars]
        self._free: Final = [
            (self._count + names.index(scalar.name), scalar)
            for scalar in signature.free
        ]
        self._temporaries: Final = kernel.has_temporaries
        self.quick: Callable[..., object] = self
        self._compiled: TensorCall | None = None
        if kernel.has_call:
            counts = [math.prod(shape) for shape in shapes]
            alike = [alike for _, _, alike in self._pairs]
            self._compiled = TensorCall(kernel, counts, self._block, alike, self)
            self.quick = self._compiled.function

    def _may_be_one(self, i: int, j: int) -> bool:
        """Whether written array `i` and read array `j` may be the same array."""
        signature = self.kernel.signature
        a, b = signature.buffers[i], signature.buffers[j]
        alike = (a.dtype, self._shapes[i]) == (b.dtype, self._shapes[j])
        return alike and not b.written and (i, j) in signature.aliases

    def __call__(self, *args: Foreign) -> None:
        """Launch on PyTorch's current stream."""
        count = self._count
        index = self.kernel.target.index
        addresses, brought = [], []
        for n, array in enumerate(args[:count]):
            if type(array) is np.ndarray:
                brought.append(n)
                addresses.append(array.ctypes.data)
            elif array.get_device() == index and array.is_contiguous():
                addresses.append(array.data_ptr())
            else:
                return self._carefully(args)
        if not self.run(addresses, args[count:], stream_of(index), brought):
            self._carefully(args)
        return None

    def run(
        self,
        addresses: Sequence[int],
        numbers: Sequence[float],
        stream: int,
        brought: Sequence[int] = (),
    ) -> bool:
        """Launch; False, with nothing done, if the arrays need the slow path.

        Args:
            addresses: Address of each array.
            numbers: The free scalars.
            stream: CUDA stream.
            brought: Positions of read arrays in host memory, to be copied.
        """
        if not self._fit(addresses, brought):
            return False
        kernel = self.kernel
        module = kernel.loaded(stream)
        block, count = self._block, self._count
        captured = kernel.captured(stream, brought)
        if captured and brought:
            return False
        kernel.look()
        with module.device.lock, module.device.current():
            block[:count] = list(addresses)
            for (slot, spec), value in zip(self._free, numbers, strict=True):
                number = calling.scalar(kernel.name, spec, value)
                block[slot] = calling.bits(spec, number)
            taken: list[int] = []
            if self._temporaries or brought:
                taken = self._taken(stream, brought, captured=captured)
            kernel.start(block, taken, stream, again=not (brought or captured))
            if captured:
                workspace(module.device, stream).release()
        if self._compiled is not None and not brought:
            self._compiled.loaded(stream)
        return True

    def _fit(self, addresses: Sequence[int], brought: Sequence[int]) -> bool:
        """Whether alignment and overlaps permit launching on the arrays directly."""
        for n, step in enumerate(self._alignments):
            if addresses[n] % step and n not in brought:
                return False
        size = self._bytes
        for i, j, alike in self._pairs:
            a, b = addresses[i], addresses[j]
            if a < b + size[j] and b < a + size[i] and not (alike and a == b):
                return False
        return True

    def _taken(
        self, stream: int, brought: Sequence[int], *, captured: bool
    ) -> list[int]:
        """The temporaries' addresses; copies host arrays into the same workspace."""
        block, device = self._block, self.kernel.module.device
        sizes = list(self.kernel.launcher.sizes(ctypes.addressof(block)))
        wanted = [*sizes, *(self._bytes[n] for n in brought)]
        taken = workspace(device, stream).take(wanted, stream, captured=captured)
        for n, place in zip(brought, taken[len(sizes) :], strict=True):
            if self._bytes[n]:
                cuda_driver.call(
                    "cuMemcpyHtoDAsync_v2", place, block[n], self._bytes[n], stream
                )
            block[n] = place
        return taken[: len(sizes)]

    def _carefully(self, args: Sequence[Foreign]) -> None:
        """Fall back to the slow path, with the tensors in the kernel's shapes."""
        arrays = [
            as_placed(tensor, f"{self.kernel.name}: {spec.name}").reshape(shape)
            for spec, tensor, shape in zip(
                self.kernel.signature.buffers, args, self._shapes, strict=False
            )
        ]
        self.kernel.slow(*arrays, *args[self._count :])


class LaunchCache:
    """A kernel's cached launches, by the types, shapes and dtypes of the arrays."""

    def __init__(self, kernel: CudaKernel) -> None:
        self._kernel = kernel
        self._count = len(kernel.signature.buffers)
        self._arity = self._count + len(kernel.signature.free)
        self._written = [spec.written for spec in kernel.signature.buffers]
        self._here = ("cuda", kernel.target.index)
        self._cache: dict[Hashable, CachedLaunch] = {}
        self._of_tensors: dict[bytes, Callable[..., object]] = {}

    def call(self, args: Sequence[Foreign]) -> bool:
        """Make a call; False, with nothing done, if it needs the slow path."""
        facts = self._facts(args)
        if facts is not None:
            quick = self._of_tensors.get(facts)
            if quick is not None:
                quick(*args)
            return quick is not None
        key = self.key(args)
        known = None if key is None else self._cache.get(key)
        if known is None:
            return False
        addresses: list[int] = []
        brought: list[int] = []
        stream: int | None = None
        for n, array in enumerate(args[: self._count]):
            kind = type(array)
            if kind is DeviceArray:
                addresses.append(array.memory)
                own = array.stream
            elif kind is np.ndarray:
                addresses.append(array.ctypes.data)
                brought.append(n)
                own = None
            else:
                addresses.append(array.data_ptr())
                own = stream_of(self._here[1])
            if own is not None and own != stream:
                if stream is not None:
                    return False
                stream = own
        stream = stream or cuda_driver.LEGACY
        return known.run(addresses, args[self._count :], stream, brought)

    def keep(self, args: Sequence[Foreign], shapes: Sequence[Shape]) -> None:
        """Cache a call that took the slow path and used its arrays in place."""
        facts = self._facts(args)
        if facts is not None:
            made = CachedLaunch(self._kernel, shapes)
            _add(self._of_tensors, facts, made.quick)
            return
        key = self.key(args)
        if key is not None and key not in self._cache:  # else misaligned, or an overlap
            _add(self._cache, key, CachedLaunch(self._kernel, shapes))

    def _facts(self, args: Sequence[Foreign]) -> bytes | None:
        """What is common to such calls if all arrays are PyTorch tensors, else None."""
        torch = sys.modules.get("torch")
        if torch is None or len(args) != self._arity:
            return None
        return tensor_facts.reader(torch)(*args[: self._count])

    def key(self, args: Sequence[Foreign]) -> Hashable:
        """The cache key; None if some argument needs the slow path."""
        if len(args) != self._arity:
            return None
        torch = sys.modules.get("torch")
        tensor = getattr(torch, "Tensor", None)
        found: list[Hashable] = []
        for written, array in zip(self._written, args, strict=False):
            kind = type(array)
            if kind is DeviceArray:
                if array.place.key != self._here or not array.c_contiguous:
                    return None
                if (written and not array.writeable) or array.kind == "jax":
                    return None  # JAX arrays must be kept alive: `cuda_lifetimes`
            elif kind is np.ndarray:
                if written or not (array.flags.c_contiguous and array.flags.aligned):
                    return None
            elif kind is tensor:
                if (
                    array.requires_grad
                    or array.get_device() != self._here[1]
                    or not array.is_contiguous()
                ):
                    return None
            else:
                return None
            found.append((kind, array.shape, array.dtype))
        return tuple(found)


def _add(cache: dict[Any, Any], key: Hashable, value: object) -> None:
    """Add to a cache, which forgets all before it grows too large."""
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    cache[key] = value
