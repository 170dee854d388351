"""A kernel on a GPU: its module, its calls on the caller's streams."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tensorlang.errors import ArgumentError, DeviceError, TargetError
from tensorlang.runtime import (
    calling,
    cuda_device,
    cuda_driver,
    cuda_many,
    cuda_sets,
    cuda_transfers,
    launcher,
    launcher_text,
    toolchain,
)
from tensorlang.runtime.cuda_graphs import Graphs
from tensorlang.runtime.cuda_known import Known, KnownCalls
from tensorlang.runtime.cuda_lifetimes import until_done
from tensorlang.runtime.cuda_module import Module, workspace
from tensorlang.runtime.cuda_results import current_stream
from tensorlang.runtime.device_arrays import DeviceArray
from tensorlang.runtime.device_kernel import DeviceKernel
from tensorlang.runtime.given_arrays import seen
from tensorlang.runtime.kernel import Artifact
from tensorlang.targets import Target


class CudaKernel(DeviceKernel):
    """A kernel compiled for a GPU; see `Kernel`.

    It runs on the stream where the caller's arrays are computed, and does not wait for
    its end, but where arrays in host memory are to be brought back, or where its checks
    may report a fault. An array on the GPU that begins where the kernel's wide accesses
    cannot is taken through a copy that does not: `cuda_transfers`.

    Attributes:
        ptx: NVIDIA's portable assembly, from which ptxas made the machine code.
        alignments: Bytes that the addresses of each array must be multiples of.
        has_temporaries: Whether its launches hand on arrays of their own.
    """

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._host, self._code = launcher.unpacked(artifact.wrapper_code)
        self._checks = any(["faults"] in x["args"] for x in self._host["launches"])
        self.alignments: Sequence[int] = self._host["alignments"]
        self.has_temporaries = bool(launcher_text.temporaries(self._host))
        self._known = KnownCalls(self)
        self.launch = self._quick
        alone = not self._checks and not self.has_temporaries
        if alone and cuda_sets.takes_sets(artifact.signature):
            self.each = self._each

    @cached_property
    def ptx(self) -> str:
        """NVIDIA's portable assembly of the source."""
        return toolchain.ptx_of(self.source, self.target.arch)

    @cached_property
    def asm(self) -> str:
        """SASS: the instructions of the architecture."""
        return toolchain.sass_of(self.artifact.object_code)

    @property
    def resources(self) -> Mapping[str, int]:
        """Launches, registers, and bytes of spills, stack, shared memory and code."""
        return {
            "launches": len(self._host["launches"]),
            **self._host["resources"],
            "object_bytes": len(self.artifact.object_code),
        }

    @cached_property
    def launcher(self) -> launcher.Launcher:
        """What starts all launches of a call."""
        return launcher.Launcher(self.name, self._host, self._code)

    @cached_property
    def _encode(self) -> int:
        """The address of what encodes tensor maps, where there are some."""
        if not self.launcher.has_maps:
            return 0
        return cuda_driver.address_of("cuTensorMapEncodeTiled")

    @cached_property
    def module(self) -> Module:
        """The machine code in the GPU's context, loaded at the first call.

        Raises:
            TargetError: the kernel was compiled for an architecture, not for a GPU.
        """
        if self.target.index < 0:
            raise TargetError(
                f"{self.name} is compiled for {self.target.arch} alone, for no GPU is "
                "here; use 'llvm' or 'opencl', or 'cuda' where one is"
            )
        device = cuda_device.device(self.target.index)
        of_many = [self._host["many"]] if self._host.get("many") else []
        launches = [*self._host["launches"], *of_many]
        return Module(device, self.artifact.object_code, launches)

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.module.device, self._host)

    def _quick(self, *args: object) -> None:
        """Start all launches on the arrays' stream, after a look at what may differ."""
        if not self._known.call(args):
            self._slow(*args)

    def known(self, shapes: Sequence[tuple[int, ...]]) -> Known | None:
        """What is known of calls with arrays of these shapes; None where faults may be.

        Args:
            shapes: Of all buffers, as the kernel takes them.
        """
        return None if self._checks else Known(self, shapes)

    def slow(self, *args: object) -> None:
        """Check the arguments, and start all launches on the arrays' stream."""
        self._slow(*args)

    def _slow(self, *args: object) -> None:
        module = self.module
        call = calling.prepare(self.signature, args, seen)
        there = [array for array in call.arrays if isinstance(array, DeviceArray)]
        for array in there:
            self._on_its_device(array)
        stream = next((a.stream for a in there if a.stream is not None), None)
        stream = stream or cuda_driver.LEGACY
        with module.device.lock, module.device.current():
            self._in_order(there, stream)
            code = self._run(call, module, stream)
        for target, source in call.back:
            np.copyto(target, source)
        if code:
            self._fault(code)
        if not (self._checks or call.back):
            self._remember(args, call)

    def _remember(self, args: Sequence[object], call: calling.Call) -> None:
        key = self._known.key(args)
        if key is not None:
            self._known.keep(key, [array.shape for array in call.arrays])

    def _each(self, *given: Any) -> bool:
        """Update sets of PyTorch's tensors; False where they do not fit.

        Many sets are few launches, as far as their blocks' table has room.
        """
        count = len(self.signature.buffers)
        alignments = self._host["alignments"]
        sets = cuda_sets.sets_of(
            self.signature, given[:count], self.target.index, alignments
        )
        if sets is None:
            return False
        names = zip(self.signature.free, given[count:], strict=True)
        scalars = {s.name: calling.scalar(self.name, s, v) for s, v in names}
        length = str(self.signature.buffers[0].shape[0])
        known = calling.Call([None] * count, {length: 0, **scalars})
        block = calling.block_of(self.signature, known, [0] * count)
        at = [scalar.name for scalar in self.signature.scalars].index(length)
        module = self.module
        stream = current_stream(given[0][0])
        with module.device.lock, module.device.current():
            if len(sets) > 1 and self._host.get("many"):
                cuda_many.start(self._host, module.handles, sets, block, stream)
                return True
            for elements, addresses in sets:
                block[:count] = addresses
                block[count + at] = elements
                self.start(block, [], stream, again=False)
        return True

    def _on_its_device(self, array: DeviceArray) -> None:
        if array.place.key != ("cuda", self.target.index):
            raise ArgumentError(
                f"{self.name} runs on {self.target.name}, and an array is on "
                f"{array.place.name}; move it there"
            )

    def _in_order(self, there: Iterable[DeviceArray], stream: int) -> None:
        """Have the stream wait for other streams where arrays come from."""
        others = {a.stream for a in there if a.stream is not None} - {stream}
        for other in sorted(others - ({1} if stream == cuda_driver.LEGACY else set())):
            mark = cuda_device.Event(self.module.device)
            mark.record(other)
            mark.awaited_by(stream)

    def _run(self, call: calling.Call, module: Module, stream: int) -> int:
        held = workspace(module.device, stream)
        moved = cuda_transfers.moved(call.arrays, self._host["alignments"])
        addresses = [0 if n in moved else a.memory for n, a in enumerate(call.arrays)]
        block = calling.block_of(self.signature, call, addresses)
        place = ctypes.addressof(block)
        sizes = list(self.launcher.sizes(place))
        taken = held.take([*sizes, *(call.arrays[n].nbytes for n in moved)], stream)
        copies = []
        for n, address in zip(moved, taken[len(sizes) :], strict=True):
            block[n] = address
            copies.append((self.signature.buffers[n], call.arrays[n], address))
            cuda_transfers.bring(*copies[-1], stream)
        self.start(block, taken[: len(sizes)], stream, again=not moved)
        cuda_transfers.take_back(copies, stream)
        self._after(call, stream)
        owners = [a.owner for a in call.arrays if getattr(a, "kind", "") == "jax"]
        if owners:
            until_done(module.device, stream, owners)
        return module.report(stream) if self._checks else 0

    def start(
        self, block: calling.Slots, temporaries: list[int], stream: int, *, again: bool
    ) -> None:
        """All launches: as a graph where that pays and the call is made again.

        Args:
            block: The arguments as compiled code takes them: `calling.block_of`.
            temporaries: The address of each.
            stream: Where.
            again: Whether a call with the same arguments may come.
        """
        place = ctypes.addressof(block)
        if again and self._graphs.pay and not cuda_driver.blocking():
            key = (bytes(block), tuple(temporaries))

            def start(on: int) -> None:
                self._started(place, temporaries, on)

            if self._graphs.run(key, start, stream):
                return
        self._started(place, temporaries, stream)

    def _started(self, place: int, temporaries: list[int], stream: int) -> None:
        module = self.module
        code = self.launcher(
            place,
            temporaries,
            module.faults,
            module.table,
            self._entry,
            stream,
            self._encode,
        )
        if code == launcher_text.TOO_LARGE:
            raise DeviceError(
                f"{self.name}: a launch has more blocks than a GPU starts at once; "
                "compute in parts"
            )
        if code:
            raise cuda_driver.failed(f"{self.name}: starting a launch", code)
        cuda_driver.STARTED.append(self.name)
        if cuda_driver.blocking():
            self._waited(stream)

    def _waited(self, stream: int) -> None:
        """Wait for what was started, and name the kernel where it fails."""
        try:
            cuda_driver.call("cuStreamSynchronize", stream)
        except DeviceError as error:
            made = DeviceError(f"{self.name} failed: {error}")
            made.lost = error.lost
            raise made from None

    @cached_property
    def _entry(self) -> int:
        """The address of the driver's function that starts a kernel."""
        return cuda_driver.address_of("cuLaunchKernel")

    def _after(self, call: calling.Call, stream: int) -> None:
        """Have the streams of written arrays wait for the launches."""
        for spec, array in zip(self.signature.buffers, call.arrays, strict=True):
            other = getattr(array, "stream", None)
            if spec.written and other not in (None, stream):
                mark = cuda_device.Event(self.module.device)
                mark.record(stream)
                mark.awaited_by(other)
